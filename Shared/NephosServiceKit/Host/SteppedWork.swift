internal import NephosBus
public import NephosCore
internal import NephosStorage

/// Work that is done in short steps, each in a group of its own, so that nobody waits for it: when something has called
/// for it, and now and then, since what a step would do is in rows and outlives a restart.
///
/// On the loop only.
public final class SteppedWork {
    private static let pause: Duration = .milliseconds(10)

    private let name: String
    private let interval: Duration
    private let step: (any HandlerTransaction, inout SteppedTurn) throws -> Bool
    private weak var host: (any ServiceRuntime)?
    private var turn = SteppedTurn()
    /// Of this round the last one.
    private var failure: CloudError?
    private var isRunning = false
    /// It was called for while the last step was under way, which may have looked before.
    private var wasCalled = false

    /// - Parameters:
    ///   - name: What an operator reads when it fails, such as "Removing folders".
    ///   - interval: How often it is looked whether there is anything to do.
    ///   - step: Does some of it; returns whether there may be more.
    public convenience init(
        _ name: String, every interval: Duration, _ step: @escaping (any HandlerTransaction) throws -> Bool
    ) {
        self.init(name, every: interval, inTurns: { transaction, _ in try step(transaction) })
    }

    /// The same, of work that is done for many scopes: where a step for one fails, the others go on.
    ///
    /// - Parameter step: Says whose turn it is before it does anything that may fail, and passes over whose has failed.
    public init(
        _ name: String, every interval: Duration,
        inTurns step: @escaping (any HandlerTransaction, inout SteppedTurn) throws -> Bool
    ) {
        self.name = name
        self.interval = interval
        self.step = step
    }

    /// Begins, for as long as the service runs.
    public func start(_ host: any ServiceRuntime) {
        self.host = host
        beginSoon()
        repeatLater(host)
    }

    private func repeatLater(_ host: any ServiceRuntime) {
        host.loop.schedule(after: interval) { [weak self, weak host] in
            guard let self, let host else { return }
            beginSoon()
            repeatLater(host)
        }
    }

    /// There is something to do.
    public func beginSoon() {
        wasCalled = true
        guard !isRunning, let host else { return }
        isRunning = true
        run(host)
    }

    private func run(_ host: any ServiceRuntime) {
        var hasMore = false
        wasCalled = false
        turn.begin()
        let start = turn
        host.submit { [weak self] in
            guard let self else { return }
            // It runs again where others' requests have the group taken apart.
            turn = start
            hasMore = try step($0, &turn)
        } then: { [weak self, weak host] failure in
            guard let self, let host else { return }
            if let failure { self.failure = failure }
            // What it has taken to do was not done.
            if failure != nil, turn.scope == nil { turn = start }
            guard failure == nil ? hasMore || wasCalled : turn.passesOver() else { return end(host) }
            host.loop.schedule(after: Self.pause) { [weak self, weak host] in
                if let self, let host { run(host) }
            }
        }
    }

    private func end(_ host: any ServiceRuntime) {
        if let failure {
            var details = ["error": failure.code.description]
            if !turn.failed.isEmpty {
                details["count"] = "\(turn.failed.count)"
                details["scopes"] = turn.failed.map(\.description).sorted().prefix(8).joined(separator: " ")
            }
            host.report("\(name) has failed. It is tried again later", details: details)
        }
        failure = nil
        turn.endRound()
        isRunning = false
    }
}

/// Whose turn a step is, of work that is done for many.
public struct SteppedTurn {
    /// With more the round ends, and the next one goes on behind them.
    private static let failedMax = 1000

    /// Whose the step is.
    public var scope: ScopeName?
    /// Whose the one before was.
    private var last: ScopeName?
    /// Whose steps have failed in this round.
    public private(set) var failed: Set<ScopeName> = []
    /// Whose step has failed last, as long as nobody has asked.
    private var lastFailed: ScopeName?

    fileprivate mutating func begin() {
        last = scope ?? last
        scope = nil
    }

    /// Whose turn it is, among those for whom there is something to do: the next one behind whose was last, and in the end
    /// from the first on. So nobody who has much, or whose steps fail, keeps others waiting for more than a step.
    ///
    /// - Parameter find: The first behind the one given; nil: behind none. In any order that stays.
    /// - Returns: Nil: there is nothing to do, but for those whose steps have failed.
    public mutating func next(_ find: (_ after: ScopeName?) throws -> ScopeName?) rethrows -> ScopeName? {
        for start in last == nil ? [nil] : [last, nil] {
            var after = start
            while let found = try find(after) {
                guard failed.contains(found) else {
                    scope = found
                    return found
                }
                after = found
            }
        }
        return nil
    }

    /// Whose step has failed last, once. Of work that goes by time what is to be done for it can be put off, so that
    /// however many fail, those behind them have their turn.
    public mutating func takeFailed() -> ScopeName? {
        defer { lastFailed = nil }
        return lastFailed
    }

    /// The step has failed, or nothing can be done for whose turn it is: in the next round it is looked at again.
    ///
    /// - Returns: Whether others may go on.
    public mutating func passesOver() -> Bool {
        guard let scope else { return false }
        lastFailed = scope
        guard failed.count < Self.failedMax else { return false }
        return failed.insert(scope).inserted
    }

    /// The next round goes on behind whose turn was last, so that those have theirs whom this one has not come to.
    fileprivate mutating func endRound() {
        begin()
        failed = []
    }
}
