internal import Bus
internal import Core
internal import ServiceKit
internal import Storage
internal import Wire

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
        case .revoked: throw Self.deviceRevoked
        case .signedOut, nil: throw CloudError(.notAuthenticated, "This device has signed out. Sign in again.")
        }
        guard let device, device.account == caller.account, device.key == context.peer.publicKey else {
            throw CloudError(.tokenNotBound, "The access token belongs to another device.")
        }
        return (caller, device)
    }

    /// The named app; an empty name is the default app.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement` if there is no such app.
    func requireApp(_ id: String, _ transaction: any HandlerTransaction) throws -> AppRecord {
        let id = id.isEmpty ? Self.defaultApp.id : AppID(id)
        guard NameRule.accepts(id.rawValue), let app = try AppStore(transaction: transaction).app(id) else {
            throw CloudError(.missingEntitlement, "This deployment has no such app.")
        }
        return app
    }

    /// A signed access token, and what its holder needs to know of it.
    func accessToken(for device: DeviceRecord, app: AppRecord, at now: Timestamp) throws -> WireAccessToken {
        let running = try requireRunning()
        let lifetime = configuration.accessTokenLifetime
        var wire = WireAccessToken()
        wire.token = try running.signer.sign(
            AccessClaims(
                deployment: running.runtime.roster.deployment, account: device.account, device: device.id,
                app: app.id, store: app.store, containers: app.containers, deviceKey: device.key, issued: now,
                expires: now.advanced(by: lifetime), tokenID: Base64URL.encode(randomBytes(16))))
        wire.lifetimeMilliseconds = UInt64(clamping: lifetime.milliseconds)
        wire.app = WireApp(app)
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
        let salt = randomBytes(RefreshSecret.saltByteCount)
        let secret = RefreshSecret(
            family: previous?.id ?? randomBytes(RefreshSecret.familyByteCount), salt: salt, key: key)
        try RefreshFamilyStore(transaction: transaction).replace(
            with: RefreshFamily(
                id: secret.family, device: device, salt: salt, tokenHash: secret.hash,
                previousHash: previous?.tokenHash, issuedBy: context.id,
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

    static let deviceRevoked = CloudError(
        .deviceRevoked, "This device's key was revoked. Sign in with a new key.")
}
