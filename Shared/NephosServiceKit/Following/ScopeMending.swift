internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire

/// Puts right what reading has shown to be damaged, for every service alike.
///
/// An item that cannot be read any more calls for help: it moves to the scope's head, once, so that every device hears of
/// it, and whoever has it offers it again. A digest is only what items add up to: those of items are made anew from what
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
    /// How often it is looked what has been mended.
    private static let lookPause: Duration = .seconds(30)

    private unowned let host: ServiceHost
    /// By scope: items that cannot be read, and those whose shares in the digest are wrong.
    private var waiting: [ScopeName: Found] = [:]
    private var isRunning = false
    /// Items that have called, or need not: by name, where they stood.
    private var called: [ScopeName: [ItemName: UInt64]] = [:]
    /// When heads were counted, or their turn was asked for; whose turn is next, and whose it is.
    private var counted: [ScopeName: Duration] = [:]
    private var uncounted: [(scope: ScopeName, attempt: Int)] = []
    private var isCounting = false
    /// How far it was looked which are damaged still, and how many of them are.
    private var looked: (place: [SQLValue]?, count: Int) = (nil, 0)
    /// How many are damaged: as many as were when all were looked at, and those that have called since.
    private var damaged = 0

    private struct Found {
        var items: [FeedItem] = []
        var shares: [FeedItem] = []

        var isEmpty: Bool { items.isEmpty && shares.isEmpty }
    }

    init(host: ServiceHost) { self.host = host }

    func start() { look() }

    func found(_ damage: ScopeDamage, in scope: ScopeName) {
        host.count("\(host.service.itemsName).damaged", by: damage.items.count)
        var new = waiting[scope] ?? Found()
        guard waiting[scope] != nil || waiting.count < Self.scopesMax else { return }
        for var item in damage.items where new.items.count < Self.itemsMax && note(item, of: scope) {
            // It is read anew.
            item.body = []
            new.items.append(item)
        }
        new.shares += damage.shares.prefix(max(0, Self.itemsMax - new.shares.count))
        if !new.isEmpty {
            waiting[scope] = new
            goOn()
        }
        if damage.isOutOfStep { count(scope) }
    }

    /// - Returns: Whether it is not known yet.
    private func note(_ item: FeedItem, of scope: ScopeName) -> Bool {
        guard called[scope]?[item.name] != item.sequence else { return false }
        // What is forgotten is looked up again: its row says that it has called.
        if called[scope] == nil, called.count >= Self.scopesMax { called = [:] }
        if called[scope, default: [:]].count >= Self.itemsMax { called[scope] = [:] }
        called[scope, default: [:]][item.name] = item.sequence
        return true
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
        waiting[scope] = rest.isEmpty ? nil : rest
        var moved: [(item: FeedItem, written: UInt64)] = []
        var (corrected, isPutOff) = (0, false)
        let hasRoom = damaged < DamagedItems.countMax
        host.submit { [host] transaction in
            (moved, corrected) = ([], 0)
            // It would take the very room that there is none of.
            isPutOff = transaction.isShortOfRoom
            guard !isPutOff else { return }
            moved = try (hasRoom ? items : []).compactMap { found in
                guard let item = try Self.same(found, of: scope, in: transaction),
                    try DamagedItems.calledFrom(item, of: scope, in: transaction) == nil
                else { return nil }
                return (item, item.sequence)
            }
            let mended = try shares.compactMap { found -> FeedItem? in
                guard var item = try Self.same(found, of: scope, in: transaction), !item.deleted,
                    item.digest != found.digest
                else {
                    return nil
                }
                item.digest = found.digest
                return item
            }
            corrected = mended.count
            guard !moved.isEmpty || !mended.isEmpty else { return }
            let change = try host.service.putAnew(moved.map(\.item) + mended, in: scope, transaction)
            for (item, written) in moved {
                try DamagedItems.note(
                    item.name, of: scope, written: written, movedTo: change.token.sequence, in: transaction)
            }
            transaction.publish(
                OutgoingEvent(host.service.name, moved: (moved.map(\.item) + mended).map(\.name), by: change))
        } then: { [weak self] failure in
            guard let self, !host.isClosed else { return }
            // They wait for the next reader.
            if failure != nil || isPutOff || !hasRoom { called[scope] = nil }
            if let failure {
                host.logger.error("What is damaged could not be put right. It is tried again when it is read", failure)
            } else {
                tell(moved, corrected, in: scope)
            }
            host.loop.schedule(after: Self.pause) { [weak self] in self?.run() }
        }
    }

    /// The item as it was found; nil: it has been written since, and is another.
    private static func same(
        _ found: FeedItem, of scope: ScopeName, in transaction: any HandlerTransaction
    ) throws -> FeedItem? {
        let item = try transaction.item(scope, found.name)
        return item.flatMap { $0.sequence == found.sequence && $0.showing == .item ? $0 : nil }
    }

    private func tell(_ moved: [(item: FeedItem, written: UInt64)], _ corrected: Int, in scope: ScopeName) {
        for (_, written) in moved {
            host.report(
                "A stored item is damaged. It heals when a device that has it synchronises",
                details: place(scope, ["sequence": "\(written)"]))
        }
        damaged += moved.count
        if !moved.isEmpty { tellCount() }
        guard corrected > 0 else { return }
        host.count("digests.damaged", by: corrected)
        host.report(
            "Digests of stored items are not those of what they have. They are put right",
            details: place(scope, ["count": "\(corrected)"]))
    }

    private func place(_ scope: ScopeName, _ details: [String: String] = [:]) -> [String: String] {
        details.merging(["account": scope.owner.rawValue, host.service.scopeKind: scope.path.rawValue]) { $1 }
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
        host.submit { [host] transaction in
            correction = try transaction.correctHead(by: count)
            guard correction == .corrected else { return }
            let position = try transaction.position(ofPartition: scope.partition)
            let notification = WireNotification(infoOf: scope, host.service.name, at: try transaction.head(scope))
            // Nothing has moved, and devices compare anew.
            transaction.publish(OutgoingEvent(in: scope, at: position, notification: Frame(encoding: notification)))
        } then: { [weak self] failure in
            guard let self, !host.isClosed else { return }
            guard failure == nil, correction != .moved else { return countAgain(scope, after: attempt, failure) }
            endCount()
            guard correction == .corrected else { return }
            host.count("digests.damaged", by: 1)
            host.report("A scope's digest is not that of its items. It is put right", details: place(scope))
        }
    }

    // MARK: What is mended

    /// Looks which of those that were damaged are so still.
    private func look() {
        guard !host.isClosed else { return }
        var (place, count) = (looked.place, 0)
        host.submit { [start = looked.place] transaction in
            place = start
            count = try DamagedItems.forgetMended(&place, limit: Self.step, in: transaction)
        } then: { [weak self] failure in
            guard let self, !host.isClosed else { return }
            if failure == nil {
                looked = (place, (looked.place == nil ? 0 : looked.count) + count)
                if place == nil {
                    damaged = looked.count
                    tellCount()
                }
            }
            let isAtEnd = place == nil || failure != nil
            host.loop.schedule(after: isAtEnd ? Self.lookPause : Self.pause) { [weak self] in self?.look() }
        }
    }

    private func tellCount() { host.set("damaged.now", to: damaged) }
}
