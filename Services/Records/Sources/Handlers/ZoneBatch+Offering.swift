internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What devices offer again, as the service knows it by its own words.
extension ZoneBatch {
    /// The record as the service had it before it was restored, or before it was damaged; nil: it is a save like any other.
    func former(
        _ save: WireSaveRecord, _ name: ItemName, over state: SaveRule.State
    ) throws -> WireRecord? {
        guard save.seal != 0 else { return nil }
        var all = save
        all.replace = true
        let record = SaveRule.made(all, from: WireRecord(), created: save.created, save.modified)
        let isOwn = try OwnWords(record, named: name, in: zone.scope).areOwn(
            save.seal, at: save.modified.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
        return try isOwn || isWhatIsDamaged(record, name, state) ? record : nil
    }

    /// Whether this very record is the one that cannot be read any more: its share in the digest, which has its seal too,
    /// says so.
    func isWhatIsDamaged(_ record: WireRecord, _ name: ItemName, _ state: SaveRule.State) throws -> Bool {
        guard state.isDamaged, let item = damaged.first(where: { $0.name == name }), item.showing == .item,
            let key = try zone.digestKey()
        else { return false }
        return try item.digest == SetDigest(ofItem: name, body: planned(record, name).body, key: key)
    }

    func isFormer(_ deletion: WireDeleteRecord, _ name: ItemName) throws -> Bool {
        guard deletion.seal != 0 else { return false }
        return try OwnWords(
            deletionOf: deletion.version, type: deletion.type, by: deletion.deleted, of: name, in: zone.scope
        ).areOwn(
            deletion.seal, at: deletion.deleted.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
    }
}
