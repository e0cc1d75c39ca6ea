internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

extension KeyValueService {
    /// What a page of the history may cost, in calls: 1 MiB, and 1024 rows.
    static let historyReserves = 320
    /// Entries in one reply, if the request does not say.
    private static let historyLimit = 100
    private static let historyLimitMax = 1000
    /// More than a store can have: entries of no bytes count 256.
    private static let entriesMax = KeyHistory.bytesPerStoreMax / 256
    /// Bytes of values in one reply, after which it ends: a frame has its limit.
    private static let historyBytesMax = 2 << 20

    /// What of a store's history is to be read.
    struct HistoryPage: Sendable {
        var opener: StoreOpener
        /// Nil: of all keys.
        var key: ItemName?
        var limit: Int
        var skip: Int
        var conflictsOnly: Bool
    }

    /// What lost or was overwritten, newest first; fewer than asked for when the values are large.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func beginListKeyHistory(
        _ request: WireListKeyHistory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<HistoryPage> {
        return .read(
            HistoryPage(
                opener: try mending(transaction) { try openStore(request.storeID, context, transaction).opener() },
                key: request.key.isEmpty ? nil : ItemName(request.key),
                limit: request.limit == 0 ? Self.historyLimit : min(Int(request.limit), Self.historyLimitMax),
                skip: min(Int(request.skip), Self.entriesMax), conflictsOnly: request.conflictsOnly))
    }

    @Sendable static func readKeyHistory(_ page: HistoryPage, _ feed: any FeedReader) throws -> Frame {
        var reply = WireListKeyHistoryReply()
        var bytes = 0
        let places = try KeyHistory.places(
            of: page.opener.scope, key: page.key, conflictsOnly: page.conflictsOnly, skip: page.skip,
            limit: page.limit + 1, in: feed)
        for place in places {
            bytes += place.size
            reply.more = reply.entries.count == page.limit || bytes > historyBytesMax && !reply.entries.isEmpty
            if reply.more { break }
            guard let entry = try KeyHistory.entry(at: place, in: feed) else { continue }
            var wire = WireKeyHistoryEntry()
            wire.item = item(entry.loser)
            do {
                if let value = try page.opener.value(of: entry.loser) {
                    wire.item.value = try WirePropertyValue(serializedBytes: value)
                }
            } catch {
                wire.damaged = true
            }
            wire.lostConflict = entry.lostConflict
            wire.winnerTimestamp = entry.winner.timestamp.rawValue
            wire.winnerDeviceID = entry.winner.device.rawValue
            wire.recordedAt = entry.recordedAt.milliseconds
            reply.entries.append(wire)
        }
        return Frame(encoding: reply)
    }

    private static func item(_ stored: StoredKey) -> WireKeyValueItem {
        var item = WireKeyValueItem()
        item.key = stored.key.rawValue
        item.timestamp = stored.stamp.timestamp.rawValue
        item.deviceID = stored.stamp.device.rawValue
        item.sequence = stored.sequence
        return item
    }
}
