internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// What a committed group leaves to be done.
struct GroupEffects {
    var events: [OutgoingEvent] = []
    var heads: [Int: ChangeToken] = [:]
    /// A token that has shown that the database is an old copy.
    var proof: ChangeToken?
    var repeats = 0
    /// Bytes that are stored for owners of plans, more than before.
    var storedBytes: Int64 = 0
    /// Items that were moved to the quarantine, and whether one came back.
    var quarantined: [QuarantinedItems.Moved] = []
    var hasReturned = false
    /// Whether the group had to be taken apart and run one by one.
    var wasSplit = false
}

/// Runs a group of requests as one transaction, in the order of their arrival.
///
/// One group at a time: until its completion is called nothing else uses the
/// engine or the cache, which holds what may not be committed yet.
final class GroupCommit {
    private let engine: any StorageEngine
    private let now: () -> Duration
    private let wallClock: any WallClock
    private let operations: OperationMemory
    let cache: FeedCache
    private let quarantine: QuarantineNote
    private let trace: RequestTrace
    /// Charges a request that has run, with the bytes of its reply; see ``Gate/charge(_:replyBytes:)``.
    private let charge: (GroupItem, Int) -> CloudError?

    init(
        engine: any StorageEngine, now: @escaping () -> Duration, wallClock: any WallClock,
        operations: OperationMemory, cache: FeedCache, quarantine: QuarantineNote, trace: RequestTrace = RequestTrace(),
        charge: @escaping (GroupItem, Int) -> CloudError?
    ) {
        self.engine = engine
        self.now = now
        self.wallClock = wallClock
        self.operations = operations
        self.cache = cache
        self.quarantine = quarantine
        self.trace = trace
        self.charge = charge
    }

    /// Who has used up more than was taken for their requests: nothing was taken for the others that they sent with
    /// them.
    private struct Spent {
        private var errors: [AccountID: CloudError] = [:]

        mutating func note(_ item: GroupItem, _ charge: (GroupItem, Int) -> CloudError?) {
            guard let caller = item.context.caller else { return }
            let replyBytes: Int
            switch item.outcome {
            case .success(let reply): replyBytes = reply.count
            case .failure: replyBytes = 0
            // What was taken for it stays taken until it has an answer.
            case .pending, .toPrepare, .toRead: return
            }
            if let error = charge(item, replyBytes) { errors[caller.account] = error }
        }

        func refuses(_ item: GroupItem) -> Bool {
            guard !errors.isEmpty, let caller = item.context.caller, let error = errors[caller.account] else {
                return false
            }
            item.outcome = .failure(error)
            return true
        }
    }

    /// A request threw after it had written: the group cannot be committed.
    private struct HalfDone: Error {}

    /// Sets every item's outcome, or that it is deferred. What succeeded is on disk when the completion is called, at once or later.
    func run(_ items: [GroupItem], then completion: @escaping (GroupEffects) -> Void) {
        let wasShortOfRoom = engine.isShortOfRoom
        for item in items { item.isDeferred = false }
        engine.run { [self] in
            try carryOut(items, in: $0)
        } then: { [self] result in
            switch result {
            case .success(let (effects, commitActions)):
                for action in commitActions { action() }
                completion(effects)
            case .failure(let error):
                cache.removeAll()
                for item in items { item.isDeferred = false }
                // The disk is full since just now: what makes room is taken nevertheless.
                if error is HalfDone || engine.isShortOfRoom && !wasShortOfRoom {
                    return runSeparately(items, then: completion)
                }
                // Nothing was stored. What only reads may have seen what is now gone, so it runs again.
                let failure = Self.storageFailure(error)
                for item in items where item.mutates { item.outcome = .failure(failure) }
                runSeparately(items.filter { !$0.mutates }, then: completion)
            }
        }
    }

    private func begin(_ transaction: any Transaction) -> GroupTransaction {
        GroupTransaction(
            transaction, at: wallClock.now, operations: operations, cache: cache, quarantine: quarantine,
            isShortOfRoom: engine.isShortOfRoom)
    }

    private func carryOut(
        _ items: [GroupItem], in transaction: any Transaction
    ) throws -> (GroupEffects, commitActions: [() -> Void]) {
        let group = begin(transaction)
        var effects = GroupEffects()
        let time = now()
        var spent = Spent()
        var shares = GroupShares()
        for item in items where !spent.refuses(item) && !shares.defers(item) {
            group.wrote = false
            let costBefore = group.cost
            let unitsBefore = group.replyUnits
            let mark = group.mark
            do {
                item.outcome = try traced(item, in: group) { try outcome(of: item, in: group, at: time, &effects) }
            } catch {
                if group.wrote { throw HalfDone() }
                group.drop(after: mark)
                item.outcome = .failure(CloudError(wrapping: error))
            }
            group.publish(group.takeNotices())
            item.cost = group.cost - costBefore
            item.replyUnits = group.replyUnits - unitsBefore
            spent.note(item, charge)
            shares.note(item)
        }
        // A row that is there already concerns whoever wrote it alone.
        do { try group.flush() } catch let error as CloudError where error.code == .constraintViolation {
            throw HalfDone()
        }
        effects.events = group.events
        effects.heads = group.heads
        effects.proof = group.proof
        effects.storedBytes = group.storedBytes
        (effects.quarantined, effects.hasReturned) = (group.quarantined, group.hasReturned)
        return (effects, group.commitActions)
    }

