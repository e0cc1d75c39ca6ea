internal import Bus
internal import CZeroMQ

/// A received frame: the bytes stay in the message that libzmq received them into.
// Unchecked: the message is written once, before the object is shared, and only
// read and copied (by libzmq's own counted reference) afterwards.
final class ReceivedFrame: FrameStorage, @unchecked Sendable {
    private let message: UnsafeMutablePointer<zmq_msg_t>
    let count: Int

    /// Takes the message over.
    init(taking source: UnsafeMutablePointer<zmq_msg_t>) {
        message = .allocate(capacity: 1)
        zmq_msg_init(message)
        zmq_msg_move(message, source)
        count = zmq_msg_size(message)
    }

    deinit {
        zmq_msg_close(message)
        message.deallocate()
    }

    func withUnsafeBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
        try body(UnsafeRawBufferPointer(start: zmq_msg_data(message), count: count))
    }

    /// Makes `target` another reference to the same bytes.
    func copy(to target: UnsafeMutablePointer<zmq_msg_t>) { zmq_msg_copy(target, message) }
}

/// Turns frames into messages of libzmq.
///
/// A frame that goes to many peers in a row is copied once: the messages after
/// the first share its bytes.
struct FrameEncoder: ~Copyable {
    /// From here on a frame's bytes are handed to libzmq where they are; below, copying them is cheaper.
    private static let zeroCopyBytesMin = 64 << 10

    private var last: (any FrameStorage)?
    private let shared: UnsafeMutablePointer<zmq_msg_t>
    private var isShared = false

    init() {
        shared = .allocate(capacity: 1)
        zmq_msg_init(shared)
    }

    deinit {
        zmq_msg_close(shared)
        shared.deallocate()
    }

    /// Makes the uninitialised `message` hold the frame.
    mutating func encode(_ frame: Frame, into message: UnsafeMutablePointer<zmq_msg_t>) {
        if let received = frame.storage as? ReceivedFrame {
            zmq_msg_init(message)
            received.copy(to: message)
            return
        }
        guard last === frame.storage else {
            last = frame.storage
            isShared = false
            Self.make(frame, message)
            return
        }
        if !isShared {
            zmq_msg_close(shared)
            Self.make(frame, shared)
            isShared = true
        }
        zmq_msg_init(message)
        zmq_msg_copy(message, shared)
    }

    private static func make(_ frame: Frame, _ message: UnsafeMutablePointer<zmq_msg_t>) {
        frame.withUnsafeBytes { bytes in
            if bytes.count >= zeroCopyBytesMin, let start = bytes.baseAddress {
                // The storage is kept alive until libzmq lets go of the bytes; they do not move while it lives.
                let owner = Unmanaged.passRetained(Owner(frame.storage))
                zmq_msg_init_data(
                    message, UnsafeMutableRawPointer(mutating: start), bytes.count,
                    { _, hint in
                        if let hint { Unmanaged<Owner>.fromOpaque(hint).release() }
                    }, owner.toOpaque())
            } else {
                zmq_msg_init_size(message, bytes.count)
                if let start = bytes.baseAddress, bytes.count > 0 {
                    zmq_msg_data(message).copyMemory(from: start, byteCount: bytes.count)
                }
            }
        }
    }

    private final class Owner {
        let storage: any FrameStorage
        init(_ storage: any FrameStorage) { self.storage = storage }
    }
}
