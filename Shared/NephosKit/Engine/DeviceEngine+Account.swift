internal import GRDB
internal import Logging
internal import NephosBus
package import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// Who signs in, and where.
package struct SignInRequest: Sendable {
    /// The identity service.
    package var identity: SessionRecord.Service
    package var accountName: String
    package var password: String
    package var deviceName: String
    package var deviceModel: String
    package var platform: String
    package var policyClass: DevicePolicyClass
    /// Empty: the deployment's default app.
    package var app: String
    /// Whether changes of another account that wait to be sent may be thrown away.
    package var discardsUnsent: Bool
    /// From a signed-in device or the operator, when others guess at the password. Or empty.
    package var code: String
    /// How long to wait for the answer.
    package var timeout: Duration = .seconds(30)

    package init(
        identity: SessionRecord.Service, accountName: String, password: String, deviceName: String,
        deviceModel: String = "", platform: String = "", policyClass: DevicePolicyClass = .computer, app: AppID? = nil,
        discardsUnsent: Bool = false, code: String = ""
    ) {
        self.identity = identity
        self.accountName = accountName
        self.password = password
        self.deviceName = deviceName
        self.deviceModel = deviceModel
        self.platform = platform
        self.policyClass = policyClass
        self.discardsUnsent = discardsUnsent
        self.code = code
        self.app = app?.rawValue ?? ""
    }
}

/// How a sign-out has ended.
public struct SignedOut: Hashable, Sendable {
    /// Whether the server knows. If not, it lists the device until somebody revokes it.
    public var isTold: Bool
    /// How many requests stay here unsent until this account signs in again, with those that were written while the
    /// server was asked.
    public var unsentCount: Int
}

