internal import Bus
public import Core
internal import GRDB
internal import SwiftProtobuf
internal import Wire

/// Who signs in, and where.
public struct SignInRequest: Sendable {
    /// The identity service.
    public var identity: SessionRecord.Service
    public var accountName: String
    public var password: String
    public var deviceName: String
    public var deviceModel: String
    public var platform: String
    public var policyClass: DevicePolicyClass
    /// Empty: the deployment's default app.
    public var app: String
    /// Whether changes of another account that wait to be sent may be thrown away.
    public var discardsUnsent: Bool

    public init(
        identity: SessionRecord.Service, accountName: String, password: String, deviceName: String,
        deviceModel: String = "", platform: String = "", policyClass: DevicePolicyClass = .computer, app: AppID? = nil,
        discardsUnsent: Bool = false
    ) {
        self.identity = identity
        self.accountName = accountName
        self.password = password
        self.deviceName = deviceName
        self.deviceModel = deviceModel
        self.platform = platform
        self.policyClass = policyClass
        self.discardsUnsent = discardsUnsent
        self.app = app?.rawValue ?? ""
    }
}

extension DeviceEngine {
    /// Signs this home in. Another account's cached content is discarded.
    public func signIn(_ request: SignInRequest, _ completion: @escaping (Result<SessionRecord, CloudError>) -> Void) {
        do throws(CloudError) {
            if !request.discardsUnsent { try requireNothingUnsent(for: request.accountName) }
            // A key stands for one device of one account, and a revoked one is spent.
            var kept = try secrets.load()
            if kept.keys == nil || session?.revoked == true || session?.accountName != request.accountName {
                kept = DeviceSecrets()
                kept.keys = try freshKeys()
            }
            let client: SignInClient
            do {
                client = try SignInClient(self, request.identity, keys: kept)
            } catch { throw CloudError(wrapping: error) }
            var wire = WireSignIn()
            wire.accountName = request.accountName
            wire.password = request.password
            wire.deviceName = request.deviceName
            wire.deviceModel = request.deviceModel
            wire.devicePlatform = request.platform
            wire.policyClass = request.policyClass == .smallDevice ? .smallDevice : .computer
            wire.appID = request.app
            client.call(wire, timeout: .seconds(30)) { [weak self] reply in
                client.close()
                guard let self, !self.stopped else { return }
                switch reply.result.decoded(as: WireSignInReply.self) {
                case .failure(let error): completion(.failure(error))
                case .success(let reply):
                    do throws(CloudError) {
                        completion(.success(try self.signedIn(reply, identity: request.identity, secrets: kept)))
                    } catch { completion(.failure(error)) }
                }
            }
        } catch {
            loop.schedule(after: .zero) { completion(.failure(error)) }
        }
    }

    /// What one account's devices never saw must not vanish because another signs in.
    private func requireNothingUnsent(for accountName: String) throws(CloudError) {
        guard let session, session.accountName != accountName.lowercased() else { return }
        let count = try local.read { try LocalStore.unsentCount(of: session.accountID, $0) }
        guard count > 0 else { return }
        throw CloudError(
            .constraintViolation,
            "Changes of the account that was signed in before were never sent. Sign in to it once more, or give them up (--discard-unsent).",
            details: ["account": session.accountName, "unsent": "\(count)"])
    }

    private func signedIn(
        _ reply: WireSignInReply, identity: SessionRecord.Service, secrets kept: DeviceSecrets
    ) throws(CloudError) -> SessionRecord {
        let app = reply.accessToken.app
        let previous = session
        let account = AccountID(reply.accountID)
        let session = SessionRecord(
            accountID: account, accountName: reply.accountName, deviceID: DeviceID(reply.device.deviceID),
            deviceName: reply.device.name, identityToken: reply.identityToken, signedIn: true,
            defaultApp: AppID(app.appID),
            storeIDs: [app.appID: app.storeID], services: reply.services.map(SessionRecord.Service.init),
            identity: identity, revoked: false)
        var kept = kept
        kept.refreshToken = reply.refreshToken
        kept.refresh = nil
        kept.accessTokens = [app.appID: tokens.stamp(reply.accessToken)]
        try secrets.save(kept)
        try local.write { database in
            if let previous, previous.accountID != account {
                try LocalStore.discard(account: previous.accountID, database)
            }
            try Facts(database).setSession(session)
            try LocalStore.adoptProvisional(app: AppID(app.appID), session: session, database)
        }
        try tokens.load()
        reconnect(session: session)
        if previous?.accountID != account || previous?.signedIn != true { announceAccountChange() }
        return session
    }

    /// Signs this home out: the server is told if it can be reached, and the
    /// tokens are gone in any case. The account's content stays on disk until
    /// another account signs in.
    public func signOut(_ completion: @escaping (Result<Void, CloudError>) -> Void) {
        guard let session, session.signedIn else {
            loop.schedule(after: .zero) { completion(.success(())) }
            return
        }
        call(
            .identity, WireSignOut(), as: WireSignOutReply.self, app: session.defaultApp, timeout: .seconds(3)
        ) { [weak self] _, _ in
            guard let self else { return }
            do throws(CloudError) {
                var kept = try self.secrets.load()
                kept.refreshToken = nil
                kept.refresh = nil
                kept.accessTokens = [:]
                try self.secrets.save(kept)
                var session = session
                session.signedIn = false
                session.identityToken = ""
                try self.setSession(session)
                try self.tokens.load()
                self.reconnect(session: session)
                self.announceAccountChange()
                completion(.success(()))
            } catch { completion(.failure(error)) }
        }
    }
}

extension SessionRecord.Service {
    init(_ wire: WireServiceAddress) {
        self.init(
            service: wire.service, publicKey: wire.publicKey,
            nextPublicKey: wire.nextPublicKey.isEmpty ? nil : wire.nextPublicKey, requests: wire.requestEndpoints,
            subscriptions: wire.subscriptionEndpoints)
    }
}

extension LocalStore {
    /// Changes of an account that wait to be sent.
    static func unsentCount(of account: AccountID, _ database: Database) throws -> Int {
        try Int.fetchOne(
            database, sql: "SELECT COUNT(*) FROM pending WHERE account = ?", arguments: [account.rawValue]) ?? 0
    }

    /// Forgets what was cached for an account.
    static func discard(account: AccountID, _ database: Database) throws {
        for table in ["stores", "items", "pending_writes", "pending", "refused"] {
            try database.execute(sql: "DELETE FROM \(table) WHERE account = ?", arguments: [account.rawValue])
        }
    }

    /// Gives what was written before the app's store id was known its place.
    static func adoptProvisional(app: AppID, session: SessionRecord, _ database: Database) throws {
        guard let store = session.store(of: app) else { return }
        let provisional = StoreScope.signedOut(app: app).store
        for table in ["pending_writes", "pending"] {
            try database.execute(
                sql: "UPDATE \(table) SET store = ? WHERE account = ? AND store = ?",
                arguments: [store.rawValue, session.accountID.rawValue, provisional.rawValue])
        }
    }
}
