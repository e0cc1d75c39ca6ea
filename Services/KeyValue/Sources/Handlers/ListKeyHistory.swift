internal import Core
internal import ServiceKit
internal import Wire

extension KeyValueService {
    /// Entries in one reply, if the request does not say.
    private static let historyLimit = 100
    private static let historyLimitMax = 1000
    /// More than a store can have: entries of no bytes count 256.
    private static let entriesMax = KeyHistory.bytesPerStoreMax / 256
    /// Bytes of values in one reply, after which it ends: a frame has its limit.
    private static let historyBytesMax = 2 << 20

    /// What lost or was overwritten, newest first; fewer than asked for when the values are large.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func listKeyHistory(
        _ request: WireListKeyHistory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListKeyHistoryReply {
        let store = try openStore(request.storeID, context, transaction)
        let limit = request.limit == 0 ? Self.historyLimit : min(Int(request.limit), Self.historyLimitMax)
        var reply = WireListKeyHistoryReply()
        var bytes = 0
        // Damaged ones among them, which are left out.
        var read = 0
        // The database passes over them one by one.
        transaction.charge(rows: min(Int(request.skip), Self.entriesMax))
        try KeyHistory.entries(
            of: store.scope, key: request.key.isEmpty ? nil : ItemName(request.key),
            skip: min(Int(request.skip), Self.entriesMax),
            limit: limit + 1, in: transaction
        ) { entry in
            bytes += entry.loser.size
            reply.more = read == limit || bytes > Self.historyBytesMax && !reply.entries.isEmpty
            if reply.more { return false }
            read += 1
            var wire = WireKeyHistoryEntry()
            do { wire.item = try store.item(entry.loser) } catch is DamagedValue { return true }
            wire.lostConflict = entry.lostConflict
            wire.winnerTimestamp = entry.winner.timestamp.rawValue
            wire.winnerDeviceID = entry.winner.device.rawValue
            wire.recordedAt = entry.recordedAt.milliseconds
            reply.entries.append(wire)
            return true
        }
        return reply
    }
}
