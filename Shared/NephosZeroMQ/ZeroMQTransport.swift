internal import CNephosZeroMQ
internal import Foundation
internal import Logging
public import NephosBus
public import NephosCore

/// The bus over TCP: ZeroMQ with CURVE on every socket.
///
/// One for each process is enough. Every loop has a libzmq context of its own,
/// with its I/O threads and the thread that admits connections (ZAP).
public final class ZeroMQTransport: Transport {
    private let ioThreads: Int
    private let busyPollMax: Duration
    private let linger: Duration
    private let connectionsMax: Int?

    /// - Parameters:
    ///   - ioThreads: Threads that encrypt and move bytes. One carries about 250,000 small messages a second.
    ///     Each loop has this many.
    ///   - busyPollMax: How long a loop looks for news before it sleeps, while its waits are shorter than this.
    ///     It saves whoever waits for each answer about 20 us; 200 us suit a service, zero a device on a battery.
    ///   - linger: How long a loop that stops goes on sending what is queued.
    public init(ioThreads: Int = 1, busyPollMax: Duration = .zero, linger: Duration = .milliseconds(500)) {
        self.ioThreads = max(1, ioThreads)
        self.busyPollMax = busyPollMax
        self.linger = linger
        connectionsMax = nil
    }

    /// For tests: each loop accepts so many connections, whatever memory and descriptors there are.
    package init(connectionsMax: Int) {
        (ioThreads, busyPollMax, linger) = (1, .zero, .milliseconds(500))
        self.connectionsMax = connectionsMax
    }

    public func startLoop(
        named name: String, for work: LoopWork, _ setUp: @escaping @Sendable (any BusLoop) throws -> Void
    ) throws -> any LoopHandle {
        let room = connectionsMax.map { ConnectionRoom(connectionsMax: $0) } ?? ConnectionRoom(for: work)
        return try ZeroMQLoop.start(
            named: name, for: work, ioThreads: ioThreads, busyPollMax: busyPollMax, linger: linger, room: room, setUp)
    }

    public func makeKeyPair() throws -> KeyPair {
        var publicText = [CChar](repeating: 0, count: 41)
        var secretText = [CChar](repeating: 0, count: 41)
        guard zmq_curve_keypair(&publicText, &secretText) == 0,
            let publicKey = PublicKey(z85: Self.text(publicText)),
            let secretKey = SecretKey(z85: Self.text(secretText))
        else { throw ZeroMQFailure.last("A CURVE key pair could not be made. Is libzmq built with CURVE?") }
        return KeyPair(publicKey: publicKey, secretKey: secretKey)
    }

    private static func text(_ characters: [CChar]) -> String {
        String(decoding: characters.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// What libzmq reports, as our own error.
enum ZeroMQFailure {
    static func last(_ message: String, _ details: [String: String] = [:]) -> CloudError {
        var details = details
        details["reason"] = String(cString: zmq_strerror(zmq_errno()))
        return CloudError(.configurationInvalid, message, details: details)
    }
}
