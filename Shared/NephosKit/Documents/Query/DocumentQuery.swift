internal import Dispatch
public import NephosCore
public import NephosPredicates
internal import Synchronization

/// A live query of a container: first batches of what is there, then that this was all, then what changes, whoever
/// changes it: this process, another one of the home, or the server.
///
/// Whoever reads it decides how fast: nothing is queued. What changes several times between two looks is told once, as
/// it is then, so that a slow reader has no more to do than a quick one, and what it knows is always what is there, or
/// was a moment ago. Memory is bounded whatever the container holds. Each iteration begins anew.
public final class DocumentQuery: AsyncSequence, Sendable {
    /// What a reader is told.
    public enum Event: Sendable {
        /// Some of what is there, in the order of the query; more follows.
        case gathered([DocumentEntry])
        /// That was all; from here on updates follow.
        case finishedGathering
        /// Something is other than it was told last.
        case updated(Update)
    }

    /// What has changed since the reader was told last. The order is the query's; ``DocumentQuery/isSorted(_:before:)`` finds
    /// the places.
    public struct Update: Sendable {
        /// What is there now, or matches now.
        public var added: [DocumentEntry] = []
        /// What still matches, and is other than before; it may have another place in the order.
        public var changed: [DocumentEntry] = []
        /// What is not there any more, or does not match any more.
        public var removed: [Removed] = []
        /// The rest of what has changed follows in another update: there are more than one holds.
        public var hasMore = false
    }

    /// What is not among the results any more.
    public struct Removed: Hashable, Sendable {
        /// The item's, which may still be there.
        public var id: DocumentID
        /// Where it was when it matched last.
        public var path: String
    }

    /// What it is about.
    public let predicate: QueryPredicate
    /// Where it looks.
    public let scope: DocumentQueryScope
    /// In which order.
    public let sorts: [DocumentSort]
    private let handle: ContainerHandle
    private let batchMax: Int
    private let isPaused = Atomic<Bool>(false)

    init(
        _ handle: ContainerHandle, _ predicate: QueryPredicate, scope: DocumentQueryScope, sorts: [DocumentSort],
        batchMax: Int
    ) throws(QueryPredicateError) {
        try Self.check(predicate)
        self.handle = handle
        self.predicate = predicate
        self.scope = scope
        self.sorts = sorts
        self.batchMax = Swift.min(Swift.max(1, batchMax), 10_000)
    }

    /// Checks whether items of containers can be queried so.
    ///
    /// - Throws: ``QueryPredicateError`` for fields that they do not have, and values of other types than theirs.
    public static func check(_ predicate: QueryPredicate) throws(QueryPredicateError) {
        try predicate.check(against: DocumentField.schema)
    }

    /// Holds updates back; gathering goes on. What changes meanwhile is told as one when they go on.
    public func disableUpdates() { isPaused.store(true, ordering: .sequentiallyConsistent) }

    /// Lets updates go on.
    public func enableUpdates() {
        isPaused.store(false, ordering: .sequentiallyConsistent)
        session.local.changed.ring()
    }

    /// Whether the first of two items comes before the other in the order of the query; without one, by their ids.
    public func isSorted(_ first: DocumentEntry, before second: DocumentEntry) -> Bool {
        let key = DocumentSortKey(sorts: sorts)
        guard !sorts.isEmpty else { return first.id < second.id }
        return key.bytes(of: first).lexicographicallyPrecedes(key.bytes(of: second))
    }

    public func makeAsyncIterator() -> Iterator { Iterator(self) }

    /// Reads the query for one reader.
    ///
    /// The sequence ends with ``CloudError`` `.notSignedIn` when the account changes, `.operationCancelled` when the
    /// session is closed, `.storageFailure` when this device's disk does not serve; and by itself when the task is
    /// cancelled.
    public final class Iterator: AsyncIteratorProtocol {
        private let query: DocumentQuery
        private var bells: AsyncStream<Void>.Iterator
        private var worker: QueryWorker?
        private var isOver = false

        init(_ query: DocumentQuery) {
            self.query = query
            // From before the first look, so that nothing is missed.
            bells = query.session.local.changed.listen().makeAsyncIterator()
        }

        public func next(
            isolation actor: isolated (any Actor)? = #isolation
        ) async throws(CloudError) -> Event? {
            guard !isOver else { return nil }
            do throws(CloudError) {
                if let event = try await advance(isolation: actor) { return event }
                end()
                return nil
            } catch {
                end()
                throw error
            }
        }

        private func end() {
            isOver = true
            worker = nil
        }

        private func advance(isolation actor: isolated (any Actor)?) async throws(CloudError) -> Event? {
            if worker == nil { worker = try query.makeWorker() }
            guard let worker else { return nil }
            while !Task.isCancelled {
                guard !query.session.local.changed.isOver else { throw DeviceEngine.closed }
                switch try await worker.step() {
                case .event(let event): return event
                case .more: continue
                case .idle: _ = await bells.next(isolation: actor)
                }
            }
            return nil
        }
    }

    private var session: Session { handle.session }

    private func makeWorker() throws(CloudError) -> QueryWorker {
        guard let account = try session.account else {
            throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        let compiled = predicate.compiled()
        return QueryWorker(
            QueryWork.Plan(
                account: account.accountID, container: handle.id, predicate: compiled,
                fields: compiled.fields.map { DocumentField(rawValue: $0.rawValue) },
                includesTrash: compiled.fields.contains { $0.rawValue == DocumentField.isTrashed.rawValue },
                scope: scope, sorts: sorts, batchMax: batchMax, now: { [session] in session.engine.stamp.now }),
            session.local,
            isPaused: { [weak self] in self?.isPaused.load(ordering: .sequentiallyConsistent) ?? false })
    }
}

/// A query's work on a thread of its own: it reads a disk.
private final class QueryWorker: Sendable {
    private let queue = DispatchQueue(label: "nephos.query")
    private let work: Mutex<QueryWork?>
    private let plan: QueryWork.Plan
    private let local: LocalStore
    private let isPaused: @Sendable () -> Bool

    init(_ plan: QueryWork.Plan, _ local: LocalStore, isPaused: @escaping @Sendable () -> Bool) {
        self.isPaused = isPaused
        self.plan = plan
        self.local = local
        work = Mutex(nil)
    }

    func step() async throws(CloudError) -> QueryWork.Step {
        let result: Result<QueryWork.Step, CloudError> = await withCheckedContinuation { continuation in
            queue.async { [self] in continuation.resume(returning: perform()) }
        }
        return try result.get()
    }

    private func perform() -> Result<QueryWork.Step, CloudError> {
        work.withLock { work in
            do {
                let made = try work ?? QueryWork(plan, local)
                work = made
                return .success(try made.step(isPaused: isPaused))
            } catch { return .failure(LocalFailure.error(of: error, at: nil)) }
        }
    }
}
