internal import CNephosZeroMQ
package import NephosBus
package import NephosCore
package import NephosZeroMQ

/// Many request sockets in one: each line is a connection of its own, under a
/// key of its own, but a loop polls only one socket. For load tests that play
/// thousands of devices.
///
/// A line keeps what it was given while its server is away, up to the limit of
/// the send queue. It announces itself to the server once, when it is opened.
package final class MultiRequestSocket: LoopSocket {
    private static let batchMax = 512

    package let core: SocketCore
    private var handler: (([(line: Int, message: Message)]) -> Void)?
    private var count = 0
    /// The name of the line that was received from last.
    private let lineFrame = ReceivedFrame()

    /// Opens the socket, as yet without lines.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when the loop is not one of ``ZeroMQTransport``'s;
    ///   `.configurationInvalid` when libzmq cannot open a socket.
    package static func open(
        on loop: any BusLoop, frameBytesMax: Int = 4 << 20, sendQueueMax: Int = 1000,
        handler: @escaping ([(line: Int, message: Message)]) -> Void
    ) throws -> MultiRequestSocket {
        let socket = try MultiRequestSocket(
            on: loop, frameBytesMax: frameBytesMax, sendQueueMax: sendQueueMax, handler)
        socket.core.add(socket)
        return socket
    }

    private init(
        on loop: any BusLoop, frameBytesMax: Int, sendQueueMax: Int,
        _ handler: @escaping ([(line: Int, message: Message)]) -> Void
    ) throws {
        self.handler = handler
        core = try SocketCore(on: loop, type: ZMQ_ROUTER)
        try core.set(ZMQ_ROUTER_MANDATORY, Int32(1))
        try core.set(ZMQ_PROBE_ROUTER, Int32(1))
        try core.setLimits(
            sending: sendQueueMax, frameBytesMax: frameBytesMax,
            ConnectionLimits(unreadPerConnectionMax: .max, unreadMax: .max))
    }

    /// Opens a line under these keys and returns its number; lines count from 0.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` when the endpoint is none.
    package func connect(to endpoint: String, serverKey: PublicKey, keys: KeyPair) throws -> Int {
        // libzmq copies the options of a socket into each connection.
        try core.beCurveClient(keys, of: serverKey)
        try core.set(ZMQ_CONNECT_ROUTING_ID, Self.id(count))
        try core.connect([endpoint])
        core.mayHaveMore = true
        count += 1
        return count - 1
    }

    /// Sends on a line without waiting; `.gone` when there is no such line.
    package func send(_ message: Message, on line: Int) -> SendResult {
        Self.id(line).withUnsafeBytes { core.send(prefix: $0, message) }
    }

    /// Closes all lines.
    package func close() {
        core.close()
        handler = nil
        core.remove(self)
    }

    package func receiveReady() -> Bool {
        var batch: [(line: Int, message: Message)] = []
        var received = 0
        var byteCount = 0
        while received < Self.batchMax, byteCount < SocketCore.batchBytesMax,
            let message = core.receive(after: lineFrame)
        {
            received += 1
            byteCount += core.wireBytes
            guard message.count == 1, let line = lineFrame.withUnsafeBytes(Self.line) else { continue }
            batch.append((line, message))
        }
        if !batch.isEmpty { handler?(batch) }
        return received > 0
    }

    // Not a zero first: those names are libzmq's own.
    private static func id(_ line: Int) -> [UInt8] {
        [1] + withUnsafeBytes(of: UInt32(truncatingIfNeeded: line)) { [UInt8]($0) }
    }

    private static func line(_ id: UnsafeRawBufferPointer) -> Int? {
        guard id.count == 5, id[0] == 1 else { return nil }
        return Int(id.loadUnaligned(fromByteOffset: 1, as: UInt32.self))
    }
}
