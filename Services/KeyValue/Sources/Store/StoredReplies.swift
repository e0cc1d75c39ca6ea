internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

/// Replies to pushes, kept for repeats. One that holds values is sealed: the
/// values at rest are too.
enum StoredReplies {
    private static let plain: UInt8 = 0
    private static let sealed: UInt8 = 1

    static func reply(to context: RequestContext, of store: KeyStore) throws -> Frame? {
        let principal = try context.requireCaller().device.rawValue
        guard let stored = try store.transaction.reply(to: context.id, by: principal), let form = stored.first
        else { return nil }
        var bytes = [UInt8](stored.dropFirst())
        if form == sealed { bytes = try store.open(Sealed(bytes: bytes), as: .reply(context.id)) }
        return Frame(bytes)
    }

    /// Returns the reply as it is sent.
    static func remember(_ reply: PushReply, to context: RequestContext, of store: KeyStore) throws -> Frame {
        let principal = try context.requireCaller().device.rawValue
        let bytes = reply.encoded
        let stored =
            reply.holdsValues
            ? [sealed] + (try store.seal(bytes, as: .reply(context.id)).bytes) : [plain] + bytes
        try store.transaction.remember(stored, of: context.id, by: principal)
        return Frame(bytes)
    }
}
