internal import GRDB
internal import NephosCore
private import Synchronization

/// The scopes of a ``SyncedStore``: one, and of a database of records those of its zones besides.
public struct SyncedScopes: Sendable {
    /// What the scopes are wanted for.
    enum Purpose {
        /// To be brought up to date.
        case fetching
        /// To be sent.
        case sending
        /// To be described.
        case status
    }

    /// It tells of the others.
    let first: Scope
    /// The others, as the home knows them.
    let others: (@Sendable (Database, Purpose) throws -> [ScopeID])?

    init(_ first: Scope, others: (@Sendable (Database, Purpose) throws -> [ScopeID])? = nil) {
        self.first = first
        self.others = others
    }

    // MARK: On the device's loop

    private func others(for purpose: Purpose, _ engine: DeviceEngine) throws(CloudError) -> [ScopeID] {
        guard let others else { return [] }
        return try engine.local.read { try others($0, purpose) }.filter { $0 != first.id }
    }

    /// Waits for all of them at once, the first of them before: what it brings tells of the others.
    ///
    /// - Parameter goal: Nil: a pull that begins now, or later, has been applied.
    func wait(
        for goal: ScopeWaiter.Goal?, timeout: Duration, isImpatient: Bool = false
    ) async throws(CloudError) {
        let timeout = min(max(timeout, .zero), .seconds(Self.timeoutMax))
        let place = WaitingPlace()
        let engine = first.session.engine
        let result = await withTaskCancellationHandler { () -> Result<Void, CloudError> in
            do throws(CloudError) {
                try await engine.perform {
                    (engine: DeviceEngine, completion: @escaping @Sendable (Result<Void, CloudError>) -> Void) in
                    let wait = ScopesWait(
                        goal: goal, timeout: timeout, isImpatient: isImpatient, account: first.account, engine: engine,
                        place: place)
                    wait.begin([first.id]) { result in
                        guard case .success = result else { return completion(result) }
                        do throws(CloudError) {
                            wait.begin(try others(for: goal == .sent ? .sending : .fetching, engine), completion)
                        } catch { completion(.failure(error)) }
                    }
                }
                return .success(())
            } catch { return .failure(error) }
        } onCancel: {
            place.cancel()
            engine.execute { place.end(on: $0, .failure(WaitingPlace.cancelled)) }
        }
        try result.get()
    }

    /// Ten years, in seconds: clocks have room for it.
    private static var timeoutMax: Int64 { 315_360_000 }

    /// Where all of them stand, as one.
    ///
    /// - Parameter naming: What an item of one of the others is called among all.
    func status(
        naming: @escaping @Sendable (ItemName, ScopeID) -> ItemName = { name, _ in name }
    ) async throws(CloudError) -> StoreStatus {
        try await first.perform { driver, completion in
            completion(
                Result { () throws(CloudError) in
                    var status = try driver.status()
                    for id in try others(for: .status, driver.engine) {
                        status.add(try driver.engine.scope(id).status()) { naming($0, id) }
                    }
                    return status
                })
        }
    }

    /// Asks for the server's changes of all of them, and sends now what waits for its next attempt. Returns at once.
    func synchronize() {
        first.execute { driver in
            driver.synchronize()
            guard let others = try? others(for: .status, driver.engine) else { return }
            for id in others { (try? driver.engine.scope(id))?.synchronize() }
        }
    }
}

/// Somebody who waits for several scopes, on the device's loop.
private final class ScopesWait {
    private let goal: ScopeWaiter.Goal?
    private let timeout: Duration
    private let isImpatient: Bool
    private let account: AccountID?
    private let engine: DeviceEngine
    private let place: WaitingPlace

    init(
        goal: ScopeWaiter.Goal?, timeout: Duration, isImpatient: Bool, account: AccountID?, engine: DeviceEngine,
        place: WaitingPlace
    ) {
        (self.goal, self.timeout, self.isImpatient) = (goal, timeout, isImpatient)
        (self.account, self.engine, self.place) = (account, engine, place)
    }

    /// - Parameter completion: Gets the first failure, and else that all of them got there.
    func begin(_ ids: [ScopeID], _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        guard !place.isCancelled else { return completion(.failure(WaitingPlace.cancelled)) }
        if let error = engine.session?.refusal(of: account) { return completion(.failure(error)) }
        var left = ids.count
        guard left > 0 else { return completion(.success(())) }
        var isOver = false
        let over = { [engine, place] (result: Result<Void, CloudError>) in
            guard !isOver else { return }
            if case .success = result {
                left -= 1
                guard left == 0 else { return }
            }
            isOver = true
            // Nobody waits for the others any more.
            place.end(on: engine, result)
            completion(result)
        }
        for id in ids where !isOver {
            do throws(CloudError) {
                let number = try engine.scope(id).wait(for: goal, timeout: timeout, isImpatient: isImpatient, over)
                // Where nobody had to wait, others may wait by now who have come after it.
                if !isOver { place.add(id, number) }
            } catch { over(.failure(error)) }
        }
    }
}

/// Where a task waits that may be cancelled before, while and after it does.
private final class WaitingPlace: Sendable {
    private let state = Mutex<(waiters: [(ScopeID, Int)], isCancelled: Bool)>(([], false))

    static var cancelled: CloudError { CloudError(.operationCancelled, "The caller does not wait any more.") }

    func add(_ id: ScopeID, _ number: Int) { state.withLock { $0.waiters.append((id, number)) } }

    /// Ends whoever still waits among the scopes' waiters.
    func end(on engine: DeviceEngine, _ result: Result<Void, CloudError>) {
        let waiters = state.withLock { state in
            defer { state.waiters = [] }
            return state.waiters
        }
        for (id, number) in waiters { (try? engine.scope(id))?.endWaiter(number, result) }
    }

    var isCancelled: Bool { state.withLock { $0.isCancelled } }
    func cancel() { state.withLock { $0.isCancelled = true } }
}

extension StoreStatus {
    /// Takes in where another scope of the same store stands. What names one of them (``head``, ``digest``) stays.
    ///
    /// - Parameter naming: What its items are called among all.
    mutating func add(_ other: StoreStatus, naming: (ItemName) -> ItemName) {
        initialSyncFinished = initialSyncFinished && other.initialSyncFinished
        agrees = agrees && other.agrees
        isFollowing = isFollowing && other.isFollowing
        problem = problem ?? other.problem
        followingProblem = followingProblem ?? other.followingProblem
        budget = budget ?? other.budget
        pending += other.pending.map { pending in
            var pending = pending
            pending.keys = pending.keys.map(naming)
            return pending
        }
        pending.sort { $0.position < $1.position }
        refused += other.refused.map { refused in
            var refused = refused
            refused.key = naming(refused.key)
            return refused
        }
        leftBehind += other.leftBehind
        damagedChunkCount += other.damagedChunkCount
        isContentMissing = isContentMissing || other.isContentMissing
        fetched = fetched.flatMap { mine in other.fetched.map { min(mine, $0) } }
    }
}
