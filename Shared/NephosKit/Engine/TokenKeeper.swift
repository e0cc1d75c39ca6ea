import GRDB
import Logging
import NephosBus
import NephosCore
import NephosWire

/// The access tokens of this home's apps, each renewed at two thirds of its life.
///
/// A refresh token may be used once, so only one refresh runs at a time, among
/// all processes of the home: under a lock, after reading again what another
/// process may have renewed meanwhile.
final class TokenKeeper {
    private typealias Completion = (Result<String, CloudError>) -> Void

    /// A token in hand. What is left of its life passes by the loop's clock, which no correction of the wall clock
    /// makes longer or shorter.
    private struct Held {
        var token: String
        var refreshAt: Duration
        var end: Duration
        /// No token lives longer, whatever was said of it.
        private static let lifetimeMax: Duration = .seconds(86_400)

        init(_ stored: DeviceSecrets.AccessToken, now: Timestamp, monotonic: Duration) {
            token = stored.token
            let (issued, end) = (Timestamp(milliseconds: stored.issued), Timestamp(milliseconds: stored.expires))
            let lifetime = min(max(.zero, end.since(issued)), Self.lifetimeMax)
            // A wall clock that went back says nothing of its age; the server will.
            let age = min(max(.zero, now.since(issued)), lifetime)
            refreshAt = monotonic + lifetime / 3 * 2 - age
            self.end = monotonic + lifetime - age
        }
    }

    private unowned let engine: DeviceEngine
    private var tokens: [String: Held] = [:]
    private var waiting: [(app: AppID, completion: Completion)] = []
    /// The sign-in whose tokens these are, and under which everybody asked who waits (``SessionRecord/secrets``).
    private var signIn: String?
    /// What the apps may use, as their last tokens of this process said.
    private var entitled: [String: WireApp] = [:]
    private(set) var refreshing = false
    private var isLocking = false
    /// Failures in a row, and until when nothing is tried because of them.
    private var retry = Retry()
    private var rest: (until: Duration, error: CloudError)?

    init(_ engine: DeviceEngine) { self.engine = engine }

    private var monotonicNow: Duration { engine.loop.monotonicNow }

    /// Reads the tokens of who is signed in now. Whoever waits for one of another sign-in's gets none.
    func load() throws(CloudError) {
        hold(try engine.loadSecrets())
        retry.succeeded()
        rest = nil
        guard signIn != engine.session?.secrets else { return }
        signIn = engine.session?.secrets
        let former = waiting
        waiting = []
        guard !former.isEmpty else { return }
        // Once what they began has ended with their connections: how that ends is no news for what begins.
        engine.loop.schedule(after: .zero) { [weak self] in
            guard let self, !engine.stopped else { return }
            for (_, completion) in former { completion(.failure(DeviceEngine.replaced)) }
        }
    }

    /// Nobody hears of a token any more.
    func stop() {
        if isLocking { unlock() }
        waiting = []
    }

    /// Whatever has failed may be tried again at once.
    func hasten() { rest = nil }

    private func hold(_ secrets: DeviceSecrets) {
        let (now, monotonic) = (engine.loop.wallClock.now, monotonicNow)
        // What is in hand already has been counting since it came.
        tokens = Dictionary(
            secrets.accessTokens.map { app, stored in
                if let held = tokens[app], held.token == stored.token { return (app, held) }
                return (app, Held(stored, now: now, monotonic: monotonic))
            }
        ) { first, _ in first }
    }

    /// A token as it is kept, with its times by this device's clock.
    func stamp(_ wire: WireAccessToken) -> DeviceSecrets.AccessToken {
        let now = engine.loop.wallClock.now
        return DeviceSecrets.AccessToken(
            token: wire.token, issued: now.milliseconds,
            expires: now.advanced(by: .milliseconds(Int64(clamping: wire.lifetimeMilliseconds))).milliseconds)
    }

    /// How long it is until the app's token should be renewed.
    func refreshIn(_ app: AppID) -> Duration? { tokens[app.rawValue].map { max(.zero, $0.refreshAt - monotonicNow) } }

