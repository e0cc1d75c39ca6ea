import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf

import struct Foundation.Data

/// A cloud of one account and one store, small enough to see through. A test
/// can take any method over.
final class ScriptedCloud {
    private var sockets: [ScriptedSocket] = []
    /// Those that devices reach it over.
    var networks: [SimulatedNetwork] = []
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

    func requests(_ method: String) -> [RequestEnvelope] { requests.filter { $0.method == method } }

    func pushes() -> [WirePushKeys] { requests("PushKeys").compactMap { try? $0.body.decode(WirePushKeys.self) } }

    var digest: SetDigest {
        var digest = SetDigest.empty
        for item in items.values where item.value != nil { digest.add(item.digest(key: digestKey)) }
        return digest
    }

    /// Begins to answer.
    func open(on loop: any BusLoop) throws {
        for name in ["identity", "keyvalue", "notifications", "subscriptions"] {
            sockets.append(try ScriptedSocket("tcp://" + name, of: self, on: loop))
        }
    }

    /// Goes away, and all connections with it.
    func close() {
        for socket in sockets { socket.close() }
        sockets = []
    }

    /// Comes back.
    func open() throws { for network in networks { try open(on: TestLoop.start("cloud", on: network)) } }

    func answer(_ request: RequestEnvelope, _ send: (ReplyEnvelope) -> Void) {
        requests.append(request)
        let result = overrides[request.method]?(request) ?? model(request).map(lies[request.method] ?? { $0 })
        guard !lossy.contains(request.method) else { return }
        send(ReplyEnvelope(id: request.id, result: result, budget: budget))
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
        for socket in sockets where socket.endpoint == "tcp://subscriptions" {
            socket.deliver(ReplyEnvelope(id: nil, result: .success(frame)))
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