extension DeviceEngine {
    /// Signs this home in. Another account's cached content is discarded.
    package func signIn(_ request: SignInRequest, _ completion: @escaping (Result<SessionRecord, CloudError>) -> Void) {
        let secrets = secrets
        let completion: (Result<SessionRecord, CloudError>) -> Void = { result in
            secrets.releaseRoom()
            completion(result)
        }
        do throws(CloudError) {
            try requireRoom(for: request)
            // A key stands for one device of one account, and a revoked one is spent.
            var kept = try loadSecrets()
            let needsKeys =
                kept.keys == nil || session?.revoked == true || session?.isNamed(request.accountName) != true
            if needsKeys { kept = try freshSecrets() }
            try signIn(request, keys: kept, areFresh: needsKeys, completion)
        } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
        }
    }

    private func requireRoom(for request: SignInRequest) throws(CloudError) {
        try local.requireWritable()
        guard !request.discardsUnsent else { return }
        try local.read { try requireNothingUnsent($0) { $0.isNamed(request.accountName) } }
    }

    /// Finds out what can be known of a sign-in without a password.
    package func requireSignInPossible(
        _ request: SignInRequest, _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        do throws(CloudError) { try requireRoom(for: request) } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
            return
        }
        requireAnswer(of: request.identity, timeout: request.timeout, completion)
    }

    /// Finds out whether identity answers at an address, under the key that is expected there.
    func requireAnswer(
        of identity: SessionRecord.Service, timeout: Duration,
        _ completion: @escaping (Result<Void, CloudError>) -> Void
    ) {
        let client: SignInClient
        do { client = try SignInClient(self, identity, keys: try freshSecrets()) } catch {
            let error = CloudError(wrapping: error)
            loop.schedule(after: .zero) { completion(.failure(error)) }
            return
        }
        // Whatever identity says to a stranger, it has answered.
        client.call(WireWhoAmI(), timeout: timeout, id: makeOperationID()) { reply in
            client.close()
            guard case .failure(let error) = reply.result else { return completion(.success(())) }
            switch error.code {
            case .networkUnavailable, .networkFailure, .serverResponseLost, .deadlineExceeded, .serviceUnavailable,
                .incompatibleVersion:
                completion(.failure(error))
            default: completion(.success(()))
            }
        }
    }

    private func freshSecrets() throws(CloudError) -> DeviceSecrets {
        var fresh = DeviceSecrets()
        fresh.keys = try freshKeys()
        return fresh
    }

    /// - Parameter areFresh: No server has seen the keys yet. Of others it may say that they are spent, which this
    ///   device need not have heard; a person could do nothing about it.
    private func signIn(
        _ request: SignInRequest, keys: DeviceSecrets, areFresh: Bool,
        _ completion: @escaping (Result<SessionRecord, CloudError>) -> Void
    ) throws(CloudError) {
        let client: SignInClient
        do {
            client = try SignInClient(self, request.identity, keys: keys)
        } catch { throw CloudError(wrapping: error) }
        do throws(CloudError) { try secrets.reserveRoom() } catch {
            client.close()
            throw error
        }
        signIn(request, client, keys: keys) { [weak self] result in
            guard let self, !areFresh, case .failure(let error) = result, error.code == .deviceRevoked else {
                return completion(result)
            }
            do throws(CloudError) {
                try self.signIn(request, keys: try self.freshSecrets(), areFresh: true, completion)
            } catch { completion(.failure(error)) }
        }
    }

    private func signIn(
        _ request: SignInRequest, _ client: SignInClient, keys: DeviceSecrets,
        _ completion: @escaping (Result<SessionRecord, CloudError>) -> Void
    ) {
        var wire = WireSignIn()
        wire.accountName = request.accountName
        wire.password = request.password
        wire.deviceName = request.deviceName
        wire.deviceModel = request.deviceModel
        wire.devicePlatform = request.platform
        wire.policyClass = request.policyClass == .smallDevice ? .smallDevice : .computer
        wire.appID = request.app
        wire.code = request.code
        client.call(wire, timeout: request.timeout, id: makeOperationID()) { [weak self] reply in
            guard let self, !self.stopped else { return client.close() }
            switch reply.result.decoded(as: WireSignInReply.self) {
            case .failure(let error):
                client.close()
                completion(.failure(error))
            case .success(let reply):
                do throws(CloudError) {
                    let session = try self.signedIn(reply, to: request, secrets: keys)
                    client.close()
                    completion(.success(session))
                } catch {
                    if error.code == .constraintViolation {
                        self.takeBack(reply, client)
                    } else {
                        client.close()
                    }
                    completion(.failure(error))
                }
            }
        }
    }

    /// Signs out again, as far as the server can be told: what waits here is another account's, as only its answer
    /// has shown.
    private func takeBack(_ reply: WireSignInReply, _ client: SignInClient, maysTakeOtherID: Bool = true) {
        let id = makeOperationID()
        client.call(
            WireSignOut(), accessToken: reply.accessToken.token, timeout: Self.signOutTimeout, id: id
        ) { [weak self] answer in
            guard let self, !self.stopped else { return client.close() }
            self.learnTime(answer)
            // A sign-in's id does not age; this is the first that shows a clock which is wrong.
            if maysTakeOtherID, self.isOutdated(id, by: answer) {
                return self.takeBack(reply, client, maysTakeOtherID: false)
            }
            client.close()
        }
    }

    /// What one account's devices never saw must not vanish because another signs in.
    func requireNothingUnsent(
        _ database: Database, unless isSame: (SessionRecord) -> Bool
    ) throws {
        guard let session = try Facts(database).session, !isSame(session) else { return }
        let unsent = try unsentChanges(of: session, database)
        guard !unsent.isEmpty else {
            let refused = try UndecidedChanges.count(of: session.accountID, database)
            guard refused > 0 else { return }
            throw CloudError(
                .constraintViolation,
                "Changes of the account that was signed in before were refused, or met others and wait for a decision, and are nowhere but here. Sign in to it once more (nephos why and nephos conflicts list them), or give them up (--discard-unsent).",
                details: ["account": session.accountName, "refused": "\(refused)"])
        }
        throw CloudError(
            .constraintViolation,
            "Changes of the account that was signed in before were never sent. Sign in to it once more, or give them up (--discard-unsent).",
            details: unsent.details(session))
    }

    /// The switch: the new secrets are saved beside the old ones, and the session that names them is committed with
    /// all that changes hands. Whatever ends this, the home is one account's, whole.
    private func signedIn(
        _ reply: WireSignInReply, to request: SignInRequest, secrets keys: DeviceSecrets
    ) throws(CloudError) -> SessionRecord {
        let app = reply.accessToken.app
        let account = AccountID(reply.accountID)
        var next = SessionRecord(
            accountID: account, accountName: reply.accountName, deviceID: DeviceID(reply.device.deviceID),
            deviceName: reply.device.name, identityToken: reply.identityToken, signedIn: true,
            defaultApp: AppID(app.appID), storeIDs: [:], services: addresses(reply.services),
            identity: request.identity, revoked: false)
        next.secrets = makeOperationID().description
        var kept = keys
        kept.refreshToken = reply.refreshToken
        kept.refreshOperation = nil
        kept.accessTokens = [app.appID: tokens.stamp(reply.accessToken)]
        let (signedIn, secrets) = (next, kept)
        self.secrets.releaseRoom()
        let (previous, session) = try local.write { database in
            let previous = try Facts(database).session
            var session = signedIn
            if let previous, previous.accountID == account { session.keepApps(of: previous) }
            session.setApp(app)
            // Something may have been written while the server was asked.
            // And under the name there may be another account by now, as its id shows.
            if !request.discardsUnsent { try requireNothingUnsent(database) { $0.accountID == account } }
            if let previous, previous.accountID != account {
                try ScopeTransaction.removeAll(of: previous.accountID, database)
                try Facts(database).setHasContentsLeft(true)
            }
            try change(to: session, secrets, database)
            try LocalStore.adoptProvisional(app: AppID(app.appID), session: session, database)
            try fault("sign-in.commit")
            return (previous, session)
        }
        try switched(to: session)
        announce(session, after: previous)
        return session
    }

    /// Tells who has the home now, and gives up what was kept of another's contents, which is nobody's any more.
    func announce(_ session: SessionRecord, after previous: SessionRecord?) {
        if let previous, previous.accountID != session.accountID { sweepContents() }
        if previous?.accountID != session.accountID || previous?.signedIn != true { announceAccountChange() }
    }

    /// Puts a session in the place of the one that is there. In a transaction, so that no other process clears the
    /// new secrets away before the session names them.
    func change(to session: SessionRecord, _ kept: DeviceSecrets, _ database: Database) throws {
        try fault("switch.secrets")
        try secrets.save(kept, as: session.secrets)
        try fault("switch.session")
        try Facts(database).setSession(session)
    }

    func switched(to session: SessionRecord) throws(CloudError) {
        do { try fault("switch.clear") } catch { throw CloudError(wrapping: error) }
        removeUnusedSecrets()
        self.session = session
        try tokens.load()
        reconnect(session: session)
    }

    /// Signs this home out: the server is told if it can be reached, and the
    /// tokens are gone in any case. The account's content stays on disk until
    /// another account signs in.
    ///
    /// - Parameters:
    ///   - keepsUnsent: Whether changes that wait to be sent may stay here unsent, until this account signs in
    ///     again. False: they are a reason not to sign out (`.constraintViolation`).
    ///   - timeout: How long to wait for the server, which may be silent; nil: as long as one is that may be there.
    ///   - completion: Gets how it has ended.
    package func signOut(
        keepsUnsent: Bool = false, timeout: Duration? = nil,
        _ completion: @escaping (Result<SignedOut, CloudError>) -> Void
    ) {
        let (limit, patience) = (timeout ?? Self.signOutTimeout, timeout ?? Self.signOutPatience)
        do throws(CloudError) {
            guard let session, session.signedIn else {
                loop.schedule(after: .zero) { completion(.success(SignedOut(isTold: true, unsentCount: 0))) }
                return
            }
            try local.requireWritable()
            let unsent = try local.read { try unsentChanges(of: session, $0) }
            guard keepsUnsent || unsent.isEmpty else {
                throw CloudError(
                    .constraintViolation,
                    session.revoked
                        ? "Changes were never sent, and the server takes none of this device any more. Sign in again, which sends them, or keep them here until then (--keep-unsent)."
                        : "Changes were never sent. Connect and have them sent, or keep them here until this account signs in again (--keep-unsent).",
                    details: unsent.details(
                        session, commands: session.revoked ? [] : commands(sending: unsent, session)))
            }
            // What the server has ended it does not take back.
            try secrets.reserveRoom()
            var isOver = false
            func end(isTold: Bool) {
                guard !isOver else { return }
                isOver = true
                secrets.releaseRoom()
                do throws(CloudError) {
                    completion(.success(SignedOut(isTold: isTold, unsentCount: try signedOut(session))))
                } catch {
                    completion(.failure(error))
                }
            }
            let start = loop.monotonicNow
            // A connection may have to be made, and a token to be renewed; on a long way each takes its time. Nobody
            // keeps the timer: it would keep itself, and all that waits for it, once the loop is gone.
            func check(after pause: Duration) {
                loop.schedule(after: pause) { [weak self] in
                    guard let self, !stopped, !isOver else { return }
                    let now = loop.monotonicNow
                    // What it said before, it did not say to this.
                    let heard = clients[.identity]?.lastHeard.flatMap { $0 >= start ? $0 : nil }
                    let silence = heard.map { now - $0 } ?? .zero
                    if now - start >= limit || silence >= patience {
                        return end(isTold: false)
                    }
                    check(after: patience - silence)
                }
            }
            check(after: patience)
            call(
                .identity, WireSignOut(), as: WireSignOutReply.self, app: session.defaultApp,
                timeout: limit, endsWhenRefused: true
            ) { result, _ in
                end(isTold: Self.isSignedOut(result))
            }
        } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
        }
    }

    /// How long a server may be silent that is told of a sign-out and was heard since.
    private static let signOutPatience: Duration = .milliseconds(700)
    /// How long to wait for a server that is told of a sign-out, in all.
    private static let signOutTimeout: Duration = .seconds(5)

    /// Whether the server takes this device for one that is not signed in.
    private static func isSignedOut(_ result: Result<WireSignOutReply, CloudError>) -> Bool {
        switch result {
        case .success: true
        case .failure(let error): error.code == .deviceRevoked || error.code == .notAuthenticated
        }
    }

    /// - Parameter session: As it was when the server was first asked; any process may have written since.
    /// - Returns: How many requests stay here unsent.
    /// - Throws: ``CloudError`` `.operationCancelled` when another process has signed somebody in.
    private func signedOut(_ session: SessionRecord) throws(CloudError) -> Int {
        var kept = DeviceSecrets()
        kept.keys = try secrets.load(session.secrets).keys
        let (name, secrets) = (makeOperationID().description, kept)
        let (ended, unsentCount): (SessionRecord?, Int) = try local.write { database in
            guard var ended = try Facts(database).session else { return (nil, 0) }
            if ended.secrets == session.secrets {
                ended.signedIn = false
                ended.identityToken = ""
                ended.secrets = name
                try change(to: ended, secrets, database)
                try fault("sign-out.commit")
            }
            return (ended, try unsentChanges(of: ended, database).reduce(0) { $0 + $1.requestCount })
        }
        if let ended, ended.secrets == name {
            try switched(to: ended)
            announceAccountChange()
            return unsentCount
        }
        // Another process was quicker.
        checkForeign()
        guard let ended, !ended.signedIn, ended.accountID == session.accountID else { throw Self.replaced }
        return unsentCount
    }
}

