internal import CNephosZeroMQ
internal import Foundation
internal import NephosBus
internal import NephosCore
internal import Synchronization

/// A connection to a ROUTER as its loop knows it. On the loop only.
final class KnownPeer {
    let id: RoutingID
    let key: PublicKey
    /// As the admission wrote it; each message carries it.
    private let text: [CChar]
    /// Where it comes from.
    let address: String?
    /// Shared by all connections of the key.
    let share: KeyShare
    /// Nil until the watching thread has heard of it.
    private(set) var connection: Connection?
    private var isIdentified = false
    /// Bytes that came before that.
    private var early = 0
    /// Bytes handed to libzmq for it, on the kernel's count of what was acknowledged.
    private(set) var handed = 0
    private(set) var acknowledged = 0
    /// Since when it has taken nothing of what waits for it.
    var fullSince: Duration?
    /// Whether it is among those to whom something is under way.
    var isListed = false

    var unsent: Int { handed - acknowledged }

    func noteIdentified() {
        guard !isIdentified else { return }
        isIdentified = true
        connection?.noteIdentified()
    }

    func noteSent(_ bytes: Int) { handed += bytes }

    /// - Parameter all: What the kernel says was acknowledged; nil: nothing waits any more.
    func noteAcknowledged(_ all: Int?) {
        acknowledged = max(acknowledged, all ?? handed)
        // The kernel's count has the handshake and answers to PINGs too, which nobody handed over. When it is ahead,
        // all that was handed over has been taken, and what is handed over next begins here.
        handed = max(handed, acknowledged)
    }

    init(id: RoutingID, key: PublicKey, text: [CChar], address: String?, share: KeyShare) {
        self.address = address
        self.id = id
        self.key = key
        self.text = text
        self.share = share
    }

    func isNamed(_ other: UnsafePointer<CChar>) -> Bool {
        text.withUnsafeBufferPointer { $0.baseAddress.map { strcmp($0, other) == 0 } ?? false }
    }

    /// Counts what came out of the socket for it.
    func noteTaken(_ bytes: Int, _ frame: ReceivedFrame, _ connections: ConnectionTable, _ limits: ConnectionLimits) {
        if let connection {
            if connection.isOwned(by: id) { connection.noteTaken(bytes) }
            return
        }
        early += bytes
        guard let descriptor = frame.descriptor, let found = connections[descriptor], found.limits === limits,
            found.own(id, taken: early)
        else { return }
        connection = found
        if isIdentified { found.noteIdentified() }
    }
}

/// What waits for all connections of one key.
final class KeyShare {
    var unsent = 0
    var peers = 0
}

/// The connections of a ROUTER: each one's key, decoded once, and what waits for it.
struct PeerTable {
    private var peers: [RoutingID: KnownPeer] = [:]
    private var shares: [PublicKey: KeyShare] = [:]
    /// At so many, those that are gone are looked for.
    private var pruneAt = 1024

    subscript(id: RoutingID) -> KnownPeer? { peers[id] }

    /// The peer of a message; nil when nothing says whose it is.
    mutating func peer(_ id: RoutingID, on frame: ReceivedFrame) -> KnownPeer? {
        frame.withProperty("User-Id") { text in
            guard let text else { return nil }
            if let peer = peers[id], peer.isNamed(text) { return peer }
            return add(id, text, frame)
        }
    }

    private mutating func add(
        _ id: RoutingID, _ text: UnsafePointer<CChar>, _ frame: ReceivedFrame
    ) -> KnownPeer? {
        guard let key = PublicKey(z85: String(cString: text)) else { return nil }
        if peers.count >= pruneAt { prune() }
        let share = shares[key] ?? KeyShare()
        shares[key] = share
        share.peers += 1
        let peer = KnownPeer(
            id: id, key: key, text: Array(UnsafeBufferPointer(start: text, count: strlen(text) + 1)),
            address: frame.withProperty("Peer-Address") { $0.map { String(cString: $0) } }, share: share)
        if let other = peers.updateValue(peer, forKey: id) { leave(other) }
        return peer
    }

