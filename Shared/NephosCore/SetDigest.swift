internal import Crypto

/// A digest of a set of items that does not depend on their order, and that is
/// kept up to date by adding and removing single items.
///
/// Each item is hashed with SHA-256, and the hashes are added lane by lane,
/// modulo 2^64 (an additive multiset hash; Bellare and Micciancio, 1997). Equal
/// sets have equal digests; it finds every accident, and is not meant to
/// withstand someone who constructs collisions within their own store.
public struct SetDigest: Hashable, Sendable, CustomStringConvertible {
    /// Bytes of a digest.
    public static let byteCount = 32

    private var lanes: SIMD4<UInt64>

    /// The digest of the empty set.
    public static let empty = SetDigest(lanes: .zero)

    private init(lanes: SIMD4<UInt64>) { self.lanes = lanes }

    /// The digest of the set with this one item, given as canonical bytes.
    @inlinable
    public init(ofItem bytes: some Sequence<UInt8>) {
        self.init(hashing: [UInt8](bytes))
    }

    /// The share of an item with this encoded state in its scope's digest.
    ///
    /// - Parameter key: The scope's, so that digests at rest tell nothing.
    public init(ofItem name: ItemName, body: some Sequence<UInt8>, key: [UInt8]) {
        self.init(hashing: key + name.utf8 + [0] + body)
    }

    /// The same, of bytes that lie somewhere: nothing is copied.
    public init(ofItem bytes: UnsafeRawBufferPointer) {
        var hash = SHA256()
        hash.update(bufferPointer: bytes)
        lanes = hash.finalize().withUnsafeBytes { $0.loadUnaligned(as: SIMD4<UInt64>.self) }
    }

    @usableFromInline
    init(hashing bytes: [UInt8]) { self = bytes.withUnsafeBytes { SetDigest(ofItem: $0) } }

    /// The digest in these 32 bytes, or nil if there are not 32.
    @inlinable
    public init?(bytes: some Collection<UInt8>) {
        self.init(stored: [UInt8](bytes))
    }

    @usableFromInline
    init?(stored bytes: [UInt8]) {
        guard bytes.count == Self.byteCount else { return nil }
        lanes = bytes.withUnsafeBytes { $0.loadUnaligned(as: SIMD4<UInt64>.self) }
    }

    /// The 32 bytes on the wire.
    public var bytes: [UInt8] { withUnsafeBytes(of: lanes) { [UInt8]($0) } }

    /// The first eight bytes, least significant first: enough to find an accident.
    public var mark: UInt64 { lanes[0].littleEndian }

    /// The bytes of ``mark``.
    public var markBytes: [UInt8] { withUnsafeBytes(of: mark) { [UInt8]($0) } }

    public mutating func add(_ other: SetDigest) { lanes &+= other.lanes }
    public mutating func remove(_ other: SetDigest) { lanes &-= other.lanes }

    /// Lower-case hexadecimal.
    public var description: String {
        bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// The first eight hexadecimal digits, for people to compare.
    public var short: String { String(description.prefix(8)) }
}
