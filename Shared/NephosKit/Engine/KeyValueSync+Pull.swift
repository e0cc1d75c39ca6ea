internal import Bus
internal import Core
internal import GRDB
internal import SwiftProtobuf
internal import Wire

extension KeyValueSync {
    // MARK: Deciding to pull

    /// The server's head of this store, by a heartbeat or a subscription.
    func noteServerHead(_ token: ChangeToken) {
        guard let scope, !pulling else { return }
        do throws(CloudError) {
            let state = try engine.local.read { try StoreTransaction($0, scope).state() }
            // A store that has never been written has no token.
            if state.synced, token == state.head || token == .zero && state.head.sequence == 0 { return }
            // A push on its way may be what is ahead; its reply will say.
            if state.synced, token.epoch == state.head.epoch, token.sequence < state.head.sequence { return }
            if state.synced, !inFlight.isEmpty || !ahead.isEmpty { return pullAfterGrace() }
            pull()
        } catch { note(error) }
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
        guard let scope, engine.session?.revoked == false else { return }
        guard !pulling else {
            pullAgain = true
            return
        }
        pulling = true
        pullAgain = false
        pulls += 1
        let number = pulls
        pullTimer?.cancel()
        pullTimer = nil
        let after: ChangeToken
        do throws(CloudError) {
            after = everything ? .zero : try engine.local.read { try StoreTransaction($0, scope).state().head }
        } catch {
            pulling = false
            return pullFailed(error)
        }
        var wire = WirePullKeys()
        wire.storeID = scope.store.rawValue
        wire.after = WireChangeToken(after)
        let generation = generation
        engine.call(.keyValue, wire, as: WirePullKeysReply.self, app: app) { [weak self] result, _ in
            guard let self, generation == self.generation else { return }
            self.pulling = false
            switch result {
            case .failure(let error) where error.code == .changeTokenExpired && !everything:
                self.pull(everything: true)
            case .failure(let error): self.pullFailed(error)
            case .success(let reply):
                self.pulled(reply, after: after) { self.pullsApplied = number }
            }
        }
    }

    private func pullFailed(_ error: CloudError) {
        pullAttempts += 1
        note(error)
        guard !engine.stopped, error.code != .deviceRevoked, error.code != .notSignedIn else { return }
        if let pause = error.retryAfter { endWaiters(pausedFor: pause, pulling: true, because: error) }
        let pause = min(error.retryAfter ?? engine.backoff(attempts: pullAttempts), Self.pauseMax)
        pullTimer?.cancel()
        pullTimer = engine.loop.schedule(after: pause) { [weak self] in
            self?.pullTimer = nil
            self?.pull()
        }
    }

    // MARK: Applying

    private struct Applied {
        var head = ChangeToken.zero
        /// Nil: could not be compared.
        var digestAgrees: Bool?
        var needsEverything = false
        var offered = 0
    }

    private func pulled(_ reply: WirePullKeysReply, after: ChangeToken, applied markApplied: () -> Void) {
        guard let scope else { return }
        do throws(CloudError) {
            let applied = try engine.local.write { try self.apply(reply, after: after, $0, scope) }
            pullAttempts = 0
            if applied.needsEverything { return pull(everything: true) }
            markApplied()
            awaitsPull = false
            tellNews()
            absorbAhead()
            switch applied.digestAgrees {
            case false where !refetched:
                refetched = true
                return pull(everything: true)
            case false:
                note(
                    CloudError(
                        .storeOutOfStep, "This device's copy differs from the server's. Run verify to see where."))
            case true:
                refetched = false
                note(nil)
            case nil: note(nil)
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

    private func apply(
        _ reply: WirePullKeysReply, after: ChangeToken, _ database: Database, _ scope: StoreScope
    ) throws -> Applied {
        let store = StoreTransaction(database, scope)
        var state = try store.state()
        let token = ChangeToken(reply.token)
        var applied = Applied(head: token)
        // Another process, or a notification, was quicker.
        if state.synced, !reply.complete, token.epoch == state.head.epoch, token.sequence < state.head.sequence {
            applied.head = state.head
            return applied
        }
        let local = try store.items()
        let items = try reply.items.map { try KeyValueItem($0) }
        let pulled = PulledState(
            token: token, complete: reply.complete, items: items, epochStart: reply.epochStart)
        // What is incremental continues `after`, and nothing else.
        guard reply.complete || !state.synced || state.head >= after,
            let plan = PullRules.plan(pulled, local: local, head: state.head)
        else {
            applied.needsEverything = true
            return applied
        }
        let first = !state.synced
        let touched = Set(plan.puts.map(\.key)).union(plan.replaces ? local.map(\.key) : [])
        var before: [ItemName: KeyValueItem?] = [:]
        if !first { for key in touched { before[key] = .some(try store.visible(key)) } }

        if plan.replaces { try store.removeItems(&state) }
        try setDigestKey([UInt8](reply.digestKey), in: store, &state)
        try Facts(database).withClock { clock in for item in plan.puts { clock.observe(item.timestamp) } }
        for item in plan.puts { try store.put(item, &state) }
        for item in plan.offers {
            var offer = item
            offer.sequence = 0
            try store.append(
                [offer], id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
        state.head = token.epoch == state.head.epoch ? max(state.head, token) : token
        state.synced = true
        if reply.hasUsage { state.limits = KeyValueLimits(reply.usage) }
        try store.save(state)
        if try store.greatestSequence() <= token.sequence, state.head == token {
            applied.digestAgrees = state.digest.bytes == [UInt8](reply.digest)
        }
        applied.offered = plan.offers.count
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
                previous: notification.previousSequence, token: ChangeToken(notification.token), items: items))
    }

    func receive(_ segment: FeedSegment) {
        guard let scope else { return }
        do throws(CloudError) {
            let position = try engine.local.write { try self.apply(segment, $0, scope) }
            switch position {
            case .next:
                tellNews()
                absorbAhead()
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
    ) throws -> FeedSegment.Position {
        let store = StoreTransaction(database, scope)
        var state = try store.state()
        // Before the first pull nothing can be continued. A store that was empty then has no
        // digest key yet, and without it no digest can be kept.
        guard state.synced, !state.digestKey.isEmpty else { return .foreign }
        let position = segment.position(at: state.head)
        guard position == .next else { return position }
        var before: [ItemName: KeyValueItem?] = [:]
        for item in segment.items { before[item.key] = .some(try store.visible(item.key)) }
        try Facts(database).withClock { clock in for item in segment.items { clock.observe(item.timestamp) } }
        for item in segment.items {
            if let mine = try store.item(item.key), mine.sequence > item.sequence { continue }
            try store.put(item, &state)
        }
        state.head = segment.token
        try store.save(state)
        if let news = try announce(before, in: store, head: segment.token) { try store.tell(news) }
        return .next
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
