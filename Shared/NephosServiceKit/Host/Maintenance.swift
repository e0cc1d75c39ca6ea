internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// What a service does for its storage in the background, a little at a time:
/// forgets old operations and deletions, notes how far the clock has come, wraps keys anew, copies the log.
final class Maintenance {
    /// How long deletions are remembered. A reader that was away for longer fetches everything.
    static let tombstoneRetention: Duration = .seconds(90 * 24 * 3600)
    private static let interval: Duration = .seconds(10)
    /// Between two steps while there is more to do.
    private static let pause: Duration = .milliseconds(20)

    /// Older master keys are not needed any more.
    private(set) var hasRewrapped = false
    private let engine: any StorageEngine
    private let runner: GroupRunner
    private let ownerKeys: OwnerKeys
    private let purgeClock: PurgeClock
    private let loop: any BusLoop
    private let counters: Counters
    private let logger: Logger
    private var timers: [String: any LoopTimer] = [:]
    private var isClosed = false

    init(
        _ engine: any StorageEngine, _ runner: GroupRunner, _ ownerKeys: OwnerKeys, _ purgeClock: PurgeClock,
        loop: any BusLoop, counters: Counters, logger: Logger
    ) {
        self.engine = engine
        self.runner = runner
        self.ownerKeys = ownerKeys
        self.purgeClock = purgeClock
        self.loop = loop
        self.counters = counters
        self.logger = logger
    }

    func start() {
        prune()
        rewrapKeys()
    }

    func close() {
        isClosed = true
        for timer in timers.values { timer.cancel() }
        timers = [:]
    }

    private func schedule(_ name: String, after pause: Duration, _ action: @escaping (Maintenance) -> Void) {
        timers[name] = loop.schedule(after: pause) { [weak self] in
            guard let self else { return }
            timers[name] = nil
            action(self)
        }
    }

    private func prune() {
        var more = false
        // Ids of operations, and tombstones, have times of the wall clock.
        let now = purgeClock.nowOfWallStamps
        let purgeTime = purgeClock.unsaved()
        let oldest = now.advanced(by: .zero - Router.operationRetention - Gate.operationLead)
        let operations = OperationID.lowerBound(at: oldest)
        let tombstones = now.advanced(by: .zero - Self.tombstoneRetention)
        run("Old operations could not be forgotten") { transaction in
            // The host's groups run on its own type alone.
            guard let group = transaction as? GroupTransaction else { return }
            if let purgeTime { try PurgeClock.store(purgeTime, in: group) }
            more = try group.prune(operationsBefore: operations, tombstonesBefore: tombstones)
        } then: { [self] failed in
            if purgeTime != nil, !failed { purgeClock.noteSaved() }
            schedule("prune", after: more && !failed ? Self.pause : Self.interval) { $0.prune() }
        }
    }

    /// Wraps with the newest master key what an older one wraps, a step at a time.
    ///
    /// - Parameter unopened: How many have not opened so far and need not be damaged, and the first of them.
    private func rewrapKeys(after last: Owner? = nil, unopened: (count: Int, first: Owner?) = (0, nil)) {
        var rewrapped = OwnerKeys.Rewrapped()
        run("Account keys could not be wrapped anew") { [ownerKeys] in
            rewrapped = try ownerKeys.rewrap(after: last, limit: 200, in: $0)
        } then: { [self] failed in
            guard !failed else {
                return schedule("rewrap", after: Self.interval) { $0.rewrapKeys(after: last, unopened: unopened) }
            }
            tellDamaged(rewrapped.damaged)
            let unopened = (unopened.count + rewrapped.unopened.count, unopened.first ?? rewrapped.unopened.first)
            guard let last = rewrapped.last else { return endRewrapping(unopened) }
            schedule("rewrap", after: Self.pause) { $0.rewrapKeys(after: last, unopened: unopened) }
        }
    }

    private func endRewrapping(_ unopened: (count: Int, first: Owner?)) {
        guard let first = unopened.first else { return hasRewrapped = true }
        // Once a round: without a master key it may be all of them.
        logger.error(
            "Account keys do not open with the master keys that there are, and are not wrapped anew",
            metadata: ["accounts": "\(unopened.count)", "first": "\(first)"])
        schedule("rewrap", after: Self.interval) { $0.rewrapKeys() }
    }

    private func tellDamaged(_ owners: [Owner]) {
        counters.add("account_keys.damaged", by: owners.count)
        for owner in owners {
            logger.error(
                "An account's key is damaged, and is not wrapped anew", metadata: ["account": "\(owner)"])
        }
    }

    /// Runs a step in a group. Its end begins the pause until the next one, so that there is one of each kind at a
    /// time.
    private func run(
        _ complaint: Logger.Message, _ body: @escaping (any HandlerTransaction) throws -> Void,
        then completion: @escaping (_ failed: Bool) -> Void
    ) {
        runner.run(body) { [weak self] failure in
            guard let self, !isClosed else { return }
            if let failure { logger.error(complaint, failure) }
            completion(failure != nil)
        }
    }

    /// Has the log copied into the database soon, now that something was written.
    func noteWritten() {
        guard timers["checkpoint"] == nil else { return }
        schedule("checkpoint", after: .seconds(1)) { $0.engine.checkpoint() }
    }
}
