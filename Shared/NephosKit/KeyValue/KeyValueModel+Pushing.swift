internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

extension KeyValueModel {
    /// The server cuts a timestamp that is too far ahead back to the time of its arrival. Such a write is sent alone, so
    /// that the device's writes keep their order.
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws {
        let limit = HybridClock.limit(now: max(engine.now, try Facts(rows.database).seen.time))
        let store = StoreTransaction(rows)
        for index in operations.indices {
            operations[index].goesAlone =
                try store.writes(of: operations[index].position).contains { $0.timestamp > limit }
        }
    }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        let own = engine.session?.deviceID
        var wire = WirePushKeys()
        wire.storeID = rows.scope.name
        // It tells the service whether its database is an old copy, before it takes the write.
        if operation.head.sequence > 0 { wire.head = WireChangeToken(operation.head) }
        let store = StoreTransaction(rows)
        let seen = try store.seenTimestamps(of: operation.position)
        wire.writes = try store.writes(of: operation.position).map { item in
            var write = WireKeyWrite()
            write.key = item.key.rawValue
            if let value = item.value { write.value = WirePropertyValue(value) }
            write.timestamp = item.timestamp.rawValue
            write.seenTimestamp = seen[item.key]?.rawValue ?? 0
            // A delete says whose it is also when it is our own: so it is kept where there is nothing to delete. An
            // older write of the key may still be on its way, of this device or another, or be what an old copy lacks.
            if item.value == nil || item.deviceID != own { write.deviceID = item.deviceID.rawValue }
            return write
        }
        return wire
    }

    func receipt(
        _ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction
    ) throws -> PushReceipt? {
        let store = StoreTransaction(rows)
        let writes = try store.writes(of: operation.position)
        guard let reply = try? reply.decode(WirePushKeysReply.self), reply.outcomes.count == writes.count else {
            return nil
        }
        noteCut(operation, writes, reply.outcomes)
        let token = ChangeToken(reply.token)
        let winners = reply.outcomes.filter(\.superseded).map(\.current.sequence)
        return PushReceipt(
            token: token, previousSequence: reply.previousSequence, winner: winners.max() ?? 0
        ) { [app] isCurrent, state in
            var before: [ItemName: KeyValueItem?] = [:]
            for write in writes { before[write.key] = .some(try store.visible(write.key)) }
            try store.removePending(operation.position)
            try StoreTransaction(rows.database, .signedOut(app: app)).forgetAdopted(writes)
            var told: [(write: KeyValueItem, isSuperseded: Bool, item: KeyValueItem)] = []
            for (write, outcome) in zip(writes, reply.outcomes) {
                let item = try Self.stored(write, outcome, token: token)
                // Where nothing was stored, the timestamp is still this device's own.
                if outcome.superseded || outcome.hasCurrent {
                    try Facts(rows.database).withClock { $0.observe(item.timestamp) }
                }
                told.append((write, outcome.superseded, item))
            }
            if isCurrent {
                // What has won is not above the head: it is here, or was replaced since.
                try Self.bringIn(told.filter { !$0.isSuperseded }.map(\.item), in: store, &state)
            } else {
                // What had won is its own writer's to offer; its value may be left out here.
                try self.takeUp(told.map { $0.isSuperseded ? $0.write : $0.item }, at: token, in: store, &state)
            }
            return try Self.news(before, in: store)
        }
    }

    /// What the server has stored, in this copy's epoch.
    private static func bringIn(
        _ items: [KeyValueItem], in store: StoreTransaction, _ state: inout ScopeState
    ) throws {
        for item in items {
            let mine = try store.item(item.key)
            // What is not above the head is here already, or was deleted since: a late answer must not bring it back.
            if item.sequence > state.head.sequence {
                if mine.map({ $0.sequence <= item.sequence }) ?? true { try store.put(item, &state) }
            } else if hasToBeRemembered(item, where: mine) {
                try store.put(item, &state)
            }
        }
    }

    /// What the server had taken in an epoch that is over, and the one that was brought back may lack: where the copy,
    /// which is of that one, has nothing newer, it is offered, together as it was written.
    ///
    /// - Parameter token: Of the answer.
    private func takeUp(
        _ items: [KeyValueItem], at token: ChangeToken, in store: StoreTransaction, _ state: inout ScopeState
    ) throws {
        var lost: [KeyValueItem] = []
        for var item in items {
            let mine = try store.item(item.key)
            if Self.hasToBeRemembered(item, where: mine) {
                item.sequence = min(Self.before, state.head.sequence)
                try store.put(item, &state)
            } else if mine.map({ item.wins(over: $0) }) ?? true {
                item.sequence = token.sequence
                lost.append(item)
            }
        }
        try offer(lost, in: store)
    }

    /// Whether the copy does not tell of this deletion: a listing that was made after it, and came before its answer,
    /// shows no more than that the key is gone. It is remembered with its own time, or an older value would come back
    /// from an old copy.
    private static func hasToBeRemembered(_ item: KeyValueItem, where mine: KeyValueItem?) -> Bool {
        guard item.value == nil else { return false }
        guard let mine else { return true }
        return mine.value == nil && item.wins(over: mine)
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
        item.sequence = item.sequence == 0 ? token.sequence : min(item.sequence, token.sequence)
        return item
    }

    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        let store = StoreTransaction(rows)
        let writes = try store.writes(of: operation.position)
        try store.removePending(operation.position)
        // A key that was written again since then has its newer value, and nobody misses the older one. (What is queued
        // later need not be newer: it may be adopted, or offered again.)
        let missed = try writes.filter { try store.greatestPending([$0.key], except: nil) <= $0.timestamp }
        try store.recordRefusal(missed, error, now: engine.now)
        let keys = writes.map(\.key)
        return RefusedPush(
            news: ChangeNotification(
                reason: .quotaViolationChange, changedKeys: keys,
                items: try keys.compactMap { try store.visible($0) }, error: error))
    }

    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        try StoreTransaction(rows).writes(of: operation.position).map(\.key)
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        try StoreTransaction(rows).refusals().map { refused in
            var refused = refused
            // A status is made often, and a long value need not be read for it.
            if let bytes = refused.bytes, bytes.count > Self.typedMax {
                refused.recovery = command(lookingUp: refused.key, former: RefusedWrite.former)
            } else {
                refused.recovery = refused.value.map {
                    command(setting: refused.key, to: $0, former: RefusedWrite.former)
                }
            }
            return refused
        }
    }

    /// A value that is longer is not typed but looked up.
    private static let typedMax = 1000

    /// What a person types who wants the key to have the value again.
    ///
    /// - Parameter former: What `--former` calls it.
    func command(setting key: ItemName, to value: PropertyValue, former: String) -> String {
        let (type, text) = ShellCommand.typed(value)
        guard text.utf8.count <= Self.typedMax else { return command(lookingUp: key, former: former) }
        return "nephos kv set\(options) --type=\(type) " + ShellCommand.arguments([key.rawValue, text])
    }

    private func command(lookingUp key: ItemName, former: String) -> String {
        "nephos kv set\(options) --former=\(former) " + ShellCommand.arguments([key.rawValue])
    }

    /// The same, of its deletion.
    func command(deleting key: ItemName) -> String {
        "nephos kv delete\(options) " + ShellCommand.arguments([key.rawValue])
    }

    /// What a person types who has decided about the key's conflicts.
    ///
    /// - Parameter time: The server has recorded none of them later. One that comes after this one was printed stays listed.
    func command(resolving key: ItemName, recordedUntil time: Timestamp) -> String {
        "nephos kv resolve\(options) --until=\(time.milliseconds) " + ShellCommand.arguments([key.rawValue])
    }

    private var options: String {
        ShellCommand.options(app: app, isDefault: app == engine.session?.defaultApp, home: engine.local.home)
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        try StoreTransaction(rows).dismissRefusals(names)
    }
}
