internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What devices offer again, as the service knows it by its own words.
extension ZoneBatch {
    /// The record as the service had it before it was restored, or before it went to the quarantine; nil: it is a save like
    /// any other.
    func former(_ save: WireSaveRecord, _ name: ItemName, isReturning: Bool) throws -> WireRecord? {
        guard save.seal != 0 else { return nil }
        var all = save
        all.replace = true
        let record = SaveRule.made(all, from: WireRecord(), created: save.created, save.modified)
        let words = try OwnWords(record, named: name, in: zone.scope)
        let isOwn = try words.areOwn(
            save.seal, at: save.modified.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
        return try isOwn || isReturning && words.areOwn(save.seal, in: zone.transaction) ? record : nil
    }

    func isFormer(_ deletion: WireDeleteRecord, _ name: ItemName) throws -> Bool {
        guard deletion.seal != 0 else { return false }
        return try OwnWords(
            deletionOf: deletion.version, type: deletion.type, by: deletion.deleted, of: name, in: zone.scope
        ).areOwn(
            deletion.seal, at: deletion.deleted.time, ofPartition: zone.scope.partition, in: zone.transaction, now: now)
    }
}
