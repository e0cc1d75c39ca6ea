internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// What a service has counted and holds, as it was in one moment: the loop copies it, and others make text of it.
struct ServiceFigures: Sendable {
    /// How far another service is followed.
    struct Followed: Sendable {
        var service: ServiceName
        /// Changes that are known of and not applied.
        var lag: UInt64
        /// The sum of the partitions' sequences that were applied.
        var position: UInt64
        /// Since anything was heard of it.
        var silence: Duration
    }

    var service: ServiceName
    var version: String
    var uptime: Duration
    /// By the names of `CheckHealth`.
    var counters: [String: UInt64]
    var methods: [MethodFigures.Copy] = []
    /// By the budget that was used up.
    var refusedByBudget: [String: UInt64] = [:]
    /// For owners of plans.
    var storedBytes: Int64 = 0
    var requestBytes: UInt64 = 0
    var replyBytes: UInt64 = 0
    var groupRequests = Buckets(bounds: [])
    /// Bytes that wait, by queue.
    var queues: [(queue: String, bytes: Int)] = []
    var followed: [Followed] = []
    /// The sum of the sequences of the feed's partitions, and how many have ever changed.
    var feedPosition: UInt64 = 0
    var feedPartitions = 0
    var epoch: UInt64 = 0
    var isShortOfRoom = false
    /// How far the purge clock and the wall clock are apart.
    var purgeClockOffset: Duration = .zero
    var storage: StorageFigures
}

// What the loop knows.
extension ServiceHost {
    /// What `/metrics` says, but for what the service adds beside its loop. For tests.
    package func metrics(as format: MetricsFormat = .prometheus) -> String {
        let process = ProcessFigures(ProcessFigures.StorageFiles())
        return MetricsText(Metric.Source(service: figures(), own: [:], process: process), as: format).text
    }

    /// Bounded by the number of methods, partitions and connections; some ten microseconds.
    func figures() -> ServiceFigures {
        var figures = ServiceFigures(
            service: service.name, version: serviceKitVersion, uptime: loop.monotonicNow - started,
            counters: counters.values, storage: engine.figures)
        figures.methods = doors.flatMap(\.figures)
        figures.refusedByBudget = counters.refusedByBudget
        figures.storedBytes = counters.storedBytes
        figures.requestBytes = counters.requestBytes
        figures.replyBytes = counters.replyBytes
        figures.groupRequests = counters.groupRequests
        figures.queues = runner.queues + [("replies", doors.reduce(0) { $0 + ($1.socket?.unsentBytes ?? 0) })]
        figures.followed = followers.map {
            ServiceFigures.Followed(service: $0.service, lag: $0.lag, position: $0.position, silence: $0.silentFor)
        }
        figures.feedPosition = publisher?.position ?? 0
        figures.feedPartitions = publisher?.changedPartitions ?? 0
        figures.epoch = history.epoch
        figures.isShortOfRoom = engine.isShortOfRoom
        figures.purgeClockOffset = purgeClock.offset
        return figures
    }
}
