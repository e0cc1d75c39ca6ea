public import NephosWire

/// One frame of a message: bytes that are never copied on the way, whoever owns them.
///
/// The owner is what the transport received the bytes into (a `zmq_msg_t`, an
/// array); a frame keeps it alive.
public struct Frame: Sendable {
    /// Who owns the bytes.
    public let storage: any FrameStorage

    public init(storage: any FrameStorage) { self.storage = storage }

    /// A frame that owns this array.
    public init(_ bytes: [UInt8]) { storage = ArrayStorage(bytes: bytes) }

    /// The number of bytes.
    public var count: Int { storage.count }

    /// Whether this is an empty frame.
    public var isEmpty: Bool { count == 0 }

    /// The bytes, valid during the call.
    public func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try storage.withUnsafeBytes(body)
    }

    /// A part of the bytes, without copying them. Not beyond the end.
    public func part(_ range: Range<Int>) -> Frame { Frame(storage: PartStorage(of: storage, range)) }

    /// A copy of the bytes.
    public var bytes: [UInt8] { withUnsafeBytes { [UInt8]($0) } }
}

extension Frame: Equatable {
    public static func == (left: Frame, right: Frame) -> Bool {
        left.withUnsafeBytes { left in right.withUnsafeBytes { left.elementsEqual($0) } }
    }
}

extension Frame {
    /// A frame of what was written last; the writer begins anew.
    public init(taking writer: inout FieldWriter) { self.init(storage: writer.handOver()) }
}

/// What owns a frame's bytes. They must not change while the storage lives.
public protocol FrameStorage: AnyObject, Sendable {
    var count: Int { get }
    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result
}

extension FieldBytes: FrameStorage {}

private final class ArrayStorage: FrameStorage {
    private let array: [UInt8]

    init(bytes: [UInt8]) { array = bytes }

    var count: Int { array.count }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try array.withUnsafeBytes(body)
    }
}

/// A part of another frame's bytes, which it keeps alive.
private final class PartStorage: FrameStorage {
    private let whole: any FrameStorage
    private let range: Range<Int>

    /// - Parameter range: Within the whole.
    init(of whole: any FrameStorage, _ range: Range<Int>) {
        self.whole = whole
        self.range = range
    }

    var count: Int { range.count }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try whole.withUnsafeBytes { try body(UnsafeRawBufferPointer(rebasing: $0[range])) }
    }
}

/// A message, delivered whole or not at all: a request or a reply is one
/// frame, an event its topic and a batch.
public typealias Message = [Frame]
