import NephosCore
import NephosWire

/// The fields of one encoded message, in place: what the generator needs of a
/// reply without the cost of decoding all of it.
struct FieldScan {
    private let message: UnsafeRawBufferPointer
    private var reader: FieldReader

    init(_ bytes: UnsafeRawBufferPointer) {
        message = bytes
        reader = FieldReader(bytes)
    }

    /// The next field's number, and its bytes if it has a length; nil at the end, or where the bytes are malformed.
    mutating func next() -> (number: Int, bytes: UnsafeRawBufferPointer)? {
        guard let field = try? reader.next() else { return nil }
        guard case .range(let range) = field.value else {
            return (field.number, UnsafeRawBufferPointer(start: nil, count: 0))
        }
        return (field.number, UnsafeRawBufferPointer(rebasing: message[range]))
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
