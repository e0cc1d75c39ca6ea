import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

import struct Foundation.Data

/// A cloud of one account and one store, small enough to see through. A test
/// can take any method over.
final class ScriptedCloud {
    /// Its loop, the device's, and the time; each way takes a millisecond.
    let network = SimulatedNetwork(seed: 1, faults: Faults(latency: .milliseconds(1) ... .milliseconds(1)))
    /// Whether somebody is there.
    var online = true { didSet { online ? open() : close() } }
    /// One way.
    var latency: Duration {
        get { network.faults.latency.lowerBound }
        set { network.faults.latency = newValue...newValue }
    }
    private let loop: any BusLoop
    private let keys: KeyPair
    private static let subscriptions = "tcp://subscriptions"
    private var doors: [String: any ReplySocket] = [:]
    /// Those that notifications are told to.
    private var subscribers: [Peer] = []
    /// As a service remembers them for each connection.
    private var carriedTokens: [Peer: [TokenDigest: String]] = [:]
    /// Every request, in order.
    var requests: [RequestEnvelope] = []
    /// Answers instead of the model: nil: let the model answer; a failure or a frame otherwise.
    var overrides: [String: (RequestEnvelope) -> Result<Frame, CloudError>?] = [:]
    /// What the model's answers say instead; under "Delivery", what deliveries do.
    var lies: [String: (Frame) -> Frame] = [:]
    /// Methods whose answers get lost.
    var lossy: Set<String> = []
    var budget: Budget?

    var account = "acc_one"
    var items: [ItemName: KeyValueItem] = [:]
    var head = ChangeToken(epoch: 1, sequence: 0)
    var epochStart: UInt64 = 0
    var digestKey: [UInt8] = Array(repeating: 7, count: 16)
    var lifetime: UInt64 = 3_600_000
    private var tokenCount = 0
    /// What repeats get.
    var answers: [OperationID: Frame] = [:]

