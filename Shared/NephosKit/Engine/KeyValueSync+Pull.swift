internal import Bus
internal import Core
internal import GRDB
internal import SwiftProtobuf
internal import Wire

extension KeyValueSync {
    /// Does what was decided, and says what came of it.
    func perform(_ actions: [ScopeSync.Action]) {
        let generation = generation
        for action in actions {
            // Whoever was told may have ended all this.
            guard generation == self.generation else { return }
            perform(action)
        }
    }

    private func perform(_ action: ScopeSync.Action) {
        switch action {
        case .find:
            attempt({ try self.here() }, then: { self.sync.found($0.head) }, else: { self.sync.pullFailed($0) })
        case .compare(let server):
            attempt(
                { try self.here(beside: server) },
                then: { self.sync.stands($0, beside: server) },
                else: { self.sync.note($0) })
        case .read(let request): read(request)
        case .stage(let changes, let isFirst):
            attempt(
                { try self.write { try $0.stage(changes, isFirst: isFirst) } },
                then: { self.sync.staged() }, else: { self.sync.pullFailed($0) })
        case .apply(let pages):
            attempt(
                { try self.write { try self.apply(pages, in: $0) } },
                then: { self.sync.applied($0, wasListing: pages.isListing) }, else: { self.sync.applyFailed($0) })
        case .receive(let segment):
            attempt(
                { try self.write { try self.apply(segment, in: $0) } },
                then: { self.sync.received(segment, as: $0) }, else: { self.sync.applyFailed($0) })
        case .tellNews: tellNews()
        case .wait(let timer, let time):
            timers[timer]?.cancel()
            timers[timer] = engine.loop.schedule(after: time) { [weak self] in
                guard let self else { return }
                timers[timer] = nil
                perform(sync.due(timer))
            }
        case .stopWaiting(let timer): timers.removeValue(forKey: timer)?.cancel()
        case .collect(let limit):
            attempt(
                { try self.sendable(limit: limit) },
                then: { self.sync.collected($0, at: self.moment, isServerHeard: self.isServerHeard) },
                else: { self.sync.note($0) })
        case .freeze(let operations, let isAttempt):
            attempt(
                { try self.freeze(operations, isAttempt: isAttempt) },
                then: { self.sync.frozen($0) }, else: { self.sync.note($0) })
        case .send(let operation): send(operation)
        case .accept(let operation, let reply):
            attempt(
                { try self.accept(operation, reply) },
                then: { self.sync.settled(operation, as: $0, at: self.moment) }, else: { self.sync.note($0) })
        case .update(let operation):
            attempt({ try self.write { try $0.update(operation) } }, then: { [] }, else: { self.sync.note($0) })
        case .refuse(let operation, let error):
            attempt({ try self.refuse(operation, error) }, then: { [] }, else: { self.sync.note($0) })
        case .changed: changed()
        case .fetched:
            do throws(CloudError) { engine.onEvent(.didFetchChanges(app: app, try status())) } catch {
                perform(sync.applyFailed(error))
            }
        case .endWaiters(let pause, let error, let pulling):
            perform(
                sync.endWaiters(
                    pausedFor: pause, because: error, pulling: pulling, at: engine.loop.monotonicNow))
        case .look: settleWaiters()
        case .finish(let number, let error): finish(number, error)
        case .giveUp(let number): finish(number, ScopeSync.tooLate(try? status()))
        }
    }

    private func attempt<Value>(
        _ body: () throws -> Value, then success: (Value) -> [ScopeSync.Action],
        else failure: (CloudError) -> [ScopeSync.Action]
    ) {
        let actions: [ScopeSync.Action]
        do { actions = success(try body()) } catch { actions = failure(CloudError(wrapping: error)) }
        perform(actions)
    }

    func write<Value>(_ body: (StoreTransaction) throws -> Value) throws(CloudError) -> Value {
        guard let scope else { throw CloudError(.operationCancelled, "The store was left.") }
        return try engine.local.write { try body(StoreTransaction($0, scope)) }
    }

