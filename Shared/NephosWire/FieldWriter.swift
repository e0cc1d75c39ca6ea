public import NephosCore

#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// Appends protobuf fields to bytes.
///
/// Only for the few messages that are encoded for every write: the generated
/// code walks a message twice, through a visitor, and allocates for each part.
/// What it writes is what the generated code would (`EncodingTests`): fields
/// in the order of their numbers, and none for zero and empty.
public struct FieldWriter: Sendable {
    /// Each field is put into its room at once, and not byte by byte.
    private var fields: FieldBytes
    /// How many bytes were written.
    public private(set) var count = 0

    private static let growth = 64
    private static let varintBytesMax = 10
    private static let nothing = FieldBytes(capacity: 0)

    public init(reserving count: Int = 0) { fields = count > 0 ? FieldBytes(capacity: count) : Self.nothing }

    /// Takes back what was written beyond so many bytes.
    public mutating func drop(after count: Int) { self.count = min(self.count, count) }

    /// A copy of what was written; begins anew.
    public mutating func take() -> [UInt8] {
        let fields = handOver()
        return fields.withUnsafeBytes { [UInt8]($0) }
    }

    /// Hands over what was written, where it is; begins anew.
    public mutating func handOver() -> FieldBytes {
        // A copy of this writer may have written to the same room, and further.
        if !isKnownUniquelyReferenced(&fields) { makeRoom(for: 0) }
        let written = fields
        written.count = count
        fields = Self.nothing
        count = 0
        return written
    }

    public mutating func number(_ field: UInt8, _ value: UInt64) {
        guard value != 0 else { return }
        write(1 + Self.varintBytesMax) { bytes in
            bytes[0] = Self.tag(field, wireType: 0)
            return 1 + Self.varint(value, to: bytes + 1)
        }
    }

    public mutating func flag(_ field: UInt8, _ value: Bool) { number(field, value ? 1 : 0) }

    public mutating func text(_ field: UInt8, _ value: String) {
        guard !value.isEmpty else { return }
        value.withUTF8Bytes { data(field, $0) }
    }

    /// Bytes, or a nested message that is encoded already.
    ///
    /// - Parameter isPresent: Also when empty, as a message is.
    public mutating func data(_ field: UInt8, _ value: [UInt8], isPresent: Bool = false) {
        value.withUnsafeBytes { data(field, $0, isPresent: isPresent) }
    }

    /// The same.
    public mutating func data(_ field: UInt8, _ value: UnsafeRawBufferPointer, isPresent: Bool = false) {
        guard isPresent || !value.isEmpty else { return }
        write(1 + Self.varintBytesMax + value.count) { bytes in
            bytes[0] = Self.tag(field, wireType: 2)
            let start = 1 + Self.varint(UInt64(value.count), to: bytes + 1)
            if let base = value.baseAddress {
                UnsafeMutableRawPointer(bytes + start).copyMemory(from: base, byteCount: value.count)
            }
            return start + value.count
        }
    }

    /// A nested message.
    @inlinable
    public mutating func message(_ field: UInt8, _ body: (inout FieldWriter) throws -> Void) rethrows {
        let start = begin(field)
        try body(&self)
        insertLength(at: start)
    }

    /// A nested message, but for one that turns out to have more than so many bytes.
    ///
    /// - Returns: Its bytes, if it was written.
    public mutating func message(_ field: UInt8, ofAtMost countMax: Int, _ body: (inout FieldWriter) -> Void) -> Int? {
        let start = begin(field)
        body(&self)
        let length = count - start
        guard length <= countMax else {
            count = start - 1
            return nil
        }
        insertLength(at: start)
        return length
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
        withUnsafeBytes(of: (check.run.bigEndian, check.mark.bigEndian)) { data(field, $0) }
    }

    /// A digest; that of nothing is left out.
    public mutating func digest(_ field: UInt8, _ digest: SetDigest) {
        if digest != .empty { data(field, digest.bytes) }
    }

