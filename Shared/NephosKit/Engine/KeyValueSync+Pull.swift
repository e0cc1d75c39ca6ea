internal import Bus
internal import Core
internal import GRDB
internal import SwiftProtobuf
internal import Wire

extension KeyValueSync {
    /// How soon a digest that could not be compared, because of pushes on their way, is asked for again.
    private static let comparisonGrace: Duration = .seconds(1)

    // MARK: Deciding to pull

    /// The server's head of this store, by a heartbeat or a subscription.
    ///
    /// - Parameters:
    ///   - digest: The bytes of its ``SetDigest/mark``; empty: not told.
    ///   - isAnswer: It was asked for just now.
    func noteServerHead(_ token: ChangeToken, digest: [UInt8] = [], isAnswer: Bool = false) {
        guard let scope, !pulling else { return }
        do throws(CloudError) {
            let (state, differs) = try engine.local.read { database in
                let store = StoreTransaction(database, scope)
                let state = try store.state()
                return (state, try store.differs(state, from: digest))
            }
            // A store that has never been written has no token.
            if state.synced, token == .zero && state.head.sequence == 0 { return }
            if state.synced, token.isSamePlace(as: state.head) {
                if differs, pullTimer == nil { compare() }
                return
            }
            if state.synced, token.epoch == state.head.epoch, token.sequence < state.head.sequence {
                // What is ahead may be a push that the other side has not heard of yet. If it still has not the next
                // time, its database may be an old copy: it is shown our token.
                defer { overtaken = state.head }
                guard isAnswer || token < overtaken else { return }
                return pull()
            }
            if state.synced, token != state.head, !inFlight.isEmpty || !ahead.isEmpty { return pullAfterGrace() }
            pull()
        } catch { note(error) }
    }

    /// The digests differ at one and the same head: everything is fetched, and
    /// what the server lacks is offered.
    private func compare() {
        agrees = false
        comparisons += 1
        guard comparisons > 1 else { return pull(everything: true) }
        pullTimer?.cancel()
        pullTimer = engine.loop.schedule(after: Backoff.comparisonPause(comparisons)) { [weak self] in
            self?.pullTimer = nil
            self?.pull(everything: true)
        }
    }

    /// Something is missing, which may be on its way already.
    func pullAfterGrace() {
        guard gapTimer == nil else { return }
        gapTimer = engine.loop.schedule(after: engine.options.gapGrace) { [weak self] in
            guard let self else { return }
            self.gapTimer = nil
            if !self.ahead.isEmpty { self.pull() }
        }
    }

    /// Fetches what changed since the local head. One at a time; a call during
    /// one makes another follow.
    func pull(everything: Bool = false) {
        guard scope != nil, engine.session?.revoked == false else { return }
        guard !pulling else {
            pullAgain = true
            return
        }
        pulling = true
        pullAgain = false
        pulls += 1
        pullTimer?.cancel()
        pullTimer = nil
        do throws(CloudError) { read(try nextReading(everything: everything), number: pulls) } catch {
            pulling = false
            pullFailed(error)
        }
    }

    /// The one that is not finished, unless that is too little; else a new one from where this device is.
    private func nextReading(everything: Bool) throws(CloudError) -> ChangesReading {
        if let reading, reading.isListing || !everything { return reading }
        guard let scope else { throw CloudError(.operationCancelled, "The store was left.") }
        let held = try engine.local.read { try StoreTransaction($0, scope).state().head }
        return ChangesReading(.scope(scope.store.rawValue), after: everything ? .zero : held, held: held)
    }

    /// - Parameter number: Of the pull that waits for it.
    private func read(_ reading: ChangesReading, number: Int) {
        var request = reading.request
        request.itemsMax = engine.options.pageItemsMax
        let generation = generation
        engine.call(.keyValue, request, as: WireReadChangesReply.self, app: app) { [weak self] result, _ in
            guard let self, generation == self.generation else { return }
            do throws(CloudError) {
                try self.read(try result.get(), of: reading, number: number)
            } catch {
                self.pulling = false
                if error.code == .changeTokenExpired || error.code == .malformedRequest { self.reading = nil }
                if error.code == .changeTokenExpired, !reading.isListing { return self.pull(everything: true) }
                self.pullFailed(error)
            }
        }
    }