    private func here(beside server: ServerHead? = nil) throws(CloudError) -> Standing {
        guard let scope else { throw CloudError(.operationCancelled, "The store was left.") }
        return try engine.local.read { database in
            let store = StoreTransaction(database, scope)
            let state = try store.state()
            return Standing(
                head: state.head, isSynced: state.synced, differs: try store.differs(state, from: server?.digest ?? []))
        }
    }

    /// Fetches what changed since the local head. One at a time; a call during one makes another follow.
    func pull() { perform(sync.pull()) }

    /// The server's head of this store, by a heartbeat or a subscription.
    func noteServerHead(_ head: ServerHead) { perform(sync.heard(head)) }

    private func read(_ request: WireReadChanges) {
        let generation = generation
        engine.call(.keyValue, request, as: WireReadChangesReply.self, app: app) { [weak self] result, _ in
            guard let self, generation == self.generation else { return }
            switch result {
            case .success(let page): perform(sync.page(page))
            case .failure(let error): perform(sync.pullFailed(error))
            }
        }
    }

    // MARK: Bringing in

    private func apply(_ pages: PulledPages, in store: StoreTransaction) throws -> AppliedPages {
        var state = try store.state()
        let token = ChangeToken(pages.last.token)
        var applied = AppliedPages(head: token)
        var changes = pages.last.changes
        if pages.isStaged {
            try store.stage(changes, isFirst: false)
            changes = try store.staged()
            try store.clearStage()
        }
        // Another process, or a notification, was quicker.
        if state.synced, !pages.isListing, token.epoch == state.head.epoch, token.sequence < state.head.sequence {
            applied.head = state.head
            return applied
        }
        let local = try store.items()
        var pulled = PulledState(
            token: token, complete: pages.isListing, epochStart: pages.last.epochStart, comparing: pages.isComparing)
        for change in changes {
            // What cannot be read here is left out and does not keep the rest away: the digest tells that something is
            // missing, and `verify` what.
            guard let item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) else { continue }
            if change.damaged { pulled.damaged.append(item) } else { pulled.items.append(item) }
        }
        applied.damaged = pulled.damaged.map(\.key)
        // What is incremental continues `after`, and nothing else.
        guard pages.isListing || !state.synced || state.head >= pages.after,
            let plan = PullRules.plan(pulled, local: local, head: state.head, now: engine.now)
        else {
            applied.needsEverything = true
            return applied
        }
        let first = !state.synced
        let touched = Set(plan.puts.map(\.key)).union(plan.replaces ? local.map(\.key) : [])
        var before: [ItemName: KeyValueItem?] = [:]
        if !first { for key in touched { before[key] = .some(try store.visible(key)) } }

