internal import Crypto

/// Names an item of a container, a version of its content, a place, or what was deleted in one go: 16 bytes, chosen at
/// random by the device that makes it, and never used again.
public struct DocumentID: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// Bytes of an id.
    public static let byteCount = 16
    /// The container's top folder, private to the app.
    public static let top = DocumentID(high: 0, low: 0)
    /// `Documents` in it, which the person sees.
    public static let documents = DocumentID(high: 0, low: 1)

    private let high: UInt64
    private let low: UInt64

    private init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// - Returns: Nil if there are not 16 bytes.
    public init?(bytes: some Collection<UInt8>) {
        let whole = bytes.withContiguousStorageIfAvailable { bytes -> DocumentID? in
            guard bytes.count == Self.byteCount else { return nil }
            let bytes = UnsafeRawBufferPointer(bytes)
            return DocumentID(
                high: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
                low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
        }
        if let whole {
            guard let whole else { return nil }
            self = whole
            return
        }
        guard bytes.count == Self.byteCount else { return nil }
        let words = bytes.reduce(into: (high: UInt64(0), low: UInt64(0))) { words, byte in
            words.high = words.high << 8 | words.low >> 56
            words.low = words.low << 8 | UInt64(byte)
        }
        self.init(high: words.high, low: words.low)
    }

    /// From the name that the item has in its container's feed.
    ///
    /// - Returns: Nil if there are not 32 lowercase hexadecimal digits.
    public init?(_ name: ItemName) { self.init(name.rawValue) }

    /// - Returns: Nil if there are not 32 lowercase hexadecimal digits.
    public init?(_ text: String) {
        guard text.utf8.count == 2 * Self.byteCount else { return nil }
        var words = (high: UInt64(0), low: UInt64(0))
        for digit in text.utf8 {
            let value: UInt8
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = digit - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = digit - UInt8(ascii: "a") + 10
            default: return nil
            }
            words.high = words.high << 4 | words.low >> 60
            words.low = words.low << 4 | UInt64(value)
        }
        self.init(high: words.high, low: words.low)
    }

    public static func random(using generator: inout some RandomNumberGenerator) -> DocumentID {
        DocumentID(high: generator.next(), low: generator.next())
    }

    /// What names, in each container, that which a device is about to make: the first 16 bytes of the SHA-256 of
    /// `nephos coming/` and the device's id.
    public static func coming(from device: DeviceID) -> DocumentID {
        let digest = SHA256.hash(data: Array("nephos coming/\(device.rawValue)".utf8))
        return DocumentID(bytes: Array(digest.prefix(byteCount))) ?? .top
    }

    /// The 16 bytes on the wire.
    public var bytes: [UInt8] {
        withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { [UInt8]($0) }
    }

    /// 32 lowercase hexadecimal digits: its name in the feed.
    public var name: ItemName {
        ItemName(
            String(unsafeUninitializedCapacity: 2 * Self.byteCount) { room in
                for (start, word) in [(0, high), (16, low)] {
                    for place in 0..<16 {
                        let digit = UInt8(truncatingIfNeeded: word >> UInt64(60 - 4 * place) & 15)
                        room[start + place] = digit + (digit < 10 ? UInt8(ascii: "0") : UInt8(ascii: "a") - 10)
                    }
                }
                return 2 * Self.byteCount
            })
    }

    public var description: String { name.rawValue }

    /// By their bytes.
    public static func < (left: DocumentID, right: DocumentID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }

    /// Whether every container has it, without a row.
    public var isFixed: Bool { high == 0 && low <= 1 }
}
