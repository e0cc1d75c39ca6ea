internal import NephosWire

/// What goes past others while the server's disk is full.
extension DocumentsModel {
    func makingRoom(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> {
        let documents = DocumentTransaction(rows)
        var before = HeldBack()
        var found: Set<Int64> = []
        for operation in operations {
            let footprint = try footprints.footprint(of: operation, documents)
            if footprint.makesRoom, !before.concerns(footprint) {
                found.insert(operation.position)
            } else {
                before.add(footprint, isForContent: false)
            }
        }
        return found
    }
}