    /// A page has come.
    private func read(_ page: WireReadChangesReply, of reading: ChangesReading, number: Int) throws(CloudError) {
        guard let scope else { return }
        var reading = reading
        guard try !reading.take(page) else {
            self.reading = nil
            pulling = false
            return pulled(page, of: reading) { pullsApplied = number }
        }
        guard reading.pageCount <= Self.pagesMax, reading.byteCount <= Self.readingBytesMax else {
            throw CloudError(.malformedRequest, "The server has more in the store than any store may have.")
        }
        let isFirst = reading.pageCount == 1
        try engine.local.write { try StoreTransaction($0, scope).stage(page.changes, isFirst: isFirst) }
        self.reading = reading
        read(reading, number: number)
    }

    /// Of one reading. A store has 1024 keys, some thousand deletions, and 1 MiB of values; what changes meanwhile comes
    /// again.
    private static let pagesMax = 1 << 14
    private static let readingBytesMax = 64 << 20

    private func pullFailed(_ error: CloudError) {
        pullAttempts += 1
        // Who is at the server's address, or nobody, says more than that a call was in vain.
        if !(problem?.code == .networkUnavailable && Self.isSilence(error)) { note(error) }
        guard !engine.stopped, error.code != .deviceRevoked, error.code != .notSignedIn else { return }
        if let pause = error.retryAfter { endWaiters(pausedFor: pause, pulling: true, because: error) }
        let pause = min(error.retryAfter ?? engine.backoff(attempts: pullAttempts), Self.pauseMax)
        pullTimer?.cancel()
        pullTimer = engine.loop.schedule(after: pause) { [weak self] in
            self?.pullTimer = nil
            self?.pull()
        }
    }

    /// Whether the server has not said anything.
    static func isSilence(_ error: CloudError) -> Bool {
        [.networkUnavailable, .networkFailure, .serverResponseLost].contains(error.code)
    }

    // MARK: Applying

    private struct Applied {
        var head = ChangeToken.zero
        /// Nil: could not be compared.
        var digestAgrees: Bool?
        var needsEverything = false
        /// Keys whose value the server cannot read.
        var damaged: [ItemName] = []
    }

    private func pulled(_ last: WireReadChangesReply, of reading: ChangesReading, applied markApplied: () -> Void) {
        guard let scope else { return }
        do throws(CloudError) {
            let applied = try engine.local.write { try self.apply(last, of: reading, $0, scope) }
            pullAttempts = 0
            if applied.needsEverything { return pull(everything: true) }
            // A reply that continues another tells only of what has changed since.
            if reading.isListing { damaged = [] }
            damaged.formUnion(applied.damaged)
            markApplied()
            awaitsPull = false
            tellNews()
            absorbAhead()
            switch applied.digestAgrees {
            case false:
                compare()
                // The first comparison has begun; what follows is for its end.
                if pulling { return }
                note(Self.outOfStep(damaged: damaged.count))
            case true:
                comparisons = 0
                damaged = []
                agrees = true
                note(nil)
            case nil:
                if problem?.code != .storeOutOfStep { note(nil) }
                // Something is on its way; the next time there is an answer.
                if !agrees, pullTimer == nil {
                    pullTimer = engine.loop.schedule(after: Self.comparisonGrace) { [weak self] in
                        self?.pullTimer = nil
                        self?.pull()
                    }
                }
            }
            let isLast = !pullAgain
            if pullAgain { pull() }
            pump()
            changed()
            if isLast { engine.onEvent(.didFetchChanges(app: app, try status())) }
        } catch {
            pullFailed(error)
        }
    }

    private static func outOfStep(damaged: Int) -> CloudError {
        guard damaged > 0 else {
            return CloudError(
                .storeOutOfStep, "This device's copy differs from the server's. Run verify to see where.")
        }
        return CloudError(
            .storeOutOfStep,
            "The server cannot read some values any more, and waits for a device that has them. Run verify to see which.",
            details: ["damaged": "\(damaged)"])
    }

