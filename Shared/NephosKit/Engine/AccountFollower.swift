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

    /// How the plan is asked for.
    private enum Fetch {
        case none
        /// Again: something was heard since it was asked.
        case asking(again: Bool)
        /// It was not answered.
        case resting(any LoopTimer)
    }

    private unowned let engine: DeviceEngine
    private var client: RequestClient?
    /// On this connection.
    private var state = State.asking
    private var fetching = Fetch.none
    /// The account's head that was heard of last; `.zero`: nobody knew it; nil: none was.
    private var head: ChangeToken?
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
                for head in reply.heads { heard(head) }
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
        if case .resting(let timer) = fetching { timer.cancel() }
        (state, fetching, head) = (.asking, .none, nil)
        client = nil
    }

    /// Where the account's scope is.
    func heard(_ heard: WireScopeHead) {
        guard ServiceName(heard.service) == .identity, heard.owner == engine.session?.accountID.rawValue else { return }
        let token = heard.unknown ? .zero : ChangeToken(heard.token)
        // Nothing was ever said: there is nothing to ask about.
        let isNews = heard.unknown ? head == nil : token.sequence > 0 && token != head
        head = token
        if isNews { fetch() }
    }

    /// Notices were left out.
    func lagged() { if isFollowing { fetch() } }

    func receive(_ notification: WireNotification) {
        head = ChangeToken(notification.token)
        // What is being asked was perhaps read before this.
        if case .asking = fetching { fetching = .asking(again: true) }
        // Several changes in one, or one too large to travel along.
        if notification.changes.isEmpty
            || notification.changes.contains(where: { $0.item == "storage" && $0.body.isEmpty })
        {
            fetch()
        }
        for change in notification.changes where change.item == "storage" {
            guard let state = try? WireStorageState(serializedBytes: change.body) else { continue }
            engine.home.hear(
                StorageNotice(planBytes: state.planBytes, usedBytes: state.usedBytes, level: Int(state.level)))
        }
    }

    /// Asks for what is not in any notice, until that is answered.
    private func fetch() {
        guard let app, let client else { return }
        switch fetching {
        case .none: break
        case .asking: return fetching = .asking(again: true)
        case .resting(let timer): timer.cancel()
        }
        fetching = .asking(again: false)
        engine.call(.identity, WireReadStorage(), as: WireReadStorageReply.self, app: app) {
            [weak self, weak client] result, _ in
            guard let self, let client, client === self.client, case .asking(let again) = fetching else { return }
            fetching = .none
            switch result {
            case .failure(let error):
                if error.code.retry != .never { fetchLater() }
            case .success(let reply):
                if again { return fetch() }
                // Without a plan nothing is known, which is not a plan of nothing.
                if reply.hasPlan {
                    engine.home.hear(
                        StorageNotice(
                            planBytes: reply.plan.sizeBytes, usedBytes: reply.services.reduce(0) { $0 + $1.usedBytes },
                            level: Int(reply.level)))
                }
            }
        }
    }

    private func fetchLater() {
        fetching = .resting(engine.loop.schedule(after: Self.retryPause) { [weak self] in self?.fetch() })
    }
}
