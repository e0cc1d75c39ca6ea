internal import Bus
internal import Core
internal import Logging
internal import Storage
internal import SwiftProtobuf
internal import Wire

/// Follows another service's events without missing one (the Clone pattern,
/// with a durable cursor for each partition).
///
/// It subscribes first and asks for the heads then, so that nothing falls in
/// between. What arrives in order is applied at once; a gap, a new epoch, or an
/// unknown partition (but for its first event) is closed by reading the feed
/// from the cursor.
final class Follower {
    /// Reads in flight at one time.
    static let readsMax = 4
    /// Without a sign of life for this long, it asks for the heads.
    static let silence: Duration = .seconds(3)
    static let retryPause: Duration = .seconds(1)

    let service: ServiceName
    /// How many changes are known of and not applied yet.
    var lag: UInt64 {
        partitions.values.reduce(0) {
            let cursor = $1.cursor?.epoch == $1.target.epoch ? $1.cursor?.sequence ?? 0 : 0
            return $0 + ($1.target.sequence > cursor ? $1.target.sequence - cursor : 0)
        }
    }

    /// Applied up to here, of the partitions that are known.
    var cursors: [Int: ChangeToken] { partitions.compactMapValues(\.cursor) }

    private struct Partition {
        /// Applied up to here; nil: nothing is known.
        var cursor: ChangeToken?
        /// The newest head heard of.
        var target = ChangeToken.zero
        /// Being read, or waiting for it: events on the bus are left to the read.
        var isReading = false
        /// The cursor stays where it is until all of it is applied.
        var reading: Reading?
        /// The reading before has found nothing new, though something was heard of.
        var wasVain = false
    }

    /// The feed of a partition, while it is read: the heads of its scopes, and
    /// then, of identity's, what has changed in the directory. Each page is
    /// applied as it comes; those who hear of it bear hearing it again.
    private struct Reading {
        /// What was learned before may be outdated.
        var restarts: Bool
        var after: ChangeToken
        /// Of the partition, and from ``end`` on of the directory.
        var pages: ChangesReading
        var meetsDirectory = false
        /// The partition's head that is reached with the last page; nil: its scopes are being read.
        var end: ChangeToken?

        init(_ partition: Int, after cursor: ChangeToken?) {
            restarts = cursor == nil
            after = cursor ?? .zero
            pages = ChangesReading(.partition(UInt32(partition)), after: after)
        }
    }

    /// A part of what is applied in one transaction.
    private struct Step {
        var partition: Int
        var restarts = false
        var event: ServiceEvent?
        /// What the event says of the directory.
        var items: [FeedItem] = []
        var cursor: ChangeToken?
    }

    private let following: Following
    private let headsTopic: [UInt8]
    private unowned let host: ServiceHost
    /// Nil: only the host itself takes note of the events.
    private let handler: (any CloudService)?
    private var client: RequestClient?
    private var subscription: (any SubscribeSocket)?
    private var partitions: [Int: Partition] = [:]
    private var waitingReads: [Int] = []
    private var readsInFlight = 0
    private var dirty: Set<Int> = []
    private var saveTimer: (any LoopTimer)?
    private var watchTimer: (any LoopTimer)?
    private var lastHeard = Duration.zero
    /// The newest of the other side. With a new one everything that is known is asked about, also partitions that are
    /// empty again, of which no event comes.
    private var epoch: UInt64 = 0
    private var isPolling = false
    private var isClosed = false

    init(
        _ following: Following, host: ServiceHost, handler: (any CloudService)?, generator: SplitMix64
    ) throws {
        self.following = following
        self.host = host
        self.handler = handler
        service = following.service
        headsTopic = [UInt8](EventPublisher.headsTopic(following.service).utf8)
    }

    func start(_ engine: any StorageEngine) throws {
        let cursors = try engine.write { try FollowCursors.cursors(of: service, in: $0) }
        for (partition, cursor) in cursors { partitions[partition] = Partition(cursor: cursor, target: cursor) }
        client = try host.client(of: service)
        subscription = try host.loop.makeSubscribeSocket(
            SubscribeSocketOptions(
                endpoints: host.roster.endpoints(of: service, \.events),
                serverKey: try host.roster.entry(of: service).key, keys: host.keys,
                topics: [service.rawValue + "/"])
        ) { [weak self] messages in self?.receive(messages) }
        poll()
        watch()
    }

