internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// Puts right what reading has shown to be damaged, for every service alike.
///
/// An item that does not open is moved to the quarantine (``QuarantinedItems``), and a device that has it offers it, as
/// whatever the service does not have. A digest is only what items add up to: those of items are made anew from what
/// they have, and the scope's from its rows, a little at a time and beside the loop.
///
/// On the loop only.
final class ScopeMending {
    /// Items of one group.
    private static let step = 64
    /// Scopes, and items of each, that wait. What is found beyond them is found again by the next reader.
    private static let scopesMax = 1000
    private static let itemsMax = 5120
    /// Rows that are counted in one snapshot.
    private static let countedRows = 10_000
    /// How often a scope is counted that is written all the time: the last time all of it at one go, from one snapshot.
    private static let countsMax = 5
    /// Of one owner: nobody who has many, and has them counted again and again, takes others' turn.
    private static let countedOfOwnerMax = 8
    private static let pause: Duration = .milliseconds(10)
    /// A head that was counted is not counted again before: whoever reads a scope chooses when that is.
    private static let countPause: Duration = .seconds(600)

    private unowned let host: ServiceHost
    /// By scope: items that do not open, and those whose shares in the digest are wrong.
    private var waiting: [ScopeName: ScopeDamage] = [:]
    private var isRunning = false
    /// When heads were counted, or their turn was asked for; whose turn is next, and whose it is.
    private var counted: [ScopeName: Duration] = [:]
    private var uncounted: [(scope: ScopeName, attempt: Int)] = []
    private var isCounting = false
    /// How many quiet changes there had been when the count under way began.
    private var countedAfter: UInt64 = 0

    private lazy var purging = SteppedWork(
        "Forgetting what was in quarantine", every: .seconds(600),
        inTurns: { [unowned self] in try purge(in: $0, &$1) })

    init(host: ServiceHost) { self.host = host }

    func start() {
        countQuarantined()
        purging.start(host)
    }

    func found(_ damage: ScopeDamage, in scope: ScopeName) {
        guard waiting[scope] != nil || waiting.count < Self.scopesMax else { return }
        var new = waiting[scope] ?? ScopeDamage()
        for var item in damage.items.prefix(max(0, Self.itemsMax - new.items.count)) {
            // It is read anew.
            item.body = []
            new.items.append(item)
        }
        new.shares += damage.shares.prefix(max(0, Self.itemsMax - new.shares.count))
        if new.hasItems {
            waiting[scope] = new
            goOn()
        }
        if damage.isOutOfStep { count(scope) }
    }

    // MARK: Items

    private func goOn() {
        guard !isRunning else { return }
        isRunning = true
        run()
    }

    private func run() {
        guard !host.isClosed else { return }
        // In one order, so that a seed replays a run.
        guard let (scope, found) = waiting.min(by: { "\($0.key)" < "\($1.key)" }) else { return isRunning = false }
        var rest = found
        let items = Array(found.items.prefix(Self.step))
        let shares = Array(found.shares.prefix(Self.step - items.count))
        rest.items.removeFirst(items.count)
        rest.shares.removeFirst(shares.count)
        waiting[scope] = rest.hasItems ? rest : nil
        var corrected = 0
        host.submit { [host] transaction in
            corrected = 0
            // It would take the very room that there is none of.
            guard !transaction.isShortOfRoom else { return }
            for found in items {
                guard let item = try Self.same(found, of: scope, in: transaction) else { continue }
                try host.service.quarantine(item, of: scope, in: transaction)
            }
            let right = try shares.filter { found in
                guard let item = try Self.same(found, of: scope, in: transaction) else { return false }
                return !item.deleted && item.showing == .item && item.digest != found.digest
            }
            corrected = right.count
            guard !right.isEmpty else { return }
            let digests = Dictionary(right.map { ($0.name, $0.digest) }) { $1 }
            try transaction.setShares(digests, of: scope)
            try host.askToCompare(scope, in: transaction)
        } then: { [weak self] failure in
            guard let self, !host.isClosed else { return }
            if let failure {
                host.logger.error("What is damaged could not be put right. It is tried again when it is read", failure)
            } else if corrected > 0 {
                host.count("digests.damaged", by: corrected)
                host.report(
                    "Digests of stored items are not those of what they have. They are put right",
                    details: place(scope, ["count": "\(corrected)"]))
            }
            host.loop.schedule(after: Self.pause) { [weak self] in self?.run() }
        }
    }

    /// The item as it was found; nil: it has been written since, and is another.
    private static func same(
        _ found: FeedItem, of scope: ScopeName, in transaction: any HandlerTransaction
    ) throws -> FeedItem? {
        let item = try transaction.item(scope, found.name)
        return item.flatMap { $0.sequence == found.sequence ? $0 : nil }
    }

    private func place(_ scope: ScopeName, _ details: [String: String] = [:]) -> [String: String] {
        details.merging(["account": scope.owner.rawValue, host.service.scopeKind: scope.path.rawValue]) { $1 }
    }

    // MARK: Quarantine

