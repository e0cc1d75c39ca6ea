import NephosBus
import NephosCore
import NephosSimulation
import Testing

/// The simulation's network with a device and a ``ScriptedCloud`` on it, a millisecond apart.
final class TestLoop {
    /// One way.
    private static let latency: Duration = .milliseconds(1)

    let network = SimulatedNetwork(seed: 1, faults: Faults(latency: latency...latency))
    /// The device's.
    let device: any BusLoop
    var clock: any WallClock { device.wallClock }

    init(cloud: ScriptedCloud) throws {
        network.offloadTime = .zero
        device = try Self.start("device", on: network)
        cloud.networks.append(network)
        try cloud.open(on: Self.start("cloud", on: network))
    }

    deinit { network.close() }

    /// Runs everything that becomes due within this time.
    func advance(_ duration: Duration) { network.run(for: duration) }

    static func start(_ name: String, on network: SimulatedNetwork) throws -> any BusLoop {
        let made = Unshared(Made())
        _ = try InProcessTransport(network).startLoop(named: name, for: .requests) { made.value.loop = $0 }
        return try #require(made.value.loop)
    }

    private final class Made {
        var loop: (any BusLoop)?
    }
}

/// A ROUTER of the scripted cloud's.
final class ScriptedSocket {
    let endpoint: String
    private unowned let cloud: ScriptedCloud
    private var socket: (any ReplySocket)?
    private var peers: [Peer] = []
    /// As a service remembers them for each connection.
    private var carriedTokens: [UInt64: [TokenDigest: String]] = [:]

    init(_ endpoint: String, of cloud: ScriptedCloud, on loop: any BusLoop) throws {
        self.endpoint = endpoint
        self.cloud = cloud
        let key = try #require(PublicKey(bytes: Array(repeating: 1, count: 32)))
        let secret = try #require(SecretKey(bytes: Array(repeating: 2, count: 32)))
        socket = try loop.makeReplySocket(
            ReplySocketOptions(endpoint: endpoint, keys: KeyPair(publicKey: key, secretKey: secret))
        ) { [weak self] incoming in for message in incoming { self?.take(message) } }
    }

    private func take(_ incoming: Incoming) {
        // The probe of a new connection.
        guard incoming.message.count != 1 || !incoming.message[0].isEmpty else {
            peers.append(incoming.peer)
            return send(.greeting, to: incoming.peer)
        }
        guard var request = try? RequestEnvelope(decoding: incoming.message) else { return }
        let connection = incoming.peer.connection
        if let digest = request.accessTokenDigest {
            request.accessToken = carriedTokens[connection]?[digest] ?? ""
        } else {
            carriedTokens[connection, default: [:]][TokenDigest(of: request.accessToken)] = request.accessToken
        }
        cloud.answer(request) { [weak self] in self?.send($0, to: incoming.peer) }
    }

    private func send(_ reply: ReplyEnvelope, to peer: Peer) { _ = socket?.send(reply.encoded(), to: peer) }

    /// Tells everybody who is connected.
    func deliver(_ reply: ReplyEnvelope) { for peer in peers { send(reply, to: peer) } }

    func close() {
        socket?.close()
        socket = nil
    }
}
