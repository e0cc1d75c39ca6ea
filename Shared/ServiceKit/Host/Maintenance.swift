internal import Bus
internal import Core
internal import Logging
internal import Storage

/// What a service does for its storage in the background, a little at a time:
/// forgets old operations and deletions, wraps keys anew, copies the log.
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
    private let loop: any BusLoop
    private let logger: Logger
    private var timers: [String: any LoopTimer] = [:]

    init(
        _ engine: any StorageEngine, _ runner: GroupRunner, _ ownerKeys: OwnerKeys, loop: any BusLoop,
        logger: Logger
    ) {
        self.engine = engine
        self.runner = runner
        self.ownerKeys = ownerKeys
        self.loop = loop
        self.logger = logger
    }

    func start() {
        prune()
        rewrapKeys()
    }

    func close() {
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
        let now = loop.wallClock.now
        let oldest = now.advanced(by: .zero - Router.operationRetention - Gate.operationLead)
        let operations = OperationID.lowerBound(at: oldest)
        let tombstones = now.advanced(by: .zero - Self.tombstoneRetention)
        let failure = runner.runNow { transaction in
            // The host's groups run on its own type alone.
            guard let group = transaction as? GroupTransaction else { return }
            more = try group.prune(operationsBefore: operations, tombstonesBefore: tombstones)
        }
        if let failure { logger.error("Old operations could not be forgotten", failure) }
        schedule("prune", after: more ? Self.pause : Self.interval) { $0.prune() }
    }

    /// Wraps with the newest master key what an older one wraps.
    private func rewrapKeys() {
        var more = false
        let failure = runner.runNow { [ownerKeys] in more = try ownerKeys.rewrap(limit: 200, in: $0) }
        if let failure { logger.error("Account keys could not be wrapped anew", failure) }
        guard failure != nil || more else {
            hasRewrapped = true
            return
        }
        schedule("rewrap", after: more ? Self.pause : Self.interval) { $0.rewrapKeys() }
    }

    /// Has the log copied into the database soon, now that something was written.
    func noteWritten() {
        guard timers["checkpoint"] == nil else { return }
        schedule("checkpoint", after: .seconds(1)) { $0.engine.checkpoint() }
    }
}
