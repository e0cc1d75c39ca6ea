internal import NephosBus
internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What of content is told in numbers and has to be read for it: once a minute, on the content pool.
///
/// On the service's loop only.
final class ContentFigures {
    private static let interval: Duration = .seconds(60)
    private static let reserved = SQL(
        "SELECT CAST(COALESCE(SUM(bytes - filled), 0) AS BIGINT) FROM storage_reservations WHERE expires >= 0")

    private unowned let transfers: Transfers
    /// As they were read last; none before that.
    private(set) var figures: [String: Int] = [:]

    init(_ transfers: Transfers) { self.transfers = transfers }

    /// Begins, for as long as the service runs.
    func start() {
        guard let host = transfers.host else { return }
        let snapshots = host.snapshots
        host.loop.offload(to: .content) {
            try snapshots.read { snapshot in
                let segments = try ChunkIndex.total(in: snapshot)
                return [
                    "content.segments": segments.count, "content.segments.bytes": segments.length,
                    "content.live.bytes": segments.liveBytes,
                    // Of open uploads alone, which are few.
                    "ledger.reserved.bytes": try snapshot.first(Self.reserved) { Int(clamping: $0.integer(0)) } ?? 0,
                ]
            }
        } then: { [weak self] result in
            guard let self, let host = transfers.host else { return }
            if let figures = try? result.get() { self.figures = figures }
            host.loop.schedule(after: Self.interval) { [weak self] in self?.start() }
        }
    }
}
