package import NephosBus
package import NephosCore
internal import NephosServiceKit
package import NephosWire
package import SwiftProtobuf

/// A connection that says exactly what a test wants said, under any key and token.
package final class TestClient {
    /// The socket of a service that a call goes to.
    package enum Door: Hashable, Sendable {
        case requests(ServiceName)
        case subscriptions
        case bulk(ServiceName)
    }

    /// What the server sent by itself, in order.
    package private(set) var deliveries: [WireDelivery] = []
    /// All changes in it.
    package var notifications: [WireNotification] { deliveries.flatMap(\.notifications) }

    private unowned let cloud: TestCloud
    let name: String
    package let keys: KeyPair
    /// How it repeats what is refused for the moment. For connections that are made later.
    package var policy = RequestClient.Policy()
    private var clients: [Door: RequestClient] = [:]
    private var generator: SplitMix64

    init(name: String, keys: KeyPair, cloud: TestCloud, seed: UInt64) {
        self.name = name
        self.keys = keys
        self.cloud = cloud
        generator = SplitMix64(seed: seed)
    }

    /// Calls a method and lets time pass until it is answered.
    ///
    /// - Parameter id: The operation's; nil: a new one, by the simulation's clock.
    /// - Throws: ``CloudError`` as the service answered it, or `.deadlineExceeded` after a virtual minute.
    @discardableResult
    package func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: Request, at door: Door, accessToken: String = "", id: OperationID? = nil,
        as _: Reply.Type = Reply.self
    ) throws -> Reply {
        let answer = try begin(method, request, at: door, accessToken: accessToken, id: id)
        cloud.network.run(within: .seconds(60)) { answer.result != nil }
        guard let result = answer.result else {
            throw CloudError(.deadlineExceeded, "The service did not answer in time.")
        }
        return try result.get().decode(Reply.self)
    }

    /// The answer to a call, once there is one.
    package final class Answer {
        package fileprivate(set) var result: Result<Frame, CloudError>?
        /// What remains of the caller's budget; nil: nobody says.
        package fileprivate(set) var budget: Budget?
    }

    /// Calls a method, and lets no time pass.
    package func begin(
        _ method: String, _ request: some SwiftProtobuf.Message, at door: Door, accessToken: String = "",
        id: OperationID? = nil
    ) throws -> Answer {
        let answer = Answer()
        try connect(to: door).call(method, body: Frame(encoding: request), accessToken: accessToken, id: id) {
            answer.budget = $0.budget
            answer.result = $0.result
        }
        return answer
    }

    private func connect(to door: Door) throws -> RequestClient {
        if let client = clients[door] { return client }
        let (entry, endpoint) = try cloud.address(of: door)
        let options = RequestSocketOptions(endpoints: [endpoint], serverKey: try entry.key, keys: keys)
        let made = Unshared(Holder())
        let seed = generator.next()
        let policy = policy
        _ = try cloud.transport.startLoop(named: "\(name) to \(endpoint)") { loop in
            made.value.client = try RequestClient(
                loop: loop, socket: options, policy: policy, generator: SplitMix64(seed: seed))
        }
        guard let client = made.value.client else { throw CloudError(.internalError, "The loop made no client.") }
        client.onDelivery = { [weak self] envelope in
            guard let delivery = try? envelope.result.get().decode(WireDelivery.self) else { return }
            self?.deliveries.append(delivery)
        }
        clients[door] = client
        return client
    }

    private final class Holder {
        var client: RequestClient?
    }
}
