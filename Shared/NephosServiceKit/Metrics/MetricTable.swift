internal import NephosCore
internal import NephosStorage

// Every metric that there is. docs/metrics.md has the same table for people; dev/check-claims compares the two.
extension Metric {
    static let all = requests + groups + feed + notifications + content + storage + process

    private static let requests: [Metric] = [
        .counter(
            "nephos_requests_total",
            "Requests that were answered, by method and by the error's code; of no method that there is: other"
        ) { source in
            source.service.methods.filter { !$0.isUnused }.flatMap { method in
                [.whole(method.succeeded, ("method", method.name), ("code", "ok"))]
                    + method.failed.sorted { $0.key.number < $1.key.number }.map {
                        .whole($0.value, ("method", method.name), ("code", $0.key.description))
                    }
            }
        },
        // Present from the start: the first failure is a rise only from a zero.
        .counter("nephos_failures_total", "Requests that failed through the service's own fault, by the error's code") {
            source in
            [CloudError.Code.internalError, .storageFailure].map { code in
                let count = source.service.methods.reduce(0) { $0 &+ ($1.failed[code] ?? 0) }
                return .whole(count, ("code", code.description))
            }
        },
        .histogram(
            "nephos_request_duration_seconds",
            "From a request's arrival at the service's loop to its reply, by method, of those that were asked for; "
                + "requests of other services are left out"
        ) { source in
            source.service.methods.filter { $0.times.count > 0 }.map { .seconds($0.times, ("method", $0.name)) }
        },
        .counter(
            "nephos_requests_repeated_total", "Requests that had been carried out before, and got their first reply",
            counted: "requests.repeated"),
        .counter(
            "nephos_requests_deferred_total",
            "Requests that waited for a further group, since their account had its share",
            counted: "requests.deferred"),
        .counter(
            "nephos_requests_ignored_total", "Requests of keys without a good token that asked too often; unanswered",
            counted: "requests.ignored"),
        .counter("nephos_requests_refused_total", "Requests that were refused because a budget is used up, by which") {
            source in
            source.service.refusedByBudget.sorted { $0.key < $1.key }.map {
                .whole($0.value, ("budget", $0.key.replacing(" ", with: "_")))
            }
        },
        .counter("nephos_request_bytes_total", "Bytes of requests") { [.whole($0.service.requestBytes)] },
        .counter("nephos_reply_bytes_total", "Bytes of replies") { [.whole($0.service.replyBytes)] },
        .counter("nephos_replies_dropped_total", "Replies that were not sent, since the connection is full or gone") {
            $0.risen([("replies.dropped", "full"), ("replies.gone", "gone")], label: "reason")
        },
        .gauge("nephos_queue_bytes", "Bytes that wait, by queue") { source in
            source.service.queues.map { .whole($0.bytes, ("queue", $0.queue)) }
        },
    ]

    private static let groups: [Metric] = [
        .counter("nephos_groups_total", "Groups of requests that were committed", counted: "groups"),
        .counter(
            "nephos_groups_split_total", "Groups that were run one request after the other, since one of them failed",
            counted: "groups.split"),
        .counter("nephos_groups_slow_total", "Groups that took 50 milliseconds or more", counted: "groups.slow"),
        .histogram("nephos_group_requests", "Requests of a group; 0: it was work of the service's own") {
            [Sample(value: .buckets($0.service.groupRequests, unit: 1))]
        },
        .histogram("nephos_flush_duration_seconds", "Time to write a group to the log and to flush it") {
            [.seconds($0.service.storage.flushes)]
        },
    ]

