import Foundation
import NephosBus
import NephosCore

/// A process's part in its home.
enum HomeRole: Equatable {
    /// It speaks with the server for every process of the home.
    case holder
    /// Another one does, and this one hands it its work.
    case guest
    /// Each does for itself: whoever holds the home does not answer or cannot be reached. That is safe, since what
    /// counts is on disk, and costs connections.
    case alone
}

/// Finds out this process's part in its home, and keeps up with it: a holder that ends, however, is followed by one of
/// its guests at once; one that does not answer (it is stopped, or is another release) is done without until it does.
final class HomeLine {
    /// How often a guest asks whether its holder is alive.
    static let beat: Duration = .seconds(1)
    /// Silence after which a guest does without its holder.
    static let silenceMax: Duration = .milliseconds(2500)
    /// How long a holder may take to listen, from its start or to its end.
    static let gracePeriod: Duration = .seconds(1)
    private static let seekPause: Duration = .milliseconds(20)

    /// Connections in a row that ended soon after the welcome: more of them are not made at once.
    private static let shortMax = 2

    private let way: any HomeWay
    private let loop: any BusLoop
    /// Names the database that this process has open.
    private let home: String
    private(set) var role: HomeRole = .guest
    /// The connection to the holder; nil: this is the holder, or there is none.
    private var holder: Int?
    /// The holder has said that it understands this process.
    private(set) var isWelcome = false
    private var lastHeard: Duration = .zero
    private var welcomedAt: Duration = .zero
    private var shortConnections = 0
    /// Since when no holder is there that understands this process.
    private var seekingSince: Duration = .zero
    private var timer: (any LoopTimer)?
    private(set) var guests: Set<Int> = []
    private var isEnded = false

    var onRole: () -> Void = {}
    /// From the holder, or from a guest.
    var onMessage: (HomeMessage, Int) -> Void = { _, _ in }
    var onGuestLeft: (Int) -> Void = { _ in }

    init(_ way: any HomeWay, _ home: String, _ loop: any BusLoop) {
        self.way = way
        self.home = home
        self.loop = loop
        way.onEvent = { [weak self] in self?.happened($0) }
    }

    /// Whether anybody hears what is sent.
    var hasPeers: Bool { !guests.isEmpty || holder != nil }

    func start() {
        seekingSince = loop.monotonicNow
        seek()
    }

    func stop() {
        isEnded = true
        timer?.cancel()
        way.leave()
    }

    // MARK: Sending

    func send(_ message: HomeMessage, to peer: Int) { way.send(message.packet, to: peer) }

    /// To the holder, if there is one.
    func sendToHolder(_ message: HomeMessage) { if let holder { send(message, to: holder) } }

    /// To every guest, or to the holder.
    func broadcast(_ message: HomeMessage) {
        sendToHolder(message)
        guard !guests.isEmpty else { return }
        let packet = message.packet
        for guest in guests.sorted() { way.send(packet, to: guest) }
    }

    /// Ends the connection to a guest, which connects again and says anew what it needs.
    func drop(_ guest: Int) {
        guard guests.remove(guest) != nil else { return }
        way.drop(guest)
        onGuestLeft(guest)
    }

    // MARK: Seeking

    private func seek() {
        guard !isEnded else { return }
        timer?.cancel()
        switch way.join() {
        case .holds: become(.holder)
        case .connected(let peer):
            holder = peer
            isWelcome = false
            lastHeard = loop.monotonicNow
            send(.hello(version: HomeMessage.version, home: home), to: peer)
            beat()
        case .nobody: seekLater()
        case .impossible:
            become(.alone)
            wait(.seconds(60)) { $0.seek() }
        }
    }

    private func seekLater() {
        let isLate = loop.monotonicNow - seekingSince >= Self.gracePeriod
        if isLate { become(.alone) }
        wait(isLate ? Self.beat : Self.seekPause) { $0.seek() }
    }

    private func wait(_ pause: Duration, _ action: @escaping (HomeLine) -> Void) {
        timer = loop.schedule(after: pause) { [weak self] in
            guard let self, !isEnded else { return }
            action(self)
        }
    }

    private func beat() {
        guard holder != nil else { return }
        if loop.monotonicNow - lastHeard >= Self.silenceMax { become(.alone) }
        sendToHolder(.ping)
        wait(Self.beat) { $0.beat() }
    }

    private func become(_ role: HomeRole) {
        guard self.role != role else { return }
        self.role = role
        onRole()
    }

    // MARK: Hearing

    private func happened(_ event: HomeEvent) {
        guard !isEnded else { return }
        switch event {
        case .packet(let packet, let peer):
            guard let message = HomeMessage(packet: packet) else { return }
            if peer == holder { heard(message, peer) } else if role == .holder { heardGuest(message, peer) }
        case .left(let peer):
            if peer == holder {
                lostHolder()
            } else if guests.remove(peer) != nil {
                onGuestLeft(peer)
            }
        }
    }

    private func lostHolder() {
        timer?.cancel()
        holder = nil
        // It has no room for this process, or is about to end: the next one may be there soon.
        guard isWelcome else { return seekLater() }
        isWelcome = false
        seekingSince = loop.monotonicNow
        shortConnections = loop.monotonicNow - welcomedAt < Self.beat ? shortConnections + 1 : 0
        if shortConnections <= Self.shortMax { seek() } else { seekLater() }
    }

    private func heard(_ message: HomeMessage, _ peer: Int) {
        if case .welcome(let version, let home) = message {
            isWelcome = version == HomeMessage.version && home == self.home
            welcomedAt = loop.monotonicNow
            if !isWelcome { become(.alone) }
        }
        // What another release means by its words is not known, nor does the holder of another database know this one.
        guard isWelcome else { return }
        lastHeard = loop.monotonicNow
        if role == .alone { become(.guest) } else if case .welcome = message { onRole() }
        onMessage(message, peer)
    }

    private func heardGuest(_ message: HomeMessage, _ peer: Int) {
        switch message {
        case .hello(let version, let home):
            send(.welcome(version: HomeMessage.version, home: self.home), to: peer)
            guard version == HomeMessage.version, home == self.home else { return }
            guests.insert(peer)
        case .ping: if guests.contains(peer) { send(.pong, to: peer) }
        default: break
        }
        if guests.contains(peer) { onMessage(message, peer) }
    }
}
