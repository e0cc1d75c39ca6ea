internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Which indexes a database has.
extension RecordsService {
    /// - Throws: ``CloudError`` `.missingEntitlement`, `.invalidArguments`, `.limitExceeded`: nothing was done.
    func modifyIndexes(
        _ request: WireModifyRecordIndexes, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireModifyRecordIndexesReply {
        let (database, access) = try openDatabase(
            request.container, request.database, context.requireCaller(), transaction)
        guard request.database == .private || access.isAdministrator else { throw Self.notAdministrator }
        guard request.save.count + request.delete.count <= RecordLimits.indexesMax else { throw Self.tooManyIndexes }
        let saved = try request.save.map { try IndexDefinition($0) }
        let deleted = try Set(request.delete.map { try IndexDefinition($0) })
        guard deleted.isDisjoint(with: saved) else {
            throw CloudError(
                .invalidArguments, "An index is to be made and removed. Decide.", details: ["argument": "delete"])
        }
        let known = try IndexRows.indexes(of: database.scope, in: transaction)
        var added: [IndexDefinition] = []
        for definition in saved where !known.contains(where: { $0.definition == definition }) {
            if !added.contains(definition) { added.append(definition) }
        }
        // Maybe there is room now.
        let again = known.filter { $0.state == .refused && saved.contains($0.definition) }
        let removed = known.filter { deleted.contains($0.definition) }
        try check(added, beside: known.filter { !deleted.contains($0.definition) }, in: database)
        guard !transaction.isShortOfRoom || added.isEmpty else { throw CloudError.diskFull }
        for index in removed {
            try IndexRows.set(.removing, of: index.number, of: database.scope, in: transaction)
        }
        for index in again {
            try IndexRows.set(.building, of: index.number, of: database.scope, in: transaction)
        }
        for definition in added {
            try IndexRows.add(definition, to: database.scope, .building, in: transaction)
        }
        if !added.isEmpty || !removed.isEmpty || !again.isEmpty {
            transaction.afterCommit { [weak self] in self?.indexing.beginSoon() }
        }
        var reply = WireModifyRecordIndexesReply()
        reply.indexes = try states(of: database)
        return reply
    }

    private func check(_ added: [IndexDefinition], beside kept: [RecordIndex], in database: RecordScope) throws {
        guard !added.isEmpty else { return }
        // Those that are being removed count: their rows are there still.
        let count = try IndexRows.count(of: database.scope, in: database.transaction)
        let types = Dictionary(grouping: kept.map(\.definition) + added, by: \.type)
        guard count + added.count <= RecordLimits.indexesMax,
            types.values.allSatisfy({ $0.count <= RecordLimits.indexesOfTypeMax })
        else { throw Self.tooManyIndexes }
    }

    private static let tooManyIndexes = CloudError(
        .limitExceeded, "The database has too many indexes. Remove some; what goes takes a while.",
        details: [
            "maximum": "\(RecordLimits.indexesMax)", "of_type_max": "\(RecordLimits.indexesOfTypeMax)",
        ])

    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func listIndexes(
        _ request: WireListRecordIndexes, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListRecordIndexesReply {
        var reply = WireListRecordIndexesReply()
        reply.indexes = try states(
            of: openDatabase(request.container, request.database, context.requireCaller(), transaction).scope)
        return reply
    }

    private func states(of database: RecordScope) throws -> [WireRecordIndexState] {
        try IndexRows.indexes(of: database.scope, in: database.transaction).map { index in
            var state = WireRecordIndexState()
            state.index = index.definition.wire
            state.state = index.isReady ? .ready : index.isRefused ? .refused : .building
            return state
        }
    }
}
