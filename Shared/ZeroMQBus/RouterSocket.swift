internal import Bus
internal import CZeroMQ
internal import Core
internal import Foundation

/// A ROUTER. Knows each peer by the routing id that libzmq gave it, and by its key.
final class RouterSocket: ReplySocket, LoopSocket {
    let core: SocketCore
    let endpoint: String
    private unowned let loop: ZeroMQLoop
    private let batchMax: Int
    private let domain: String
    /// Tells this socket's connections from those of the loop's other sockets.
    private let serial: UInt32
    private var handler: (([Incoming]) -> Void)?
    private let limits: ConnectionLimits
    private var peers = PeerTable()
    private var ledger: SendLedger
    private var ledgerTimer: (any LoopTimer)?
    /// Of the message that was received last.
    private let routingID = ReceivedFrame()

    /// How long a connection may say nothing before it is cut.
    private static let silenceMax: Duration = .seconds(10)

    init(loop: ZeroMQLoop, _ options: ReplySocketOptions, _ handler: @escaping ([Incoming]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        batchMax = max(1, options.batchMax)
        serial = loop.nextSerial()
        domain = loop.context.addDomain(options.admission)
        limits = ConnectionLimits(
            unreadPerConnectionMax: options.unreadBytesPerConnectionMax, unreadMax: options.unreadBytesMax,
            silenceMax: Self.silenceMax)
        ledger = SendLedger(perConnectionMax: options.unsentBytesPerConnectionMax, max: options.unsentBytesMax)
        core = try SocketCore(loop, type: ZMQ_ROUTER)
        try core.beCurveServer(options.keys, domain: domain)
        try core.set(ZMQ_ROUTER_MANDATORY, Int32(1))
        try core.setLimits(sending: options.sendQueueMax, frameBytesMax: options.frameBytesMax, limits)
        endpoint = try core.bind(options.endpoint)
    }

    func receiveReady() -> Bool {
        var batch: [Incoming] = []
        var received = 0
        var byteCount = 0
        while received < batchMax, byteCount < SocketCore.batchBytesMax, let message = core.receive(after: routingID) {
            received += 1
            byteCount += core.wireBytes
            if let one = incoming(message) { batch.append(one) }
        }
        if !batch.isEmpty { handler?(batch) }
        return received > 0
    }

    private func incoming(_ message: Message) -> Incoming? {
        guard let number = routingID.withUnsafeBytes(Self.number),
            let first = message.first?.storage as? ReceivedFrame, let peer = peers.peer(number, on: first)
        else { return nil }
        peer.noteTaken(core.wireBytes, first, loop.context.connections, limits)
        guard message.count == 1 else {
            peer.connection?.cut()
            return nil
        }
        return Incoming(
            peer: Peer(connection: UInt64(serial) << 32 | UInt64(number), publicKey: peer.key), message: message)
    }

    /// The number in a routing id that libzmq made: a zero byte, and four of a counter.
    private static func number(_ id: UnsafeRawBufferPointer) -> UInt32? {
        guard id.count == 5, id[0] == 0 else { return nil }
        return UInt32(bigEndian: id.loadUnaligned(fromByteOffset: 1, as: UInt32.self))
    }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        guard peer.connection >> 32 == UInt64(serial) else { return .gone }
        let number = UInt32(truncatingIfNeeded: peer.connection)
        let known = peers[number]
        var bytes = 0
        if let known {
            bytes = message.reduce(0) { $0 + Connection.wireBytes($1.count) }
            guard ledger.hasRoom(for: bytes, to: known, now: { loop.monotonicNow }) else { return .full }
        }
        // In memory: a zero byte, and the number with its high byte first.
        let id = UInt64(littleEndian: UInt64(number.bigEndian) << 8)
        let result = withUnsafeBytes(of: id) { core.send(prefix: UnsafeRawBufferPointer(rebasing: $0[..<5]), message) }
        if result == .sent, let known {
            ledger.noteSent(bytes, to: known)
            if ledgerTimer == nil { watchLedger() }
        }
        return result
    }

    private func watchLedger() {
        ledgerTimer = loop.schedule(after: SendLedger.interval) { [weak self] in
            guard let self else { return }
            ledgerTimer = nil
            ledger.look()
            if !ledger.isEmpty { watchLedger() }
        }
    }

    func close() {
        core.close()
        ledgerTimer?.cancel()
        handler = nil
        loop.context.removeDomain(domain)
        loop.remove(self)
    }
}
