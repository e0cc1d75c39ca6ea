internal import CNephosZeroMQ
internal import Foundation
internal import NephosBus
internal import NephosCore
internal import Synchronization

/// A loop's libzmq context, and the thread that decides who may connect and
/// watches what connections hold.
///
/// Each loop has its own, so that the end of a loop waits for exactly what that
/// loop has queued.
///
/// ZAP (ZeroMQ RFC 27) asks one handler per context, at a fixed address,
/// before a CURVE handshake completes. Each server socket has a domain of its
/// own, under which the handler finds whom that socket admits.
// Unchecked: the pointers and descriptors are set once; a context is
// thread-safe (zmq.adoc), and the rest is behind a mutex.
final class ZeroMQContext: @unchecked Sendable {
    let pointer: UnsafeMutableRawPointer
    let connections = ConnectionTable()
    /// Milliseconds for which a socket that is closed goes on sending.
    let linger: Int32
    private let domains = Mutex<(next: Int, admissions: [String: Admission])>((0, [:]))
    /// Sockets to be watched from now on.
    private let monitors = Mutex<[Monitor]>([])
    private let room: ConnectionRoom
    /// Wakes the thread when there is another socket to watch.
    private let wake: Int32

    /// What a socket tells of its connections.
    private struct Monitor {
        /// A PAIR, the thread's from here on.
        var socket: UInt
        var limits: ConnectionLimits
    }