    /// What the items that run one by one leave.
    private final class Apart {
        var effects = GroupEffects()
        var spent = Spent()
        var shares = GroupShares()
        /// Of the one that runs: also when it throws.
        var notices: [OutgoingEvent] = []
        var proof: ChangeToken?
    }

    /// Each item in a transaction of its own, so that one that fails takes nobody with it.
    private func runSeparately(_ items: [GroupItem], then completion: @escaping (GroupEffects) -> Void) {
        let apart = Apart()
        apart.effects.wasSplit = true
        OneByOne.run(items) { [self] item, next in
            guard !apart.spent.refuses(item), !apart.shares.defers(item) else { return next(true) }
            apart.notices = []
            apart.proof = nil
            engine.run { [self] in
                try carryOut(item, apart, in: $0)
            } then: { [self] result in
                switch result {
                case .success(let (outcome, alone, commitActions)):
                    for action in commitActions { action() }
                    item.outcome = outcome
                    apart.effects.events += alone.events
                    apart.effects.heads.merge(alone.heads) { $1 }
                    apart.effects.repeats += alone.repeats
                    apart.effects.storedBytes += alone.storedBytes
                    apart.effects.quarantined += alone.quarantined
                    apart.effects.hasReturned = apart.effects.hasReturned || alone.hasReturned
                case .failure(let error):
                    cache.removeAll()
                    item.outcome = .failure(CloudError(wrapping: error))
                }
                // After what the request itself published.
                apart.effects.events += apart.notices
                if let proof = apart.proof, proof.epoch >= apart.effects.proof?.epoch ?? 0 {
                    apart.effects.proof = proof
                }
                apart.spent.note(item, charge)
                apart.shares.note(item)
                next(true)
            }
        } then: { _ in
            completion(apart.effects)
        }
    }

    private func carryOut(
        _ item: GroupItem, _ apart: Apart, in transaction: any Transaction
    ) throws -> (GroupItem.Outcome, GroupEffects, commitActions: [() -> Void]) {
        let group = begin(transaction)
        var alone = GroupEffects()
        defer {
            apart.notices = group.takeNotices()
            apart.proof = group.proof
            item.cost = group.cost
            item.replyUnits = group.replyUnits
        }
        let result = try traced(item, in: group) { try outcome(of: item, in: group, at: now(), &alone) }
        try group.flush()
        alone.events = group.events
        alone.heads = group.heads
        alone.storedBytes = group.storedBytes
        (alone.quarantined, alone.hasReturned) = (group.quarantined, group.hasReturned)
        return (result, alone, group.commitActions)
    }

    /// What the service's own work logs is about no request.
    private func traced<Value>(
        _ item: GroupItem, in group: GroupTransaction, _ body: () throws -> Value
    ) rethrows -> Value {
        group.request = item.method == nil ? nil : item.context.id
        guard item.method != nil else { return try body() }
        return try trace.during(item.context.id, causedBy: item.context.causeID, body)
    }

    private func outcome(
        of item: GroupItem, in group: GroupTransaction, at time: Duration, _ effects: inout GroupEffects
    ) throws -> GroupItem.Outcome {
        if item.method == nil, case .submission(let body) = item.work {
            try body(group)
            return .success(Self.nothing)
        }
        if let deadline = item.deadline, deadline < time {
            throw CloudError.late
        }
        // It may have waited since it came, and others that came later may have had their turn before it.
        item.context.now = group.now
        if let principal = item.principal,
            let reply = try group.reply(
                to: item.context.id, by: principal, request: item.context.fingerprint)
        {
            effects.repeats += 1
            return .success(Frame(reply))
        }
        let reply: Frame
        switch item.work {
        case .request(let method, _) where group.isShortOfRoom && method.mutates && !method.makesRoom,
            .prepared(let method, _) where group.isShortOfRoom && !method.makesRoom:
            throw CloudError.diskFull
        case .request(let method, let body):
            switch method.way {
            case .inGroup(let run): reply = try run(body, item.context, group)
            case .prepared(let prepared): return .toPrepare(try prepared.begin(body, item.context, group))
            case .bulk(let bulk):
                switch try bulk.begin(body, item.context, group) {
                case .done(let reply): return .success(reply)
                case .read(let reading): return .toRead(reading)
                }
            // Its door has answered it.
            case .direct: return .success(Self.nothing)
            }
        case .prepared(let method, let result):
            guard case .prepared(let prepared) = method.way else { return .success(Self.nothing) }
            reply = try prepared.finish(result, item.context, group)
        case .submission:
            return .success(Self.nothing)
        }
        if let principal = item.principal {
            try group.remember(
                reply.bytes, of: item.context.id, by: principal, request: item.context.fingerprint)
        }
        return .success(reply)
    }

    private static let nothing = Frame([])

    private static func storageFailure(_ error: any Error) -> CloudError {
        if let error = error as? CloudError, error.code == .storageFailure { return error }
        return CloudError(
            .storageFailure, "The database could not commit. Nothing was stored.",
            details: ["type": "\(type(of: error))"])
    }
}
