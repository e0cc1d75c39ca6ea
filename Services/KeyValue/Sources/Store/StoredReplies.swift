internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import SwiftProtobuf
internal import Wire

/// Replies to pushes, kept for repeats.
///
/// One that holds values is sealed, as the values at rest are. Any other is kept
/// without what a repeat brings along: the names of its keys, and, when all its
/// writes were accepted as offered, their stamps. So nothing of the person's is
/// in it, and it may outlive a closed account.
enum StoredReplies {
    private static let plain: UInt8 = 0
    private static let sealed: UInt8 = 1
    /// Epoch, sequence, sequence before, and the number of writes.
    private static let asOffered: UInt8 = 2

    static func reply(to request: WirePushKeys, _ context: RequestContext, of store: KeyStore) throws -> Frame? {
        let caller = try context.requireCaller().device
        guard let stored = try store.transaction.reply(to: context.id, by: caller.rawValue), let form = stored.first
        else { return nil }
        let bytes = [UInt8](stored.dropFirst())
        if form == sealed { return Frame(try store.open(Sealed(bytes: bytes), as: .reply(context.id))) }
        if form == asOffered, bytes.count == 32 {
            let numbers = bytes.withUnsafeBytes { bytes in
                (0..<4).map { UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: $0 * 8, as: UInt64.self)) }
            }
            guard numbers[3] == request.writes.count else { throw otherRequest }
            let token = ChangeToken(epoch: numbers[0], sequence: numbers[1])
            return Frame(PushReply.asOffered(request, by: caller, token: token, previousSequence: numbers[2]).encoded())
        }
        var reply = try WirePushKeysReply(serializedBytes: bytes)
        guard reply.outcomes.count == request.writes.count else { throw otherRequest }
        for (index, write) in request.writes.enumerated() { reply.outcomes[index].current.key = write.key }
        return Frame(encoding: reply)
    }

    /// Returns the reply as it is sent.
    static func remember(_ reply: PushReply, to context: RequestContext, of store: KeyStore) throws -> Frame {
        let principal = try context.requireCaller().device.rawValue
        let bytes = reply.encoded()
        try store.transaction.remember(
            try stored(reply, encoded: bytes, to: context, of: store), of: context.id, by: principal)
        return Frame(bytes)
    }

    private static func stored(
        _ reply: PushReply, encoded: [UInt8], to context: RequestContext, of store: KeyStore
    ) throws -> [UInt8] {
        if reply.holdsValues { return [sealed] + (try store.seal(encoded, as: .reply(context.id)).bytes) }
        guard reply.isAsOffered else { return [plain] + reply.encoded(namingKeys: false) }
        let numbers = (
            reply.token.epoch.bigEndian, reply.token.sequence.bigEndian, reply.previousSequence.bigEndian,
            UInt64(reply.outcomes.count).bigEndian
        )
        return withUnsafeBytes(of: numbers) { numbers in
            [UInt8](unsafeUninitializedCapacity: 33) { bytes, count in
                bytes[0] = asOffered
                UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(bytes)[1...])
                    .copyMemory(from: numbers)
                count = 33
            }
        }
    }

    private static var otherRequest: CloudError {
        CloudError(.invalidArguments, "The request is another than the first of this operation id.")
    }
}
