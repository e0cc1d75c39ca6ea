internal import Bus
internal import Content
internal import Core
internal import ServiceKit
internal import Storage

/// Gives the disk back: notes segments that a crash left without rows, removes those that were emptied long enough ago,
/// then rewrites those that are mostly dead, one after the other, with the copying on a work pool and the rows in the
/// service's groups.
///
/// What fails is left for the next round.
final class SegmentUpkeep {
    private static let pause: Duration = .milliseconds(20)
    /// Files that are removed in one step.
    private static let removedMax = 64
    /// Partitions whose files are compared with the rows in one round.
    private static let comparedMax = 64

    private unowned let transfers: Transfers
    private var nextPartition = 0

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Begins a round now and then, for as long as the service runs.
    func start(_ work: ChunkWork) {
        transfers.host?.loop.schedule(after: transfers.configuration.upkeepInterval) { [weak self] in
            self?.noteUnknown(work)
        }
    }

    /// Of some partitions, so that all have had their turn after a few hours. It is not known when the rows of such a
    /// segment went, and an older database may have been brought back: so they are kept from now on as long as the emptied.
    private func noteUnknown(_ work: ChunkWork) {
        guard let host = transfers.host else { return }
        let (store, snapshots) = (transfers.store, host.snapshots)
        let partitions = nextPartition..<min(nextPartition + Self.comparedMax, partitionCount)
        nextPartition = partitions.upperBound % partitionCount
        host.loop.offload(to: .content) {
            try partitions.flatMap { try SegmentRewrite.unknown(in: $0, of: store, through: snapshots) }
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            guard let unknown = try? result.get(), !unknown.isEmpty else { return removeEmptied(work) }
            let now = host.loop.wallClock.now
            host.submit {
                try ChunkIndex.noteEmptied(unknown, at: now, in: $0)
            } then: { [weak self] _ in
                self?.removeEmptied(work)
            }
        }
    }

    private func removeEmptied(_ work: ChunkWork) {
        guard let host = transfers.host else { return }
        let (store, snapshots) = (transfers.store, host.snapshots)
        let time = host.loop.wallClock.now.advanced(by: .zero - transfers.configuration.emptiedRetention)
        host.loop.offload(to: .content) {
            try SegmentRewrite.removeEmptied(of: store, before: time, limit: Self.removedMax, through: snapshots)
        } then: { [weak self] result in
            guard let self else { return }
            guard let removed = try? result.get(), !removed.isEmpty else { return next(after: nil, work) }
            forget(removed, work)
        }
    }

    private func forget(_ removed: [SegmentID], _ work: ChunkWork) {
        transfers.host?.submit {
            try ChunkIndex.forgetEmptied(removed, in: $0)
        } then: { [weak self] failure in
            guard let self, let host = transfers.host else { return }
            guard failure == nil, removed.count == Self.removedMax else { return next(after: nil, work) }
            host.loop.schedule(after: Self.pause) { [weak self] in self?.removeEmptied(work) }
        }
    }

    private func next(after last: SegmentID?, _ work: ChunkWork) {
        guard let host = transfers.host else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try ChunkIndex.segmentsWorthRewriting(after: last, limit: 1, in: $0).first?.segment }
        } then: { [weak self] result in
            guard let self, transfers.host != nil else { return }
            guard let segment = try? result.get() else { return start(work) }
            step(SegmentRewrite(segment, in: transfers.store), work)
        }
    }

    private func step(_ rewrite: SegmentRewrite, _ work: ChunkWork) {
        transfers.host?.loop.offload(to: .content) {
            try work.copy(rewrite)
        } then: { [weak self] result in
            guard let self else { return }
            guard let copied = try? result.get() else { return next(after: rewrite.segment, work) }
            move(copied, rewrite, work)
        }
    }

    private func move(_ copied: SegmentRewrite.Copied, _ rewrite: SegmentRewrite, _ work: ChunkWork) {
        guard let host = transfers.host else { return copied.release() }
        let now = host.loop.wallClock.now
        var isEmpty = false
        host.submit {
            isEmpty = try copied.move(at: now, in: $0)
        } then: { [weak self] failure in
            copied.release()
            guard let self else { return }
            guard failure == nil else { return next(after: rewrite.segment, work) }
            finish(copied, isEmpty: isEmpty, rewrite, work)
        }
    }

    private func finish(
        _ copied: SegmentRewrite.Copied, isEmpty: Bool, _ rewrite: SegmentRewrite, _ work: ChunkWork
    ) {
        var further = rewrite
        guard further.finish(copied, isEmpty: isEmpty) == .goesOn else { return next(after: rewrite.segment, work) }
        transfers.host?.loop.schedule(after: Self.pause) { [weak self, further] in self?.step(further, work) }
    }
}