    func close() {
        saveTimer?.cancel()
        saveCursors()
        isClosed = true
        watchTimer?.cancel()
        subscription?.close()
        subscription = nil
    }

    // MARK: Where the other side stands

    private func watch() {
        watchTimer = host.loop.schedule(after: Self.silence) { [weak self] in
            guard let self, !isClosed else { return }
            if host.loop.monotonicNow - lastHeard >= Self.silence { poll() }
            watch()
        }
    }

    private func poll() {
        guard !isPolling else { return }
        isPolling = true
        client?.call("ReadPositions", body: Frame(encoding: WireReadPositions())) { [weak self] reply in
            guard let self, !isClosed else { return }
            isPolling = false
            // Without an answer the watch asks again.
            guard case .success(let heads) = reply.result.decoded(as: WireReadPositionsReply.self) else { return }
            lastHeard = host.loop.monotonicNow
            epoch = heads.epoch
            for head in heads.positions where Int(head.partition) < partitionCount {
                note(ChangeToken(head.token), of: Int(head.partition))
            }
            for (partition, head) in emptied(in: heads) { note(head, of: partition) }
        }
    }

    /// Partitions of which something is known here, and that are empty there: no head of them is told.
    private func emptied(in heads: WireReadPositionsReply) -> [(partition: Int, head: ChangeToken)] {
        let told = Set(heads.positions.map { Int($0.partition) })
        let empty = ChangeToken(epoch: heads.epoch, sequence: 0)
        return partitions.keys.sorted().filter {
            !told.contains($0) && partitions[$0]?.cursor?.isSamePlace(as: empty) != true
        }.map { ($0, empty) }
    }

    /// Reads the partition if its head is not where the cursor is.
    private func note(_ head: ChangeToken, of partition: Int) {
        var state = partitions[partition] ?? Partition()
        if head.epoch != state.target.epoch || head > state.target { state.target = head }
        // The answer is what tells the epoch: until it comes, it is asked for.
        if head.epoch > epoch { poll() }
        let cursor = state.cursor
        partitions[partition] = state
        // A head that is the cursor by its numbers alone is of another history.
        if cursor?.isSamePlace(as: head) != true { read(partition) }
    }

    // MARK: Events on the bus

    private func receive(_ messages: [Bus.Message]) {
        guard !isClosed else { return }
        lastHeard = host.loop.monotonicNow
        var steps: [Step] = []
        /// Cursors as they will be after the steps.
        var cursors: [Int: ChangeToken] = [:]
        var heads: [Int: ChangeToken] = [:]
        for news in messages.flatMap(news) {
            let event: ServiceEvent
            switch news {
            case .event(let published): event = published
            case .heads(let beat):
                if beat.epoch > epoch { poll() }
                // An old copy may be empty where something is known here, in an older epoch or in the same.
                for (partition, head) in emptied(in: beat) where cursors[partition] == nil { heads[partition] = head }
                for position in beat.positions where position.partition < partitionCount {
                    let (partition, head) = (Int(position.partition), ChangeToken(position.token))
                    let cursor = cursors[partition] ?? partitions[partition]?.cursor
                    // One that is behind is an old copy's, perhaps.
                    if cursor?.isSamePlace(as: head) != true { heads[partition] = head }
                }
                continue
            }
            guard event.service == service.rawValue, event.partition < partitionCount else {
                host.count("follower.malformed", by: 1)
                continue
            }
            let partition = event.partition
            let position = event.position
            let state = partitions[partition] ?? Partition()
            // One that does not decode is asked for: what the directory says is not to be passed over.
            let items = try? Directory.items(in: event)
            guard let items, !state.isReading, heads[partition] == nil else {
                heads[partition] = position
                continue
            }
            // Before a partition's first event there is nothing to miss.
            let start = event.previousSequence == 0 ? ChangeToken(epoch: position.epoch, sequence: 0) : nil
            let cursor = cursors[partition] ?? state.cursor ?? start
            guard let cursor, cursor.epoch == position.epoch else {
                heads[partition] = position
                continue
            }
            if position.sequence == event.previousSequence, position.sequence <= cursor.sequence {
                // Stores nothing: it is only told.
                steps.append(Step(partition: partition, event: event, items: items))
            } else if position.sequence <= cursor.sequence {
                continue
            } else if event.previousSequence == cursor.sequence {
                steps.append(Step(partition: partition, event: event, items: items, cursor: position))
                cursors[partition] = position
            } else {
                heads[partition] = position
            }
        }
        if !steps.isEmpty, !apply(steps) {
            for partition in Set(steps.map(\.partition)).sorted() { readLater(partition) }
        }
        for (partition, head) in heads.sorted(by: { $0.key < $1.key }) {
            if partitions[partition]?.isReading == true {
                let target = partitions[partition]?.target ?? .zero
                if head.epoch != target.epoch || head > target { partitions[partition]?.target = head }
            } else {
                host.count("follower.gaps", by: 1)
                note(head, of: partition)
            }
        }
    }

