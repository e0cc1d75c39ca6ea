import Core

/// The fields of one encoded message, in place: what the generator needs of a
/// reply without the cost of decoding all of it.
struct FieldScan {
    private var rest: UnsafeRawBufferPointer

    init(_ bytes: UnsafeRawBufferPointer) { rest = bytes }

    /// The next field's number, and its bytes if it has a length; nil at the end, or where the bytes are malformed.
    mutating func next() -> (number: Int, bytes: UnsafeRawBufferPointer)? {
        guard let tag = varint() else { return nil }
        let number = Int(truncatingIfNeeded: tag >> 3)
        switch tag & 7 {
        case 0: return varint().map { _ in (number, UnsafeRawBufferPointer(start: nil, count: 0)) }
        case 1: return take(8).map { (number, $0) }
        case 5: return take(4).map { (number, $0) }
        case 2:
            guard let length = varint(), length <= UInt64(rest.count) else { return nil }
            return take(Int(length)).map { (number, $0) }
        default: return nil
        }
    }

    private mutating func varint() -> UInt64? {
        var value: UInt64 = 0
        var shift: UInt64 = 0
        for (index, byte) in rest.enumerated() where index < 10 {
            value |= UInt64(byte & 0x7f) << shift
            shift += 7
            if byte & 0x80 == 0 {
                rest = UnsafeRawBufferPointer(rebasing: rest[(index + 1)...])
                return value
            }
        }
        return nil
    }

    private mutating func take(_ count: Int) -> UnsafeRawBufferPointer? {
        guard count <= rest.count else { return nil }
        defer { rest = UnsafeRawBufferPointer(rebasing: rest[count...]) }
        return UnsafeRawBufferPointer(rebasing: rest[..<count])
    }
}

/// What a message from a server says, as far as the generator cares.
enum ScannedReply {
    /// An answer to the push of this number.
    case answer(number: UInt64, writer: Int, failed: Bool)
    /// Another call's answer.
    case other(failed: Bool)
    /// What the server sent by itself: a `Delivery`.
    case delivery(UnsafeRawBufferPointer)

    init(_ bytes: UnsafeRawBufferPointer) {
        var scan = FieldScan(bytes)
        var id: UnsafeRawBufferPointer?
        var body = UnsafeRawBufferPointer(start: nil, count: 0)
        var failed = false
        while let field = scan.next() {
            switch field.number {
            case 1: id = field.bytes
            case 2: failed = true
            case 3: body = field.bytes
            default: break
            }
        }
        guard let id, !id.isEmpty else {
            self = .delivery(body)
            return
        }
        guard let push = PushID(id) else {
            self = .other(failed: failed)
            return
        }
        self = .answer(number: push.number, writer: push.writer, failed: failed)
    }
}

/// The operation id of a generated push, which says whose it is and which one.
struct PushID {
    private static let mark: UInt64 = 0x7a5f
    var number: UInt64
    var writer: Int

    init(number: UInt64, writer: Int) {
        self.number = number
        self.writer = writer
    }

    init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == OperationID.byteCount else { return nil }
        let high = UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
        let low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        guard high & 0xffff == Self.mark else { return nil }
        number = low & 0xffff_ffff_ffff
        writer = Int(low >> 48 & 0x3fff)
    }

    /// An id that is no push's.
    static func foreign(at time: Timestamp) -> OperationID {
        OperationID(high: time.milliseconds << 16 | 0x7000, low: 0x8000_0000_0000_0000 | .random(in: 0..<1 << 62))
    }

    func operation(at time: Timestamp) -> OperationID {
        OperationID(
            high: time.milliseconds << 16 | Self.mark,
            low: 0x8000_0000_0000_0000 | UInt64(writer) << 48 | number & 0xffff_ffff_ffff)
    }
}
