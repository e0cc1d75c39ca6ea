public import Foundation
internal import NephosCore

/// Names an item of a container, a version of content, a place, or what was deleted in one go: 16 bytes, chosen at
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

    init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    /// - Returns: Nil if there are not 16 bytes.
    public init?(bytes: Data) {
        guard bytes.count == Self.byteCount else { return nil }
        (high, low) = bytes.withUnsafeBytes {
            (
                UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)),
                UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
            )
        }
    }

    /// As the feed names the item: 32 lowercase hexadecimal digits.
    ///
    /// - Returns: Nil if it is anything else.
    public init?(_ text: String) {
        var words: [UInt64] = [0, 0]
        guard text.utf8.count == 2 * Self.byteCount else { return nil }
        for (index, digit) in text.utf8.enumerated() {
            let value: UInt8
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = digit - UInt8(ascii: "0")
            case UInt8(ascii: "a")...UInt8(ascii: "f"): value = digit - UInt8(ascii: "a") + 10
            default: return nil
            }
            words[index / 16] = words[index / 16] << 4 | UInt64(value)
        }
        self.init(high: words[0], low: words[1])
    }

    /// The 16 bytes on the wire.
    public var bytes: Data { withUnsafeBytes(of: (high.bigEndian, low.bigEndian)) { Data($0) } }

    /// 32 lowercase hexadecimal digits.
    public var description: String {
        [high, low].map { word in
            let digits = String(word, radix: 16)
            return String(repeating: "0", count: 16 - digits.count) + digits
        }.joined()
    }

    var itemName: ItemName { ItemName(description) }

    /// By their bytes.
    public static func < (left: DocumentID, right: DocumentID) -> Bool {
        (left.high, left.low) < (right.high, right.low)
    }

    /// Whether every container has this folder without a row.
    var isFixed: Bool { self == .top || self == .documents }
}
