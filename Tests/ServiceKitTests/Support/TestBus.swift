import NephosBus
import NephosCore
import NephosSimulation
import Testing

/// The simulation's network with nothing between a message and its arrival, so that what is asked for is answered before
/// any time has passed that a test would notice.
final class TestBus {
    let network = SimulatedNetwork(seed: 1, faults: Faults(latency: .zero ... .zero))
    private var loops: [String: any BusLoop] = [:]
    /// Events that are published while this is set are lost.
    var losesEvents = false
    /// Replies are lost on the way while this is set.
    var losesReplies = false
    private static let clients = "clients"

    init() {
        network.offloadTime = .zero
        network.judge = { [weak self] loop, passage in
            guard let self else { return .passes }
            let isLost = passage == .publish ? losesEvents : losesReplies && passage == .send && loop != Self.clients
            return isLost ? .lost : .passes
        }
    }

    deinit { network.close() }

    /// The clients' loop's.
    var clock: any WallClock { clientLoop.wallClock }

    /// The one that all clients share.
    var clientLoop: any BusLoop { loop(Self.clients) }

    /// Each service has its own.
    func loop(_ name: String) -> any BusLoop {
        if let loop = loops[name] { return loop }
        let made = Unshared(Made())
        do { _ = try InProcessTransport(network).startLoop(named: name, for: .requests) { made.value.loop = $0 } } catch
        {
            Issue.record(error)
        }
        guard let loop = made.value.loop else { fatalError("A simulation makes as many loops as it is asked for.") }
        loops[name] = loop
        return loop
    }

    private final class Made {
        var loop: (any BusLoop)?
    }

    /// Delivers what is under way and runs what is due, until there is nothing more. What handling messages takes passes
    /// meanwhile, microseconds each.
    func settle() {
        var count: Int
        repeat {
            network.run(within: .seconds(1)) { network.unfinished == 0 }
            count = network.eventCount
            network.run(for: .zero)
        } while network.unfinished > 0 || network.eventCount > count
    }

    /// Lets this much time pass, with everything that happens in it.
    func run(for duration: Duration) {
        settle()
        network.run(for: duration)
        settle()
    }

    /// A client's, which is connected, and was greeted.
    func makeRequestSocket(
        _ options: RequestSocketOptions, handler: @escaping ([Message]) -> Void
    ) throws -> any RequestSocket {
        var isGreeted = false
        let socket = try clientLoop.makeRequestSocket(options) { messages in
            let rest = isGreeted ? messages[...] : messages.dropFirst()
            isGreeted = true
            if !rest.isEmpty { handler(Array(rest)) }
        }
        settle()
        return socket
    }
}
