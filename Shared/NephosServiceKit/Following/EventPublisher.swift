internal import NephosBus
internal import NephosCore
internal import NephosStorage
internal import NephosWire

/// Puts a service's events on its PUB, and repeats the heads of its partitions
/// as a heartbeat, so that a follower notices even the loss of a last event.
struct EventPublisher {
    static let heartbeat: Duration = .seconds(1)
    /// A batch that is larger goes out, and the next events in another.
    private static let batchBytesMax = 256 << 10

    /// The heads of the partitions that have ever changed, in this epoch.
    private var heads: [Int: ChangeToken]
    private var epoch: UInt64
    private let service: ServiceName
    private let socket: any PublishSocket
    private let topics: [Frame]
    private let headsTopic: Frame

    init(service: ServiceName, socket: any PublishSocket, heads: [Int: ChangeToken], epoch: UInt64) {
        self.service = service
        self.socket = socket
        self.heads = heads
        self.epoch = epoch
        headsTopic = Frame([UInt8](Self.headsTopic(service).utf8))
        topics = (0..<partitionCount).map { Frame([UInt8](Self.topic(service, $0).utf8)) }
    }

    /// The sum of the partitions' sequences, and how many have ever changed.
    var position: UInt64 { heads.values.reduce(0) { $0 &+ $1.sequence } }
    var changedPartitions: Int { heads.count }

    /// Such as `keyvalue/0017/`.
    static func topic(_ service: ServiceName, _ partition: Int) -> String {
        let digits = "\(partition)"
        return service.rawValue + "/" + String(repeating: "0", count: max(0, 4 - digits.count)) + digits + "/"
    }

    static func headsTopic(_ service: ServiceName) -> String { service.rawValue + "/heads/" }

    /// Another epoch has begun, with these heads.
    mutating func begin(epoch: UInt64, heads: [Int: ChangeToken]) {
        self.epoch = epoch
        self.heads = heads
    }

    /// Publishes what a group left to be published. It is on disk already.
    ///
    /// Events of one partition go in one frame: under CURVE each frame is sealed
    /// by itself, which for small events costs more than all the rest.
    mutating func publish(_ effects: GroupEffects) {
        var batches: [(partition: Int, events: FieldWriter)] = []
        for event in effects.events where topics.indices.contains(event.partition) {
            let place =
                batches.firstIndex { $0.partition == event.partition }
                ?? {
                    batches.append((event.partition, FieldWriter(reserving: event.notification.count + 128)))
                    return batches.count - 1
                }()
            append(event, to: &batches[place].events)
            if batches[place].events.count >= Self.batchBytesMax {
                send(&batches[place].events, of: event.partition)
            }
        }
        for place in batches.indices where batches[place].events.count > 0 {
            send(&batches[place].events, of: batches[place].partition)
        }
        for (partition, head) in effects.heads { heads[partition] = head }
    }

    private func send(_ events: inout FieldWriter, of partition: Int) {
        socket.publish([topics[partition], Frame(taking: &events)])
    }

    /// Repeats all heads in one frame, a `ReadPositionsReply`; also while there are none, as a sign of life.
    func beat() {
        var beat = FieldWriter(reserving: 48 * heads.count + 16)
        // In order, as everything that a simulation must be able to repeat.
        for (partition, head) in heads.sorted(by: { $0.key < $1.key }) {
            beat.message(1) {
                $0.number(1, UInt64(partition))
                $0.token(2, head)
            }
        }
        beat.number(2, epoch)
        socket.publish([headsTopic, Frame(taking: &beat)])
    }

    private func append(_ outgoing: OutgoingEvent, to batch: inout FieldWriter) {
        outgoing.notification.withUnsafeBytes { notification in
            batch.message(1) {
                $0.text(1, service.rawValue)
                $0.number(2, UInt64(outgoing.partition))
                $0.token(3, outgoing.position)
                $0.number(4, outgoing.previousSequence)
                $0.data(5, notification, isPresent: true)
                if let cause = outgoing.causeID { $0.operation(6, cause) }
            }
        }
    }
}
