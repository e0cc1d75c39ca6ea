internal import Core
internal import ServiceKit
internal import Wire

extension KeyValueService {
    /// Entries in one reply, if the request does not say.
    private static let historyLimit = 100
    private static let historyLimitMax = 1000
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
        try KeyHistory.entries(
            of: store.scope, key: request.key.isEmpty ? nil : ItemName(request.key), skip: Int(request.skip),
            limit: limit + 1, in: transaction
        ) { entry in
            bytes += entry.loser.size
            reply.more = reply.entries.count == limit || bytes > Self.historyBytesMax && !reply.entries.isEmpty
            if reply.more { return false }
            var wire = WireKeyHistoryEntry()
            do { wire.item = try store.item(entry.loser, withValue: true) } catch is DamagedValue { return true }
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
