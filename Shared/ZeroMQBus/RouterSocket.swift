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
    private var provedKeys = ProvedKeys()
    /// Of the message that was received last.
    private let routingID = ReceivedFrame()

    init(loop: ZeroMQLoop, _ options: ReplySocketOptions, _ handler: @escaping ([Incoming]) -> Void) throws {
        self.loop = loop
        self.handler = handler
        batchMax = max(1, options.batchMax)
        serial = loop.nextSerial()
        domain = loop.context.addDomain(options.admission)
        core = try SocketCore(loop, type: ZMQ_ROUTER)
        try core.beCurveServer(options.keys, domain: domain)
        try core.set(ZMQ_ROUTER_MANDATORY, Int32(1))
        try core.setLimits(
            sending: options.sendQueueMax, receiving: options.sendQueueMax, frameBytesMax: options.frameBytesMax)
        endpoint = try core.bind(options.endpoint)
    }

    func receiveReady() -> Bool {
        var batch: [Incoming] = []
        var received = 0
        var byteCount = 0
        while received < batchMax, byteCount < SocketCore.batchBytesMax, let message = core.receive(after: routingID) {
            received += 1
            for frame in message { byteCount += frame.count }
            if let one = incoming(message) { batch.append(one) }
        }
        if !batch.isEmpty { handler?(batch) }
        return received > 0
    }

    private func incoming(_ message: Message) -> Incoming? {
        guard let number = routingID.withUnsafeBytes(Self.number),
            let first = message.first?.storage as? ReceivedFrame, let key = provedKeys.key(of: number, on: first)
        else { return nil }
        return Incoming(
            peer: Peer(connection: UInt64(serial) << 32 | UInt64(number), publicKey: key), message: message)
    }

    /// The number in a routing id that libzmq made: a zero byte, and four of a counter.
    private static func number(_ id: UnsafeRawBufferPointer) -> UInt32? {
        guard id.count == 5, id[0] == 0 else { return nil }
        return id.loadUnaligned(fromByteOffset: 1, as: UInt32.self)
    }

    func send(_ message: Message, to peer: Peer) -> SendResult {
        guard peer.connection >> 32 == UInt64(serial) else { return .gone }
        let number = UInt32(truncatingIfNeeded: peer.connection)
        // In memory: a zero byte, and the number as it is in memory.
        return withUnsafeBytes(of: UInt64(littleEndian: UInt64(UInt32(littleEndian: number)) << 8)) {
            core.send(prefix: UnsafeRawBufferPointer(rebasing: $0[..<5]), message)
        }
    }

    func close() {
        core.close()
        handler = nil
        loop.context.removeDomain(domain)
        loop.remove(self)
    }
}

/// The keys that connections have proved, so that each is decoded once.
///
/// libzmq carries the key with every message, as the admission wrote it. An
/// entry saves only the decoding and holds only if its text is the message's
/// own: a client could choose a routing id that was another's a moment ago.
private struct ProvedKeys {
    private struct Entry {
        var text: [CChar]
        var key: PublicKey
    }

    /// At the limit the table starts afresh; an entry is cheap to make again.
    private static let entriesMax = 65_536

    private var entries: [UInt32: Entry] = [:]

    mutating func key(of number: UInt32, on frame: ReceivedFrame) -> PublicKey? {
        frame.withProperty("User-Id") { text in
            guard let text else { return nil }
            if let entry = entries[number], entry.text.withUnsafeBufferPointer({ Self.isSame($0, text) }) {
                return entry.key
            }
            return decode(number, text, frame)
        }
    }

    private mutating func decode(
        _ number: UInt32, _ text: UnsafePointer<CChar>, _ frame: ReceivedFrame
    ) -> PublicKey? {
        // The property in which a client states a routing id of its own choice.
        let isChosen = frame.withProperty("Identity") { $0.map { $0[0] != 0 } ?? false }
        guard !isChosen, let key = PublicKey(z85: String(cString: text)) else { return nil }
        if entries.count >= Self.entriesMax { entries.removeAll(keepingCapacity: true) }
        entries[number] = Entry(text: Array(UnsafeBufferPointer(start: text, count: strlen(text) + 1)), key: key)
        return key
    }

    private static func isSame(_ left: UnsafeBufferPointer<CChar>, _ right: UnsafePointer<CChar>) -> Bool {
        left.baseAddress.map { strcmp($0, right) == 0 } ?? false
    }
}
