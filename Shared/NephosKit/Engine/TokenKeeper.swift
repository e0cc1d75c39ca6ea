import Bus
import Core
import Logging
import Wire

/// The access tokens of this home's apps, each renewed at two thirds of its life.
///
/// A refresh token may be used once, so only one refresh runs at a time, among
/// all processes of the home: under a lock, after reading again what another
/// process may have renewed meanwhile.
final class TokenKeeper {
    private typealias Completion = (Result<String, CloudError>) -> Void

    private unowned let engine: DeviceEngine
    private var tokens: [String: DeviceSecrets.AccessToken] = [:]
    private var waiting: [(app: AppID, completion: Completion)] = []
    private var refreshing = false

    init(_ engine: DeviceEngine) { self.engine = engine }

    func load() throws(CloudError) { tokens = try engine.secrets.load().accessTokens }

    /// A token as it is kept, with its times by this device's clock.
    func stamp(_ wire: WireAccessToken) -> DeviceSecrets.AccessToken {
        let now = engine.loop.wallClock.now
        return DeviceSecrets.AccessToken(
            token: wire.token, issued: now.milliseconds,
            expires: now.advanced(by: .milliseconds(Int64(clamping: wire.lifetimeMilliseconds))).milliseconds)
    }

    /// When the app's token should be renewed.
    func refreshAt(_ app: AppID) -> Timestamp? { tokens[app.rawValue]?.refreshAt }

    /// Hands out a valid token, at once if there is one.
    func token(for app: AppID, _ completion: @escaping (Result<String, CloudError>) -> Void) {
        guard let session = engine.session, session.signedIn else {
            completion(.failure(CloudError(.notSignedIn, "This home has no account signed in. Sign in.")))
            return
        }
        guard !session.revoked else {
            completion(.failure(CloudError(.deviceRevoked, "This device was revoked. Sign in again.")))
            return
        }
        let now = engine.loop.wallClock.now
        if let token = tokens[app.rawValue], token.isValid(at: now) {
            completion(.success(token.token))
            // What is in hand serves until the new one is here.
            if now >= token.refreshAt, !refreshing { renew(app) { _ in } }
            return
        }
        renew(app, completion)
    }

    /// The server did not accept this token.
    func discard(_ token: String, of app: AppID) {
        guard tokens[app.rawValue]?.token == token else { return }
        tokens[app.rawValue] = nil
        do {
            var kept = try engine.secrets.load()
            guard kept.accessTokens[app.rawValue]?.token == token else { return }
            kept.accessTokens[app.rawValue] = nil
            try engine.secrets.save(kept)
        } catch { engine.logger.error("the secret file could not be changed", CloudError(wrapping: error)) }
    }

    private func renew(_ app: AppID, _ completion: @escaping Completion) {
        waiting.append((app, completion))
        guard !refreshing else { return }
        refreshing = true
        begin()
    }

    private func begin() {
        guard !engine.stopped else { return }
        guard engine.secrets.tryLock() else {
            engine.loop.schedule(after: .milliseconds(100)) { [weak self] in self?.begin() }
            return
        }
        guard let app = waiting.first?.app else { return finish(nil) }
        do {
            var kept = try engine.secrets.load()
            if let token = kept.accessTokens[app.rawValue], token.token != tokens[app.rawValue]?.token,
                engine.loop.wallClock.now < token.refreshAt, token.isValid(at: engine.loop.wallClock.now)
            {
                // Another process has been quicker.
                tokens = kept.accessTokens
                return finish(nil)
            }
            guard let refreshToken = kept.refreshToken else {
                return finish(CloudError(.notAuthenticated, "This home's sign-in has ended. Sign in again."))
            }
            let refresh = kept.refresh ?? .init(operation: "\(engine.makeOperationID())", app: app.rawValue)
            guard let id = OperationID(refresh.operation) else {
                return finish(CloudError(.configurationInvalid, "The device's secret file is damaged. Sign in again."))
            }
            kept.refresh = refresh
            // Before it is sent: its answer may be lost with this process.
            try engine.secrets.save(kept)
            var wire = WireRefreshToken()
            wire.refreshToken = refreshToken
            wire.appID = refresh.app
            engine.send(.identity, wire, token: "", id: id) { [weak self] reply in
                self?.refreshed(reply.result.decoded(as: WireRefreshTokenReply.self), app: AppID(refresh.app))
            }
        } catch {
            finish(CloudError(wrapping: error))
        }
    }

    private func refreshed(_ result: Result<WireRefreshTokenReply, CloudError>, app: AppID) {
        guard !engine.stopped else { return engine.secrets.unlock() }
        do {
            var kept = try engine.secrets.load()
            switch result {
            case .success(let reply):
                kept.refresh = nil
                kept.refreshToken = reply.refreshToken
                kept.accessTokens[app.rawValue] = stamp(reply.accessToken)
                try engine.secrets.save(kept)
                tokens = kept.accessTokens
                try learn(reply, app: app)
                finish(nil)
            case .failure(let error):
                switch error.code.retry {
                case .never:
                    // A new id, should there be another try.
                    kept.refresh = nil
                    if error.code != .operationExpired { kept.accessTokens = [:] }
                    try engine.secrets.save(kept)
                    tokens = kept.accessTokens
                    if error.code == .deviceRevoked { engine.turnedAway() }
                case .afterBackoff, .afterRefetch: break
                }
                finish(error)
            }
        } catch {
            finish(CloudError(wrapping: error))
        }
    }

    private func learn(_ reply: WireRefreshTokenReply, app: AppID) throws {
        if var session = engine.session, !reply.accessToken.app.storeID.isEmpty,
            session.storeIDs[app.rawValue] != reply.accessToken.app.storeID
        {
            session.storeIDs[app.rawValue] = reply.accessToken.app.storeID
            try engine.setSession(session)
            try engine.local.write { try LocalStore.adoptProvisional(app: app, session: session, $0) }
        }
        engine.learn(reply.services.map(SessionRecord.Service.init))
    }

    private func finish(_ error: CloudError?) {
        engine.secrets.unlock()
        refreshing = false
        let now = engine.loop.wallClock.now
        let finished = waiting
        waiting = []
        var others: [(app: AppID, completion: Completion)] = []
        for (app, completion) in finished {
            if let error {
                completion(.failure(error))
            } else if let token = tokens[app.rawValue], token.isValid(at: now) {
                completion(.success(token.token))
            } else {
                others.append((app, completion))
            }
        }
        for (app, completion) in others { renew(app, completion) }
    }
}
