import NephosBus
import NephosCore
import NephosSync
import NephosWire

/// How the copy is moved on: what holds for every scope, around what its model does.
extension ScopeDriver {
    /// Whether the copy, at its head, has another digest than this (the bytes of a ``SetDigest/mark``). False where
    /// that cannot be said: none was told, or more is here already.
    func differs(_ state: ScopeState, from digest: [UInt8], in rows: ScopeTransaction) throws -> Bool {
        guard !digest.isEmpty, digest != state.digest.markBytes else { return false }
        return try model.greatestSequence(in: rows) <= state.head.sequence
    }

    func apply(_ pages: PulledPages, in rows: ScopeTransaction) throws -> AppliedPages {
        // What a listing lacks is found beside what it has.
        guard pages.isStaged || pages.isListing else { return try apply(pages, .page(pages.last.changes), in: rows) }
        try rows.stage(pages.last.staged, isFirst: !pages.isStaged, by: reader)
        let changes = PulledChanges.Changes.staged(
            rows, reader: reader, moreQuarantined: pages.last.moreQuarantined)
        let applied = try apply(pages, changes, in: rows)
        try rows.clearStage(of: reader)
        return applied
    }

    private func apply(
        _ pages: PulledPages, _ changes: PulledChanges.Changes, in rows: ScopeTransaction
    ) throws -> AppliedPages {
        var state = try rows.state()
        let last = pages.last
        let token = ChangeToken(last.token)
        // What was told before, or is told now, is not so. What the server has, all of it, is what counts.
        let isBehind = state.synced && pages.areBehind && token.epoch == state.head.epoch
        if isBehind, !pages.isListing { return AppliedPages(needsEverything: true) }
        // Another process, or a notification, was quicker.
        if state.synced, !pages.isListing, token.epoch == state.head.epoch, token.sequence < state.head.sequence {
            return AppliedPages(head: state.head)
        }
        let history = HistoryRelation(
            of: state.head, to: token, wentBack: isBehind, isComparing: pages.isComparing, start: last.epochStart)
        let pulled = PulledChanges(
            changes: changes, token: token, isListing: pages.isListing, history: history, info: last.info)
        // What differs may be the sum that is kept here.
        try setDigestKey([UInt8](last.digestKey), isAnew: pages.isComparing, in: rows, &state)
        // What is incremental continues `after`, and nothing else; and never one history with another. A copy that has
        // gone meanwhile cannot be continued either.
        guard pages.isListing || history.isOwn && state.synced && state.head >= pages.after,
            let merged = try model.merge(pulled, in: rows, &state)
        else { return AppliedPages(needsEverything: true) }
        // Who held nothing comes to all of them at once.
        if state.head.sequence == 0, !last.epochs.isEmpty { state.begin(after: last.epochs.map { ChangeToken($0) }) }
        state.head = !isBehind && token.epoch == state.head.epoch && state.head > token ? state.head : token
        state.synced = true
        state.fetched = engine.loop.wallClock.now
        state.come(to: state.head.epoch, from: last.epochStart)
        try rows.save(state)
        var applied = AppliedPages(head: state.head)
        if try model.greatestSequence(in: rows) <= token.sequence, state.head == token {
            applied.digestAgrees = state.digest.bytes == [UInt8](last.digest)
        }
        try tell(merged.news, at: token, in: rows)
        return applied
    }

    private func setDigestKey(
        _ key: [UInt8], isAnew: Bool, in rows: ScopeTransaction, _ state: inout ScopeState
    ) throws {
        guard isAnew || key != state.digestKey else { return }
        state.digestKey = key
        state.digest = .empty
        try model.forEachDigest(in: rows, key: key) { _, digest in state.digest.add(digest) }
    }

    func apply(_ segment: FeedSegment, in rows: ScopeTransaction) throws -> FeedSegment.Place {
        var state = try rows.state()
        // Before the first pull nothing can be continued. A scope that was empty then has no
        // digest key yet, and without it no digest can be kept.
        guard state.synced, !state.digestKey.isEmpty else { return .foreign }
        switch segment.position(at: state.head) {
        case .next: break
        case .seen: return .seen
        case .ahead: return .ahead
        case .foreign: return .foreign
        }
        var changes = segment.changes
        for index in changes.indices where changes[index].sequence == 0 {
            changes[index].sequence = segment.token.sequence
        }
        let pulled = PulledChanges(
            changes: .page(changes), token: segment.token, isListing: false,
            history: HistoryRelation(continuedTo: segment.token))
        guard let merged = try model.merge(pulled, in: rows, &state) else { return .unreadable }
        state.head = segment.token
        state.fetched = engine.loop.wallClock.now
        try rows.save(state)
        try tell(merged.news, at: segment.token, in: rows)
        return .applied(differs: try differs(state, from: segment.digest, in: rows))
    }

    /// Takes in that an operation was accepted.
    func accept(_ operation: OutboxOperation, _ reply: Frame, in rows: ScopeTransaction) throws -> SettledPush {
        guard try rows.isWaiting(operation) else { return .elsewhere }
        guard let receipt = try model.receipt(reply, of: operation, in: rows), receipt.isPossible
        else { return .unusable }
        var state = try rows.state()
        let token = receipt.token
        guard token.epoch <= state.head.epoch, receipt.winner <= state.head.sequence else { return .pullFirst }
        let isCurrent = token.epoch == state.head.epoch
        // Whoever was shown an epoch does not answer from an earlier one: where this device is, is not so.
        guard isCurrent || operation.head.epoch != state.head.epoch else { return .pullFirst }
        if let rest = receipt.rest { try rows.replace(rest) } else { try rows.removeOperation(at: operation.position) }
        let news = try receipt.store(isCurrent, &state)
        guard isCurrent else {
            try rows.save(state)
            try tell(news, at: state.head, in: rows)
            return .elsewhere
        }
        let segment = FeedSegment(previous: receipt.previousSequence, token: token, changes: [])
        // The first push into an empty scope: its digest key comes with the next pull.
        let position = state.digestKey.isEmpty ? .foreign : segment.position(at: state.head)
        if position == .next { state.head = token }
        try rows.save(state)
        try tell(news, at: state.head, in: rows)
        return .stored(segment, position)
    }

    /// What was there before stays, and the app is told.
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws {
        // Another process may have sent it too, and been told the same.
        guard try rows.isWaiting(operation) else { return }
        let refused = try model.refuse(operation, error, in: rows)
        if let rest = refused.rest { try rows.replace(rest) } else { try rows.removeOperation(at: operation.position) }
        try tell(refused.news, at: try rows.state().head, in: rows)
    }

    private func tell(_ news: ChangeNotification?, at token: ChangeToken, in rows: ScopeTransaction) throws {
        guard var news else { return }
        news.token = token
        try rows.tell(news)
    }
}