    /// What comes from the other side.
    private enum News {
        case event(ServiceEvent)
        /// A heartbeat.
        case heads(WireReadPositionsReply)
    }

    private func news(_ message: Bus.Message) -> [News] {
        guard message.count == 2 else { return malformed() }
        if message[0].count == headsTopic.count, message[0].bytes == headsTopic {
            guard let beat = try? message[1].decode(WireReadPositionsReply.self) else { return malformed() }
            return [.heads(beat)]
        }
        guard let events = try? ServiceEvent.batch(message[1]) else { return malformed() }
        return events.map { .event($0) }
    }

    private func malformed() -> [News] {
        host.count("follower.malformed", by: 1)
        return []
    }

    // MARK: Reading the feed

    private func read(_ partition: Int) {
        guard !isClosed, partitions[partition]?.isReading != true else { return }
        partitions[partition, default: Partition()].isReading = true
        waitingReads.append(partition)
        startReads()
    }

    private func readLater(_ partition: Int) {
        partitions[partition, default: Partition()].isReading = true
        host.loop.schedule(after: Self.retryPause) { [weak self] in
            guard let self, !isClosed else { return }
            waitingReads.append(partition)
            startReads()
        }
    }

    private func startReads() {
        while readsInFlight < Self.readsMax, !waitingReads.isEmpty {
            readsInFlight += 1
            readNext(waitingReads.removeFirst())
        }
    }

    private func readNext(_ partition: Int) {
        let state = partitions[partition] ?? Partition()
        let reading = state.reading ?? Reading(partition, after: state.cursor)
        client?.call("ReadChanges", body: Frame(encoding: reading.pages.request)) { [weak self] reply in
            guard let self, !isClosed else { return }
            readsInFlight -= 1
            switch reply.result.decoded(as: WireReadChangesReply.self) {
            case .success(let page): applyRead(page, of: partition, reading)
            case .failure(let error) where error.code == .changeTokenExpired:
                host.count("follower.restarts", by: 1)
                partitions[partition]?.reading = Reading(partition, after: nil)
                // One that has begun anew and expires all the same need not be hurried.
                if reading.restarts { readLater(partition) } else { waitingReads.append(partition) }
            case .failure: readLater(partition)
            }
            startReads()
        }
    }

    private func applyRead(_ page: WireReadChangesReply, of partition: Int, _ before: Reading) {
        var reading = before
        var steps: [Step] = []
        let isLast: Bool
        do throws(CloudError) { isLast = try reading.pages.take(page) } catch {
            host.count("follower.malformed", by: 1)
            partitions[partition]?.reading = nil
            return readLater(partition)
        }
        if reading.restarts, before.end == nil, before.pages.pageCount == 0 {
            steps.append(Step(partition: partition, restarts: true))
        }
        for change in page.changes {
            if reading.end != nil {
                steps.append(Step(partition: partition, items: [FeedItem(change)]))
            } else if change.item == directoryScope.description {
                reading.meetsDirectory = service == .identity
            } else if let event = ServiceEvent(of: service, partition: partition, head: change) {
                steps.append(Step(partition: partition, event: event))
            } else {
                host.count("follower.skipped", by: 1)
            }
        }
        var isWhole = isLast
        if isLast, reading.end == nil {
            reading.end = ChangeToken(page.token)
            if reading.meetsDirectory {
                isWhole = false
                reading.pages = ChangesReading(
                    .scope(directoryScope.path.rawValue), of: directoryScope.owner.rawValue, after: reading.after)
            }
        }
        guard isWhole, let end = reading.end else {
            guard apply(steps) else { return readLater(partition) }
            partitions[partition]?.reading = reading
            return waitingReads.append(partition)
        }
        steps.append(Step(partition: partition, cursor: end))
        guard apply(steps) else { return readLater(partition) }
        partitions[partition]?.reading = nil
        let target = partitions[partition]?.target ?? .zero
        let isVain = end.sequence == reading.after.sequence
        // What was heard of, and is not there when it is asked for a second time, was lost with an old copy.
        if target.epoch == end.epoch, target > end, !isVain || partitions[partition]?.wasVain != true {
            partitions[partition]?.wasVain = isVain
            waitingReads.append(partition)
        } else {
            partitions[partition]?.target = end
            partitions[partition]?.wasVain = false
            partitions[partition]?.isReading = false
        }
    }

