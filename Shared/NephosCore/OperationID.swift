/// Names one request, and doubles as its operation id: a repeat under the same
/// id gets the first reply.
///
/// A UUID of version 7 (RFC 9562): the first 48 bits are milliseconds since
/// 1970, so that ids of one time lie side by side in the operation table and
/// the table can be pruned by id alone.
public struct OperationID: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// Bytes on the wire.
    public static let byteCount = 16

    public let high: UInt64
    public let low: UInt64

    /// The id with these 128 bits.
    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// A fresh id.
    public init(at time: Timestamp, using generator: inout some RandomNumberGenerator) {
        let random = generator.next()
        high = time.milliseconds << 16 | 0x7000 | (random & 0x0fff)
        low = 0x8000_0000_0000_0000 | (generator.next() >> 2)
    }

    /// A fresh id from the system's random numbers.
    public init(at time: Timestamp) {
        var generator = SystemRandomNumberGenerator()
        self.init(at: time, using: &generator)
    }

    /// The id in these 16 bytes, or nil if there are not 16.
    // Inlinable: without its type known, walking the bytes costs a microsecond of each request.
    @inlinable
    public init?(bytes: some Collection<UInt8>) {
        guard bytes.count == Self.byteCount else { return nil }
        var high: UInt64 = 0
        var low: UInt64 = 0
        for (offset, byte) in bytes.enumerated() {
            if offset < 8 { high = high << 8 | UInt64(byte) } else { low = low << 8 | UInt64(byte) }
        }
        self.init(high: high, low: low)
    }

    /// The id written as a UUID, or nil if the text is not one.
    public init?(_ text: String) {
        let digits = text.utf8.filter { $0 != UInt8(ascii: "-") }
        guard digits.count == 32, let digitsText = String(validating: digits, as: UTF8.self),
            let high = UInt64(digitsText.prefix(16), radix: 16), let low = UInt64(digitsText.suffix(16), radix: 16)
        else { return nil }
        self.init(high: high, low: low)
    }

    /// The 16 bytes on the wire, most significant first.
    public var bytes: [UInt8] {
        withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { [UInt8]($0) }
    }

    /// When the id was made, by its maker's clock.
    public var time: Timestamp { Timestamp(milliseconds: high >> 16) }

    /// The smallest id of this time: everything below is older.
    public static func lowerBound(at time: Timestamp) -> OperationID {
        OperationID(high: time.milliseconds << 16, low: 0)
    }

    public static func < (left: OperationID, right: OperationID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }

    public var description: String {
        func hex(_ value: UInt64, _ digits: Int) -> String {
            let text = String(value, radix: 16)
            return String(repeating: "0", count: digits - text.count) + text
        }
        let parts = [
            hex(high >> 32, 8), hex(high >> 16 & 0xffff, 4), hex(high & 0xffff, 4),
            hex(low >> 48, 4), hex(low & 0xffff_ffff_ffff, 12),
        ]
        return parts.joined(separator: "-")
    }
}
