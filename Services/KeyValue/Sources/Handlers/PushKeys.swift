internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

extension KeyValueService {
    /// Writes keys, all or none; a write that lost to a newer one goes to the key's history.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded` (nothing was stored; the device
    ///   is also told by an event), `.limitExceeded` (split the push), `.invalidArguments`,
    ///   `.missingEntitlement`; `.serviceBusy` once, when the device's head shows that this database is an old copy,
    ///   or what seals the store is damaged.
    func pushKeys(
        _ request: PushRequest, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> Frame {
        try mending(transaction) { try push(request, context, transaction) }
    }

    private func push(
        _ request: PushRequest, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> Frame {
        let store = try openStore(request.storeID, context, transaction)
        if case .lost(_, isNews: true) = try transaction.judge(request.head, in: store.partition) {
            throw CloudError.oldCopy
        }
        if let reply = try StoredReplies.reply(to: request, context, of: store) { return reply }

        do {
            // What can be refused by its shape and sizes is, before anything is decoded, read or opened.
            try Push.checkShape(request, by: try context.requireCaller())
            try QuotaRule.check(request, limits: configuration.limits)
            // While the disk is full only deletes are taken.
            guard !transaction.isShortOfRoom || request.writes.allSatisfy({ $0.value == nil }) else {
                throw CloudError.diskFull
            }
            let canonical = try request.canonical()
            // To decode, sort and encode 16 bytes costs about as much as a row.
            transaction.charge(rows: canonical.reshapedBytes / 16)
            let push = try Push(canonical, context, into: store, now: clock.read(context.now))
            try push.check(configuration.limits)
            let reply = try push.write(context, keepingFrom: runtime?.retentionStart ?? context.now)
            try keepClock(transaction)
            guard reply.isWorthKeeping else { return reply.frame() }
            return try StoredReplies.remember(reply, to: context, of: store)
        } catch let violation as QuotaViolation {
            transaction.publishRegardless(try KeyValueEvents.quotaViolation(violation.keys, in: store, context))
            throw violation.error
        }
    }
}

/// A push while it is decided and written.
struct Push: ~Copyable {
    /// An object: every step looks at it, and a copy would count references to all its parts.
    final class Write {
        let key: ItemName
        /// Canonical; nil: delete the key.
        let value: [UInt8]?
        let offered: MergeRule.Stamp
        /// Of what the writer had from here; ``HybridTimestamp/zero``: nothing.
        let seen: HybridTimestamp
        let current: StoredKey?
        let decision: MergeRule.Decision
        /// Of the value that is there; nil: there is none.
        let previousSize: Int?

        init(
            _ write: PushRequest.Write, offered: MergeRule.Stamp, current: StoredKey?, decision: MergeRule.Decision
        ) {
            key = write.key
            value = write.value
            seen = HybridTimestamp(rawValue: write.seenTimestamp)
            self.offered = offered
            self.current = current
            self.decision = decision
            previousSize = current.flatMap { $0.sealed == nil ? nil : $0.size }
        }

        /// What a write that was not accepted was compared with: every write has its outcome.
        func requireCurrent() throws(CloudError) -> StoredKey {
            guard let current else { throw CloudError(.internalError, "A write lost to nothing.") }
            return current
        }

        var sizeChange: SizeChange {
            SizeChange(key: key, size: value?.count, previousSize: previousSize)
        }
    }

    let store: KeyStore
    let head: ScopeHead
    let caller: DeviceID
    private let writes: [Write]

    /// Reads what is there, and decides each key. Writes nothing.
    ///
    /// - Parameter now: By the service's hybrid clock.
    init(_ request: PushRequest, _ context: RequestContext, into store: KeyStore, now: Timestamp) throws {
        let head = try store.head()
        let caller = try context.requireCaller().device
        var cut = MergeRule.Cut(now: now)
        for write in request.writes where write.timestamp > cut.limit.rawValue {
            cut.consider(Self.stamp(of: write, by: caller), over: try store.key(write.key)?.stamp)
        }
        let writes = try request.writes.map { write in
            var current = try store.key(write.key)
            let offered = Self.stamp(of: write, by: caller)
            // One that names its writer may be newer than a write that has not arrived, or be of what an old copy does
            // not have; another leaves nothing.
            if write.value == nil, current == nil, write.deviceID.isEmpty {
                return Write(write, offered: offered, current: nil, decision: .absent)
            }
            let decision: MergeRule.Decision
            do {
                decision = try MergeRule.decide(offered: offered, current: current?.stamp, cut: cut) {
                    // It is read and opened as if it were sent. Of one that is replaced that was paid when it came.
                    store.transaction.charge(rows: (current?.size ?? 0) / RequestCost.bytesPerRow)
                    return try Self.isEqual(write.value, to: current, in: store)
                }
            } catch is DamagedValue {
                try store.quarantine(write.key)
                current = nil
                decision = MergeRule.decide(offered: offered, current: nil, cut: cut) { false }
            }
            return Write(write, offered: offered, current: current, decision: decision)
        }
        self.store = store
        self.head = head
        self.caller = caller
        self.writes = writes
    }

    /// The write's stamp as it was offered.
    static func stamp(of write: PushRequest.Write, by caller: DeviceID) -> MergeRule.Stamp {
        MergeRule.Stamp(
            timestamp: HybridTimestamp(rawValue: write.timestamp),
            device: write.deviceID.isEmpty ? caller : DeviceID(write.deviceID))
    }

    static func checkShape(
        _ request: PushRequest, by caller: Caller
    ) throws(CloudError) {
        guard !request.writes.isEmpty else {
            throw CloudError(.invalidArguments, "A push needs at least one write.", details: ["argument": "writes"])
        }
        var names: Set<ItemName> = []
        for write in request.writes {
            if request.writes.count > 1, !names.insert(write.key).inserted {
                throw CloudError(.invalidArguments, "A push has the same key twice.", details: ["argument": "key"])
            }
            try write.key.check()
            guard write.timestamp > 0 else {
                throw CloudError(.invalidArguments, "A write needs a timestamp.", details: ["argument": "timestamp"])
            }
            // Whoever offers what another device wrote names it: one of the same account, also if it is gone since.
            guard
                write.deviceID.isEmpty || write.deviceID == caller.device.rawValue
                    || DeviceID(write.deviceID).belongs(to: caller.account)
            else {
                throw CloudError(
                    .permissionFailure, "A write can name a device of the caller's own account only.",
                    details: ["argument": "device_id"])
            }
        }
    }

    /// - Throws: ``DamagedValue``.
    private static func isEqual(_ value: [UInt8]?, to current: StoredKey?, in store: KeyStore) throws -> Bool {
        guard let current, current.sealed != nil else { return value == nil }
        return try store.value(of: current) == value
    }

    /// - Throws: ``QuotaViolation``.
    func check(_ limits: KeyValueLimits) throws {
        try QuotaRule.check(writes.lazy.map { $0.sizeChange }, limits: limits)
        let accepted = writes.lazy.filter { if case .accepted = $0.decision { true } else { false } }
        try QuotaRule.check(
            accepted.map { $0.sizeChange }, liveCount: head.liveCount, liveBytes: head.liveBytes, limits: limits)
    }

    /// Stores what was accepted as one change, keeps what lost, and publishes.
    ///
    /// - Parameter start: What lost is kept from then on.
    func write(_ context: RequestContext, keepingFrom start: Timestamp) throws -> PushReply {
        var reply = PushReply(token: head.token, previousSequence: head.token.sequence)
        reply.outcomes.reserveCapacity(writes.count)
        var rows: [FeedItem] = []
        var changed: [ChangedKey] = []
        var losers: [KeyHistory.Entry] = []
        var digestKey = try store.digestKey(head)
        var valueBytesLeft = PushLimits.replyValuesBytesMax
        for write in writes {
            switch write.decision {
            case .accepted(let timestamp):
                let stamp = MergeRule.Stamp(timestamp: timestamp, device: write.offered.device)
                if stamp.timestamp != write.offered.timestamp { reply.isAsOffered = false }
                if let loser = overwritten(write, by: stamp, at: start) { losers.append(loser) }
                if digestKey == nil { digestKey = try store.makeDigestKey() }
                rows.append(try row(write, stamp, digestKey ?? []))
                changed.append(ChangedKey(key: write.key, stamp: stamp, value: write.value))
                reply.outcomes.append(.accepted(key: write.key, stamp))
            case .absent:
                reply.outcomes.append(.accepted(key: write.key, write.offered))
            case .unchanged:
                reply.outcomes.append(.unchanged(try write.requireCurrent()))
                reply.isAsOffered = false
            case .superseded(let isEqual):
                reply.isAsOffered = false
                let current = try write.requireCurrent()
                reply.outcomes.append(try superseded(by: current, &valueBytesLeft))
                if !isEqual {
                    losers.append(try loser(write, to: current.stamp, at: start, digestKey))
                    reply.isWorthKeeping = true
                }
            }
        }
        try KeyHistory.add(losers, to: store.scope, in: store.transaction)
        guard !rows.isEmpty else { return reply }
        reply.isWorthKeeping = true
        let change = try store.transaction.put(store.scope, rows)
        reply.token = change.token
        reply.previousSequence = change.previousSequence
        store.transaction.publish(try KeyValueEvents.changed(changed, by: change, context))
        return reply
    }

    /// The winner, with its value if that is small; a larger one is pulled, so
    /// that nobody makes the service keep and send many of them by losing to them.
    private func superseded(by current: StoredKey, _ bytesLeft: inout Int) throws -> PushReply.Outcome {
        guard let sealed = current.sealed else { return .superseded(by: current, value: nil, isOmitted: false) }
        guard current.size <= min(PushLimits.replyValueBytesMax, bytesLeft) else {
            return .superseded(by: current, value: nil, isOmitted: true)
        }
        bytesLeft -= current.size
        return .superseded(
            by: current, value: try store.open(sealed, as: .value(key: current.key, current.stamp)), isOmitted: false)
    }

    private func row(_ write: Write, _ stamp: MergeRule.Stamp, _ digestKey: [UInt8]) throws -> FeedItem {
        guard let value = write.value else {
            return StoredKey(key: write.key, stamp: stamp, sealed: nil, size: 0).feedItem(digest: .empty)
        }
        let digest = KeyValueItem.digest(
            key: digestKey, of: write.key, timestamp: stamp.timestamp, deviceID: stamp.device, canonicalValue: value)
        return StoredKey(
            key: write.key, stamp: stamp, sealed: try store.seal(value, as: .value(key: write.key, stamp)),
            size: value.count
        ).feedItem(digest: digest)
    }

    /// A value of another device, which the caller may not have seen; or one of the same device that has stood for
    /// a while.
    private func overwritten(
        _ write: Write, by winner: MergeRule.Stamp, at time: Timestamp
    ) -> KeyHistory.Entry? {
        guard write.previousSize != nil, let previous = write.current?.stamp else { return nil }
        // Kept, it would take the very room that deleting it is to make.
        if store.transaction.isShortOfRoom { return nil }
        if previous.device == winner.device {
            let stood = winner.timestamp.time.since(previous.timestamp.time)
            guard stood >= KeyHistory.ownStandingMin else { return nil }
        }
        guard let current = write.current else { return nil }
        // Of another size it is another one, and need not be opened. (One that is damaged is listed as such.)
        if current.size == write.value?.count {
            guard let value = try? store.value(of: current), value != write.value else { return nil }
        }
        return KeyHistory.Entry(
            loser: current, mark: Self.mark(of: current.digest),
            lostConflict: previous.device != winner.device && previous.timestamp > write.seen, winner: winner,
            recordedAt: time)
    }

    private func loser(
        _ write: Write, to winner: MergeRule.Stamp, at time: Timestamp, _ digestKey: [UInt8]?
    ) throws -> KeyHistory.Entry {
        let sealed = try write.value.map { try store.seal($0, as: .value(key: write.key, write.offered)) }
        let loser = StoredKey(key: write.key, stamp: write.offered, sealed: sealed, size: write.value?.count ?? 0)
        // No value's canonical form is empty: of a deletion it tells the device.
        let digest = KeyValueItem.digest(
            key: digestKey ?? [], of: write.key, timestamp: loser.stamp.timestamp, deviceID: loser.stamp.device,
            canonicalValue: write.value ?? [])
        // A device knows its own later write; only what another one wrote meanwhile it had not seen.
        return KeyHistory.Entry(
            loser: loser, mark: Self.mark(of: digest), lostConflict: winner.device != write.offered.device,
            winner: winner, recordedAt: time)
    }

    /// Tells the write from others under its stamp, as two copies of one device make them: a digest has the value in
    /// it.
    private static func mark(of digest: SetDigest) -> Int64 { Int64(bitPattern: digest.mark) }
}

/// What a push is answered with, in the order of its writes: a `PushKeysReply`.
struct PushReply {
    enum Outcome {
        case accepted(key: ItemName, MergeRule.Stamp)
        case unchanged(StoredKey)
        case superseded(by: StoredKey, value: [UInt8]?, isOmitted: Bool)
    }

    var token: ChangeToken
    var previousSequence: UInt64
    var outcomes: [Outcome] = []
    /// Whether every write was accepted with the stamp it came with.
    var isAsOffered = true
    /// Whether the push has changed anything; else a repeat may as well be carried out again.
    var isWorthKeeping = false

    /// The reply to a push whose writes were all accepted as they were offered.
    static func asOffered(
        _ request: PushRequest, by caller: DeviceID, token: ChangeToken, previousSequence: UInt64
    ) -> PushReply {
        PushReply(
            token: token, previousSequence: previousSequence,
            outcomes: request.writes.map { .accepted(key: $0.key, Push.stamp(of: $0, by: caller)) })
    }

    /// The encoded reply.
    func frame() -> Frame {
        var fields = fields()
        return Frame(taking: &fields)
    }

    /// The reply's fields.
    ///
    /// - Parameter isToBeStored: True: the keys' names and the winners' values are left out.
    func fields(isToBeStored: Bool = false) -> FieldWriter {
        var writer = FieldWriter(reserving: 32 + outcomes.count * 96)
        writer.token(1, token)
        writer.number(2, previousSequence)
        for outcome in outcomes {
            writer.message(3) { writer in
                switch outcome {
                case .accepted(let key, let stamp):
                    writer.message(1) {
                        $0.item(
                            key: isToBeStored ? "" : key, timestamp: stamp.timestamp, deviceID: stamp.device,
                            sequence: token.sequence,
                            canonicalValue: nil)
                    }
                case .unchanged(let current): writer.message(1) { $0.item(current, named: !isToBeStored, value: nil) }
                case .superseded(let current, let value, let isOmitted):
                    writer.message(1) { $0.item(current, named: !isToBeStored, value: isToBeStored ? nil : value) }
                    writer.flag(2, true)
                    writer.flag(3, isOmitted || isToBeStored && value != nil)
                }
            }
        }
        return writer
    }
}

extension FieldWriter {
    /// The state of a key as it travels: a `KeyValueItem`.
    mutating func item(_ stored: StoredKey, named: Bool = true, value: [UInt8]?) {
        item(
            key: named ? stored.key : "", timestamp: stored.stamp.timestamp, deviceID: stored.stamp.device,
            sequence: stored.sequence, canonicalValue: value)
    }
}
