/// What a request asks for, in eight bytes: its method and its body.
///
/// Kept with the reply, so that a repeat is told from another request under the
/// same id. A hash without a key (multiply and fold, as in wyhash): whoever
/// constructs two requests alike deceives nobody but themselves, because an id
/// is looked for among its own caller's only.
public struct RequestFingerprint: Hashable, Sendable {
    public let rawValue: UInt64

    public init(rawValue: UInt64) { self.rawValue = rawValue }

    /// Of nothing: for what is no request.
    public static let none = RequestFingerprint(rawValue: 0)

    /// - Parameter body: As it arrived. The same message encoded in another way counts as another.
    public init(method: String, body: UnsafeRawBufferPointer) {
        let seed = method.withUTF8Bytes { Self.hash($0, seed: 0) }
        rawValue = Self.hash(body, seed: seed)
    }

    private static func hash(_ bytes: UnsafeRawBufferPointer, seed: UInt64) -> UInt64 {
        var hash = seed ^ UInt64(bytes.count) &* 0x9e37_79b9_7f4a_7c15
        var place = 0
        while place + 8 <= bytes.count {
            hash = mix(hash ^ UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self)))
            place += 8
        }
        var rest: UInt64 = 0
        while place < bytes.count {
            rest = rest << 8 | UInt64(bytes[place])
            place += 1
        }
        return mix(hash ^ rest)
    }

    private static func mix(_ value: UInt64) -> UInt64 {
        let product = (value ^ 0xa076_1d64_78bd_642f).multipliedFullWidth(by: 0xe703_7ed1_a0b4_28db)
        return product.high ^ product.low
    }
}
