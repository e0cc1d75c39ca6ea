public import NephosCore

/// Appends protobuf fields to bytes.
///
/// Only for the few messages that are encoded for every write: the generated
/// code walks a message twice, through a visitor, and allocates for each part.
/// What it writes is what the generated code would (`EncodingTests`): fields
/// in the order of their numbers, and none for zero and empty.
public struct FieldWriter: Sendable {
    /// What was written.
    @inlinable public var bytes: [UInt8] { storage }

    @usableFromInline var storage: [UInt8] = []

    public init(reserving count: Int = 0) { storage.reserveCapacity(count) }

    @inlinable
    public mutating func number(_ field: UInt8, _ value: UInt64) {
        guard value != 0 else { return }
        tag(field, wireType: 0)
        varint(value)
    }

    @inlinable
    public mutating func flag(_ field: UInt8, _ value: Bool) { number(field, value ? 1 : 0) }

    @inlinable
    public mutating func text(_ field: UInt8, _ value: String) {
        guard !value.isEmpty else { return }
        tag(field, wireType: 2)
        varint(UInt64(value.utf8.count))
        // Without its type known to be bytes in a row, text is appended byte by byte.
        if value.utf8.withContiguousStorageIfAvailable({ storage.append(contentsOf: $0) }) == nil { append(value.utf8) }
    }

    /// Bytes, or a nested message that is encoded already.
    ///
    /// - Parameter isPresent: Also when empty, as a message is.
    @inlinable
    public mutating func data(_ field: UInt8, _ value: some Collection<UInt8>, isPresent: Bool = false) {
        guard isPresent || !value.isEmpty else { return }
        tag(field, wireType: 2)
        varint(UInt64(value.count))
        append(value)
    }

    /// A nested message.
    @inlinable
    public mutating func message(_ field: UInt8, _ body: (inout FieldWriter) throws -> Void) rethrows {
        tag(field, wireType: 2)
        let start = count
        try body(&self)
        insertLength(at: start)
    }

    public mutating func token(_ field: UInt8, _ token: ChangeToken) {
        message(field) {
            $0.number(1, token.epoch)
            $0.number(2, token.sequence)
            $0.check(3, token.check)
        }
    }

    private mutating func check(_ field: UInt8, _ check: TokenCheck) {
        guard check != .none else { return }
        tag(field, wireType: 2)
        varint(UInt64(TokenCheck.byteCount))
        withUnsafeBytes(of: (check.run.bigEndian, check.mark.bigEndian)) { storage.append(contentsOf: $0) }
    }

    /// The mark of a digest.
    public mutating func mark(_ field: UInt8, of digest: SetDigest) {
        tag(field, wireType: 2)
        varint(8)
        withUnsafeBytes(of: digest.mark) { storage.append(contentsOf: $0) }
    }

    public mutating func operation(_ field: UInt8, _ id: OperationID) {
        tag(field, wireType: 2)
        varint(UInt64(OperationID.byteCount))
        withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { storage.append(contentsOf: $0) }
    }

    /// Fields of a message that is encoded already.
    @inlinable
    public mutating func append(encoded fields: [UInt8]) { storage.append(contentsOf: fields) }

    /// Fields that were written apart.
    @inlinable
    public mutating func append(_ fields: FieldWriter) { storage.append(contentsOf: fields.storage) }

    // MARK: Parts

    @inlinable public var count: Int { storage.count }

    @inlinable
    mutating func tag(_ field: UInt8, wireType: UInt8) { storage.append(field << 3 | wireType) }

    @inlinable
    mutating func append(_ part: some Collection<UInt8>) { storage.append(contentsOf: part) }

    @inlinable
    mutating func varint(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            storage.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        storage.append(UInt8(rest))
    }

    /// Puts the length of what follows `start` before it.
    @usableFromInline
    mutating func insertLength(at start: Int) {
        let length = storage.count - start
        var width = 0
        var rest = length
        repeat {
            storage.append(0)
            width += 1
            rest >>= 7
        } while rest > 0
        storage.withUnsafeMutableBytes { bytes in
            UnsafeMutableRawBufferPointer(rebasing: bytes[(start + width)...])
                .copyMemory(from: UnsafeRawBufferPointer(rebasing: bytes[start..<start + length]))
            for place in 0..<width {
                let more: UInt8 = place < width - 1 ? 0x80 : 0
                bytes[start + place] = UInt8(truncatingIfNeeded: length >> (7 * place)) & 0x7f | more
            }
        }
    }
}
