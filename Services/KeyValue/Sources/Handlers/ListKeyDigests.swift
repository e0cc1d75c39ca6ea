internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

private import struct Foundation.Data

extension KeyValueService {
    /// The digest of each live key, to find what differs.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`.
    func listKeyDigests(
        _ request: WireListKeyDigests, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListKeyDigestsReply {
        let store = try openStore(request.storeID, context, transaction)
        let head = try store.head()
        var reply = WireListKeyDigestsReply()
        reply.token = WireChangeToken(head.token)
        reply.digest = Data(head.digest.bytes)
        try transaction.items(store.scope, after: 0) { item in
            guard !item.deleted else { return true }
            var entry = WireListKeyDigestsReply.Entry()
            entry.key = item.name.rawValue
            entry.digest = Data(item.digest.bytes)
            do { _ = try store.value(of: StoredKey(item)) } catch is DamagedValue { entry.damaged = true }
            reply.entries.append(entry)
            return true
        }
        return reply
    }
}
