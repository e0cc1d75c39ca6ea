internal import CNephosZeroMQ
internal import Foundation
internal import NephosBus

/// The bytes of a frame in the `zmq_msg_t` that libzmq received them into.
///
/// The message lies in the object itself: one allocation for a small frame,
/// none but libzmq's own for a large one.
// Unchecked: written once, before anyone else sees the object; afterwards only
// read, and libzmq releases a message on any thread.
package final class ReceivedFrame: FrameStorage, @unchecked Sendable {
    @exclusivity(unchecked) private var message = zmq_msg_t()
    private var start = UnsafeRawPointer(bitPattern: 1)
    package private(set) var count = 0

    package init() { zmq_msg_init(&message) }

    deinit { zmq_msg_close(&message) }

    package func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(start: start, count: count))
    }

    /// Receives the next frame of the socket, if one is there.
    func receive(from socket: UnsafeMutableRawPointer) -> Reception {
        // The address of a stored property of a final class is the property's own.
        withUnsafeMutablePointer(to: &message) { message in
            while zmq_msg_recv(message, socket, ZMQ_DONTWAIT) < 0 {
                guard zmq_errno() == EINTR else { return .nothing }
            }
            start = UnsafeRawPointer(zmq_msg_data(message))
            count = zmq_msg_size(message)
            return zmq_msg_more(message) != 0 ? .partial : .last
        }
    }

    /// What the transport knows of the connection that the frame came on.
    func withProperty<Result>(_ name: StaticString, _ body: (UnsafePointer<CChar>?) -> Result) -> Result {
        body(
            name.withUTF8Buffer { bytes in
                bytes.withMemoryRebound(to: CChar.self) { zmq_msg_gets(&message, $0.baseAddress) }
            })
    }

    /// The descriptor of the connection that the frame came on; it may be another's by now.
    var descriptor: Int32? { withProperty("__fd") { $0.map(atoi) } }

    enum Reception {
        case nothing
        /// A frame, and more of the same message follow.
        case partial
        case last
    }
}

/// Turns frames into messages of libzmq.
///
/// A frame that goes to many peers in a row is copied once: the messages after
/// the first share its bytes.
struct FrameEncoder {
    /// From here on a frame's bytes are lent to libzmq where they are; below, copying them is cheaper.
    private static let lentBytesMin = 4096
    /// Up to this size a `zmq_msg_t` holds the bytes itself: nothing to share.
    private static let inlineBytesMax = 33

    private struct Recent {
        var storage: any FrameStorage
        var shared: SharedMessage?
    }

    /// The storages sent last, by their place in the message.
    private var recent: [Recent?] = Array(repeating: nil, count: 4)
    private var remembers = false

    /// Makes the uninitialised `message` hold the frame.
    mutating func encode(_ frame: Frame, at place: Int, into message: UnsafeMutablePointer<zmq_msg_t>) {
        guard place < recent.count, frame.count > Self.inlineBytesMax else { return Self.make(frame, message) }
        guard let last = recent[place], last.storage === frame.storage else {
            recent[place] = Recent(storage: frame.storage, shared: nil)
            remembers = true
            return Self.make(frame, message)
        }
        let shared = last.shared ?? SharedMessage { Self.make(frame, $0) }
        if last.shared == nil { recent[place]?.shared = shared }
        shared.copy(to: message)
    }

    /// Lets go of the frames sent last, at the end of a turn.
    mutating func forget() {
        guard remembers else { return }
        for place in recent.indices { recent[place] = nil }
        remembers = false
    }

    private static func make(_ frame: Frame, _ message: UnsafeMutablePointer<zmq_msg_t>) {
        let storage = frame.storage
        storage.withUnsafeBytes { bytes in
            if bytes.count >= lentBytesMin, let start = bytes.baseAddress {
                // The storage lives until libzmq lets go of the bytes, on whatever
                // thread; they do not move while it lives.
                let owner = Unmanaged<AnyObject>.passRetained(storage)
                let result = zmq_msg_init_data(
                    message, UnsafeMutableRawPointer(mutating: start), bytes.count,
                    { _, owner in
                        if let owner { Unmanaged<AnyObject>.fromOpaque(owner).release() }
                    }, owner.toOpaque())
                if result == 0 { return }
                owner.release()
            }
            guard zmq_msg_init_size(message, bytes.count) == 0 else {
                zmq_msg_init(message)
                return
            }
            if let start = bytes.baseAddress, bytes.count > 0 {
                zmq_msg_data(message).copyMemory(from: start, byteCount: bytes.count)
            }
        }
    }
}

/// A message to send many times: libzmq counts its users.
private final class SharedMessage {
    private var message = zmq_msg_t()

    init(_ make: (UnsafeMutablePointer<zmq_msg_t>) -> Void) { make(&message) }

    deinit { zmq_msg_close(&message) }

    func copy(to target: UnsafeMutablePointer<zmq_msg_t>) {
        zmq_msg_init(target)
        zmq_msg_copy(target, &message)
    }
}