    /// Hands out a valid token, at once if there is one.
    func token(for app: AppID, _ completion: @escaping (Result<String, CloudError>) -> Void) {
        guard let session = engine.session, session.signedIn else {
            completion(.failure(CloudError(.notSignedIn, "This home has no account signed in. Sign in.")))
            return
        }
        if let ending = session.ending {
            completion(.failure(ending))
            return
        }
        let now = monotonicNow
        let resting = rest.flatMap { $0.until > now ? $0 : nil }
        if let token = tokens[app.rawValue], now < token.end {
            completion(.success(token.token))
            // What is in hand serves until the new one is here.
            if now >= token.refreshAt, !refreshing, resting == nil { renew(app) { _ in } }
            return
        }
        if let resting, !refreshing {
            var error = resting.error
            if error.code.retry != .never { error.retryAfter = resting.until - now }
            completion(.failure(error))
            return
        }
        renew(app, completion)
    }

    /// The server did not accept this token.
    func discard(_ token: String, of app: AppID) {
        guard tokens[app.rawValue]?.token == token else { return }
        tokens[app.rawValue] = nil
        do {
            try engine.changeSecrets { kept in
                guard kept.accessTokens[app.rawValue]?.token == token else { return false }
                kept.accessTokens[app.rawValue] = nil
                return true
            }
        } catch { engine.logger.error("the secret file could not be changed", error) }
    }

    /// The server accepts what is in hand no more.
    func discardHeld(of app: AppID) {
        if let held = tokens[app.rawValue] { discard(held.token, of: app) }
    }

    private func renew(_ app: AppID, _ completion: @escaping Completion) {
        waiting.append((app, completion))
        guard !refreshing else { return }
        refreshing = true
        begin()
    }

    private func unlock() {
        isLocking = false
        engine.secrets.unlock()
    }

    /// - Parameter waited: How long for the lock already.
    private func begin(waited: Duration = .zero) {
        guard !engine.stopped else { return }
        if !isLocking {
            do throws(CloudError) { isLocking = try engine.secrets.tryLock() } catch { return finish(error) }
            guard isLocking else { return beginLater(waited: waited) }
        }
        guard let app = waiting.first?.app else { return finish(nil) }
        do {
            let kept = try engine.loadSecrets()
            let before = tokens[app.rawValue]?.token
            hold(kept)
            if let token = tokens[app.rawValue], token.token != before, monotonicNow < token.refreshAt {
                // Another process has been quicker.
                return finish(nil)
            }
            if let appToken = kept.appToken { return issue(appToken, app) }
            guard let refreshToken = kept.refreshToken else {
                return finish(CloudError(.notAuthenticated, "This home's sign-in has ended. Sign in again."))
            }
            let operation = kept.refreshOperation ?? "\(engine.makeOperationID())"
            guard let id = OperationID(operation) else {
                return finish(CloudError(.configurationInvalid, "The device's secret file is damaged. Sign in again."))
            }
            if kept.refreshOperation == nil {
                // Before it is sent: its answer may be lost with this process.
                try engine.changeSecrets {
                    $0.refreshOperation = operation
                    return true
                }
            }
            var wire = WireRefreshToken()
            wire.refreshToken = refreshToken
            wire.appID = app.rawValue
            let place = engine.session?.secrets
            engine.send(.identity, wire, token: "", id: id, endsWhenRefused: true) { [weak self] reply in
                guard let self, !self.engine.stopped else { return }
                // Somebody else has signed in: this was the answer to another. Who waits now waits for their own.
                guard self.engine.session?.secrets == place else { return self.finish(nil) }
                self.refreshed(reply.result.decoded(as: WireRefreshTokenReply.self), app: app)
            }
        } catch {
            finish(CloudError(wrapping: error))
        }
    }

    /// Without an account: the app's token is good for as many access tokens as are asked for.
    private func issue(_ appToken: String, _ app: AppID) {
        var wire = WireIssuePublicToken()
        wire.secret = appToken
        let place = engine.session?.secrets
        engine.send(.identity, wire, token: "", id: engine.makeOperationID(), endsWhenRefused: true) {
            [weak self] reply in
            guard let self, !self.engine.stopped else { return }
            guard self.engine.session?.secrets == place else { return self.finish(nil) }
            let issued = reply.result.decoded(as: WireIssuePublicTokenReply.self).map { issued in
                var reply = WireRefreshTokenReply()
                reply.accessToken = issued.accessToken
                reply.services = issued.services
                return reply
            }
            self.refreshed(issued, app: app)
        }
    }

