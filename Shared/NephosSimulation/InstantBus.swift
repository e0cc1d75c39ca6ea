package import NephosBus
package import NephosCore

/// A simulation in which messages take no time: what a test asks for has happened when it looks, and time stands still
/// until it lets some pass.
package final class InstantBus {
    package let network: SimulatedNetwork
    /// Where services are.
    package let loop: any BusLoop
    /// Where those are who call them.
    package let clients: any BusLoop
    package let clock: Clock

    private static let services = "services"

    package init(seed: UInt64 = 1) {
        network = SimulatedNetwork(seed: seed, faults: Faults(latency: .zero ... .zero))
        (network.offloadTime, network.handlingTime) = (.zero, .zero)
        loop = network.makeLoop(named: Self.services)
        clients = network.makeLoop(named: "clients")
        clock = Clock(network, loop.wallClock)
    }

    deinit { network.close() }

    /// The services' wall clock.
    package final class Clock {
        private let network: SimulatedNetwork
        private let wall: any WallClock
        private var offset: Duration = .zero

        init(_ network: SimulatedNetwork, _ wall: any WallClock) { (self.network, self.wall) = (network, wall) }

        package var now: Timestamp { wall.now }

        /// Sets it ahead, without any time passing.
        package func advance(by duration: Duration) {
            offset += duration
            network.setClockOffset(InstantBus.services, offset)
        }
    }

    // MARK: Time

    /// Lets happen what happens at this moment.
    package func settle() { network.run(for: .zero) }

    /// Lets this much time pass, with everything that happens in it.
    package func run(for duration: Duration) { network.run(for: duration) }

    // MARK: Faults

    /// Events that are published while this is set are lost.
    package var losesEvents = false { didSet { judge() } }
    /// Replies are lost on the way while this is set.
    package var losesReplies = false { didSet { judge() } }
    /// Replies that a peer's queue takes; nil: as many as it has room for.
    package var replyQueueMax: Int? {
        get { network.sendQueueMax }
        set { network.sendQueueMax = newValue }
    }

    private func judge() {
        let (events, replies) = (losesEvents, losesReplies)
        network.judge = { loop, passage in
            switch passage {
            case .publish: events ? .lost : .passes
            case .send: replies && loop == Self.services ? .lost : .passes
            case .receive: .passes
            }
        }
    }
}
