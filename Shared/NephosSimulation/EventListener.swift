internal import NephosBus
package import NephosCore
internal import NephosServiceKit
package import NephosWire

/// Hears what a service publishes, as notifications does, or another.
package final class EventListener {
    /// The notifications among what the service has committed and published, in order.
    package private(set) var events: [WireEvent] = []
    private var socket: (any SubscribeSocket)?

    fileprivate init(to service: ServiceName, of cloud: TestCloud, as listener: ServiceName) throws {
        let entry = try cloud.roster.entry(of: service)
        let options = SubscribeSocketOptions(
            endpoints: [entry.events], serverKey: try entry.key,
            keys: try cloud.makeClient(asService: listener).keys, topics: ["\(service)/"])
        let made = Unshared(Holder())
        let onMessages = Unshared<([Message]) -> Void> { [weak self] messages in
            for message in messages where message.count == 2 {
                guard let batch = try? message[1].decode(WireEventBatch.self) else { continue }
                self?.events += batch.events.filter(\.hasNotification)
            }
        }
        _ = try cloud.transport.startLoop(named: "\(listener) listens to \(service)") { loop in
            made.value.socket = try loop.makeSubscribeSocket(options) { onMessages.value($0) }
        }
        socket = made.value.socket
        // It hears nothing before the line is there.
        cloud.network.run(for: .milliseconds(50))
    }

    private final class Holder {
        var socket: (any SubscribeSocket)?
    }
}

extension TestCloud {
    /// Listens from now on to what a service publishes.
    package func makeListener(
        to service: ServiceName, as listener: ServiceName = .notifications
    ) throws -> EventListener {
        try EventListener(to: service, of: self, as: listener)
    }
}
