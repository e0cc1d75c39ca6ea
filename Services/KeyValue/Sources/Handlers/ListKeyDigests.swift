internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

private import struct Foundation.Data

extension KeyValueService {
    /// The digest of each live key, to find what differs.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func beginListKeyDigests(
        _ request: WireListKeyDigests, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<StoreOpener> {
        .read(try mending(transaction) { try openStore(request.storeID, context, transaction).opener() })
    }

    @Sendable static func readKeyDigests(
        _ opener: StoreOpener, _ feed: any FeedReader
    ) throws -> SnapshotReply {
        let head = try feed.head(opener.scope)
        var reply = WireListKeyDigestsReply()
        reply.token = WireChangeToken(head.token)
        reply.digest = Data(head.digest.bytes)
        var unreadable: [FeedItem] = []
        try feed.items(opener.scope, after: 0) { item in
            guard !item.deleted else { return true }
            var entry = WireListKeyDigestsReply.Entry()
            entry.key = item.name.rawValue
            entry.digest = Data(item.digest.bytes)
            do { _ = try opener.value(of: StoredKey(item)) } catch is DamagedValue {
                unreadable.append(item)
                return true
            }
            reply.entries.append(entry)
            return true
        }
        return SnapshotReply(Frame(encoding: reply), of: opener.scope, unreadable: unreadable)
    }
}