    private static let feed: [Metric] = [
        .gauge("nephos_feed_position", "The sum of the sequences of the feed's partitions: it rises with each change") {
            [.whole($0.service.feedPosition)]
        },
        .gauge("nephos_feed_partitions", "Partitions of the feed that have ever changed") {
            [.whole($0.service.feedPartitions)]
        },
        .gauge("nephos_epoch_info", "The epoch of the feed: a new one begins when the database was restored") {
            [.whole(1, ("epoch", "\($0.service.epoch)"))]
        },
        .counter("nephos_epochs_begun_total", "Epochs begun since the start", counted: "epochs.begun"),
        .gauge("nephos_follower_lag", "Changes of another service that are known of and not applied") { source in
            source.service.followed.map { .whole($0.lag, ("followed", $0.service.rawValue)) }
        },
        .gauge("nephos_follower_position", "As nephos_feed_position of the followed service, as far as it was applied")
        {
            source in
            source.service.followed.map { .whole($0.position, ("followed", $0.service.rawValue)) }
        },
        .gauge("nephos_follower_silence_seconds", "For how long nothing was heard of the followed service") { source in
            source.service.followed.map { .real($0.silence.seconds, ("followed", $0.service.rawValue)) }
        },
        .counter("nephos_follower_troubles_total", "Failures in following another service that were repaired") {
            $0.risen(
                ["gaps", "malformed", "skipped", "lost", "restarts"].map { ("follower.\($0)", $0) }, label: "trouble")
        },
    ]

    private static let notifications: [Metric] = [
        .gauge("nephos_subscribers", "Subscribed connections", own: "subscribers"),
        .gauge("nephos_subscribers_lagging", "Those that do not take what they are sent", own: "subscribers.lagging"),
        .counter(
            "nephos_subscribers_gone_total", "Subscribed connections that were found to be over",
            counted: "subscribers.gone", by: [.notifications]),
        .counter(
            "nephos_subscribers_cut_off_total", "Subscriptions that the service has ended",
            counted: "subscribers.ended", by: [.notifications]),
        .counter(
            "nephos_deliveries_total", "Deliveries that were sent", counted: "deliveries", by: [.notifications]),
        .counter(
            "nephos_deliveries_refused_total", "Deliveries that found a full queue; their device is notified to fetch",
            counted: "deliveries.lagging", by: [.notifications]),
    ]

    private static let content: [Metric] = [
        .counter(
            "nephos_content_received_bytes_total", "Bytes of chunks that were stored, as they came",
            counted: "content.received.bytes", by: Deployment.contentServices),
        .counter(
            "nephos_content_received_plain_bytes_total", "The same, before they were compressed",
            counted: "content.received.plain_bytes", by: Deployment.contentServices),
        .counter(
            "nephos_content_received_chunks_total", "Chunks that were stored", counted: "content.received.chunks",
            by: Deployment.contentServices),
        .counter("nephos_content_sent_bytes_total", "Bytes of chunks that were sent, as they went") {
            $0.own["content.sent.bytes"].map { [.whole($0)] } ?? []
        },
        .counter("nephos_content_sent_chunks_total", "Chunks that were sent") {
            $0.own["content.sent.chunks"].map { [.whole($0)] } ?? []
        },
        .gauge(
            "nephos_content_held_bytes", "Bytes of chunks that came and are not stored yet", own: "content.held.bytes"),
        .gauge("nephos_content_unsent_bytes", "Bytes that were sent and not taken yet", own: "content.unsent.bytes"),
        .gauge("nephos_content_segments", "Segments that hold chunks, as of the last minute", own: "content.segments"),
        .gauge("nephos_content_segment_bytes", "Their bytes", own: "content.segments.bytes"),
        .gauge("nephos_content_live_bytes", "Those of them that something uses", own: "content.live.bytes"),
        .gauge("nephos_content_missing", "1: the folder of content is missing") {
            Deployment.contentServices.contains($0.service.service) ? [.whole($0.counted("content.missing"))] : []
        },
        .gauge("nephos_content_damaged_chunks", "Chunks that cannot be read any more") {
            Deployment.contentServices.contains($0.service.service) ? [.whole($0.counted("chunks.damaged"))] : []
        },
        .counter("nephos_links_total", "Published links that were asked for, by whether there is such a link") {
            $0.risen([("links.opened", "opened"), ("links.unknown", "unknown")], label: "outcome")
        },
        .gauge("nephos_quarantined_items", "Keys, records and documents in quarantine: their rows did not open") {
            [.whole($0.counted("quarantine.now"))]
        },
        .counter(
            "nephos_quarantined_items_total", "Items that were moved to the quarantine", counted: "items.quarantined"),
        .counter("nephos_damage_total", "Damage that reading has shown, by what was damaged") {
            $0.risen(
                ["account_keys", "digest_keys", "digests", "history"].map {
                    ("\($0).damaged", $0)
                }, label: "what")
        },
        .counter(
            "nephos_refresh_tokens_reused_total", "Refresh tokens that came twice: a home was copied",
            counted: "refresh_tokens_reused", by: [.identity]),
    ]

