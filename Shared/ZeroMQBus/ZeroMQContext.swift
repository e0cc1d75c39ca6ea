internal import Bus
internal import CZeroMQ
internal import Core
internal import Foundation
internal import Synchronization

/// A loop's libzmq context, and the thread that decides who may connect.
///
/// Each loop has its own, so that the end of a loop waits for exactly what that
/// loop has queued.
///
/// ZAP (ZeroMQ RFC 27) asks one handler per context, at a fixed address,
/// before a CURVE handshake completes. Each server socket has a domain of its
/// own, under which the handler finds whom that socket admits.
// Unchecked: the pointer is set once; a context is thread-safe (zmq.adoc), and
// the rest is behind a mutex.
final class ZeroMQContext: @unchecked Sendable {
    let pointer: UnsafeMutableRawPointer
    private let domains = Mutex<(next: Int, admissions: [String: Admission])>((0, [:]))
    private let descriptorLimit: Int
    /// Only there to be duplicated.
    private let probe: Int32

    /// Descriptors kept free: at its limit libzmq's accept spins a core, so
    /// connections are refused before.
    private static let descriptorHeadroom = 64

    init(ioThreads: Int) throws {
        var limit: UInt = 1024
        _ = nephos_raise_descriptor_limit(&limit)
        descriptorLimit = Int(clamping: limit)
        guard let context = zmq_ctx_new() else { throw ZeroMQFailure.last("The bus could not be started.") }
        pointer = context
        probe = eventfd(0, Int32(EFD_CLOEXEC))
        zmq_ctx_set(context, ZMQ_IO_THREADS, Int32(ioThreads))
        zmq_ctx_set(context, ZMQ_MAX_SOCKETS, Int32(min(16_384, descriptorLimit)))
        do { try startAdmitting() } catch {
            zmq_ctx_term(context)
            throw error
        }
    }

    deinit { close(probe) }

    /// Returns when all that the closed sockets had queued is sent, or their
    /// linger time is over. No socket can be opened afterwards.
    func terminate() {
        while zmq_ctx_term(pointer) != 0, zmq_errno() == EINTR {}
    }

    /// A domain for a server socket that admits these peers.
    func addDomain(_ admission: Admission) -> String {
        domains.withLock {
            $0.next += 1
            let domain = "socket-\($0.next)"
            $0.admissions[domain] = admission
            return domain
        }
    }

    func removeDomain(_ domain: String) {
        domains.withLock { $0.admissions[domain] = nil }
    }

    private func startAdmitting() throws {
        guard let socket = zmq_socket(pointer, ZMQ_REP) else {
            throw ZeroMQFailure.last("The bus could not be started.")
        }
        var none: Int32 = 0
        zmq_setsockopt(socket, ZMQ_LINGER, &none, MemoryLayout<Int32>.size)
        // Bound before the thread runs, so that no server socket can come earlier.
        guard zmq_bind(socket, "inproc://zeromq.zap.01") == 0 else {
            let failure = ZeroMQFailure.last("The bus could not be started.")
            zmq_close(socket)
            throw failure
        }
        let address = UInt(bitPattern: socket)
        let thread = Thread { [weak self] in
            guard let socket = UnsafeMutableRawPointer(bitPattern: address) else { return }
            while let request = Self.receive(socket) {
                Self.reply(socket, request, self?.decide(request) ?? .refused)
            }
            zmq_close(socket)
        }
        thread.name = "bus-admission"
        thread.start()
    }

    /// The parts of the next request; nil when the context ends.
    private static func receive(_ socket: UnsafeMutableRawPointer) -> [[UInt8]]? {
        var parts: [[UInt8]] = []
        var message = zmq_msg_t()
        repeat {
            zmq_msg_init(&message)
            while zmq_msg_recv(&message, socket, 0) < 0 {
                guard zmq_errno() == EINTR else { return nil }
            }
            parts.append([UInt8](UnsafeRawBufferPointer(start: zmq_msg_data(&message), count: zmq_msg_size(&message))))
            zmq_msg_close(&message)
        } while hasMore(socket)
        return parts
    }

    private static func hasMore(_ socket: UnsafeMutableRawPointer) -> Bool {
        var more: Int32 = 0
        var size = MemoryLayout<Int32>.size
        return zmq_getsockopt(socket, ZMQ_RCVMORE, &more, &size) == 0 && more != 0
    }

    private enum Decision: String {
        case admitted = "200"
        /// Cut silently; the other end tries again later.
        case notNow = "300"
        case refused = "400"
    }

    // Parts: version, request id, domain, address, routing id, mechanism, key.
    private func decide(_ request: [[UInt8]]) -> Decision {
        guard request.count == 7, request[5] == Array("CURVE".utf8), let key = PublicKey(bytes: request[6]) else {
            return .refused
        }
        let domain = String(decoding: request[2], as: UTF8.self)
        guard let admission = domains.withLock({ $0.admissions[domain] }) else { return .refused }
        if case .roster(let keys) = admission, !keys.contains(key) { return .refused }
        return hasRoom() ? .admitted : .notNow
    }

    /// A new descriptor takes the lowest free number, so its number tells how full the table is.
    private func hasRoom() -> Bool {
        let descriptor = dup(probe)
        guard descriptor >= 0 else { return false }
        close(descriptor)
        return Int(descriptor) < descriptorLimit - Self.descriptorHeadroom
    }

    private static func reply(_ socket: UnsafeMutableRawPointer, _ request: [[UInt8]], _ decision: Decision) {
        let id = request.count > 1 ? request[1] : []
        let user = decision == .admitted ? Array(Z85.encode(request[6]).utf8) : []
        let parts: [[UInt8]] = [
            Array("1.0".utf8), id, Array(decision.rawValue.utf8), [], user, [],
        ]
        for (index, part) in parts.enumerated() {
            zmq_send(socket, part, part.count, index == parts.count - 1 ? 0 : ZMQ_SNDMORE)
        }
    }
}
