internal import Crypto
internal import NephosBus
public import NephosCore
public import NephosServiceKit
public import NephosStorage
internal import NephosWire

/// Who may do what: accounts, devices, apps and tokens.
///
/// State lies in its tables; what other services must know of it (devices,
/// apps, accounts) also lies in its change feed, which they follow.
public final class IdentityService: CloudService {
    public let name = ServiceName.identity
    let configuration: IdentityConfiguration

    let gate = PasswordGate()
    /// Access tokens without an account, by address: as much as a house with some hundred devices needs.
    let publicTokens = AddressBudget(capacity: 200, refillPerSecond: 2)
    var generator: any RandomNumberGenerator
    private var running: Running?
    /// When the next owners hear of their plan's new size; nil: everybody has.
    var planTimer: (any LoopTimer)?

    /// What there is only once the host has started the service.
    struct Running {
        unowned var runtime: any ServiceRuntime
        /// The first key that signs, from the secret file.
        var firstSigner: TokenSigner
        /// As the database has them; nil: to be read.
        var signingKeys: SigningKeys?
        /// What refresh tokens are derived with; newest first, at least one.
        var refreshKeys: [SymmetricKey]
        var addresses: [WireServiceAddress]
    }

    /// - Parameter generator: Where ids and salts come from; seeded in simulations alone.
    public init(
        configuration: IdentityConfiguration = IdentityConfiguration(),
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator()
    ) {
        self.configuration = configuration
        self.generator = generator
    }

    public var migrations: [Migration] { IdentityMigrations.all }

    /// Of identity's scopes a device may read what its own account is told.
    public func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        guard !caller.isPublic, scope == ScopeName(caller.account, accountScopeName) else {
            throw CloudError(.missingEntitlement, "Identity has no such scope for devices.")
        }
        return StoredItems()
    }

    public func start(_ host: any ServiceRuntime) throws {
        running = Running(
            runtime: host, firstSigner: try TokenSigner(secrets: host.secrets),
            refreshKeys: try RefreshSecret.keys(from: host.secrets.masterKeys),
            addresses: host.roster.services.map(WireServiceAddress.init))
        host.submit { [weak self] in
            try Self.createDefaultApp(in: $0)
            try self?.recordOwners(in: $0)
        }
        tellOwners(after: .zero)
    }

    public func stop() { endTelling() }

    /// The keys that sign, as they are in the database.
    func signingKeys(_ transaction: any Transaction) throws -> SigningKeys {
        let running = try requireRunning()
        if let keys = running.signingKeys { return keys }
        let keys = try SigningKeys(first: running.firstSigner, running.runtime.ownerKeys, in: transaction)
        self.running?.signingKeys = keys
        return keys
    }

    /// They have changed in the database: once that is on disk, they are read anew.
    func forgetSigningKeys(_ transaction: any HandlerTransaction) {
        transaction.afterCommit { [weak self] in self?.running?.signingKeys = nil }
    }

    func requireRunning() throws(CloudError) -> Running {
        guard let running else { throw CloudError(.serviceUnavailable, "The identity service is starting. Try again.") }
        return running
    }

    /// So that a device can sign in on a new deployment without naming an app.
    private static func createDefaultApp(in transaction: any HandlerTransaction) throws {
        let store = AppStore(transaction: transaction)
        guard try store.record(defaultApp.id) == nil else { return }
        try store.save(defaultApp)
        try DirectoryEvents.publish([.app(defaultApp)], operation: nil, in: transaction)
    }

    /// Containers of which one step records whose they are.
    private static let ownersPerGroup = 256

    /// Of what apps have listed before it was recorded whose containers are.
    private func recordOwners(in transaction: any HandlerTransaction) throws {
        let apps = AppStore(transaction: transaction)
        let found = try ContainerStore(transaction: transaction).withoutOwner(limit: Self.ownersPerGroup)
        for id in Set(found).sorted() {
            if let app = try apps.app(id) { try recordOwner(app, operation: nil, transaction) }
        }
        guard found.count == Self.ownersPerGroup else { return }
        try requireRunning().runtime.submit { [weak self] in try self?.recordOwners(in: $0) }
    }

    /// The app of a sign-in that names none.
    static let defaultApp = AppRecord(
        id: AppID("default"), name: "Default",
        entitlements: Entitlements(store: StoreID("default"), containers: ["default"]))
}
