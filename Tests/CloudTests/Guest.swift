import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// A signed-in connection that says what no well-behaved device would, at the services' real doors.
final class Guest {
    let cloud: TestCloud
    private(set) var session: WireSignInReply
    /// Under the same key: for what the server says by itself.
    let client: TestClient
    private let raw: RawClient
    private var generator: SplitMix64
    private var last: UInt64 = 0

    /// Signs in under a key of its own.
    init(of cloud: TestCloud, account: String = TestCloud.accountName, app: String = "", seed: UInt64 = 1) throws {
        self.cloud = cloud
        generator = SplitMix64(seed: seed)
        client = try cloud.makeClient()
        session = try Self.signIn(client, account, app)
        raw = try cloud.makeRawClient(client.keys)
    }

    private static func signIn(_ client: TestClient, _ account: String, _ app: String) throws -> WireSignInReply {
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "guest"
        request.appID = app
        return try client.call("SignIn", request, at: .requests(.identity))
    }

    /// The same device, with a new token.
    func signInAgain() throws { session = try Self.signIn(client, session.accountName, session.accessToken.app.appID) }

    /// Follows the app's store, and whatever else is named.
    @discardableResult
    func subscribe(_ others: [(service: ServiceName, scope: String)] = []) throws -> WireSubscribeReply {
        var request = WireSubscribe()
        request.scopes = scopes(others)
        return try client.call("Subscribe", request, at: .subscriptions, accessToken: session.accessToken.token)
    }

    /// Follows them no more.
    func unsubscribe(_ others: [(service: ServiceName, scope: String)] = []) throws {
        var request = WireUnsubscribe()
        request.scopes = scopes(others)
        let _: WireUnsubscribeReply = try client.call(
            "Unsubscribe", request, at: .subscriptions, accessToken: session.accessToken.token)
    }

    private func scopes(_ others: [(service: ServiceName, scope: String)]) -> [WireSubscribedScope] {
        ([(ServiceName.keyValue, session.accessToken.app.storeID)] + others).map {
            var scope = WireSubscribedScope()
            scope.service = $0.0.rawValue
            scope.scope = $0.1
            return scope
        }
    }

    var device: String { session.device.deviceID }
    var now: Timestamp { SimulatedNetwork.epoch.advanced(by: cloud.network.now) }

    func operation() -> OperationID { OperationID(at: now, using: &generator) }

    /// Sends a request, and lets time pass until it is answered.
    func ask(
        _ request: some SwiftProtobuf.Message, to service: ServiceName = .keyValue, id: OperationID? = nil
    ) throws -> ReplyEnvelope {
        let id = id ?? operation()
        try send(request, to: service, id: id)
        var reply: ReplyEnvelope?
        cloud.network.run(within: .seconds(60)) {
            reply = raw.replies.first { $0.id == id }
            return reply != nil
        }
        raw.clear()
        return try #require(reply)
    }

    /// What has come back and was not waited for.
    func takeReplies() -> [ReplyEnvelope] {
        defer { raw.clear() }
        return raw.replies.filter { $0.id != nil }
    }

    /// Sends a request and waits for nothing.
    func send(
        _ request: some SwiftProtobuf.Message, to service: ServiceName = .keyValue, id: OperationID? = nil,
        timeout: Duration? = nil
    ) throws {
        let name = String(type(of: request).protoMessageName.split(separator: ".").last ?? "")
        let envelope = RequestEnvelope(
            method: name, id: id ?? operation(), accessToken: session.accessToken.token, timeout: timeout,
            body: Frame(encoding: request))
        try raw.send(envelope.encoded(), to: .requests(service))
    }

    func push(_ writes: [WireKeyWrite]) -> WirePushKeys {
        var push = WirePushKeys()
        push.storeID = session.accessToken.app.storeID
        push.writes = writes
        return push
    }

    /// A write that is newer than any before it.
    func write(_ key: String, _ value: PropertyValue?, by device: String = "") -> WireKeyWrite {
        var write = WireKeyWrite()
        write.key = key
        if let value { write.value = WirePropertyValue(value) }
        last = max(now.milliseconds << 16, last + 1)
        write.timestamp = last
        write.deviceID = device
        return write
    }

    func pull(after token: ChangeToken = .zero) throws -> Result<WireReadChangesReply, CloudError> {
        var pull = WireReadChanges()
        pull.scope = session.accessToken.app.storeID
        pull.after = WireChangeToken(token)
        return try ask(pull).result.flatMap { body in
            Result { () throws(CloudError) in try body.decode(WireReadChangesReply.self) }
        }
    }
}

extension ReplyEnvelope {
    /// Why it was refused; nil: it was not.
    var code: CloudError.Code? { if case .failure(let error) = result { error.code } else { nil } }

    func decoded<Reply: SwiftProtobuf.Message>(as _: Reply.Type = Reply.self) throws -> Reply {
        try result.get().decode(Reply.self)
    }
}