    /// - Parameter last: The page that the reading has ended with.
    private func apply(
        _ last: WireReadChangesReply, of reading: ChangesReading, _ database: Database, _ scope: StoreScope
    ) throws -> Applied {
        let store = StoreTransaction(database, scope)
        var state = try store.state()
        let token = ChangeToken(last.token)
        var applied = Applied(head: token)
        var changes = last.changes
        if reading.pageCount > 0 {
            try store.stage(last.changes, isFirst: false)
            changes = try store.staged()
            try store.clearStage()
        }
        // Another process, or a notification, was quicker.
        if state.synced, !reading.isListing, token.epoch == state.head.epoch, token.sequence < state.head.sequence {
            applied.head = state.head
            return applied
        }
        let local = try store.items()
        var pulled = PulledState(
            token: token, complete: reading.isListing, epochStart: last.epochStart,
            comparing: reading.isListing && comparisons > 0)
        for change in changes {
            // What cannot be read here is left out and does not keep the rest away: the digest tells that something is
            // missing, and `verify` what.
            guard let item = try? KeyValueItem(WireKeyValueItem(serializedBytes: change.body)) else { continue }
            if change.damaged { pulled.damaged.append(item) } else { pulled.items.append(item) }
        }
        applied.damaged = pulled.damaged.map(\.key)
        // What is incremental continues `after`, and nothing else.
        guard reading.isListing || !state.synced || state.head >= reading.after,
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
        try setDigestKey([UInt8](last.digestKey), in: store, &state)
        try Facts(database).withClock { clock in for item in plan.puts { clock.observe(item.timestamp) } }
        for item in plan.puts { try store.put(item, &state) }
        try offer(plan.offers, in: store)
        state.head = token.epoch == state.head.epoch && state.head > token ? state.head : token
        state.synced = true
        if !last.info.isEmpty { state.limits = KeyValueLimits(try WireKeyValueUsage(serializedBytes: last.info)) }
        try store.save(state)
        if try store.greatestSequence() <= token.sequence, state.head == token {
            applied.digestAgrees = state.digest.bytes == [UInt8](last.digest)
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

    // MARK: Notifications

    func receive(_ notification: WireNotification) {
        guard scope != nil, notification.reason == .serverChange else { return }
        var items: [KeyValueItem] = []
        for change in notification.changes {
            // Without its body a change has to be fetched.
            guard !change.body.isEmpty, let wire = try? WireKeyValueItem(serializedBytes: change.body),
                let item = try? KeyValueItem(wire)
            else { return pull() }
            items.append(item)
        }
        receive(
            FeedSegment(
                previous: notification.previousSequence, token: ChangeToken(notification.token), items: items,
                digest: [UInt8](notification.digest)))
    }

    func receive(_ segment: FeedSegment) {
        guard let scope else { return }
        do throws(CloudError) {
            let (position, differs) = try engine.local.write { try self.apply(segment, $0, scope) }
            switch position {
            case .next:
                tellNews()
                absorbAhead()
                if differs, pullTimer == nil { compare() }
                // What was received may be older than what is here, which is then offered.
                pump()
            case .seen: break
            case .foreign: pull()
            case .ahead:
                ahead.keep(segment)
                pullAfterGrace()
            }
        } catch { pullFailed(error) }
    }

    private func apply(
        _ segment: FeedSegment, _ database: Database, _ scope: StoreScope
    ) throws -> (FeedSegment.Position, differs: Bool) {
        let store = StoreTransaction(database, scope)
        var state = try store.state()
        // Before the first pull nothing can be continued. A store that was empty then has no
        // digest key yet, and without it no digest can be kept.
        guard state.synced, !state.digestKey.isEmpty else { return (.foreign, false) }
        let position = segment.position(at: state.head)
        guard position == .next else { return (position, false) }
        var before: [ItemName: KeyValueItem?] = [:]
        for item in segment.items { before[item.key] = .some(try store.visible(item.key)) }
        try Facts(database).withClock { clock in for item in segment.items { clock.observe(item.timestamp) } }
        for item in segment.items {
            if let mine = try store.item(item.key) {
                if mine.sequence > item.sequence { continue }
                if mine.wins(over: item) { try offer([mine], in: store) }
            }
            try store.put(item, &state)
        }
        state.head = segment.token
        try store.save(state)
        if let news = try announce(before, in: store, head: segment.token) { try store.tell(news) }
        return (.next, try store.differs(state, from: segment.digest))
    }

    /// Applies what arrived early and now continues the head.
    func absorbAhead() {
        guard !ahead.isEmpty, let scope else { return }
        do throws(CloudError) {
            let head = try engine.local.read { try StoreTransaction($0, scope).state().head }
            guard let segment = ahead.next(after: head) else {
                if ahead.isEmpty {
                    gapTimer?.cancel()
                    gapTimer = nil
                }
                return
            }
            receive(segment)
        } catch { note(error) }
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
