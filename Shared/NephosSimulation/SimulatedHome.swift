import Foundation
import NephosBus
import NephosKit

/// A home that several simulated processes share: who has its lock, and the connections between them.
final class SimulatedHome {
    /// How long a packet takes from one process to another.
    private static let latency: Duration = .microseconds(100)
    fileprivate var holder: SimulatedHomeWay?
    private var connectionCount = 0

    /// A way into the home for the process on this loop.
    func way(_ loop: any BusLoop) -> any HomeWay { SimulatedHomeWay(self, loop) }

    fileprivate func connect(_ guest: SimulatedHomeWay, to holder: SimulatedHomeWay) -> Int {
        connectionCount += 1
        guest.peers[connectionCount] = holder
        holder.peers[connectionCount] = guest
        return connectionCount
    }

    /// In the order in which it was sent, also where the receiver's loop is held up meanwhile.
    fileprivate static func give(_ event: HomeEvent, to way: SimulatedHomeWay) {
        way.inbox.append(event)
        way.loop.schedule(after: latency) { [weak way] in
            guard let way, !way.inbox.isEmpty else { return }
            let event = way.inbox.removeFirst()
            let peer =
                switch event {
                case .packet(_, let peer), .left(let peer): peer
                }
            guard way.peers[peer] != nil else { return }
            if case .left = event { way.peers[peer] = nil }
            way.onEvent(event)
        }
    }
}

/// What the kernel does for a process: its lock and its connections end with it.
private final class SimulatedHomeWay: HomeWay {
    let loop: any BusLoop
    private let home: SimulatedHome
    var onEvent: (HomeEvent) -> Void = { _ in }
    /// By the number of the connection, which is the same at both ends.
    var peers: [Int: SimulatedHomeWay] = [:]
    var inbox: [HomeEvent] = []

    init(_ home: SimulatedHome, _ loop: any BusLoop) {
        self.home = home
        self.loop = loop
    }

    func join() -> HomeJoin {
        guard let holder = home.holder else {
            home.holder = self
            return .holds
        }
        return holder === self ? .holds : .connected(home.connect(self, to: holder))
    }

    func send(_ packet: Data, to peer: Int) {
        guard let other = peers[peer], other.peers[peer] != nil else { return }
        SimulatedHome.give(.packet(packet, from: peer), to: other)
    }

    func drop(_ peer: Int) {
        guard let other = peers.removeValue(forKey: peer) else { return }
        SimulatedHome.give(.left(peer), to: other)
    }

    func leave() {
        if home.holder === self { home.holder = nil }
        for peer in peers.keys.sorted() { drop(peer) }
        inbox = []
    }
}
