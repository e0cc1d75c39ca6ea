internal import Bus
internal import Core
internal import Storage

/// What a committed group leaves to be done.
struct GroupEffects {
    var events: [OutgoingEvent] = []
    var heads: [Int: ChangeToken] = [:]
    /// A token that has shown that the database is an old copy.
    var proof: ChangeToken?
    var repeats = 0
    /// Whether the group had to be taken apart and run one by one.
    var wasSplit = false
}

/// Runs a group of requests as one transaction, in the order of their arrival.
struct GroupCommit {
    let engine: any StorageEngine
    let now: () -> Duration
    let wallClock: any WallClock
    let operations: OperationMemory
    let cache: FeedCache
    /// Charges a request that has run, with the bytes of its reply; see ``Gate/charge(_:replyBytes:)``.
    let charge: (GroupItem, Int) -> CloudError?

    /// Who has used up more than was taken for their requests: nothing was taken for the others that they sent with them.
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

    /// Sets every item's outcome. What succeeded is on disk when this returns.
    func run(_ items: [GroupItem]) -> GroupEffects {
        let wasShortOfRoom = engine.isShortOfRoom
        var commitActions: [() -> Void] = []
        do {
            let effects = try engine.write { transaction -> GroupEffects in
                let group = GroupTransaction(
                    transaction, at: wallClock.now, operations: operations, cache: cache,
                    isShortOfRoom: engine.isShortOfRoom)
                var effects = GroupEffects()
                let time = now()
                var spent = Spent()
                for item in items where !spent.refuses(item) {
                    group.wrote = false
                    let costBefore = group.cost
                    let unitsBefore = group.replyUnits
                    let mark = group.mark
                    do {
                        item.outcome = try outcome(of: item, in: group, at: time, &effects)
                    } catch {
                        if group.wrote { throw HalfDone() }
                        group.drop(after: mark)
                        item.outcome = .failure(CloudError(wrapping: error))
                    }
                    group.publish(group.takeNotices())
                    item.cost = group.cost - costBefore
                    item.replyUnits = group.replyUnits - unitsBefore
                    spent.note(item, charge)
                }
                try group.flush()
                effects.events = group.events
                effects.heads = group.heads
                effects.proof = group.proof
                commitActions = group.commitActions
                return effects
            }
            for action in commitActions { action() }
            return effects
        } catch is HalfDone {
            cache.removeAll()
            return runSeparately(items) { _ in true }
        } catch {
            cache.removeAll()
            // The disk is full since just now: what makes room is taken nevertheless.
            if engine.isShortOfRoom, !wasShortOfRoom { return runSeparately(items) { _ in true } }
            // Nothing was stored. What only reads may have seen what is now gone, so it runs again.
            let failure = Self.storageFailure(error)
            for index in items.indices where items[index].mutates { items[index].outcome = .failure(failure) }
            return runSeparately(items) { !$0.mutates }
        }
    }

    /// Each item in a transaction of its own, so that one that fails takes nobody with it.
    private func runSeparately(_ items: [GroupItem], where included: (GroupItem) -> Bool) -> GroupEffects {
        var effects = GroupEffects()
        effects.wasSplit = true
        var spent = Spent()
        for index in items.indices where included(items[index]) && !spent.refuses(items[index]) {
            defer { spent.note(items[index], charge) }
            var notices: [OutgoingEvent] = []
            var proof: ChangeToken?
            var commitActions: [() -> Void] = []
            do {
                let (outcome, alone) = try engine.write { transaction -> (GroupItem.Outcome, GroupEffects) in
                    let group = GroupTransaction(
                        transaction, at: wallClock.now, operations: operations, cache: cache,
                        isShortOfRoom: engine.isShortOfRoom)
                    var alone = GroupEffects()
                    // After what the request itself published, and also when it throws.
                    defer {
                        notices = group.takeNotices()
                        proof = group.proof
                        items[index].cost = group.cost
                        items[index].replyUnits = group.replyUnits
                    }
                    let outcome = try self.outcome(of: items[index], in: group, at: now(), &alone)
                    try group.flush()
                    alone.events = group.events
                    alone.heads = group.heads
                    commitActions = group.commitActions
                    return (outcome, alone)
                }
                for action in commitActions { action() }
                items[index].outcome = outcome
                effects.events += alone.events
                effects.heads.merge(alone.heads) { $1 }
                effects.repeats += alone.repeats
            } catch {
                cache.removeAll()
                items[index].outcome = .failure(CloudError(wrapping: error))
            }
            effects.events += notices
            if let proof, proof.epoch >= effects.proof?.epoch ?? 0 { effects.proof = proof }
        }
        return effects
    }

    private func outcome(
        of item: GroupItem, in group: GroupTransaction, at time: Duration, _ effects: inout GroupEffects
    ) throws -> GroupItem.Outcome {
        if case .submission(let body) = item.work {
            try body(group)
            return .success(Self.nothing)
        }
        if let deadline = item.deadline, deadline < time {
            throw CloudError.late
        }
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
