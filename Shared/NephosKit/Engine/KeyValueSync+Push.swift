internal import Bus
internal import Core
internal import GRDB
internal import SwiftProtobuf
internal import Wire

extension KeyValueSync {
    /// Sends what waits, in order, as far as it may go.
    func pump() { perform(sync.push()) }

    func sendable(limit: Int) throws(CloudError) -> [OutboxOperation] {
        guard let scope else { return [] }
        return try engine.local.read { database in
            let store = StoreTransaction(database, scope)
            let seen = try Facts(database).seen
            guard try store.state().synced else { return [] }
            return try store.sendable(limit: limit, clockLimit: HybridClock.limit(now: max(engine.now, seen.time)))
        }
    }

    func freeze(_ operations: [OutboxOperation], isAttempt: Bool) throws(CloudError) -> [OutboxOperation] {
        let frozen = try write { store in
            try operations.compactMap { operation -> (OutboxOperation, WirePushKeys)? in
                try store.freeze(operation, counts: isAttempt, makeID: engine.makeOperationID)
                    .map { ($0, pack($0, try store.writes(of: $0.position), scope: store.scope)) }
            }
        }
        for (operation, request) in frozen { packed[operation.position] = request }
        return frozen.map(\.0)
    }

    func send(_ operation: OutboxOperation) {
        guard let request = packed.removeValue(forKey: operation.position) else { return }
        let generation = generation
        var isHandedOver = false
        engine.call(.keyValue, request, app: app, id: operation.id, onSend: { isHandedOver = true }) {
            [weak self] result, budget in
            guard let self, generation == self.generation else { return }
            let answer = PushAnswer(
                operation: operation, result: result, wasHandedOver: isHandedOver, budget: budget)
            perform(sync.answered(answer, at: moment))
        }
    }

    private func pack(
        _ operation: OutboxOperation, _ writes: [KeyValueItem], scope: StoreScope
    ) -> WirePushKeys {
        var wire = WirePushKeys()
        wire.storeID = scope.store.rawValue
        let own = engine.session?.deviceID
        // It tells the service whether its database is an old copy, before it takes the write.
        if operation.head.sequence > 0 { wire.head = WireChangeToken(operation.head) }
        wire.writes = writes.map { item in
            var write = WireKeyWrite()
            write.key = item.key.rawValue
            if let value = item.value { write.value = WirePropertyValue(value) }
            write.timestamp = item.timestamp.rawValue
            // A delete says whose it is also when it is our own: so it is kept where there is nothing to delete. An
            // older write of the key may still be on its way, of this device or another, or be what an old copy lacks.
            if item.value == nil || item.deviceID != own { write.deviceID = item.deviceID.rawValue }
            return write
        }
        return wire
    }

    // MARK: Accepted

    /// Takes in that an operation was accepted.
    func accept(_ operation: OutboxOperation, _ reply: Frame) throws(CloudError) -> SettledPush {
        guard let reply = try? reply.decode(WirePushKeysReply.self) else { return .unusable }
        return try write { try accept(operation, reply, in: $0) }
    }

    private func accept(
        _ operation: OutboxOperation, _ reply: WirePushKeysReply, in store: StoreTransaction
    ) throws -> SettledPush {
        var state = try store.state()
        let token = ChangeToken(reply.token)
        guard try store.isPending(operation) else { return .elsewhere }
        let writes = try store.writes(of: operation.position)
        guard reply.outcomes.count == writes.count else { return .unusable }
        noteCut(operation, writes, reply.outcomes)
        if token.epoch > state.head.epoch { return .pullFirst }
        // A winner that was not fetched yet may be part of a transaction: taken alone it would show half of that.
        guard !reply.outcomes.contains(where: { $0.superseded && $0.current.sequence > state.head.sequence })
        else { return .pullFirst }
        var before: [ItemName: KeyValueItem?] = [:]
        for write in writes { before[write.key] = .some(try store.visible(write.key)) }
        try store.removePending(operation.position)
        try StoreTransaction(store.database, .signedOut(app: app)).forgetAdopted(writes)
        // An answer remembered from before a restore: the feed tells what became of it.
        guard token.epoch == state.head.epoch else { return .elsewhere }
        for (write, outcome) in zip(writes, reply.outcomes) {
            let item = try Self.stored(write, outcome, token: token)
            // Where nothing was stored, the timestamp is still this device's own.
            if outcome.superseded || outcome.hasCurrent {
                try Facts(store.database).withClock { $0.observe(item.timestamp) }
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
        if let news = try announce(before, in: store, head: state.head) { try store.tell(news) }
        return .stored(segment, position)
    }

    /// A timestamp that the server has cut back tells its time.
    private func noteCut(_ operation: OutboxOperation, _ writes: [KeyValueItem], _ outcomes: [WireKeyOutcome]) {
        // A later attempt may be answered with what became of an earlier one, long ago.
        guard operation.isFirst else { return }
        for (write, outcome) in zip(writes, outcomes) where !outcome.superseded && outcome.hasCurrent {
            let stored = HybridTimestamp(rawValue: outcome.current.timestamp)
            guard stored < write.timestamp else { continue }
            return engine.serverTime.learn(
                cutTo: stored.time, by: engine.loop.wallClock, monotonic: engine.loop.monotonicNow)
        }
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

    // MARK: Refused

    /// The previous values stay, and the app is told.
    func refuse(_ operation: OutboxOperation, _ error: CloudError) throws(CloudError) {
        let now = engine.now
        try write { store in
            // Another process may have sent it too, and been told the same.
            guard try store.isPending(operation) else { return }
            let writes = try store.writes(of: operation.position)
            try store.removePending(operation.position)
            try store.recordRefusal(writes, error, now: now)
            let keys = writes.map(\.key)
            try store.tell(
                ChangeNotification(
                    reason: .quotaViolationChange, changedKeys: keys,
                    items: try keys.compactMap { try store.visible($0) },
                    token: try store.state().head, error: error))
        }
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

    /// The oldest of what waits.
    ///
    /// - Parameter clockLimit: What is beyond it comes from a clock that was ahead, and the server will cut it back to
    ///   the time of its arrival: it is sent alone, so that the device's own writes arrive in their order.
    func sendable(limit: Int, clockLimit: HybridTimestamp) throws -> [OutboxOperation] {
        try pending(limit: limit, where: "state <> 'blocked'").map { waiting in
            var operation = waiting.operation
            operation.goesAlone = waiting.writes.contains { $0.timestamp > clockLimit }
            return operation
        }
    }

    /// The operation as it is now, marked as sent; nil: it is gone. From here on
    /// its id and its content belong together.
    ///
    /// It gets its id only now: a home that was restored from a copy may hold,
    /// under an id that was sent since, what the operation was before.
    ///
    /// - Parameter counts: Whether the server is there, so that this is an attempt; else that is known by its end.
    func freeze(
        _ operation: OutboxOperation, counts: Bool = true, makeID: () -> OperationID
    ) throws -> OutboxOperation? {
        guard var current = try pending(limit: 1, where: "position = \(operation.position)").first?.operation else {
            return nil
        }
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
