internal import Bus
internal import Core
internal import GRDB
internal import Wire

extension KeyValueSync {
    /// How old another process's write must be before this one sends it too:
    /// its writer is about to. (Sending twice is harmless; the id is the same.)
    private static let foreignPatience: Duration = .seconds(1)
    /// However long the server asks to be left alone.
    static let pauseMax: Duration = .seconds(3600)

    /// Sends what waits, in order, as far as it may go.
    func pump() {
        guard !pumpScheduled, scope != nil, !engine.stopped else { return }
        // Once per turn of the loop, so that a burst of writes is one transaction.
        pumpScheduled = true
        let generation = generation
        engine.loop.schedule(after: .zero) { [weak self] in
            guard let self, generation == self.generation else { return }
            self.pumpScheduled = false
            self.pumpNow()
        }
    }

    private func pumpNow() {
        guard let scope, !awaitsPull, engine.session?.signedIn == true, engine.session?.revoked == false
        else { return }
        pushTimer?.cancel()
        pushTimer = nil
        deferred = false
        do throws(CloudError) {
            let (waiting, seen) = try engine.local.read { database -> ([PendingOperation], HybridTimestamp) in
                let store = StoreTransaction(database, scope)
                let seen = try Facts(database).seen
                // Held until the first pull: only then can the app know what it overwrites.
                guard try store.state().synced else { return ([], seen) }
                return (
                    try store.sendable(limit: self.inFlight.count + self.engine.options.pushesInFlightMax), seen
                )
            }
            let chosen = choose(waiting, limit: HybridClock.limit(now: max(engine.now, seen.time)))
            guard !chosen.isEmpty else { return }
            let frozen = try engine.local.write { database in
                let store = StoreTransaction(database, scope)
                let isHeard = self.isServerHeard
                return try chosen.compactMap {
                    try store.freeze($0, counts: isHeard, makeID: self.engine.makeOperationID)
                }
            }
            for operation in frozen { send(operation, scope: scope) }
            changed()
        } catch { note(error) }
    }

    /// - Parameter limit: What is beyond it comes from a clock that was ahead, and the server will cut it back to the
    ///   time of its arrival: it is sent alone, so that the device's own writes arrive in their order.
    private func choose(_ waiting: [PendingOperation], limit: HybridTimestamp) -> [PendingOperation] {
        let now = engine.now
        let monotonic = engine.loop.monotonicNow
        let positions = Set(waiting.map(\.position))
        attemptTimes = attemptTimes.filter { positions.contains($0.key) }
        var chosen: [PendingOperation] = []
        for operation in waiting where !inFlight.contains(operation.position) {
            guard inFlight.count + chosen.count < engine.options.pushesInFlightMax else { break }
            if operation.writes.contains(where: { $0.timestamp > limit }), !inFlight.isEmpty || !chosen.isEmpty {
                break
            }
            let untilDue = wait(for: operation)
            if untilDue > .zero {
                pumpLater(untilDue)
                break
            }
            let age = now.since(operation.created)
            if operation.writer != engine.writer, age >= .zero, age < Self.foreignPatience {
                pumpLater(Self.foreignPatience - age)
                continue
            }
            let wait = pacing.wait(now: monotonic)
            if wait > .zero {
                deferred = true
                pumpLater(wait)
                break
            }
            pacing.pushed(now: monotonic)
            chosen.append(operation)
        }
        return chosen
    }

    /// How long it is until the operation's next attempt.
    ///
    /// On disk is a wall-clock time, for a person to read and for the next process. Within this one it is noted once
    /// as a time of the loop's clock, and is never further away than the longest pause: so no correction of the wall
    /// clock holds anything up.
    func wait(for operation: PendingOperation) -> Duration {
        guard operation.nextAttempt.milliseconds > 0 else { return .zero }
        let monotonic = engine.loop.monotonicNow
        if let noted = attemptTimes[operation.position], noted.wallClock == operation.nextAttempt {
            return max(.zero, noted.due - monotonic)
        }
        let wait = min(max(.zero, operation.nextAttempt.since(engine.now)), Backoff.pauseMax)
        attemptTimes[operation.position] = (operation.nextAttempt, monotonic + wait)
        return wait
    }

    private func pumpLater(_ wait: Duration) {
        guard pushTimer == nil else { return }
        pushTimer = engine.loop.schedule(after: max(wait, .milliseconds(1))) { [weak self] in
            self?.pushTimer = nil
            self?.pump()
        }
    }

