internal import CNephosZeroMQ
internal import Foundation
internal import NephosBus
internal import NephosCore

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
    private let routingFrame = ReceivedFrame()

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
            silenceMax: Self.silenceMax, admitsRosterAlone: options.admission.isRoster)
        ledger = SendLedger(perConnectionMax: options.unsentBytesPerConnectionMax, max: options.unsentBytesMax)
        core = try SocketCore(loop, type: ZMQ_ROUTER)
        try core.beCurveServer(options.keys, domain: domain)
        try core.set(ZMQ_ROUTER_MANDATORY, Int32(1))
        try core.setLimits(sending: options.sendQueueMax, frameBytesMax: options.frameBytesMax, limits)
        endpoint = try core.bind(options.endpoint)
    }

    var unsentBytes: Int { ledger.total }

    func receiveReady() -> Bool {
        var batch: [Incoming] = []
        var received = 0
        var byteCount = 0
        while received < batchMax, byteCount < SocketCore.batchBytesMax, let message = core.receive(after: routingFrame)
        {
            received += 1
            byteCount += core.wireBytes
            if let one = incoming(message) { batch.append(one) }
        }
        if !batch.isEmpty { handler?(batch) }
        return received > 0
    }

    private func incoming(_ message: Message) -> Incoming? {
        guard let first = message.first?.storage as? ReceivedFrame else { return nil }
        guard let id = routingFrame.withUnsafeBytes(RoutingID.init), let peer = peers.peer(id, on: first) else {
            // It chose an id of its own, and had it.
            if let descriptor = first.descriptor { loop.context.connections[descriptor]?.cut() }
            return nil
        }
        peer.noteTaken(core.wireBytes, first, loop.context.connections, limits)
        guard message.count == 1 else {
            peer.connection?.cut()
            return nil
        }
        return Incoming(peer: Peer(connection: UInt64(serial) << 33 | id.number, publicKey: peer.key), message: message)
    }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        guard peer.connection >> 33 == UInt64(serial) else { return .gone }
        let id = routingID(of: peer)
        let known = peers[id]
        var bytes = 0
        if let known {
            bytes = message.reduce(0) { $0 + Connection.wireBytes($1.count) }
            guard ledger.hasRoom(for: bytes, to: known, now: { loop.monotonicNow }) else { return .full }
        }
        let result = id.withBytes { core.send(prefix: $0, message) }
        if result == .sent, let known {
            ledger.noteSent(bytes, to: known)
            if ledgerTimer == nil { watchLedger() }
        }
        return result
    }

    func address(of peer: Peer) -> String? {
        guard peer.connection >> 33 == UInt64(serial) else { return nil }
        return peers[routingID(of: peer)]?.address
    }

    func noteIdentified(_ peer: Peer) {
        guard peer.connection >> 33 == UInt64(serial) else { return }
        peers[routingID(of: peer)]?.noteIdentified()
    }

    func isGone(_ peer: Peer) -> Bool {
        guard peer.connection >> 33 == UInt64(serial), let known = peers[routingID(of: peer)] else { return true }
        return known.connection?.isClosed ?? false
    }

    private func routingID(of peer: Peer) -> RoutingID { RoutingID(number: peer.connection & ((1 << 33) - 1)) }

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
