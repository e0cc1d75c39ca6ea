internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import SwiftProtobuf
internal import Wire

/// Replies to pushes, kept for repeats.
///
/// One that holds values is sealed, as the values at rest are. Any other is kept
/// without the names of its keys, which a repeat brings along: nothing of the
/// person's is in it, so it may outlive a closed account.
enum StoredReplies {
    private static let plain: UInt8 = 0
    private static let sealed: UInt8 = 1

    static func reply(to request: WirePushKeys, _ context: RequestContext, of store: KeyStore) throws -> Frame? {
        let principal = try context.requireCaller().device.rawValue
        guard let stored = try store.transaction.reply(to: context.id, by: principal), let form = stored.first
        else { return nil }
        let bytes = [UInt8](stored.dropFirst())
        if form == sealed { return Frame(try store.open(Sealed(bytes: bytes), as: .reply(context.id))) }
        var reply = try WirePushKeysReply(serializedBytes: bytes)
        guard reply.outcomes.count == request.writes.count else {
            throw CloudError(.invalidArguments, "The request is another than the first of this operation id.")
        }
        for (index, write) in request.writes.enumerated() { reply.outcomes[index].current.key = write.key }
        return Frame(encoding: reply)
    }

    /// Returns the reply as it is sent.
    static func remember(_ reply: PushReply, to context: RequestContext, of store: KeyStore) throws -> Frame {
        let principal = try context.requireCaller().device.rawValue
        let bytes = reply.encoded()
        let stored =
            reply.holdsValues
            ? [sealed] + (try store.seal(bytes, as: .reply(context.id)).bytes)
            : [plain] + reply.encoded(namingKeys: false)
        try store.transaction.remember(stored, of: context.id, by: principal)
        return Frame(bytes)
    }
}