    private mutating func prune() {
        for peer in peers.values where peer.connection?.isClosed ?? true {
            peers[peer.id] = nil
            leave(peer)
        }
        pruneAt = max(1024, peers.count * 2)
    }

    private mutating func leave(_ peer: KnownPeer) {
        peer.share.peers -= 1
        if peer.share.peers == 0 { shares[peer.key] = nil }
    }
}

/// What a ROUTER has been given to send and its peers have not acknowledged,
/// bounded for each connection, each key and all.
///
/// What peers have acknowledged is asked of the kernel when a bound seems to be
/// reached, and otherwise now and then for those to whom something is under way.
struct SendLedger {
    static let interval: Duration = .milliseconds(100)
    /// What anyone may have waiting, whatever others have.
    private static let shareMin = 64 << 10
    /// Peers looked at in one go.
    private static let sliceMax = 1000
    /// A peer that takes nothing for so long while its share is full is cut.
    private static let patience: Duration = .seconds(10)
    /// How soon after one look at all peers there may be another.
    private static let pause: Duration = .milliseconds(10)

    let perConnectionMax: Int
    let max: Int
    private(set) var total = 0
    private var listed: [KnownPeer] = []
    private var next = 0
    private var lastLook = Duration.zero

    init(perConnectionMax: Int, max: Int) {
        self.perConnectionMax = perConnectionMax
        self.max = max
    }

    /// Whether nothing is under way to anyone.
    var isEmpty: Bool { listed.isEmpty }

    mutating func hasRoom(for bytes: Int, to peer: KnownPeer, now: () -> Duration) -> Bool {
        // What was acknowledged while nothing was under way makes no room for what is said now.
        if !peer.isListed { refresh(peer) }
        if fits(bytes, peer) { return true }
        refresh(peer)
        if fits(bytes, peer) { return true }
        let now = now()
        if now - lastLook >= Self.pause {
            lastLook = now
            look()
            if fits(bytes, peer) { return true }
        }
        if peer.unsent + bytes > perConnectionMax {
            let since = peer.fullSince ?? now
            peer.fullSince = since
            if now - since > Self.patience { peer.connection?.cut() }
        }
        return false
    }

    private func fits(_ bytes: Int, _ peer: KnownPeer) -> Bool {
        let share = peer.share.unsent
        // One message goes in any case to whoever has taken all before it.
        guard share > 0 else { return true }
        return peer.unsent + bytes <= perConnectionMax && share + bytes <= perConnectionMax * 4
            && (total + bytes <= max || share + bytes <= Swift.max(Self.shareMin, max / Swift.max(1, listed.count)))
    }

    mutating func noteSent(_ bytes: Int, to peer: KnownPeer) {
        peer.noteSent(bytes)
        peer.share.unsent += bytes
        total += bytes
        guard !peer.isListed else { return }
        peer.isListed = true
        listed.append(peer)
    }

    /// Asks the kernel about some of those to whom something is under way.
    mutating func look() {
        for _ in 0..<min(Self.sliceMax, listed.count) {
            if next >= listed.count { next = 0 }
            let peer = listed[next]
            refresh(peer)
            if peer.unsent > 0 {
                next += 1
            } else {
                peer.isListed = false
                listed.swapAt(next, listed.count - 1)
                listed.removeLast()
            }
        }
    }

    private mutating func refresh(_ peer: KnownPeer) {
        let before = peer.unsent
        // Nothing waits for a connection that is over; of one that is not known
        // yet, libzmq's own mark is the bound.
        let counters = peer.connection?.counters()
        if let counters { _ = peer.connection?.cutIfOver(counters) }
        let acknowledged = peer.acknowledged
        peer.noteAcknowledged(counters.map { Int(clamping: $0.acknowledged) })
        guard peer.acknowledged > acknowledged else { return }
        peer.fullSince = nil
        let freed = before - peer.unsent
        peer.share.unsent -= freed
        total -= freed
    }
}
