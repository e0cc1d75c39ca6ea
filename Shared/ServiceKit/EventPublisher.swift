internal import Bus
internal import Core
internal import Storage
internal import SwiftProtobuf
internal import Wire

/// Puts a service's events on its PUB, and repeats the heads of its partitions
/// as heartbeats, so that a follower notices even the loss of a last event.
struct EventPublisher {
    static let heartbeat: Duration = .seconds(1)

    /// The heads of the partitions that have ever changed.
    private(set) var heads: [Int: ChangeToken]
    private let service: ServiceName
    private let socket: any PublishSocket
    private let topics: [Frame]

    init(service: ServiceName, socket: any PublishSocket, heads: [Int: ChangeToken]) {
        self.service = service
        self.socket = socket
        self.heads = heads
        topics = (0..<partitionCount).map { Frame([UInt8](Self.topic(service, $0).utf8)) }
    }

    /// Such as `keyvalue/017/`.
    static func topic(_ service: ServiceName, _ partition: Int) -> String {
        let digits = "\(partition)"
        return service.rawValue + "/" + String(repeating: "0", count: max(0, 3 - digits.count)) + digits + "/"
    }

    /// Publishes what a group left to be published. It is on disk already.
    mutating func publish(_ effects: GroupEffects) {
        for event in effects.events where topics.indices.contains(event.partition) {
            socket.publish([topics[event.partition], encode(event)])
        }
        for (partition, head) in effects.heads { heads[partition] = head }
    }

    func beat() {
        // In order, as everything that a simulation must be able to repeat.
        for (partition, head) in heads.sorted(by: { $0.key < $1.key }) {
            var event = WireEvent()
            event.service = service.rawValue
            event.partition = UInt32(partition)
            event.position = WireChangeToken(head)
            event.previousSequence = head.sequence
            socket.publish([topics[partition], Frame(encoding: event)])
        }
    }

    private func encode(_ outgoing: OutgoingEvent) -> Frame {
        outgoing.notification.withUnsafeBytes { notification in
            var writer = FieldWriter(reserving: notification.count + 96)
            writer.text(1, service.rawValue)
            writer.number(2, UInt64(outgoing.partition))
            writer.token(3, outgoing.position)
            writer.number(4, outgoing.previousSequence)
            writer.text(5, outgoing.account.rawValue)
            writer.data(6, notification, isPresent: true)
            return Frame(writer.bytes)
        }
    }
}
