internal import Logging
internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire
internal import SwiftProtobuf

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

    /// The sum of the partitions' sequences that were applied.
    var position: UInt64 { partitions.values.reduce(0) { $0 &+ ($1.cursor?.sequence ?? 0) } }
    /// For how long nothing was heard of the other side; since the start, if nothing ever was.
    var silentFor: Duration { host.loop.monotonicNow - (lastHeard == .zero ? host.started : lastHeard) }

    /// Applied up to here, of the partitions that are known.
    var cursors: [Int: ChangeToken] { partitions.compactMapValues(\.cursor) }

    struct Partition {
        /// Applied up to here; nil: nothing is known.
        var cursor: ChangeToken?
        /// The newest head heard of.
        var target = ChangeToken.zero
        /// Being read, or waiting for it: events on the bus are left to the read.
        var isReading = false
        /// The cursor stays where it is until all of it is applied.
        var reading: Reading?
        /// Rises when what is known of it is dropped: what was being read was after another cursor.
        var generation = 0
        /// The reading before has found nothing new, though something was heard of.
        var wasVain = false
    }

    /// The feed of a partition, while it is read: the heads of its scopes, and
    /// then, of identity's, what has changed in the directory. Each page is
    /// applied as it comes; those who hear of it bear hearing it again.
    struct Reading {
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
    struct Step {
        var partition: Int
        var restarts = false
        var event: ServiceEvent?
        /// What the event says of the directory.
        var items: [FeedItem] = []
        var cursor: ChangeToken?
    }

    let following: Following
    private let headsTopic: [UInt8]
    unowned let host: ServiceHost
    /// Nil: only the host itself takes note of the events.
    let handler: (any CloudService)?
    var client: RequestClient?
    private var subscription: (any SubscribeSocket)?
    var partitions: [Int: Partition] = [:]
    var waitingReads: [Int] = []
    var readsInFlight = 0
    var dirty: Set<Int> = []
    var saveTimer: (any LoopTimer)?
    private var watchTimer: (any LoopTimer)?
    private var lastHeard = Duration.zero
    /// The newest of the other side. With a new one everything that is known is asked about, also partitions that are
    /// empty again, of which no event comes.
    private var epoch: UInt64 = 0
    private var isPolling = false
    /// Something is being stored. What else there is to do waits for it.
    var isApplying = false
    /// Messages of the bus, bounded in bytes; answers, each of which was asked for.
    private var waiting: [() -> Void] = []
    private var unreadBytes = 0
    private static let unreadBytesMax = 4 << 20
    private(set) var isClosed = false

    /// - Parameter cursors: What is stored.
    init(
        _ following: Following, cursors: [Int: ChangeToken], host: ServiceHost, handler: (any CloudService)?
    ) throws {
        self.following = following
        self.host = host
        self.handler = handler
        service = following.service
        headsTopic = [UInt8](EventPublisher.headsTopic(following.service).utf8)
        for (partition, cursor) in cursors { partitions[partition] = Partition(cursor: cursor, target: cursor) }
    }

    func start() throws {
        client = try host.client(of: service)
        subscription = try host.loop.makeSubscribeSocket(
            SubscribeSocketOptions(
                endpoints: host.roster.endpoints(of: service, \.events),
                serverKey: try host.roster.entry(of: service).key, keys: host.keys,
                topics: [service.rawValue + "/"])
        ) { [weak self] messages in self?.take(messages) }
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
            inTurn { [self] in note(heads) }
        }
    }

    private func note(_ heads: WireReadPositionsReply) {
        epoch = heads.epoch
        for head in heads.positions where Int(head.partition) < partitionCount {
            note(ChangeToken(head.token), of: Int(head.partition))
        }
        for (partition, head) in emptied(in: heads) {
            note(head, of: partition)
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

    // MARK: One thing after another

    /// Runs the work once what is being stored is stored: it goes by the cursors, which move then.
    func inTurn(_ work: @escaping () -> Void) {
        guard !isApplying else { return waiting.append(work) }
        work()
    }

    /// What was being stored is stored, or could not be.
    func endTurn() {
        isApplying = false
        while !isApplying, !isClosed, !waiting.isEmpty { waiting.removeFirst()() }
    }

    // MARK: Events on the bus

    private func take(_ messages: [NephosBus.Message]) {
        guard !isClosed else { return }
        lastHeard = host.loop.monotonicNow
        guard isApplying else { return receive(messages) }
        // With more they are lost, as on the bus: the next ones, or a heartbeat, tell.
        let bytes = messages.reduce(0) { $0 + $1.reduce(0) { $0 + $1.count } }
        guard unreadBytes + bytes <= Self.unreadBytesMax else { return host.count("follower.lost", by: messages.count) }
        unreadBytes += bytes
        inTurn { [self] in
            unreadBytes -= bytes
            receive(messages)
        }
    }

    private func receive(_ messages: [NephosBus.Message]) {
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
        guard !steps.isEmpty else { return note(heads) }
        apply(steps) { [self] isStored in
            if !isStored {
                for partition in Set(steps.map(\.partition)).sorted() { readLater(partition) }
            }
            note(heads)
        }
    }

    /// Where events of the bus have left a gap.
    private func note(_ heads: [Int: ChangeToken]) {
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

    private func news(_ message: NephosBus.Message) -> [News] {
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
}
