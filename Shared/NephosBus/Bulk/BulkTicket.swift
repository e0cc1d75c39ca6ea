/// Leave to move content, for a time, on connections of the key that asked for it: 16 random bytes.
public struct BulkTicket: Hashable, Sendable {
    /// Bytes on the wire.
    public static let byteCount = 16
    /// No ticket: 16 zeros.
    public static let none = BulkTicket(high: 0, low: 0)

    private let high: UInt64
    private let low: UInt64

    private init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// A fresh one.
    public init(using generator: inout some RandomNumberGenerator) {
        self.init(high: generator.next(), low: generator.next())
    }

    /// - Returns: Nil if there are not 16 bytes.
    public init?(bytes: UnsafeRawBufferPointer) {
        guard bytes.count == Self.byteCount else { return nil }
        self.init(
            high: bytes.loadUnaligned(as: UInt64.self), low: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    /// The 16 bytes on the wire.
    public var bytes: [UInt8] { withUnsafeBytes(of: (high, low)) { [UInt8]($0) } }

    func write(to bytes: UnsafeMutableRawBufferPointer) {
        bytes.storeBytes(of: high, as: UInt64.self)
        bytes.storeBytes(of: low, toByteOffset: 8, as: UInt64.self)
    }
}
