import NephosBus
import NephosCore
import NephosWire
import SwiftProtobuf

/// Follows the account's own scope on the connection of the stores: how full
/// the plan is. A service that is away keeps it from nothing else, so it is
/// subscribed to by itself.
final class AccountFollower {
    private static let scope = "account"
    private static let retryPause: Duration = .seconds(30)

    private unowned let engine: DeviceEngine
    private var client: RequestClient?
    private var timer: (any LoopTimer)?
    /// Whether the server has said so, on this connection.
    private(set) var isFollowing = false

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// Subscribes, unless that has been done on this connection.
    func begin(on client: RequestClient, token: String) {
        guard self.client !== client, engine.session?.isPublic != true else { return }
        self.client = client
        isFollowing = false
        var scope = WireSubscribedScope()
        scope.service = ServiceName.identity.rawValue
        scope.scope = Self.scope
        var wire = WireSubscribe()
        wire.scopes = [scope]
        client.call("Subscribe", body: Frame(encoding: wire), accessToken: token, timeout: engine.options.timeout) {
            [weak self, weak client] reply in
            guard let self, let client, client === self.client, !engine.stopped else { return }
            switch reply.result.decoded(as: WireSubscribeReply.self) {
            case .success(let reply):
                isFollowing = true
                // Nothing was ever said: there is nothing to ask about.
                if reply.heads.contains(where: { $0.token.sequence > 0 }) { fetch() }
            case .failure:
                // With the next token, or then.
                timer = engine.loop.schedule(after: Self.retryPause) { [weak self] in
                    guard let self, client === self.client else { return }
                    self.client = nil
                    begin(on: client, token: token)
                }
            }
        }
    }

    func end() {
        timer?.cancel()
        client = nil
        isFollowing = false
    }

    func receive(_ notification: WireNotification) {
        // Several changes in one, or one too large to travel along.
        if notification.changes.isEmpty
            || notification.changes.contains(where: { $0.item == "storage" && $0.body.isEmpty })
        {
            fetch()
        }
        for change in notification.changes where change.item == "storage" {
            guard let state = try? WireStorageState(serializedBytes: change.body) else { continue }
            engine.home.tell(
                StorageNotice(planBytes: state.planBytes, usedBytes: state.usedBytes, level: Int(state.level)))
        }
    }

    private func fetch() {
        guard let app = engine.session?.defaultApp else { return }
        engine.call(.identity, WireReadStorage(), as: WireReadStorageReply.self, app: app) { [weak self] result, _ in
            // Without a plan nothing is known, which is not a plan of nothing.
            guard let self, case .success(let reply) = result, reply.hasPlan else { return }
            engine.home.tell(
                StorageNotice(
                    planBytes: reply.plan.sizeBytes, usedBytes: reply.services.reduce(0) { $0 + $1.usedBytes },
                    level: Int(reply.level)))
        }
    }
}