    /// The mark of a digest.
    public mutating func mark(_ field: UInt8, of digest: SetDigest) {
        withUnsafeBytes(of: digest.mark) { data(field, $0) }
    }

    public mutating func operation(_ field: UInt8, _ id: OperationID) {
        withUnsafeBytes(of: (id.high.bigEndian, id.low.bigEndian)) { data(field, $0) }
    }

    /// Fields of a message that is encoded already.
    public mutating func append(encoded fields: [UInt8]) { fields.withUnsafeBytes { append($0) } }

    /// Fields that were written apart.
    public mutating func append(_ fields: FieldWriter) {
        withExtendedLifetime(fields.fields) { append(UnsafeRawBufferPointer(start: $0.bytes, count: fields.count)) }
    }

    // MARK: Parts

    private mutating func append(_ part: UnsafeRawBufferPointer) {
        guard let base = part.baseAddress else { return }
        write(part.count) { bytes in
            UnsafeMutableRawPointer(bytes).copyMemory(from: base, byteCount: part.count)
            return part.count
        }
    }

    /// - Parameters:
    ///   - countMax: Room that the body gets.
    ///   - body: Writes, and returns how much.
    @inline(__always)
    private mutating func write(_ countMax: Int, _ body: (UnsafeMutablePointer<UInt8>) -> Int) {
        if fields.capacity - count < countMax || !isKnownUniquelyReferenced(&fields) { makeRoom(for: countMax) }
        count += body(fields.bytes + count)
    }

    /// Moves what was written to where there is room; by this a copy of a writer gets bytes of its own.
    private mutating func makeRoom(for countMax: Int) {
        let old = fields
        fields = FieldBytes(capacity: count + max(countMax, count, Self.growth))
        withExtendedLifetime(old) { fields.bytes.update(from: $0.bytes, count: count) }
    }

    @inline(__always)
    private static func tag(_ field: UInt8, wireType: UInt8) -> UInt8 { field << 3 | wireType }

    /// - Returns: How many bytes it takes.
    @inline(__always)
    private static func varint(_ value: UInt64, to bytes: UnsafeMutablePointer<UInt8>) -> Int {
        var rest = value
        var count = 0
        while rest >= 0x80 {
            bytes[count] = UInt8(truncatingIfNeeded: rest) | 0x80
            rest >>= 7
            count += 1
        }
        bytes[count] = UInt8(rest)
        return count + 1
    }

    private static func varintWidth(_ value: UInt64) -> Int { (70 - (value | 1).leadingZeroBitCount) / 7 }

    /// - Returns: Where the nested message begins.
    @usableFromInline
    mutating func begin(_ field: UInt8) -> Int {
        write(1) { bytes in
            bytes[0] = Self.tag(field, wireType: 2)
            return 1
        }
        return count
    }

    /// Puts the length of what follows `start` before it.
    @usableFromInline
    mutating func insertLength(at start: Int) {
        let length = count - start
        write(Self.varintBytesMax) { end in
            let message = end - length
            let width = Self.varintWidth(UInt64(length))
            UnsafeMutableRawPointer(message + width).copyMemory(from: message, byteCount: length)
            return Self.varint(UInt64(length), to: message)
        }
    }
}

/// What a ``FieldWriter`` has written.
// Unchecked, both times: a writer changes it only while nobody else holds it.
public final class FieldBytes: @unchecked Sendable {
    fileprivate let bytes: UnsafeMutablePointer<UInt8>
    fileprivate let capacity: Int
    @exclusivity(unchecked) public fileprivate(set) var count = 0

    fileprivate init(capacity: Int) {
        // Swift's own allocation asks for an alignment, which costs three times as much. It ends the process too when
        // there is no memory.
        guard let memory = malloc(max(1, capacity)) else { fatalError("There is no memory left.") }
        bytes = memory.assumingMemoryBound(to: UInt8.self)
        self.capacity = capacity
    }

    deinit { free(bytes) }

    /// Valid during the call.
    public func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try withExtendedLifetime(self) { try body(UnsafeRawBufferPointer(start: $0.bytes, count: $0.count)) }
    }
}
