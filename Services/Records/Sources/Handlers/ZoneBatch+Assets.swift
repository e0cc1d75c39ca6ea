internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What becomes of the assets of records.
extension ZoneBatch {
    /// What becomes of a record's assets. What goes with a deletion is given back in steps.
    private func assets(of name: ItemName) throws -> (added: Set<StoredAsset>, removed: Set<StoredAsset>) {
        guard let planned = records[name].flatMap({ $0 }) else { return ([], []) }
        let before = try stored(name).assets
        return (planned.assets.subtracting(before), before.subtracting(planned.assets))
    }

    /// Checks that everything is there that the records' assets rest on.
    func checkAssets(_ places: [ItemName: Int], _ failures: inout [Int: CloudError]) throws {
        for name in changed {
            let (added, removed) = try assets(of: name)
            assetsChanged += added.count + removed.count
            guard let cause = places[name], failures[cause] == nil, assetsChanged <= room.assets else { continue }
            let unchecked = try contents.unchecked(added, of: name, in: zone.scope)
            guard !unchecked.isEmpty else { continue }
            do {
                try contents.check(unchecked, of: name, in: zone.scope, zone.transaction)
            } catch let error as CloudError { failures[cause] = error }
        }
        for name in overwritten where keepsAssets { assetsChanged += try stored(name).assets.count }
        guard assetsChanged <= room.assets else { throw RequestRoom.tooManyAssets }
    }

    /// Whether what is overwritten by force is kept with its assets. In a public database whoever makes a record under a
    /// name anew would have those of the one before.
    var keepsAssets: Bool { !zone.scope.owner.isApp }

    // MARK: Writing

    func writeAssets(of name: ItemName) throws {
        let rows = AssetRows(rows: zone.rows)
        guard !isDeleted(name) else {
            if try !stored(name).assets.isEmpty { try rows.retire(name, at: zone.head().token.sequence) }
            return
        }
        let (added, removed) = try assets(of: name)
        let readers = try writeReaders(of: name)
        guard !added.isEmpty || !removed.isEmpty else { return }
        let taken = try contents.take(added, givingBack: removed, of: name, in: zone.scope, zone.transaction)
        try rows.remove(removed, of: name)
        try rows.add(taken, of: name, readers: readers)
    }

    /// Who may read its assets, as far as that is said by the record and not by roles.
    private func writeReaders(of name: ItemName) throws -> String {
        guard zone.scope.owner.isApp, let planned = records[name].flatMap({ $0 }) else { return "" }
        let readers = RecordReaders(planned.record).rawValue
        let before = try stored(name)
        // A record keeps its type and its creator; but one that a device brings back may have had others.
        if before.state.isThere, before.state.record.map({ RecordReaders($0).rawValue }) != readers {
            try AssetRows(rows: zone.rows).setReaders(readers, of: name)
        }
        return readers
    }
}
