internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

/// Replies to pushes, kept for repeats.
///
/// They are kept without what a repeat brings along (the names of its keys, and,
/// when all its writes were accepted as offered, their stamps), and without
/// winners' values, which come with the next pull. So nothing of the person's is
/// in them, they are small, and may outlive a closed account.
enum StoredReplies {
    private static let plain: UInt8 = 0
    /// Fields: epoch (1), sequence, sequence before, and the number of writes. There is always an epoch, so
    /// that its tag tells this form from the others.
    private static let asOffered: UInt8 = 1 << 3

    static func reply(to request: PushRequest, _ context: RequestContext, of store: KeyStore) throws -> Frame? {
        let caller = try context.requireCaller().device
        guard
            let stored = try store.transaction.reply(
                to: context.id, by: caller.rawValue, request: context.fingerprint),
            let form = stored.first
        else { return nil }
        if form == asOffered { return try reply(asOffered: stored, to: request, by: caller, of: store) }
        let bytes = [UInt8](stored.dropFirst())
        var reply = try WirePushKeysReply(serializedBytes: bytes)
        guard reply.outcomes.count == request.writes.count else { throw CloudError.operationReused }
        for (index, write) in request.writes.enumerated() { reply.outcomes[index].current.key = write.key.rawValue }
        return Frame(encoding: reply)
    }

    private static func reply(
        asOffered stored: [UInt8], to request: PushRequest, by caller: DeviceID, of store: KeyStore
    ) throws -> Frame {
        var token = ChangeToken.zero
        var previousSequence: UInt64 = 0
        var count: UInt64 = 0
        try stored.withUnsafeBytes {
            var reader = FieldReader($0)
            while let field = try reader.next() {
                switch (field.number, field.value) {
                case (1, .number(let value)): token.epoch = value
                case (2, .number(let value)): token.sequence = value
                case (3, .number(let value)): previousSequence = value
                case (4, .number(let value)): count = value
                default: break
                }
            }
        }
        guard count == request.writes.count else { throw CloudError.operationReused }
        let present = try store.transaction.token(token.sequence, in: store.partition)
        if present == token { token = present }
        return PushReply.asOffered(request, by: caller, token: token, previousSequence: previousSequence).frame()
    }

    /// Returns the reply as it is sent.
    static func remember(_ reply: PushReply, to context: RequestContext, of store: KeyStore) throws -> Frame {
        let principal = try context.requireCaller().device.rawValue
        try store.transaction.remember(
            stored(reply), of: context.id, by: principal,
            request: context.fingerprint)
        return reply.frame()
    }

    private static func stored(_ reply: PushReply) -> [UInt8] {
        guard reply.isAsOffered else {
            var fields = reply.fields(isToBeStored: true)
            return [plain] + fields.take()
        }
        var writer = FieldWriter(reserving: 32)
        writer.number(1, reply.token.epoch)
        writer.number(2, reply.token.sequence)
        writer.number(3, reply.previousSequence)
        writer.number(4, UInt64(reply.outcomes.count))
        return writer.take()
    }
}
