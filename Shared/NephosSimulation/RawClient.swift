package import NephosBus
package import NephosCore
internal import NephosServiceKit

/// A connection that sends whatever bytes a test wants sent, and keeps what comes back.
package final class RawClient {
    package let keys: KeyPair
    /// What came back and could be decoded, in order; greetings included.
    package private(set) var replies: [ReplyEnvelope] = []
    /// What came back from where content goes, greetings left out.
    package private(set) var frames: [BulkFrame] = []
    private var sockets: [TestClient.Door: any RequestSocket] = [:]
    private unowned let cloud: TestCloud
    private let name: String

    init(name: String, keys: KeyPair, cloud: TestCloud) {
        self.name = name
        self.keys = keys
        self.cloud = cloud
    }

    /// Sends frames as they are.
    package func send(_ message: Message, to door: TestClient.Door) throws {
        _ = try socket(door).send(message)
    }

    /// Forgets what has come back.
    package func clear() { (replies, frames) = ([], []) }

    private func socket(_ door: TestClient.Door) throws -> any RequestSocket {
        if let socket = sockets[door] { return socket }
        let (entry, endpoint) = try cloud.address(of: door)
        let options = RequestSocketOptions(endpoints: [endpoint], serverKey: try entry.key, keys: keys)
        let made = Unshared(Holder())
        let onMessages = Unshared<([Message]) -> Void> { [weak self] messages in
            guard case .bulk = door else {
                self?.replies += messages.compactMap { try? ReplyEnvelope(decoding: $0) }
                return
            }
            self?.frames += messages.compactMap { $0.first }.map(BulkFrame.init)
                .filter { (try? $0.kind(contentBytesMax: BulkLimits.chunkBytesMax)) != .greeting }
        }
        _ = try cloud.transport.startLoop(named: "\(name) to \(endpoint)") { loop in
            made.value.socket = try loop.makeRequestSocket(options) { onMessages.value($0) }
        }
        guard let socket = made.value.socket else {
            throw CloudError(.internalError, "The loop made no socket.")
        }
        sockets[door] = socket
        cloud.network.run(for: .milliseconds(20))
        return socket
    }

    private final class Holder {
        var socket: (any RequestSocket)?
    }
}