    private func send(_ operation: PendingOperation, scope: StoreScope) {
        inFlight.insert(operation.position)
        var wire = WirePushKeys()
        wire.storeID = scope.store.rawValue
        let own = engine.session?.deviceID
        // It tells the service whether its database is an old copy, before it takes the write.
        if operation.head.sequence > 0 { wire.head = WireChangeToken(operation.head) }
        wire.writes = operation.writes.map { item in
            var write = WireKeyWrite()
            write.key = item.key.rawValue
            if let value = item.value { write.value = WirePropertyValue(value) }
            write.timestamp = item.timestamp.rawValue
            // A delete says whose it is also when it is our own: so it is kept where there is nothing to delete. An
            // older write of the key may still be on its way, of this device or another, or be what an old copy lacks.
            if item.value == nil || item.deviceID != own { write.deviceID = item.deviceID.rawValue }
            return write
        }
        let generation = generation
        var isHandedOver = false
        engine.call(
            .keyValue, wire, as: WirePushKeysReply.self, app: app, id: operation.id, onSend: { isHandedOver = true }
        ) {
            [weak self] result, budget in
            guard let self, generation == self.generation else { return }
            self.inFlight.remove(operation.position)
            var operation = operation
            var wasSent = isHandedOver
            if case .failure(let error) = result {
                wasSent = wasSent && error.code != .networkUnavailable && error.code != .networkFailure
            }
            if wasSent != operation.isCounted { operation.attempts += wasSent ? 1 : -1 }
            self.noteConnection(result, wasSent: wasSent)
            if let budget { self.pacing.observe(budget, now: self.engine.loop.monotonicNow) }
            do throws(CloudError) {
                switch result {
                case .success(let reply): try self.pushed(operation, reply, scope: scope)
                case .failure(let error): try self.pushFailed(operation, error, scope: scope)
                }
            } catch { self.note(error) }
            self.pump()
            self.changed()
        }
    }

    /// What a write's end says of the connection.
    private func noteConnection(_ result: Result<WirePushKeysReply, CloudError>, wasSent: Bool) {
        if case .failure(let error) = result, ScopeSync.isSilence(error) {
            guard !wasSent, problem == nil else { return }
            note(error)
            // Whoever noted it has to hear when it is over.
            perform(sync.pullUnlessPlanned())
        } else if wasSent, let problem, ScopeSync.isSilence(problem) {
            note(nil)
        }
    }

    // MARK: Accepted

    private func pushed(_ operation: PendingOperation, _ reply: WirePushKeysReply, scope: StoreScope) throws(CloudError)
    {
        let token = ChangeToken(reply.token)
        guard reply.outcomes.count == operation.writes.count else {
            return try pushFailed(
                operation, CloudError(.internalError, "The server's answer does not fit the request."), scope: scope)
        }
        noteCut(operation, reply.outcomes)
        let result = try engine.local.write { database -> Settled in
            let store = StoreTransaction(database, scope)
            var state = try store.state()
            guard try store.isPending(operation) else { return .elsewhere }
            if token.epoch > state.head.epoch { return .pullFirst }
            // A winner that was not fetched yet may be part of a transaction: taken alone it would show half of that.
            guard !reply.outcomes.contains(where: { $0.superseded && $0.current.sequence > state.head.sequence })
            else { return .pullFirst }
            var before: [ItemName: KeyValueItem?] = [:]
            for write in operation.writes { before[write.key] = .some(try store.visible(write.key)) }
            try store.removePending(operation.position)
            try StoreTransaction(database, .signedOut(app: self.app)).forgetAdopted(operation.writes)
            // An answer remembered from before a restore: the feed tells what became of it.
            guard token.epoch == state.head.epoch else { return .elsewhere }
            for (write, outcome) in zip(operation.writes, reply.outcomes) {
                let item = try Self.stored(write, outcome, token: token)
                // Where nothing was stored, the timestamp is still this device's own.
                if outcome.superseded || outcome.hasCurrent {
                    try Facts(database).withClock { $0.observe(item.timestamp) }
                }
                // What is not above the head is here already, or was deleted since: a late answer must not bring it back.
                guard item.sequence > state.head.sequence else { continue }
                if let mine = try store.item(item.key), mine.sequence > item.sequence { continue }
                try store.put(item, &state)
            }
            let segment = FeedSegment(previous: reply.previousSequence, token: token, changes: [])
            // The first push into an empty store: its digest key comes with the next pull.
            let position = state.digestKey.isEmpty ? .foreign : segment.position(at: state.head)
            if position == .next { state.head = token }
            try store.save(state)
            if let news = try self.announce(before, in: store, head: state.head) { try store.tell(news) }
            return .stored(segment, position)
        }
        tellNews()
        switch result {
        case .elsewhere: break
        // The operation stays: after the pull it is sent again, under its id.
        case .pullFirst:
            awaitsPull = true
            pull()
        case .stored(let segment, .next): perform(sync.absorbAhead(at: segment.token))
        case .stored(_, .seen): break
        case .stored(_, .foreign): pull()
        case .stored(let segment, .ahead): perform(sync.keep(segment))
        }
    }

    /// A timestamp that the server has cut back tells its time.
    private func noteCut(_ operation: PendingOperation, _ outcomes: [WireKeyOutcome]) {
        // A later attempt may be answered with what became of an earlier one, long ago.
        guard operation.isFirst else { return }
        for (write, outcome) in zip(operation.writes, outcomes) where !outcome.superseded && outcome.hasCurrent {
            let stored = HybridTimestamp(rawValue: outcome.current.timestamp)
            guard stored < write.timestamp else { continue }
            return engine.serverTime.learn(
                cutTo: stored.time, by: engine.loop.wallClock, monotonic: engine.loop.monotonicNow)
        }
    }

