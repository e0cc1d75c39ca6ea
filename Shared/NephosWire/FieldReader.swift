public import NephosCore

/// Reads protobuf fields in place, one after another.
///
/// For envelopes, which are read for every message, and whose body need not be
/// copied to be decoded. As strict as the generated code with what is malformed.
public struct FieldReader {
    /// The bytes are no message.
    public struct Malformed: Error {
        public init() {}
    }

    public struct Field {
        public var number: Int
        public var value: Value
    }

    public enum Value {
        case number(UInt64)
        /// Text, bytes or a nested message: where it lies in the message.
        case range(Range<Int>)
        /// Of a fixed length, which no field that is read here has.
        case fixed
    }

    /// A text of so many bytes is short: nearly all are.
    private static let shortBytes = 256

    private let message: UnsafeRawBufferPointer
    private var place = 0

    public init(_ message: UnsafeRawBufferPointer) { self.message = message }

    /// The next field; nil at the end.
    public mutating func next() throws(Malformed) -> Field? {
        guard place < message.count else { return nil }
        let tag = try varint()
        guard tag >> 3 > 0, let number = Int(exactly: tag >> 3), number <= 0x1fff_ffff else { throw Malformed() }
        switch tag & 7 {
        case 0: return Field(number: number, value: .number(try varint()))
        case 1:
            _ = try take(8)
            return Field(number: number, value: .fixed)
        case 2: return Field(number: number, value: .range(try take(try varint())))
        case 5:
            _ = try take(4)
            return Field(number: number, value: .fixed)
        default: throw Malformed()
        }
    }

    /// A field's text.
    public func text(_ range: Range<Int>) throws(Malformed) -> String {
        let bytes = bytes(range)
        // To repair a long text that is none costs seconds of a service, and its sender nothing: it is given up at the
        // first wrong byte.
        guard bytes.count <= Self.shortBytes else {
            guard let text = String(validating: bytes, as: UTF8.self) else { throw Malformed() }
            return text
        }
        // What is no UTF-8 is replaced, and then it is another text. (To have it validated takes three times as long.)
        let text = String(decoding: bytes, as: UTF8.self)
        guard text.hasBytes(bytes) else { throw Malformed() }
        return text
    }

    /// A field's bytes, as long as the message's are there.
    public func bytes(_ range: Range<Int>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: message[range])
    }

    /// Reads a nested `ChangeToken`. One that comes in parts is merged, as protobuf has it.
    public func read(_ range: Range<Int>, into token: inout ChangeToken) throws(Malformed) {
        var reader = FieldReader(bytes(range))
        while let field = try reader.next() {
            switch (field.number, field.value) {
            case (1, .number(let number)): token.epoch = number
            case (2, .number(let number)): token.sequence = number
            case (3, .range(let range)): token.check = TokenCheck(bytes: reader.bytes(range))
            case (1...3, _): throw Malformed()
            default: break
            }
        }
    }

    private mutating func varint() throws(Malformed) -> UInt64 {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 70, by: 7) {
            guard place < message.count else { throw Malformed() }
            let byte = message[place]
            place += 1
            value |= UInt64(byte & 0x7f) << shift
            if byte & 0x80 == 0 { return value }
        }
        throw Malformed()
    }

    private mutating func take(_ count: UInt64) throws(Malformed) -> Range<Int> {
        guard count <= UInt64(message.count - place) else { throw Malformed() }
        let start = place
        place += Int(count)
        return start..<place
    }
}
