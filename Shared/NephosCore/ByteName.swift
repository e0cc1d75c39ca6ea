#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// A text that names one thing, told from others by its UTF-8 bytes.
///
/// Swift's own strings are equal when they look alike: "é" written as one
/// character and as two is one string, and so are the letter K and the Kelvin
/// sign. The wire, the databases and other languages tell such texts apart.
/// Whatever comes from outside and names something is therefore a type of
/// this kind, or is turned into one before it is compared, sorted or hashed.
///
/// Not `RawRepresentable`: the standard library compares those by their raw values.
public protocol ByteName: Hashable, Comparable, Sendable, Codable, CustomStringConvertible {
    var rawValue: String { get }
    init(rawValue: String)
}

extension ByteName {
    public init(_ rawValue: String) { self.init(rawValue: rawValue) }
    public var description: String { rawValue }

    @inlinable
    public static func == (left: Self, right: Self) -> Bool { left.rawValue.hasSameBytes(as: right.rawValue) }

    @inlinable
    public static func < (left: Self, right: Self) -> Bool { left.rawValue.precedesByBytes(right.rawValue) }

    @inlinable
    public func hash(into hasher: inout Hasher) { rawValue.hashBytes(into: &hasher) }

    public init(from decoder: any Decoder) throws {
        self.init(rawValue: try decoder.singleValueContainer().decode(String.self))
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(rawValue)
    }
}

extension String {
    /// Whether both are the same bytes, as databases and other languages compare.
    public func hasSameBytes(as other: String) -> Bool {
        withBytes { left in
            other.withBytes { right in
                guard left.count == right.count else { return false }
                guard let leftStart = left.baseAddress, let rightStart = right.baseAddress else { return true }
                return memcmp(leftStart, rightStart, left.count) == 0
            }
        }
    }

    /// Whether these are its bytes.
    public func hasBytes(_ bytes: UnsafeRawBufferPointer) -> Bool {
        withBytes { own in
            guard own.count == bytes.count else { return false }
            guard let ownStart = own.baseAddress, let start = bytes.baseAddress else { return true }
            return memcmp(ownStart, start, own.count) == 0
        }
    }

    /// Whether it begins with the same bytes as the other text.
    func beginsWithBytes(of other: String) -> Bool {
        withBytes { own in
            other.withBytes { prefix in
                guard own.count >= prefix.count else { return false }
                guard let ownStart = own.baseAddress, let start = prefix.baseAddress else { return true }
                return memcmp(ownStart, start, prefix.count) == 0
            }
        }
    }

    /// Whether one of its bytes is this one.
    func hasByte(_ byte: UInt8) -> Bool {
        withBytes { own in
            guard let start = own.baseAddress else { return false }
            return memchr(start, Int32(byte), own.count) != nil
        }
    }

    /// Whether it comes first in the order of bytes, which is also that of Unicode's code points.
    @usableFromInline
    func precedesByBytes(_ other: String) -> Bool {
        withBytes { left in
            other.withBytes { right in
                guard let leftStart = left.baseAddress, let rightStart = right.baseAddress else {
                    return left.count < right.count
                }
                let order = memcmp(leftStart, rightStart, min(left.count, right.count))
                return order == 0 ? left.count < right.count : order < 0
            }
        }
    }

    @usableFromInline
    func hashBytes(into hasher: inout Hasher) {
        withBytes { hasher.combine(bytes: UnsafeRawBufferPointer($0)) }
        // No UTF-8 has this byte, so that two names after one another are not one longer name.
        hasher.combine(0xff as UInt8)
    }

    /// The text's bytes, valid during the call. Unlike `withUTF8` it needs no copy of the text that it could change, and
    /// so counts no references: that is done a dozen times for every write.
    @inlinable
    public func withUTF8Bytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        if let result = try utf8.withContiguousStorageIfAvailable({ try body(UnsafeRawBufferPointer($0)) }) {
            return result
        }
        var copy = self
        return try copy.withUTF8 { try body(UnsafeRawBufferPointer($0)) }
    }

    /// Without copying, unless the text came from Objective-C.
    private func withBytes<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
        if let result = utf8.withContiguousStorageIfAvailable(body) { return result }
        var copy = self
        return copy.withUTF8(body)
    }
}
