internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Gives the disk back: notes segments and ends of segments that a crash left without rows, removes those that were
/// emptied long enough ago, then rewrites those that are mostly dead, one after the other, with the copying on a work pool and the rows in the
/// service's groups.
///
/// When the disk's room is low a round begins at once, and what was emptied is given up before its time, the oldest
/// first, until it is low no more. What fails is left for the next round.
final class SegmentUpkeep {
    private static let pause: Duration = .milliseconds(20)
    /// Files that are removed in one step; and while room is low, when it is looked at after each step.
    private static let removedMax = 64
    private static let removedMaxWhenLow = 16
    /// Partitions whose files are compared with the rows in one round.
    private static let comparedMax = 64
    /// A round comes so much later than it was to only where the machine has slept.
    private static let sleepMin: Duration = .seconds(6 * 3600)

    private unowned let transfers: Transfers
    private let work: ChunkWork
    private var nextPartition = 0
    private var lastRound: Timestamp?
    private var nextRound: (any LoopTimer)?

    init(_ transfers: Transfers, _ work: ChunkWork) {
        self.transfers = transfers
        self.work = work
    }

    /// Begins a round now and then, for as long as the service runs.
    func start() {
        wait()
        watch()
    }

    private func wait() {
        nextRound = transfers.host?.loop.schedule(after: transfers.configuration.upkeepInterval) { [weak self] in
            self?.begin()
        }
    }

    private func begin() {
        nextRound?.cancel()
        nextRound = nil
        noteUnknown()
    }

    /// Looks at the disk's room.
    private func watch() {
        transfers.host?.loop.schedule(after: transfers.configuration.roomInterval) { [weak self] in
            guard let self, let host = transfers.host else { return }
            let (store, configuration) = (transfers.store, transfers.configuration)
            host.loop.offload(to: .content) {
                store.room.map(configuration.isLow) == true
            } then: { [weak self] result in
                guard let self else { return }
                // One that is under way looks by itself.
                if (try? result.get()) == true, nextRound != nil { begin() }
                watch()
            }
        }
    }

    /// What files have that no row knows.
    private struct Unknown: Sendable {
        var segments: [SegmentID] = []
        var lengths: [SegmentID: Int] = [:]
    }

    /// Of some partitions, so that all have had their turn after a few hours. It is not known when the rows of such a
    /// segment went, and an older database may have been brought back: so they are kept from now on as long as the
    /// emptied.
    private func noteUnknown() {
        guard let host = transfers.host else { return }
        let (store, snapshots) = (transfers.store, host.snapshots)
        let partitions = nextPartition..<min(nextPartition + Self.comparedMax, partitionCount)
        nextPartition = partitions.upperBound % partitionCount
        host.loop.offload(to: .content) {
            try partitions.reduce(into: Unknown()) { unknown, partition in
                unknown.segments += try SegmentRewrite.unknown(in: partition, of: store, through: snapshots)
                let lengths = try SegmentRewrite.outgrown(in: partition, of: store, through: snapshots)
                unknown.lengths.merge(lengths) { max($0, $1) }
            }
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            let unknown = (try? result.get()) ?? Unknown()
            let now = host.purgeTime
            // What was noted before would go at once, and nothing was read meanwhile.
            let late = (lastRound.map { now.since($0) } ?? .zero) - transfers.configuration.upkeepInterval
            lastRound = now
            host.submit {
                try ChunkIndex.noteEmptied(unknown.segments, at: now, in: $0)
                try ChunkIndex.noteLengths(unknown.lengths, in: $0)
                if late > Self.sleepMin { try ChunkIndex.delayEmptied(by: late, in: $0) }
            } then: { [weak self] _ in
                self?.removeEmptied()
            }
        }
    }

    /// Segments that were removed.
    private struct Removed: Sendable {
        var segments: [SegmentID]
        /// Whether before their time, because the disk's room is low.
        var isEarly: Bool
        var mayBeMore: Bool
    }

    private func removeEmptied() {
        guard let host = transfers.host else { return }
        let (store, snapshots, configuration) = (transfers.store, host.snapshots, transfers.configuration)
        let time = host.purgeTime.advanced(by: .zero - configuration.emptiedRetention)
        host.loop.offload(to: .content) {
            let isLow = store.room.map(configuration.isLow) == true
            let limit = isLow ? Self.removedMaxWhenLow : Self.removedMax
            let segments = try SegmentRewrite.removeEmptied(
                of: store, before: isLow ? Timestamp(milliseconds: .max) : time, limit: limit, through: snapshots)
            return Removed(segments: segments, isEarly: isLow, mayBeMore: segments.count == limit)
        } then: { [weak self] result in
            guard let self else { return }
            guard let removed = try? result.get() else { return next(after: nil) }
            if removed.segments.isEmpty { next(after: nil) } else { forget(removed) }
        }
    }

    private func forget(_ removed: Removed) {
        guard let host = transfers.host else { return }
        if removed.isEarly {
            host.report(
                "The disk of the content has little room: emptied segments were given up before their time",
                details: ["segments": "\(removed.segments.count)"])
        }
        host.submit {
            try ChunkIndex.forgetEmptied(removed.segments, in: $0)
        } then: { [weak self] failure in
            guard let self, let host = transfers.host else { return }
            guard failure == nil, removed.mayBeMore else { return next(after: nil) }
            host.loop.schedule(after: Self.pause) { [weak self] in self?.removeEmptied() }
        }
    }

    private func next(after last: SegmentID?) {
        guard let host = transfers.host else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { try ChunkIndex.segmentsWorthRewriting(after: last, limit: 1, in: $0).first?.segment }
        } then: { [weak self] result in
            guard let self, transfers.host != nil else { return }
            guard let segment = try? result.get() else { return wait() }
            step(SegmentRewrite(segment, in: transfers.store))
        }
    }

    private func step(_ rewrite: SegmentRewrite) {
        transfers.host?.loop.offload(to: .content) { [work] in
            try work.copy(rewrite)
        } then: { [weak self] result in
            guard let self else { return }
            guard let copied = try? result.get() else { return next(after: rewrite.segment) }
            move(copied, rewrite)
        }
    }

    private func move(_ copied: SegmentRewrite.Copied, _ rewrite: SegmentRewrite) {
        guard let host = transfers.host else { return copied.release() }
        let now = host.purgeTime
        var isEmpty = false
        host.submit {
            isEmpty = try copied.move(at: now, in: $0)
        } then: { [weak self] failure in
            copied.release()
            guard let self else { return }
            guard failure == nil else { return next(after: rewrite.segment) }
            finish(copied, isEmpty: isEmpty, rewrite)
        }
    }

    private func finish(_ copied: SegmentRewrite.Copied, isEmpty: Bool, _ rewrite: SegmentRewrite) {
        var further = rewrite
        guard further.finish(copied, isEmpty: isEmpty) == .goesOn else { return next(after: rewrite.segment) }
        transfers.host?.loop.schedule(after: Self.pause) { [weak self, further] in self?.step(further) }
    }
}
