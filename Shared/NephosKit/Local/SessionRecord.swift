public import NephosCore
internal import NephosWire

/// Who is signed in on this home, as it is kept on disk.
public struct SessionRecord: Codable, Hashable, Sendable {
    /// Where a service answers, and who it is.
    package struct Service: Codable, Hashable, Sendable {
        /// Its name on the bus.
        package var service: String
        /// CURVE public key, Z85.
        package var publicKey: String
        /// What the key will be after the next rotation, once that is announced.
        package var nextPublicKey: String?
        /// Endpoints that take requests, such as `tcp://127.0.0.1:7410`.
        package var requests: [String]
        /// Endpoints that take subscriptions; most services have none.
        package var subscriptions: [String]
        /// Endpoints that take content; most services have none. Nil: the service was learned before there were any.
        package var bulk: [String]?

        /// A service as a deployment names it.
        package init(
            service: String, publicKey: String, nextPublicKey: String? = nil, requests: [String],
            subscriptions: [String], bulk: [String]? = nil
        ) {
            self.service = service
            self.nextPublicKey = nextPublicKey
            self.publicKey = publicKey
            self.requests = requests
            self.subscriptions = subscriptions
            self.bulk = bulk
        }
    }

    /// Names the account for good.
    public internal(set) var accountID: AccountID
    /// What it signs in with.
    public internal(set) var accountName: String
    /// Names this device for good.
    public internal(set) var deviceID: DeviceID
    /// What this device was called at sign-in.
    public internal(set) var deviceName: String
    /// Opaque; equal for the same account.
    package var identityToken: String
    /// False after sign-out: the account's content is kept in case it signs in again.
    package var signedIn: Bool
    /// The app that signed in: the one meant when none is named.
    public internal(set) var defaultApp: AppID
    /// The store id of each app that this device has had a token for.
    package var storeIDs: [String: String]
    /// The containers that each of them lists, the default one first. Nil: its token was from before they were kept.
    package var containerIDs: [String: [String]]?
    /// The apps whose the containers' public databases are. Nil: the server has told of none.
    package var containerOwners: [String: String]?
    /// Apps that may not use key-value: nothing of theirs is kept in step there. Nil: the server has told of none.
    private(set) var appsWithoutKeyValue: Set<String>?
    /// The stores that apps had before, as far as this device has used them.
    package var formerStoreIDs: [String: [String]]?
    /// Where the deployment's services answer, as the server published it last.
    package var services: [Service]
    /// The identity service, from the connection string.
    package var identity: Service
    /// Set: the server has turned this device away.
    package var revoked: Bool
    /// Set: it was turned away because its sign-in came from two places.
    package var wasCopied: Bool?
    /// When it was revoked, in milliseconds since 1970, and by the device of which name (empty: the operator), as the
    /// server has said. Nil: it has not.
    package var revokedAt: UInt64?
    package var revokedBy: String?
    /// Under which name this sign-in's secrets are kept.
    package var secrets = ""

    /// Nil after sign-out.
    public var ubiquityIdentityToken: UbiquityIdentityToken? {
        signedIn && !identityToken.isEmpty ? UbiquityIdentityToken(identityToken) : nil
    }

    /// Why the server has turned this device away; nil: it has not.
    package var ending: CloudError? {
        guard revoked else { return nil }
        guard wasCopied == true else {
            return CloudError(
                .deviceRevoked, "This device was revoked. Sign in again.",
                details: revokedAt.map { ["revoked_at": "\($0)", "revoked_by": revokedBy ?? ""] } ?? [:])
        }
        return CloudError(
            .deviceRevoked,
            "This device's sign-in came from two places, so it was ended for both. Sign in again.",
            details: ["reason": "copied"])
    }

    /// Whether this is what the account is called, which is one name in upper and lower case.
    func isNamed(_ name: String) -> Bool { accountName.lowercased() == name.lowercased() }

    /// The app has this store from now on.
    mutating func setStore(_ store: String, of app: AppID) {
        let former = storeIDs.updateValue(store, forKey: app.rawValue)
        var all = formerStoreIDs?[app.rawValue] ?? []
        if let former { all.append(former) }
        all.removeAll { $0 == store }
        formerStoreIDs = (formerStoreIDs ?? [:]).merging([app.rawValue: all]) { $1 }
    }

    /// The same account had signed in before: what its apps had then is known until their next tokens tell more.
    mutating func keepApps(of previous: SessionRecord) {
        storeIDs = previous.storeIDs
        formerStoreIDs = previous.formerStoreIDs
        containerIDs = previous.containerIDs
        containerOwners = previous.containerOwners
        appsWithoutKeyValue = previous.appsWithoutKeyValue
    }

    /// What a sign-in tells of the app that signs in.
    mutating func setApp(_ app: WireApp) {
        if !app.storeID.isEmpty || storeIDs[app.appID] == nil { setStore(app.storeID, of: AppID(app.appID)) }
        setContainers(app.containerIds, of: AppID(app.appID))
        setOwners(app)
        setCapabilities(app)
    }

    /// The app lists these containers from now on.
    mutating func setContainers(_ containers: [String], of app: AppID) {
        containerIDs = (containerIDs ?? [:]).merging([app.rawValue: containers]) { $1 }
    }

    /// What the app may use from now on.
    mutating func setCapabilities(_ app: WireApp) {
        var without = appsWithoutKeyValue ?? []
        if app.capabilities.contains(.keyValue) { without.remove(app.appID) } else { without.insert(app.appID) }
        if without != appsWithoutKeyValue ?? [] { appsWithoutKeyValue = without }
    }

    func mayUseKeyValue(_ app: AppID) -> Bool { appsWithoutKeyValue?.contains(app.rawValue) != true }

    /// Whose the containers' public databases are.
    mutating func setOwners(_ app: WireApp) {
        let told = zip(app.containerIds, app.containerOwners).filter { !$1.isEmpty }
        guard !told.isEmpty else { return }
        containerOwners = (containerOwners ?? [:]).merging(told.map { ($0, $1) }) { $1 }
    }

    /// Nil: the server has not told.
    func publicOwner(of container: String) -> Owner? { containerOwners?[container].map { Owner(AppID($0)) } }

    /// Nil: the server has not told.
    func containers(of app: AppID) -> [String]? { containerIDs?[app.rawValue] }

    func store(of app: AppID) -> StoreID? { storeIDs[app.rawValue].map { StoreID($0) } }

    /// The id by which a write of this device breaks ties.
    func scope(of app: AppID) -> StoreScope? {
        store(of: app).map { StoreScope(account: accountID, store: $0) }
    }
}
