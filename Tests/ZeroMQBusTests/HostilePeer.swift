import CNephosZeroMQ
import Glibc
import NephosBus
import NephosCore
import NephosZeroMQ
import Testing

/// A DEALER straight on libzmq, or another, which does what ours never would:
/// choose a routing id, send PINGs all the time, say nothing, and end with a RST.
final class HostilePeer: @unchecked Sendable {
    private let context: UnsafeMutableRawPointer
    private let socket: UnsafeMutableRawPointer
    private let monitor: UnsafeMutableRawPointer
    private var descriptor: Int32 = -1
    private var lost = 0

    convenience init(_ server: EchoServer, routingID: String? = nil, pings: Bool = false) throws {
        try self.init(
            server.endpoint, server.keys.publicKey, type: ZMQ_DEALER, routingID: routingID, pings: pings)
    }

    init(
        _ endpoint: String, _ serverKey: PublicKey, type: Int32, routingID: String? = nil, pings: Bool = false
    ) throws {
        context = try #require(zmq_ctx_new())
        socket = try #require(zmq_socket(context, type))
        monitor = try #require(zmq_socket(context, ZMQ_PAIR))
        let keys = try ZeroMQTransport().makeKeyPair()
        set(ZMQ_CURVE_SERVERKEY, serverKey.bytes)
        set(ZMQ_CURVE_PUBLICKEY, keys.publicKey.bytes)
        set(ZMQ_CURVE_SECRETKEY, keys.secretKey.bytes)
        if let routingID { set(ZMQ_ROUTING_ID, Array(routingID.utf8)) }
        if pings { set(ZMQ_HEARTBEAT_IVL, withUnsafeBytes(of: Int32(1), Array.init)) }
        set(ZMQ_LINGER, withUnsafeBytes(of: Int32(0), Array.init))
        zmq_socket_monitor(socket, "inproc://events", ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED)
        zmq_connect(monitor, "inproc://events")
        try #require(zmq_connect(socket, endpoint) == 0)
        try eventually {
            takeEvents()
            return descriptor >= 0
        }
    }

    private func set(_ option: Int32, _ bytes: [UInt8]) { zmq_setsockopt(socket, option, bytes, bytes.count) }

    func send(_ bytes: [UInt8]) { zmq_send(socket, bytes, bytes.count, ZMQ_DONTWAIT) }

    private var taken = 0

    /// How many messages have come in all.
    var takenCount: Int {
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        while zmq_recv(socket, &bytes, bytes.count, ZMQ_DONTWAIT) >= 0 { taken += 1 }
        return taken
    }

    /// How often its connection has ended.
    var disconnections: Int {
        takeEvents()
        return lost
    }

    private func takeEvents() {
        var event = [UInt8](repeating: 0, count: 6)
        while zmq_recv(monitor, &event, event.count, ZMQ_DONTWAIT) == 6 {
            let (number, value) = event.withUnsafeBytes {
                (Int32($0.loadUnaligned(as: UInt16.self)), $0.loadUnaligned(fromByteOffset: 2, as: Int32.self))
            }
            if number == ZMQ_EVENT_CONNECTED { descriptor = value } else { lost += 1 }
            var address = [UInt8](repeating: 0, count: 256)
            zmq_recv(monitor, &address, address.count, 0)
        }
    }

    /// Ends the connection with a RST.
    func reset() {
        var linger = Glibc.linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
        close()
    }

    private var isOpen = true

    func close() {
        guard isOpen else { return }
        isOpen = false
        zmq_close(monitor)
        zmq_close(socket)
        zmq_ctx_term(context)
    }
}