extension DeviceEngine {
    /// The services' addresses: those that the server sends, unless this device has others (``DeviceOptions/addresses``).
    func addresses(_ wire: [WireServiceAddress]) -> [SessionRecord.Service] {
        wire.map { wire in
            var service = SessionRecord.Service(wire)
            if let own = options.addresses.first(where: { $0.service == wire.service }) {
                (service.requests, service.subscriptions) = (own.requests, own.subscriptions)
                service.bulk = own.bulk
            }
            return service
        }
    }
}

extension SessionRecord.Service {
    fileprivate init(_ wire: WireServiceAddress) {
        self.init(
            service: wire.service, publicKey: wire.publicKey,
            nextPublicKey: wire.nextPublicKey.isEmpty ? nil : wire.nextPublicKey, requests: wire.requestEndpoints,
            subscriptions: wire.subscriptionEndpoints, bulk: wire.bulkEndpoints)
    }
}

extension LocalStore {
    /// Gives what was written before the app's store id was known its place.
    static func adoptProvisional(app: AppID, session: SessionRecord, _ database: Database) throws {
        guard let store = session.store(of: app) else { return }
        let provisional = StoreScope.signedOut(app: app).store
        for sql in [
            "UPDATE pending_writes SET store = ? WHERE account = ? AND store = ?",
            "UPDATE outbox SET scope = ? WHERE service = 'keyvalue' AND account = ? AND scope = ?",
        ] {
            try database.execute(
                sql: sql, arguments: [store.rawValue, session.accountID.rawValue, provisional.rawValue])
        }
    }
}