    /// A group is on disk that has moved these there.
    ///
    /// - Parameter hasReturned: Items that were there are in their scopes again.
    func moved(_ items: [QuarantinedItems.Moved], hasReturned: Bool) {
        guard !host.isClosed, !items.isEmpty || hasReturned else { return }
        host.count("items.quarantined", by: items.count)
        for item in items {
            host.report(
                "A stored item does not open, and is in quarantine. A device that has it brings it back",
                details: place(item.scope, ["sequence": "\(item.sequence)"]))
        }
        let scopes = Set(items.map(\.scope)).sorted { "\($0)" < "\($1)" }
        if !scopes.isEmpty {
            host.submit { [host] transaction in
                for scope in scopes { try host.askToCompare(scope, in: transaction) }
            }
        }
        countQuarantined()
    }

    private func countQuarantined() {
        var (count, changes) = (0, UInt64(0))
        host.submit { [host] transaction in
            count = try QuarantinedItems.count(in: transaction)
            changes = host.quarantine.quietChanges
        } then: { [weak self] failure in
            guard let self, failure == nil else { return }
            if count > 0 || host.quarantine.quietChanges == changes { host.quarantine.hasItems = count > 0 }
            host.set("quarantine.now", to: count)
        }
    }

    /// Forgets one item that has been there for its time.
    ///
    /// - Returns: Whether there may be more.
    private func purge(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        let time = host.purgeTime.advanced(by: .zero - QuarantinedItems.retention)
        let overdue = try QuarantinedItems.overdue(before: time, limit: Self.step, in: transaction)
        guard let item = overdue.first(where: { [failed = turn.failed] in !failed.contains($0.scope) }) else {
            return false
        }
        turn.scope = item.scope
        // A deletion may have taken its place, which says no more of it.
        let isThere = try transaction.share(item.scope, item.name)?.isLive ?? false
        if !isThere, try host.service.removeRemains(ofItem: item.name, in: item.scope, transaction) { return true }
        try QuarantinedItems.remove(item, in: transaction)
        transaction.afterCommit { [weak self] in self?.countQuarantined() }
        return true
    }

    // MARK: Heads

    private func count(_ scope: ScopeName) {
        let now = host.loop.monotonicNow
        counted = counted.filter { now - $0.value < Self.countPause }
        guard counted[scope] == nil, counted.count < Self.scopesMax,
            counted.keys.count(where: { $0.owner == scope.owner }) < Self.countedOfOwnerMax
        else { return }
        counted[scope] = now
        uncounted.append((scope, 1))
        countNext()
    }

    /// One after the other, so that nobody who has many takes the threads of all.
    private func countNext() {
        guard !isCounting, !uncounted.isEmpty else { return }
        isCounting = true
        let (scope, attempt) = uncounted.removeFirst()
        count(ScopeCount(scope), attempt: attempt)
    }

    private func endCount() {
        isCounting = false
        countNext()
    }

    private func count(_ count: ScopeCount, attempt: Int) {
        guard !host.isClosed else { return }
        // What was found with it is put right before.
        guard waiting[count.scope] == nil else { return goOn(count, attempt: attempt) }
        // What a group has changed that is under way no snapshot has.
        host.runner.betweenGroups { [weak self] in self?.read(count, attempt: attempt) }
    }

    private func read(_ count: ScopeCount, attempt: Int) {
        guard !host.isClosed else { return }
        if count.start == nil { countedAfter = host.quarantine.quietChanges }
        host.loop.offload(to: .reading) { [snapshots = host.snapshots] in
            try snapshots.read {
                var count = count
                try FeedSnapshot($0, history: nil).goOn(
                    &count, limit: attempt < Self.countsMax ? Self.countedRows : .max)
                return count
            }
        } then: { [weak self] result in
            guard let self, !host.isClosed else { return }
            switch result {
            case .success(let next) where next.hasMore: goOn(next, attempt: attempt)
            case .success(let next) where next.isWhole: correct(next, attempt: attempt)
            case .success: countAgain(count.scope, after: attempt)
            case .failure(let failure): countAgain(count.scope, after: attempt, failure)
            }
        }
    }

    private func goOn(_ next: ScopeCount, attempt: Int) {
        host.loop.schedule(after: Self.pause) { [weak self] in self?.count(next, attempt: attempt) }
    }

    /// Others have their turn meanwhile.
    private func countAgain(_ scope: ScopeName, after attempt: Int, _ failure: (any Error)? = nil) {
        endCount()
        guard attempt < Self.countsMax else {
            host.report(
                "A scope's digest is perhaps not that of its items, and it could not be counted. It is tried again when it is read",
                details: place(scope, ["error": failure.map { "\($0)" } ?? "it is written all the time"]))
            return
        }
        host.loop.schedule(after: .seconds(1 << attempt)) { [weak self] in
            self?.uncounted.append((scope, attempt + 1))
            self?.countNext()
        }
    }

    private func correct(_ count: ScopeCount, attempt: Int) {
        var correction = HeadCorrection.wasRight
        let scope = count.scope
        host.submit { [host, countedAfter] transaction in
            correction = .moved
            guard host.quarantine.quietChanges == countedAfter else { return }
            correction = try transaction.correctHead(by: count)
            if correction == .corrected { try host.askToCompare(scope, in: transaction) }
        } then: { [weak self] failure in
            guard let self, !host.isClosed else { return }
            guard failure == nil, correction != .moved else { return countAgain(scope, after: attempt, failure) }
            endCount()
            guard correction == .corrected else { return }
            host.count("digests.damaged", by: 1)
            host.report("A scope's digest is not that of its items. It is put right", details: place(scope))
        }
    }
}