    private static let storage: [Metric] = [
        .gauge(
            "nephos_ledger_stored_bytes",
            "Bytes that count on plans, as of the last commit; what is reserved counts as stored"
        ) { [.whole(UInt64(clamping: $0.service.storedBytes))] },
        .gauge(
            "nephos_ledger_reserved_bytes",
            "Those of them that uploads have reserved and not filled, as of the last minute",
            own: "ledger.reserved.bytes"),
        .gauge("nephos_database_bytes", "Bytes of the database's file") { source in
            source.process.databaseBytes.map { [.whole($0)] } ?? []
        },
        .gauge("nephos_database_log_bytes", "Bytes of the log beside it") { source in
            source.process.logBytes.map { [.whole($0)] } ?? []
        },
        .gauge("nephos_disk_free_bytes", "Bytes that are free on the disk of the service's data") { source in
            source.process.diskFreeBytes.map { [.whole($0)] } ?? []
        },
        .gauge("nephos_disk_size_bytes", "Bytes of that disk") { source in
            source.process.diskBytes.map { [.whole($0)] } ?? []
        },
        .gauge("nephos_disk_full", "1: only what makes room is taken") {
            [.whole($0.service.isShortOfRoom ? 1 : 0)]
        },
        .gauge(
            "nephos_purge_clock_offset_seconds",
            "How far the purge clock and the wall clock are apart; a difference goes away by itself"
        ) { [.real($0.service.purgeClockOffset.seconds)] },
    ]

    private static let process: [Metric] = [
        .gauge("nephos_build_info", "Which service this is, and its version") {
            [.whole(1, ("service", $0.service.service.rawValue), ("version", $0.service.version))]
        },
        .counter(
            "nephos_log_lines_left_out_total", "Lines that the log does not have, since there were many more like them"
        ) { $0.own["log.left_out"].map { [.whole($0)] } ?? [] },
        .gauge("nephos_memory_bytes", "Memory of its own, as the limit counts it") { [.whole($0.process.dataBytes)] },
        .gauge("nephos_memory_limit_bytes", "With more it ends and is started again") { source in
            source.process.dataBytesMax.map { [.whole($0)] } ?? []
        },
        .counter("process_cpu_seconds_total", "Processor time, of user and system") { [.real($0.process.cpuSeconds)] },
        .gauge("process_resident_memory_bytes", "Resident memory") { [.whole($0.process.residentBytes)] },
        .gauge("process_virtual_memory_bytes", "Virtual memory") { [.whole($0.process.virtualBytes)] },
        .gauge("process_threads", "Threads") { [.whole($0.process.threads)] },
        .gauge("process_open_fds", "Open file descriptors") { [.whole($0.process.openDescriptors)] },
        .gauge("process_max_fds", "How many there may be") { [.whole($0.process.descriptorsMax)] },
        .gauge("process_start_time_seconds", "When the process began, since 1970") { [.real($0.process.startSeconds)] },
    ]
}

extension Duration {
    fileprivate var seconds: Double { Double(nanoseconds) / 1e9 }
}