    /// Another process has the lock, as a rule for as long as a refresh takes.
    private func beginLater(waited: Duration) {
        guard waited < Self.lockPatience else { return finish(Self.locked) }
        // Those who wait for a store are told why nothing happens.
        if waited >= Self.lockUsual { for scope in engine.scopes { scope.note(Self.locked) } }
        let pause = max(.milliseconds(100), waited / 2)
        engine.loop.schedule(after: pause) { [weak self] in self?.begin(waited: waited + pause) }
    }

    private static let lockUsual: Duration = .seconds(1)
    private static let lockPatience: Duration = .seconds(10)
    private static let locked = CloudError(.storageFailure, LocalFailure.locked)

    private func refreshed(_ result: Result<WireRefreshTokenReply, CloudError>, app: AppID) {
        do throws(CloudError) {
            switch result {
            case .success(let reply):
                // Where the app's store is comes first: with a token, and without that, nobody would ask again.
                try learn(reply, app: app)
                let token = stamp(reply.accessToken)
                try engine.changeSecrets { kept in
                    kept.refreshOperation = nil
                    kept.refreshToken = reply.refreshToken.isEmpty ? nil : reply.refreshToken
                    kept.accessTokens[app.rawValue] = token
                    return true
                }
                hold(try engine.loadSecrets())
                engine.learn(engine.addresses(reply.services))
                heed(reply.accessToken.app, of: app)
                finish(nil)
            case .failure(let error):
                // The id stays, whatever the error says: the exchange may have been made before.
                switch error.code {
                case .notAuthenticated, .tokenNotBound, .deviceRevoked:
                    try engine.changeSecrets { kept in
                        kept.accessTokens = [:]
                        return true
                    }
                    hold(try engine.loadSecrets())
                    if error.code == .deviceRevoked { engine.turnedAway(error) }
                    // Nothing goes on without a person, whom the next request would tell too late.
                    if error.code != .deviceRevoked { for scope in engine.scopes { scope.note(error) } }
                default: break
                }
                finish(error, of: app)
            }
        } catch {
            finish(error)
        }
    }

    private func learn(_ reply: WireRefreshTokenReply, app: AppID) throws(CloudError) {
        let (store, containers) = (reply.accessToken.app.storeID, reply.accessToken.app.containerIds)
        let isOtherStore = !store.isEmpty && engine.session?.storeIDs[app.rawValue] != store
        var owned = engine.session
        owned?.setOwners(reply.accessToken.app)
        owned?.setCapabilities(reply.accessToken.app)
        guard isOtherStore || engine.session?.containers(of: app) != containers || owned != engine.session else {
            return
        }
        try engine.changeSession { session, database in
            session.setContainers(containers, of: app)
            session.setOwners(reply.accessToken.app)
            session.setCapabilities(reply.accessToken.app)
            guard isOtherStore else { return }
            session.setStore(store, of: app)
            try LocalStore.adoptProvisional(app: app, session: session, database)
        }
    }

    /// With the new token in hand: the app may have another store by now, or may do what it might not before.
    private func heed(_ entitlements: WireApp, of app: AppID) {
        let isOther = entitled.updateValue(entitlements, forKey: app.rawValue) != entitlements
        for scope in engine.scopes where scope.app == app {
            scope.rejoin()
            if isOther { scope.unblock() }
        }
    }

    /// - Parameter asked: The app that the refresh was for; it may have begun for another one than who waits now.
    private func finish(_ error: CloudError?, of asked: AppID? = nil) {
        if isLocking { unlock() }
        refreshing = false
        let now = monotonicNow
        if let error, error.code != .missingEntitlement {
            rest = (now + engine.failed(&retry, error), error)
        } else {
            retry.succeeded()
            rest = nil
            for scope in engine.scopes where scope.sync.problem == Self.locked { scope.note(nil) }
        }
        let finished = waiting
        waiting = []
        var others: [(app: AppID, completion: Completion)] = []
        for (app, completion) in finished {
            if let error, error.code != .missingEntitlement || asked == app {
                completion(.failure(error))
            } else if let token = tokens[app.rawValue], now < token.end {
                completion(.success(token.token))
            } else {
                others.append((app, completion))
            }
        }
        for (app, completion) in others { renew(app, completion) }
    }
}