    init(ioThreads: Int, linger: Duration, room: ConnectionRoom) throws {
        self.linger = Int32(clamping: linger.milliseconds)
        self.room = room
        guard let context = zmq_ctx_new() else { throw ZeroMQFailure.last("The bus could not be started.") }
        pointer = context
        wake = eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK))
        zmq_ctx_set(context, ZMQ_IO_THREADS, Int32(ioThreads))
        zmq_ctx_set(context, ZMQ_MAX_SOCKETS, 16_384)
        do { try startThread() } catch {
            zmq_ctx_term(context)
            throw error
        }
    }

    deinit { close(wake) }

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

    /// Watches the socket's connections from now on. Before it is bound or connected.
    func watch(_ socket: UnsafeMutableRawPointer, under limits: ConnectionLimits) throws {
        let address = domains.withLock {
            $0.next += 1
            return "inproc://connections-\($0.next)"
        }
        guard
            zmq_socket_monitor(
                socket, address,
                ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED
                    | ZMQ_EVENT_MONITOR_STOPPED) == 0, let pair = zmq_socket(pointer, ZMQ_PAIR)
        else { throw ZeroMQFailure.last("The bus cannot watch its connections.") }
        var unlimited: Int32 = 0
        // libzmq would wait, on its own thread, for whoever reads the events too slowly.
        zmq_setsockopt(pair, ZMQ_RCVHWM, &unlimited, MemoryLayout<Int32>.size)
        zmq_setsockopt(pair, ZMQ_LINGER, &unlimited, MemoryLayout<Int32>.size)
        guard zmq_connect(pair, address) == 0 else {
            let failure = ZeroMQFailure.last("The bus cannot watch its connections.")
            zmq_close(pair)
            throw failure
        }
        monitors.withLock { $0.append(Monitor(socket: UInt(bitPattern: pair), limits: limits)) }
        var one: UInt64 = 1
        _ = write(wake, &one, MemoryLayout<UInt64>.size)
    }

    private func startThread() throws {
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
        let thread = Thread { [self] in
            guard let socket = UnsafeMutableRawPointer(bitPattern: address) else { return }
            serve(socket)
        }
        thread.name = "bus-doorman"
        thread.start()
    }

    /// The thread: until the context ends.
    private func serve(_ requests: UnsafeMutableRawPointer) {
        var watched: [Monitor] = []
        var watch = ConnectionWatch(table: connections, room: room)
        /// Admitted so far.
        var peers: UInt32 = 0
        defer {
            zmq_close(requests)
            for monitor in watched + monitors.withLock({ $0 }) {
                zmq_close(UnsafeMutableRawPointer(bitPattern: monitor.socket))
            }
            close(watch.epoll)
        }
        while true {
            var now = monotonicTime()
            var items =
                [Self.item(requests), Self.item(wake)]
                + watched.map { Self.item(UnsafeMutableRawPointer(bitPattern: $0.socket)) }
            var timeout = watch.nextLook.map { max(0, Int(($0 - now).milliseconds) + 1) }
            if watch.wantsNews(at: now) {
                items.append(Self.item(watch.epoll))
            } else {
                // Something may have arrived since.
                timeout = min(timeout ?? Int.max, Int(ConnectionWatch.interval.milliseconds))
            }
            guard zmq_poll(&items, Int32(items.count), timeout ?? -1) >= 0 || zmq_errno() == EINTR else { return }
            now = monotonicTime()
            if items[0].revents != 0 {
                guard let request = Self.receive(requests) else { return }
                Self.reply(requests, request, decide(request), &peers)
            }
            // Those that are over.
            var ended: [Int] = []
            for index in watched.indices where items[index + 2].revents != 0 {
                switch take(watched[index], &watch, now) {
                case .open: break
                case .stopped: ended.append(index)
                case .over: return
                }
            }
            for index in ended.reversed() {
                watch.ended(watched[index].limits)
                zmq_close(UnsafeMutableRawPointer(bitPattern: watched.remove(at: index).socket))
            }
            if items[1].revents != 0 {
                var count: UInt64 = 0
                _ = read(wake, &count, MemoryLayout<UInt64>.size)
                watched += monitors.withLock { new in
                    defer { new = [] }
                    return new
                }
            }
            watch.look(at: now)
        }
    }

    private enum MonitorState { case open, stopped, over }

    /// Takes what a socket has told of its connections.
    private func take(_ monitor: Monitor, _ watch: inout ConnectionWatch, _ now: Duration) -> MonitorState {
        guard let socket = UnsafeMutableRawPointer(bitPattern: monitor.socket) else { return .stopped }
        while Self.events(socket) & ZMQ_POLLIN != 0 {
            guard let parts = Self.receive(socket) else { return .over }
            guard let first = parts.first, first.count == 6 else { continue }
            let (event, value) = first.withUnsafeBytes {
                (Int32($0.loadUnaligned(as: UInt16.self)), $0.loadUnaligned(fromByteOffset: 2, as: Int32.self))
            }
            switch event {
            case ZMQ_EVENT_ACCEPTED: watch.opened(value, under: monitor.limits, isAccepted: true, now: now)
            case ZMQ_EVENT_CONNECTED: watch.opened(value, under: monitor.limits, isAccepted: false, now: now)
            case ZMQ_EVENT_DISCONNECTED: watch.closed(value)
            default: return .stopped
            }
        }
        return .open
    }

    private static func events(_ socket: UnsafeMutableRawPointer) -> Int32 {
        var events: Int32 = 0
        var size = MemoryLayout<Int32>.size
        return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 ? events : 0
    }

    private static func item(_ socket: UnsafeMutableRawPointer?) -> zmq_pollitem_t {
        zmq_pollitem_t(socket: socket, fd: 0, events: Int16(ZMQ_POLLIN), revents: 0)
    }

    private static func item(_ descriptor: Int32) -> zmq_pollitem_t {
        zmq_pollitem_t(socket: nil, fd: descriptor, events: Int16(ZMQ_POLLIN), revents: 0)
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
        return .admitted
    }

    private static func reply(
        _ socket: UnsafeMutableRawPointer, _ request: [[UInt8]], _ decision: Decision, _ peers: inout UInt32
    ) {
        let id = request.count > 1 ? request[1] : []
        let user = decision == .admitted ? Array(Z85.encode(request[6]).utf8) : []
        peers &+= 1
        let parts: [[UInt8]] = [
            Array("1.0".utf8), id, Array(decision.rawValue.utf8), [], user, RoutingID.metadata(peers),
        ]
        for (index, part) in parts.enumerated() {
            zmq_send(socket, part, part.count, index == parts.count - 1 ? 0 : ZMQ_SNDMORE)
        }
    }
}
