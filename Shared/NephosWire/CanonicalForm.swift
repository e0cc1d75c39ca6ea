internal import NephosCore

private import struct Foundation.Date

/// Tells whether an encoded `PropertyValue` is in canonical form, by looking at it where it lies.
///
/// It says yes only where decoding and encoding anew would give the same bytes
/// (`CanonicalFormTests`). Where it says no, that has to be done, and may show
/// that it is canonical after all, or no value.
public enum CanonicalForm {
    public static func has(_ value: UnsafeRawBufferPointer) -> Bool {
        has(value, depthLeft: PropertyValue.depthMax)
    }

    private static func has(_ value: UnsafeRawBufferPointer, depthLeft: Int) -> Bool {
        var reader = ProtobufReader(value)
        guard let tag = reader.byte() else { return false }
        switch tag {
        case 1 << 3:
            guard let flag = reader.byte(), flag <= 1 else { return false }
        case 2 << 3:
            guard reader.varint() != nil else { return false }
        case 3 << 3 | 1:
            guard let bits = reader.take(8)?.loadUnaligned(as: UInt64.self),
                Double(bitPattern: UInt64(littleEndian: bits)).isFinite
            else { return false }
        case 4 << 3 | 2:
            guard let text = reader.part(), isText(text) else { return false }
        case 5 << 3:
            guard let encoded = reader.varint() else { return false }
            return reader.isAtEnd && isExactDate(Int64(bitPattern: encoded >> 1) ^ -Int64(encoded & 1))
        case 6 << 3 | 2:
            guard reader.part() != nil else { return false }
        case 7 << 3 | 2:
            guard depthLeft > 0, let array = reader.part(), hasArray(array, depthLeft - 1) else { return false }
        case 8 << 3 | 2:
            guard depthLeft > 0, let dictionary = reader.part(), hasDictionary(dictionary, depthLeft - 1) else {
                return false
            }
        default: return false
        }
        return reader.isAtEnd
    }

    private static func hasArray(_ array: UnsafeRawBufferPointer, _ depthLeft: Int) -> Bool {
        var reader = ProtobufReader(array)
        while !reader.isAtEnd {
            guard reader.byte() == 1 << 3 | 2, let value = reader.part(), has(value, depthLeft: depthLeft) else {
                return false
            }
        }
        return true
    }

    private static func hasDictionary(_ dictionary: UnsafeRawBufferPointer, _ depthLeft: Int) -> Bool {
        var reader = ProtobufReader(dictionary)
        var previous: UnsafeRawBufferPointer?
        while !reader.isAtEnd {
            guard reader.byte() == 1 << 3 | 2, let entry = reader.part() else { return false }
            var parts = ProtobufReader(entry)
            var key = UnsafeRawBufferPointer(rebasing: entry[0..<0])
            guard var tag = parts.byte() else { return false }
            if tag == 1 << 3 | 2 {
                guard let given = parts.part(), !given.isEmpty, isText(given), let next = parts.byte() else {
                    return false
                }
                key = given
                tag = next
            }
            guard tag == 2 << 3 | 2, let value = parts.part(), parts.isAtEnd, has(value, depthLeft: depthLeft),
                previous.map({ $0.lexicographicallyPrecedes(key) }) != false
            else { return false }
            previous = key
        }
        return true
    }

    private static func isText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        if bytes.allSatisfy({ $0 < 0x80 }) { return true }
        return String(validating: bytes, as: UTF8.self) != nil
    }

    /// Whether the microseconds come out of a `Date` as they went in.
    private static func isExactDate(_ microseconds: Int64) -> Bool {
        let date = Date(timeIntervalSince1970: Double(microseconds) / 1_000_000)
        return Int64(exactly: (date.timeIntervalSince1970 * 1_000_000).rounded()) == microseconds
    }
}