    // MARK: Applying

    /// Applies the steps in one transaction and moves the cursors.
    ///
    /// Returns false if storage failed: nothing was moved, and they have to come again.
    private func apply(_ steps: [Step]) -> Bool {
        guard let error = tryToApply(steps) else { return true }
        if error.code == .storageFailure || error.code == .serviceUnavailable { return false }
        // One of them cannot be handled. Each by itself, so that it holds up nobody else.
        for step in steps {
            guard let error = tryToApply([step]) else { continue }
            if error.code == .storageFailure || error.code == .serviceUnavailable || step.restarts { return false }
            host.count("follower.skipped", by: 1)
            host.logger.error("An event could not be handled and was skipped", error)
            guard step.cursor == nil || tryToApply([Step(partition: step.partition, cursor: step.cursor)]) == nil
            else { return false }
        }
        return true
    }

    private func tryToApply(_ steps: [Step]) -> CloudError? {
        var facts: [DirectoryFact] = []
        var cursors: [Int: ChangeToken] = [:]
        for step in steps { if let cursor = step.cursor { cursors[step.partition] = cursor } }
        let isDurable = following.cursorDelay == .zero
        let now = host.loop.wallClock.now
        let failure = host.runNow { [service, handler, host] transaction in
            facts = []
            for step in steps {
                if step.restarts {
                    try handler?.restartFollowing(service, partition: step.partition, in: transaction)
                    // With the directory's partition all others begin anew, and it is always there.
                    if service == .identity, step.partition == directoryScope.partition {
                        try host.storage.tellAll(in: transaction)
                        try host.directoryReport.begin(in: transaction)
                    }
                }
                for item in step.items {
                    guard let fact = DirectoryFact(item) else { continue }
                    try host.directory.store(fact, in: item, at: now, transaction)
                    facts.append(fact)
                }
                if let event = step.event, !event.isOfDirectory { try handler?.handle(event, in: transaction) }
            }
            guard isDurable else { return }
            for (partition, cursor) in cursors {
                try FollowCursors.setCursor(cursor, of: service, partition: partition, in: transaction)
            }
        }
        if let failure { return failure }
        host.directory.learn(facts)
        if service == .identity, steps.contains(where: \.restarts) { host.directoryReport.resume() }
        for (partition, cursor) in cursors {
            partitions[partition, default: Partition()].cursor = cursor
            if let target = partitions[partition]?.target, target.epoch != cursor.epoch || target < cursor {
                partitions[partition]?.target = cursor
            }
        }
        if !isDurable { saveLater(cursors.keys) }
        return nil
    }

    // MARK: Cursors that may lag

    private func saveLater(_ changed: some Sequence<Int>) {
        dirty.formUnion(changed)
        guard saveTimer == nil, !dirty.isEmpty else { return }
        saveTimer = host.loop.schedule(after: following.cursorDelay) { [weak self] in
            guard let self, !isClosed else { return }
            saveTimer = nil
            saveCursors()
        }
    }

    private func saveCursors() {
        guard !dirty.isEmpty else { return }
        let cursors = dirty.compactMap { partition in partitions[partition]?.cursor.map { (partition, $0) } }
        let failure = host.runNow { [service] transaction in
            for (partition, cursor) in cursors {
                try FollowCursors.setCursor(cursor, of: service, partition: partition, in: transaction)
            }
        }
        // After a failure they stay dirty, and go with the next ones.
        if failure == nil { dirty = [] }
    }
}