        if plan.replaces { try store.removeItems(&state) }
        try setDigestKey([UInt8](pages.last.digestKey), in: store, &state)
        try Facts(store.database).withClock { clock in for item in plan.puts { clock.observe(item.timestamp) } }
        for item in plan.puts { try store.put(item, &state) }
        try offer(plan.offers, in: store)
        state.head = token.epoch == state.head.epoch && state.head > token ? state.head : token
        applied.head = state.head
        state.synced = true
        if !pages.last.info.isEmpty {
            state.limits = KeyValueLimits(try WireKeyValueUsage(serializedBytes: pages.last.info))
        }
        try store.save(state)
        if try store.greatestSequence() <= token.sequence, state.head == token {
            applied.digestAgrees = state.digest.bytes == [UInt8](pages.last.digest)
        }
        if first {
            let keys = try store.visibleItems().filter { $0.value.value != nil }
            try store.tell(
                ChangeNotification(
                    reason: .initialSyncChange, changedKeys: keys.keys.sorted(),
                    items: keys.sorted { $0.key < $1.key }.map(\.value), token: token))
        } else if let news = try announce(before, deletedKeys: plan.replaces, in: store, head: token) {
            try store.tell(news)
        }
        return applied
    }

    /// As ``announce(_:in:head:)``; a key that is gone altogether counts as deleted.
    private func announce(
        _ before: [ItemName: KeyValueItem?], deletedKeys: Bool, in store: StoreTransaction, head: ChangeToken
    ) throws -> ChangeNotification? {
        var notification = try announce(before, in: store, head: head)
        guard deletedKeys else { return notification }
        var gone: [KeyValueItem] = []
        for key in before.keys.sorted() where before[key]??.value != nil {
            guard try store.visible(key) == nil, var item = before[key] ?? nil else { continue }
            item.value = nil
            gone.append(item)
        }
        guard !gone.isEmpty else { return notification }
        if notification == nil {
            notification = ChangeNotification(reason: .serverChange, changedKeys: [], token: head)
        }
        notification?.changedKeys += gone.map(\.key)
        notification?.items += gone
        notification?.device = nil
        return notification
    }

    /// Queues what the server has lost, as its writer wrote it and when.
    private func offer(_ items: [KeyValueItem], in store: StoreTransaction) throws {
        for transaction in PullRules.transactions(items) {
            let writes = try transaction.filter { item in
                guard let waiting = try store.pendingWrite(item.key)?.write else { return true }
                return waiting.timestamp != item.timestamp || waiting.deviceID != item.deviceID
            }
            guard !writes.isEmpty else { continue }
            try store.append(
                writes, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
    }

    private func setDigestKey(_ key: [UInt8], in store: StoreTransaction, _ state: inout StoreState) throws {
        guard key != state.digestKey else { return }
        state.digestKey = key
        state.digest = .empty
        for item in try store.items() where item.value != nil { state.digest.add(item.digest(key: key)) }
    }

    // MARK: The feed, as it comes

    func receive(_ notification: WireNotification) {
        guard notification.reason == .serverChange else { return }
        perform(
            sync.notified(
                FeedSegment(
                    previous: notification.previousSequence, token: ChangeToken(notification.token),
                    changes: notification.changes, digest: [UInt8](notification.digest))))
    }

    private func apply(_ segment: FeedSegment, in store: StoreTransaction) throws -> FeedSegment.Place {
        var state = try store.state()
        // Before the first pull nothing can be continued. A store that was empty then has no
        // digest key yet, and without it no digest can be kept.
        guard state.synced, !state.digestKey.isEmpty else { return .foreign }
        switch segment.position(at: state.head) {
        case .next: break
        case .seen: return .seen
        case .ahead: return .ahead
        case .foreign: return .foreign
        }
        var items: [KeyValueItem] = []
        for change in segment.changes {
            guard let item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) else {
                return .unreadable
            }
            items.append(item)
        }
        var before: [ItemName: KeyValueItem?] = [:]
        for item in items { before[item.key] = .some(try store.visible(item.key)) }
        try Facts(store.database).withClock { clock in for item in items { clock.observe(item.timestamp) } }
        for item in items {
            if let mine = try store.item(item.key) {
                if mine.sequence > item.sequence { continue }
                if mine.wins(over: item) { try offer([mine], in: store) }
            }
            try store.put(item, &state)
        }
        state.head = segment.token
        try store.save(state)
        if let news = try announce(before, in: store, head: segment.token) { try store.tell(news) }
        return .applied(differs: try store.differs(state, from: segment.digest))
    }
}

extension KeyValueLimits {
    init(_ usage: WireKeyValueUsage) {
        self = .standard
        name = usage.profile
        totalBytesMax = Int(clamping: usage.totalBytesMax)
        valueBytesMax = Int(clamping: usage.valueBytesMax)
        keyCountMax = Int(usage.keyCountMax)
        keyBytesMax = Int(usage.keyBytesMax)
    }
}
