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

    private enum State {
        case asking
        /// It was refused, or was not answered.
        case resting(any LoopTimer)
        case following
    }

    private unowned let engine: DeviceEngine
    private var client: RequestClient?
    /// On this connection.
    private var state = State.asking
    /// Whether the server has said so, on this connection.
    var isFollowing: Bool {
        if client != nil, case .following = state { true } else { false }
    }

    init(_ engine: DeviceEngine) { self.engine = engine }

    /// Subscribes, unless that has been done on this connection or is under way.
    func begin(on client: RequestClient, token: String) {
        guard engine.session?.isPublic != true else { return }
        if self.client === client {
            // What was refused before may not be under this token.
            guard case .resting(let timer) = state else { return }
            timer.cancel()
        } else {
            end()
            self.client = client
        }
        ask(client, token)
    }

    private func ask(_ client: RequestClient, _ token: String) {
        state = .asking
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
                state = .following
                // Nothing was ever said: there is nothing to ask about.
                if reply.heads.contains(where: { $0.token.sequence > 0 }) { fetch() }
            case .failure(let error):
                if error.code == .tokenExpired || error.code == .notAuthenticated, let app {
                    engine.tokens.discard(token, of: app)
                }
                rest(on: client)
            }
        }
    }

    /// Tries it again later, with the token of then, unless a store's subscription is made before.
    private func rest(on client: RequestClient) {
        state = .resting(
            engine.loop.schedule(after: Self.retryPause) { [weak self] in
                guard let self, client === self.client, let app else { return }
                state = .asking
                engine.tokens.token(for: app) { [weak self] result in
                    guard let self, client === self.client, !engine.stopped else { return }
                    switch result {
                    case .success(let token): ask(client, token)
                    case .failure: rest(on: client)
                    }
                }
            })
    }

    private var app: AppID? { engine.session?.defaultApp }

    func end() {
        if case .resting(let timer) = state { timer.cancel() }
        state = .asking
        client = nil
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
        guard let app else { return }
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