    init() throws {
        network.offloadTime = .zero
        loop = network.makeLoop(named: "cloud")
        keys = KeyPair(
            publicKey: try #require(PublicKey(bytes: Array(repeating: 1, count: 32))),
            secretKey: try #require(SecretKey(bytes: Array(repeating: 2, count: 32))))
        open()
    }

    deinit { network.close() }

    private func open() {
        for endpoint in ["tcp://identity", "tcp://keyvalue", "tcp://notifications", Self.subscriptions] {
            let options = ReplySocketOptions(endpoint: endpoint, keys: keys, admission: .anyone)
            doors[endpoint] = try? loop.makeReplySocket(options) { [weak self] messages in
                for incoming in messages { self?.take(incoming, at: endpoint) }
            }
        }
    }

    private func close() {
        for door in doors.values { door.close() }
        (doors, subscribers, carriedTokens) = ([:], [], [:])
    }

    private func take(_ incoming: Incoming, at endpoint: String) {
        let peer = incoming.peer
        guard var request = try? RequestEnvelope(decoding: incoming.message) else {
            // Who has connected says nothing first.
            if endpoint == Self.subscriptions { subscribers.append(peer) }
            return reply(.greeting, to: peer, at: endpoint)
        }
        if let digest = request.accessTokenDigest {
            request.accessToken = carriedTokens[peer]?[digest] ?? ""
        } else {
            carriedTokens[peer, default: [:]][TokenDigest(of: request.accessToken)] = request.accessToken
        }
        if let answer = answer(request) { reply(answer, to: peer, at: endpoint) }
    }

    private func reply(_ reply: ReplyEnvelope, to peer: Peer, at endpoint: String) {
        _ = doors[endpoint]?.send(reply.encoded(), to: peer)
    }

    func requests(_ method: String) -> [RequestEnvelope] { requests.filter { $0.method == method } }

    func pushes() -> [WirePushKeys] { requests("PushKeys").compactMap { try? $0.body.decode(WirePushKeys.self) } }

    var digest: SetDigest {
        var digest = SetDigest.empty
        for item in items.values where item.value != nil { digest.add(item.digest(key: digestKey)) }
        return digest
    }

    /// Nil: it gets lost.
    private func answer(_ request: RequestEnvelope) -> ReplyEnvelope? {
        requests.append(request)
        let result = overrides[request.method]?(request) ?? model(request).map(lies[request.method] ?? { $0 })
        guard !lossy.contains(request.method) else { return nil }
        return ReplyEnvelope(id: request.id, result: result, budget: budget)
    }

    private func model(_ request: RequestEnvelope) -> Result<Frame, CloudError> {
        do {
            switch request.method {
            case "SignIn": return .success(Frame(encoding: signIn(try request.body.decode(WireSignIn.self))))
            case "RefreshToken":
                var reply = WireRefreshTokenReply()
                reply.accessToken = token()
                reply.refreshToken = "refresh-\(tokenCount)"
                return .success(Frame(encoding: reply))
            case "SignOut": return .success(Frame(encoding: WireSignOutReply()))
            case "Subscribe":
                var reply = WireSubscribeReply()
                reply.heartbeatMilliseconds = 5000
                reply.heads = [scopeHead]
                return .success(Frame(encoding: reply))
            case "PushKeys":
                if let known = answers[request.id] { return .success(known) }
                let reply = Frame(encoding: push(try request.body.decode(WirePushKeys.self)))
                answers[request.id] = reply
                return .success(reply)
            case "ReadChanges": return .success(Frame(encoding: try pull(request.body.decode(WireReadChanges.self))))
            default: return .failure(CloudError(.unknownMethod, "The script has no such method."))
            }
        } catch { return .failure(CloudError(wrapping: error)) }
    }

    var scopeHead: WireScopeHead {
        var wire = WireScopeHead()
        wire.service = "keyvalue"
        wire.owner = account
        wire.scope = "store.one"
        wire.token = WireChangeToken(head)
        return wire
    }

    private func token() -> WireAccessToken {
        tokenCount += 1
        var token = WireAccessToken()
        token.token = "access-\(tokenCount)"
        token.lifetimeMilliseconds = lifetime
        token.app.appID = "app.one"
        token.app.storeID = "store.one"
        return token
    }

    private func signIn(_ request: WireSignIn) -> WireSignInReply {
        var reply = WireSignInReply()
        reply.accountID = account
        reply.accountName = request.accountName.lowercased()
        reply.device.deviceID = "dev_here"
        reply.accessToken = token()
        reply.refreshToken = "refresh-\(tokenCount)"
        reply.identityToken = "identity-" + account
        reply.services = ["keyvalue", "notifications"].map { name in
            var address = WireServiceAddress()
            address.service = name
            address.publicKey = Z85.encode(Array(repeating: 1, count: 32))
            address.requestEndpoints = ["tcp://" + name]
            if name == "notifications" { address.subscriptionEndpoints = ["tcp://subscriptions"] }
            return address
        }
        return reply
    }

    private func push(_ request: WirePushKeys) -> WirePushKeysReply {
        var reply = WirePushKeysReply()
        reply.previousSequence = head.sequence
        var next = head
        next.sequence += 1
        for write in request.writes {
            var item = KeyValueItem(
                key: ItemName(write.key), value: write.hasValue ? try? PropertyValue(write.value) : nil,
                timestamp: HybridTimestamp(rawValue: write.timestamp),
                deviceID: DeviceID(write.deviceID.isEmpty ? "dev_here" : write.deviceID), sequence: next.sequence)
            var outcome = WireKeyOutcome()
            if let current = items[ItemName(write.key)], !item.wins(over: current) {
                outcome.superseded = true
                outcome.current = WireKeyValueItem(current)
            } else {
                items[ItemName(write.key)] = item
                head = next
                item.value = nil
                outcome.current = WireKeyValueItem(item)
            }
            reply.outcomes.append(outcome)
        }
        reply.token = WireChangeToken(head)
        return reply
    }

    private func pull(_ request: WireReadChanges) throws -> WireReadChangesReply {
        let after = ChangeToken(request.after)
        guard after.sequence == 0 || after.epoch == head.epoch && after.sequence <= head.sequence else {
            throw CloudError(.changeTokenExpired, "Fetch everything.")
        }
        var reply = WireReadChangesReply()
        reply.token = WireChangeToken(head)
        reply.complete = after.sequence == 0
        // A listing has what there is; only what comes after a token has the deletions.
        let listed = items.values.filter { reply.complete ? $0.value != nil : $0.sequence > after.sequence }
            .sorted { $0.sequence < $1.sequence }
        reply.items = listed.map(WireKeyValueItem.init)
        reply.digest = Data(digest.bytes)
        reply.digestKey = Data(digestKey)
        reply.epochStart = epochStart
        return reply
    }

    // MARK: Another device

    /// Another device's write, without telling anyone.
    @discardableResult
    func write(_ key: ItemName, _ value: PropertyValue?, at time: Timestamp, device: String = "dev_other")
        -> WireNotification
    {
        let previous = head.sequence
        head.sequence += 1
        let item = KeyValueItem(
            key: key, value: value, timestamp: HybridTimestamp(time), deviceID: DeviceID(device),
            sequence: head.sequence)
        items[key] = item
        var notification = WireNotification()
        notification.service = "keyvalue"
        notification.owner = account
        notification.scope = "store.one"
        notification.token = WireChangeToken(head)
        notification.previousSequence = previous
        notification.deviceID = device
        var change = WireChange()
        change.item = key.rawValue
        change.deleted = value == nil
        change.body = (try? WireKeyValueItem(item).serializedData()) ?? Data()
        notification.changes = [change]
        return notification
    }

    func deliver(_ notifications: [WireNotification] = [], _ edit: (inout WireDelivery) -> Void = { _ in }) {
        var delivery = WireDelivery()
        delivery.notifications = notifications
        edit(&delivery)
        let frame = lies["Delivery", default: { $0 }](Frame(encoding: delivery))
        for peer in subscribers {
            reply(ReplyEnvelope(id: nil, result: .success(frame)), to: peer, at: Self.subscriptions)
        }
    }

    /// The server is restored to an earlier state.
    func restore(to earlier: [ItemName: KeyValueItem], sequence: UInt64) {
        items = earlier
        epochStart = sequence
        head = ChangeToken(epoch: head.epoch + 1, sequence: sequence)
        answers = [:]
    }
}
