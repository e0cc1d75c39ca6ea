internal import Bus
public import Core
public import ServiceKit
public import Storage

/// The key-value stores: one for each account and store id, small property-list
/// values by key, the last writer of a key wins.
///
/// On the loop only.
public final class KeyValueService: CloudService {
    public let name = ServiceName.keyValue
    public let migrations = AccountKeys.migrations + KeyValueMigrations.all

    let configuration: KeyValueConfiguration
    var budgets: WriteBudgets
    private var keys: AccountKeys?
    private let digestKeys = DigestKeys()
    /// The loop's time, for budgets.
    var now: () -> Duration = { .zero }

    public init(configuration: KeyValueConfiguration) {
        self.configuration = configuration
        budgets = WriteBudgets(capacity: configuration.budgetCapacity, refill: configuration.budgetRefill)
    }

    public func start(_ host: any ServiceRuntime) throws {
        try start(masterKeys: host.secrets.masterKeys) { [unowned host] in host.loop.monotonicNow }
        pruneHistory(host)
    }

    func start(masterKeys: [String], now: @escaping () -> Duration) throws {
        keys = try AccountKeys(masterKeys: masterKeys)
        self.now = now
    }

    /// The store of a request, if its caller may see it.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, alike for a store that is
    ///   another app's and one that does not exist.
    func openStore(
        _ storeID: String, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> KeyStore {
        let caller = try context.requireCaller()
        guard caller.store == StoreID(storeID) else {
            throw CloudError(
                .missingEntitlement, "The app has no such key-value store. Ask for the store that the app lists.")
        }
        guard let keys else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return KeyStore(
            scope: ScopeName(account: caller.account, name: storeID), transaction: transaction, keys: keys,
            digestKeys: digestKeys)
    }

    private func pruneHistory(_ host: any ServiceRuntime) {
        host.loop.schedule(after: KeyHistory.pruneInterval) { [weak self, weak host] in
            guard let self, let host else { return }
            let before = host.loop.wallClock.now.advanced(by: .zero - KeyHistory.retention)
            host.submit { _ = try KeyHistory.prune(recordedBefore: before, limit: 500, in: $0) }
            pruneHistory(host)
        }
    }
}
