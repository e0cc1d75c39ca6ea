internal import NephosBus
public import NephosCore
public import NephosServiceKit
public import NephosStorage

/// The key-value stores: one for each account and store id, small property-list
/// values by key, the last writer of a key wins.
///
/// On the loop only.
public final class KeyValueService: CloudService {
    public let name = ServiceName.keyValue
    public let migrations = KeyValueMigrations.all
    public let scopeKind = "store"

    let configuration: KeyValueConfiguration
    var keys: OwnerKeys?
    var clock = ServiceClock()
    private(set) weak var runtime: (any ServiceRuntime)?
    let digestKeys = DigestKeys()

    public init(configuration: KeyValueConfiguration) {
        self.configuration = configuration
    }

    public func start(_ host: any ServiceRuntime) throws {
        keys = host.ownerKeys
        runtime = host
        // Joins the first group, before its requests.
        host.submit { [unowned self] in try recallClock($0) }
        pruneHistory(host)
    }

    func finish(_ reply: SnapshotReply) -> Frame { runtime?.finish(reply) ?? reply.frame }

    /// Sets the clock by what is stored.
    func recallClock(_ transaction: any HandlerTransaction) throws {
        if let time = try ClockStore(transaction: transaction).load() { clock.recall(time) }
    }

    /// Stores the clock, if it has come far enough since.
    func keepClock(_ transaction: any HandlerTransaction) throws {
        guard let time = clock.toStore else { return }
        try ClockStore(transaction: transaction).save(time)
        transaction.afterCommit { [weak self] in self?.clock.noteStored(time) }
    }

    /// The store of a request, if its caller may see it.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, alike for a store that is
    ///   another app's and one that does not exist.
    func openStore(
        _ storeID: String, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> KeyStore {
        let caller = try context.requireCaller()
        return try openStore(ScopeName(caller.account, ItemName(storeID)), caller, transaction)
    }

    func openStore(
        _ scope: ScopeName, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> KeyStore {
        guard scope.owner == Owner(caller.account), caller.entitlements.include(scope.path, of: name) else {
            throw CloudError(
                .missingEntitlement, "The app has no such key-value store. Ask for the store that the app lists.")
        }
        guard let keys else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return KeyStore(scope: scope, transaction: transaction, keys: keys, digestKeys: digestKeys)
    }

    /// Key-value content does not count on the plan (iCloud Design Guide): it has limits of its own.
    public func uncountedUsage(
        of account: AccountID, in transaction: any HandlerTransaction
    ) throws -> [StorageLedger.Usage]? {
        try transaction.scopeSizes(of: Owner(account)).map {
            // A store may be several apps'; it goes by its own name.
            StorageLedger.Usage(app: AppID($0.path.rawValue), device: DeviceID(""), bytes: UInt64($0.bytes))
        }
    }

    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        try KeyHistory.remove(account, limit: 500, in: transaction)
    }

    private func pruneHistory(_ host: any ServiceRuntime) {
        host.loop.schedule(after: KeyHistory.pruneInterval) { [weak self, weak host] in
            guard let self, let host else { return }
            pruneStep(host)
            pruneHistory(host)
        }
    }

    /// Removes some of what is past its time, and goes on while there is more.
    private func pruneStep(_ host: any ServiceRuntime) {
        let before = host.purgeTime.advanced(by: .zero - KeyHistory.retention)
        host.submit { [weak self, weak host] transaction in
            guard try KeyHistory.prune(recordedBefore: before, limit: 500, in: transaction) else { return }
            transaction.afterCommit {
                host?.loop.schedule(after: KeyHistory.prunePause) {
                    if let self, let host { self.pruneStep(host) }
                }
            }
        }
    }
}
