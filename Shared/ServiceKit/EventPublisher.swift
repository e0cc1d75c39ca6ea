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
        var event = WireEvent()
        event.service = service.rawValue
        event.partition = UInt32(outgoing.partition)
        event.position = WireChangeToken(outgoing.position)
        event.previousSequence = outgoing.previousSequence
        event.accountID = outgoing.account.rawValue
        // The notification is encoded already: its bytes are appended as field 6
        // (wire type 2), which is what encoding it again would give.
        let head: [UInt8] = (try? event.serializedBytes()) ?? []
        return outgoing.notification.withUnsafeBytes { notification in
            var bytes = head
            bytes.reserveCapacity(head.count + notification.count + 6)
            bytes.append(6 << 3 | 2)
            var length = UInt(notification.count)
            while length >= 0x80 {
                bytes.append(UInt8(truncatingIfNeeded: length) | 0x80)
                length >>= 7
            }
            bytes.append(UInt8(length))
            bytes.append(contentsOf: notification)
            return Frame(bytes)
        }
    }
}
