/// Reads an encoded message where it lies, part by part. Nil stands for what no encoder writes.
package struct ProtobufReader {
    private let bytes: UnsafeRawBufferPointer
    package private(set) var place = 0

    package init(_ bytes: UnsafeRawBufferPointer) { self.bytes = bytes }

    package var isAtEnd: Bool { place == bytes.count }

    package mutating func byte() -> UInt8? {
        guard place < bytes.count else { return nil }
        defer { place += 1 }
        return bytes[place]
    }

    package mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count <= bytes.count - place else { return nil }
        defer { place += count }
        return UnsafeRawBufferPointer(rebasing: bytes[place..<place + count])
    }

    /// A number in as few bytes as it takes.
    package mutating func varint() -> UInt64? {
        var value: UInt64 = 0
        for index in 0..<10 {
            guard let byte = byte() else { return nil }
            // The tenth has room for one bit.
            guard index < 9 || byte <= 1 else { return nil }
            value |= UInt64(byte & 0x7f) << UInt64(7 * index)
            if byte & 0x80 == 0 { return byte == 0 && index > 0 ? nil : value }
        }
        return nil
    }

    /// What a length stands before.
    package mutating func part() -> UnsafeRawBufferPointer? {
        guard let length = varint(), length <= UInt64(bytes.count) else { return nil }
        return take(Int(length))
    }
}
