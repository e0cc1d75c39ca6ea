import Bus
import Core
import NephosKit
import SwiftProtobuf
import TestKit
import Testing
import Wire

/// A signed-in connection that says what no well-behaved device would, at the services' real doors.
final class Guest {
    let cloud: TestCloud
    let session: WireSignInReply
    private let raw: RawClient
    private var generator: SplitMix64

    /// Signs in under a key of its own.
    init(of cloud: TestCloud, account: String = TestCloud.accountName, app: String = "", seed: UInt64 = 1) throws {
        self.cloud = cloud
        generator = SplitMix64(seed: seed)
        let client = try cloud.makeClient()
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "guest"
        request.appID = app
        session = try client.call("SignIn", request, at: .requests(.identity))
        raw = try cloud.makeRawClient(client.keys)
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

    /// Sends a request and waits for nothing.
    func send(_ request: some SwiftProtobuf.Message, to service: ServiceName = .keyValue, id: OperationID? = nil) throws
    {
        let name = String(type(of: request).protoMessageName.split(separator: ".").last ?? "")
        let envelope = RequestEnvelope(
            method: name, id: id ?? operation(), accessToken: session.accessToken.token,
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
        write.timestamp = now.milliseconds << 16 + generator.next() % 1000
        write.deviceID = device
        return write
    }

    func pull(after token: ChangeToken = .zero) throws -> Result<WirePullKeysReply, CloudError> {
        var pull = WirePullKeys()
        pull.storeID = session.accessToken.app.storeID
        pull.after = WireChangeToken(token)
        return try ask(pull).result.flatMap { body in
            Result { () throws(CloudError) in try body.decode(WirePullKeysReply.self) }
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
