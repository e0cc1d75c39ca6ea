internal import Bus
internal import Content
internal import Core
internal import ServiceKit
internal import Storage

/// Gives the disk back: rewrites segments that are mostly dead, one after the other, with the copying on a work pool and
/// the rows in the service's groups.
///
/// What fails is left for the next round.
final class SegmentUpkeep {
    private static let pause: Duration = .milliseconds(20)

    private unowned let transfers: Transfers

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Begins a round now and then, for as long as the service runs.
    func start(_ work: ChunkWork) {
        transfers.host?.loop.schedule(after: transfers.configuration.upkeepInterval) { [weak self] in
            guard let self, transfers.host != nil else { return }
            next(after: nil, work)
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
        var isEmpty = false
        transfers.host?.submit {
            isEmpty = try copied.move(in: $0)
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
        transfers.host?.loop.offload(to: .content) {
            var rewrite = rewrite
            let progress = try rewrite.finish(copied, isEmpty: isEmpty)
            return (rewrite, progress)
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            guard let (further, progress) = try? result.get(), progress == .goesOn else {
                return next(after: rewrite.segment, work)
            }
            host.loop.schedule(after: Self.pause) { [weak self] in self?.step(further, work) }
        }
    }
}