    private enum Settled {
        case stored(FeedSegment, FeedSegment.Position)
        case pullFirst
        /// Another process has dealt with it.
        case elsewhere
    }

    /// What the server holds under the key after this push.
    private static func stored(
        _ write: KeyValueItem, _ outcome: WireKeyOutcome, token: ChangeToken
    ) throws -> KeyValueItem {
        var item = write
        if outcome.superseded {
            item = try KeyValueItem(outcome.current)
        } else if outcome.hasCurrent {
            item.timestamp = HybridTimestamp(rawValue: outcome.current.timestamp)
            if !outcome.current.deviceID.isEmpty { item.deviceID = DeviceID(outcome.current.deviceID) }
            item.sequence = outcome.current.sequence
        }
        if item.sequence == 0 { item.sequence = token.sequence }
        return item
    }

    // MARK: Failed

    private func pushFailed(_ operation: PendingOperation, _ error: CloudError, scope: StoreScope) throws(CloudError) {
        let outcome = PushRules.outcome(
            of: error, pause: engine.backoff(attempts: max(operation.attempts, sync.failures, 1)),
            isOutdated: ServerTime.isOutdated(operation.id, now: engine.now))
        var operation = operation
        operation.error = error
        switch outcome {
        case .repeatLater(let pause): putOff(&operation, by: pause)
        case .thaw(let pause):
            operation.state = .unsent
            operation.id = engine.makeOperationID()
            putOff(&operation, by: pause)
        case .renew:
            operation.state = .unsent
            operation.id = engine.makeOperationID()
            operation.nextAttempt = Timestamp(milliseconds: 0)
        case .block: operation.state = .blocked
        case .refuse: return try refuse(operation, error, scope: scope)
        }
        let updated = operation
        try engine.local.write { try StoreTransaction($0, scope).update(updated) }
        if let pause = error.retryAfter { endWaiters(pausedFor: pause, pulling: false, because: error) }
    }

    private func putOff(_ operation: inout PendingOperation, by pause: Duration) {
        let pause = min(pause, Self.pauseMax)
        operation.nextAttempt = engine.now.advanced(by: pause)
        attemptTimes[operation.position] = (operation.nextAttempt, engine.loop.monotonicNow + pause)
    }

    /// The previous values stay, and the app is told.
    private func refuse(_ operation: PendingOperation, _ error: CloudError, scope: StoreScope) throws(CloudError) {
        let keys = operation.writes.map(\.key)
        let now = engine.now
        try engine.local.write { database in
            let store = StoreTransaction(database, scope)
            // Another process may have sent it too, and been told the same.
            guard try store.isPending(operation) else { return }
            try store.removePending(operation.position)
            try store.recordRefusal(operation.writes, error, now: now)
            try store.tell(
                ChangeNotification(
                    reason: .quotaViolationChange, changedKeys: keys,
                    items: try keys.compactMap { try store.visible($0) },
                    token: try store.state().head, error: error))
        }
        tellNews()
    }
}

extension StoreTransaction {
    /// Lets everything that waited for a person be tried again.
    func unblock() throws {
        try database.execute(
            sql: "UPDATE pending SET state = 'sent', next_attempt = 0 "
                + "WHERE state = 'blocked' AND account = ? AND store = ?",
            arguments: [scope.account?.rawValue ?? "", scope.store.rawValue])
    }

    /// Whatever waits for its next attempt may have it now.
    func hasten() throws {
        try database.execute(
            sql: "UPDATE pending SET next_attempt = 0 WHERE state <> 'blocked' AND account = ? AND store = ?",
            arguments: [scope.account?.rawValue ?? "", scope.store.rawValue])
    }

    func sendable(limit: Int) throws -> [PendingOperation] {
        try pending(limit: limit, where: "state <> 'blocked'")
    }

    /// The operation as it is now, marked as sent; nil: it is gone. From here on
    /// its id and its content belong together.
    ///
    /// It gets its id only now: a home that was restored from a copy may hold,
    /// under an id that was sent since, what the operation was before.
    ///
    /// - Parameter counts: Whether the server is there, so that this is an attempt; else that is known by its end.
    func freeze(
        _ operation: PendingOperation, counts: Bool = true, makeID: () -> OperationID
    ) throws -> PendingOperation? {
        guard var current = try pending(limit: 1, where: "position = \(operation.position)").first else { return nil }
        current.isFirst = current.state == .unsent && current.attempts == 0
        current.isCounted = counts
        if current.state == .unsent {
            current.id = makeID()
            current.head = try state().head
        }
        current.state = .sent
        if counts { current.attempts += 1 }
        try update(current)
        return current
    }
}
