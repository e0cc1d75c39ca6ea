internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// What several handlers share: who calls, for which app, and the tokens they get.
extension IdentityService {
    /// The calling device, as it is now: a token outlives the sign-out by some minutes.
    ///
    /// - Throws: ``CloudError`` `.deviceRevoked` or `.notAuthenticated`.
    func requireDevice(
        _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> (caller: Caller, device: DeviceRecord) {
        let caller = try context.requireCaller()
        let device = try DeviceStore(transaction: transaction).device(caller.device)
        switch device?.state {
        case .active: break
        case .revoked, .copied: throw device?.ending ?? Self.deviceRevoked
        case .signedOut, nil: throw CloudError(.notAuthenticated, "This device has signed out. Sign in again.")
        }
        guard let device, device.account == caller.account, device.key == context.peer.publicKey else {
            throw CloudError(.tokenNotBound, "The access token belongs to another device.")
        }
        return (caller, device)
    }

    /// Whose account a request is about, and who makes it: a device speaks for
    /// its own, the operator for the one that is named.
    struct Subject {
        var account: AccountRecord
        /// Nil: the operator.
        var device: DeviceRecord?

        var actor: AuditActor { device.map(AuditActor.device) ?? .administrator }
    }

    /// - Parameters:
    ///   - accountName: Empty unless the operator asks.
    ///   - admitsAppPasswords: Whether a device may ask that signed in with an app password.
    /// - Throws: ``CloudError`` `.unknownItem` if there is no such account; `.permissionFailure`; and as
    ///   ``requireDevice(_:_:)``.
    func requireSubject(
        _ accountName: String, admitsAppPasswords: Bool = false, _ context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> Subject {
        guard context.caller == nil else {
            let device = try requireDevice(context, transaction).device
            guard admitsAppPasswords || device.appPassword.isEmpty else {
                throw CloudError(
                    .permissionFailure,
                    "This device signed in with an app password, which cannot manage the account. Use another device.")
            }
            guard accountName.isEmpty else {
                throw CloudError(.permissionFailure, "Only the operator may name an account. A device has its own.")
            }
            guard let account = try AccountStore(transaction: transaction).account(device.account) else {
                throw CloudError.accountClosed
            }
            return Subject(account: account, device: device)
        }
        return Subject(account: try requireAccount(named: accountName, transaction), device: nil)
    }

    /// - Throws: ``CloudError`` `.unknownItem`; only the operator may ask.
    func requireAccount(named name: String, _ transaction: any HandlerTransaction) throws -> AccountRecord {
        let name = try AccountNameRule.canonical(name)
        guard let account = try AccountStore(transaction: transaction).account(named: name) else {
            throw CloudError(.unknownItem, "There is no account of this name. See: nephos account list")
        }
        return account
    }

    /// Notes something in an account's journal in a transaction of its own:
    /// that of the request is rolled back with the error that it ends with.
    func recordApart(
        _ event: AuditEvent, of account: AccountID, by actor: AuditActor, _ context: RequestContext,
        details: [String: String] = [:]
    ) throws {
        let now = context.now
        try requireRunning().runtime.submit { transaction in
            // It may have been closed meanwhile.
            guard try AccountStore(transaction: transaction).account(account) != nil else { return }
            try AuditJournal(transaction: transaction).record(
                event, of: account, by: actor, at: now, details: details)
        }
    }

    /// The service that a request comes from, by its key: what a service says of itself does not count.
    func requireService(_ context: RequestContext) throws -> ServiceName {
        let key = context.peer.publicKey.z85
        guard
            let entry = try requireRunning().runtime.roster.services.first(where: {
                $0.publicKey == key || $0.nextPublicKey == key
            })
        else {
            throw CloudError(.permissionFailure, "Only services of this deployment may do this.")
        }
        return ServiceName(entry.service)
    }

    /// The named app; an empty name is the default app.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement` if there is no such app.
    func requireApp(_ id: String, _ transaction: any HandlerTransaction) throws -> AppRecord {
        let id = id.isEmpty ? Self.defaultApp.id : AppID(id)
        guard NameRule.accepts(id.rawValue), let app = try AppStore(transaction: transaction).app(id) else {
            throw CloudError(.missingEntitlement, "This deployment has no such app. See: nephos app list")
        }
        return app
    }

    /// A signed access token, and what its holder needs to know of it.
    ///
    /// - Parameter end: When it ends at the latest.
    func accessToken(
        for device: DeviceRecord, app: AppRecord, at now: Timestamp, until end: Timestamp? = nil,
        _ transaction: any HandlerTransaction
    ) throws -> WireAccessToken {
        let running = try requireRunning()
        let expires = min(now.advanced(by: configuration.accessTokenLifetime), end ?? Timestamp(milliseconds: .max))
        let app = try narrowed(app, to: device, transaction)
        var wire = WireAccessToken()
        wire.token = try signingKeys(transaction).signer(at: now).sign(
            AccessClaims(
                deployment: running.runtime.roster.deployment, account: device.account, device: device.id,
                app: app.id, entitlements: app.entitlements, deviceKey: device.key, issued: now,
                expires: expires, tokenID: Base64URL.encode(randomBytes(16)), isNarrow: !device.appPassword.isEmpty))
        wire.lifetimeMilliseconds = UInt64(clamping: expires.since(now).milliseconds)
        wire.app = try told(app, transaction)
        return wire
    }

    /// The app with what the device may do with it.
    func narrowed(
        _ app: AppRecord, to device: DeviceRecord, _ transaction: any HandlerTransaction
    ) throws -> AppRecord {
        guard !device.appPassword.isEmpty else { return app }
        guard let password = try AppPasswordStore(transaction: transaction).password(device.appPassword) else {
            throw Self.deviceRevoked
        }
        var app = app
        app.entitlements.capabilities.formIntersection(password.scope.capabilities)
        return app
    }

    /// The app as its devices get it: with whose its containers' public databases are.
    func told(_ app: AppRecord, _ transaction: any HandlerTransaction) throws -> WireApp {
        var wire = WireApp(app)
        let containers = ContainerStore(transaction: transaction)
        wire.containerOwners = try app.entitlements.containers.map {
            try containers.definition(of: $0)?.owner?.rawValue ?? ""
        }
        return wire
    }

    /// The device as a message.
    func told(_ device: DeviceRecord, _ transaction: any HandlerTransaction) throws -> WireDevice {
        var wire = WireDevice(device)
        if !device.appPassword.isEmpty {
            wire.appPassword = try AppPasswordStore(transaction: transaction).password(device.appPassword)?.name ?? ""
        }
        return wire
    }

    /// The next refresh token of a family, stored as its newest.
    ///
    /// - Parameter previous: What it is given in exchange for; nil begins a new family.
    func newRefreshToken(
        for device: DeviceID, after previous: RefreshFamily?, context: RequestContext,
        _ transaction: any HandlerTransaction
    ) throws -> RefreshSecret {
        guard let key = try requireRunning().refreshKeys.first else {
            throw CloudError(.internalError, "There is no key to derive refresh tokens with.")
        }
        let secret = RefreshSecret(
            family: previous?.id ?? randomBytes(RefreshSecret.familyByteCount),
            generation: (previous?.generation ?? 0) + 1, key: key)
        try RefreshFamilyStore(transaction: transaction).replace(
            with: RefreshFamily(
                id: secret.family, device: device, generation: secret.generation, tokenHash: secret.hash,
                previousHash: previous?.tokenHash, issuedBy: context.id,
                earlierRequests: RefreshFamily.late(
                    (previous.map {
                        $0.earlierRequests + [.init(operation: $0.issuedBy, overtaken: context.now)]
                    } ?? []), at: context.now),
                expires: context.now.advanced(by: configuration.refreshTokenLifetime)))
        return secret
    }

    /// Ends a device: its refresh tokens now, and everywhere its access tokens through the event.
    ///
    /// - Returns: The device in its new state.
    func end(
        _ device: DeviceRecord, as state: DeviceRecord.State, _ transaction: any HandlerTransaction
    ) throws -> DeviceRecord {
        var device = device
        device.state = state
        try DeviceStore(transaction: transaction).save(device)
        try RefreshFamilyStore(transaction: transaction).remove(of: device.id)
        return device
    }

    func randomBytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    }

    func randomID<Kind: Identifier>(_ kind: Kind.Type, prefix: String) -> Kind {
        // A copy would repeat itself; the existential is opened in place.
        .random(prefix: prefix, using: &generator)
    }

    func randomDeviceID(of account: AccountID) -> DeviceID { .random(of: account, using: &generator) }

    static let deviceRevoked = CloudError(.deviceRevoked, "This device was revoked. Sign in again.")
}