// MARK: Turned away

extension DeviceEngine {
    /// The server will have no more of this device until somebody signs in again.
    ///
    /// It says the same when another process of this home signs out, which is about to save that.
    func turnedAway(_ error: CloudError) {
        guard let session, session.signedIn, !session.revoked, !isTurningAway else { return }
        guard let interval = options.foreignPoll else { return turnAway(error) }
        isTurningAway = true
        loop.schedule(after: interval * Self.signOutPolls) { [weak self] in
            guard let self, !stopped else { return }
            isTurningAway = false
            checkForeign()
            guard self.session?.secrets == session.secrets else { return }
            turnAway(error)
        }
    }

    /// How often to look whether another process has signed out, before it is said that the device was revoked: one
    /// that gets no answer signs out all the same.
    private static let signOutPolls = 4

    private func turnAway(_ error: CloudError) {
        guard let session, session.signedIn, !session.revoked else { return }
        guard keepEnding(error) else { return checkForeign() }
        router.stop()
        for scope in scopes { scope.turnedAway() }
    }

    /// That this device is turned away holds, and is said, also while it cannot be saved.
    ///
    /// - Returns: False: another process has signed in or out.
    private func keepEnding(_ error: CloudError, _ retry: Retry = Retry()) -> Bool {
        func end(_ session: inout SessionRecord) {
            session.revoked = true
            session.wasCopied = error.details["reason"] == "copied"
            session.revokedAt = error.details["revoked_at"].flatMap { UInt64($0) }
            session.revokedBy = error.details["revoked_by"]
        }
        do throws(CloudError) { try changeSession { session, _ in end(&session) } } catch let failure {
            guard failure.code != .operationCancelled, var session else { return false }
            logger.error("session could not be saved", failure)
            end(&session)
            self.session = session
            var retry = retry
            loop.schedule(after: failed(&retry, failure)) { [weak self, retry] in
                guard let self, !stopped, self.session?.secrets == session.secrets else { return }
                _ = keepEnding(error, retry)
            }
        }
        return true
    }
}
