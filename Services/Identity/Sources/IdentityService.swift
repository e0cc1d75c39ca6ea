public import Core
internal import Crypto
public import ServiceKit
public import Storage
internal import Wire

/// Who may do what: accounts, devices, apps and tokens.
///
/// State lies in its tables; what other services must know of it (devices,
/// apps, accounts) also lies in its change feed, which they follow.
public final class IdentityService: CloudService {
    public let name = ServiceName.identity
    let configuration: IdentityConfiguration

    /// Sign-ins by account name and by key. On the loop, as everything here.
    var attempts = AttemptLimit()
    var generator: any RandomNumberGenerator
    private var running: Running?

    /// What there is only once the host has started the service.
    struct Running {
        var runtime: any ServiceRuntime
        var signingKeys: SigningKeys
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

    public func start(_ host: any ServiceRuntime) throws {
        running = Running(
            runtime: host, signingKeys: try SigningKeys(first: TokenSigner(secrets: host.secrets)),
            refreshKeys: try RefreshSecret.keys(from: host.secrets.masterKeys),
            addresses: host.roster.services.map(WireServiceAddress.init))
        host.submit { [unowned self] transaction in
            try Self.createDefaultApp(in: transaction)
            try running?.signingKeys.load(host.accountKeys, in: transaction)
        }
    }

    func changeSigningKeys(_ change: (inout SigningKeys) throws -> Void) throws {
        guard var keys = running?.signingKeys else { return }
        try change(&keys)
        running?.signingKeys = keys
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

    /// The app of a sign-in that names none.
    static let defaultApp = AppRecord(
        id: AppID("default"), name: "Default",
        entitlements: Entitlements(store: StoreID("default"), containers: ["default"]))
}
