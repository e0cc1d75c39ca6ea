internal import CNephosZeroMQ
internal import Foundation
internal import NephosCore
internal import Synchronization

/// One TCP connection of a socket: what the kernel says of it, beside what has
/// come out of the socket.
///
/// libzmq counts whole messages and tells nobody what it holds. But what the
/// kernel received on a connection, less what came out of the socket, is what
/// waits in between, whole or not; and what was handed to libzmq, less what the
/// other end acknowledged, is what waits to be sent.
final class Connection: Sendable {
    /// libzmq's: it may be closed, and be another's, at any moment.
    let descriptor: Int32
    let limits: ConnectionLimits
    /// Tells the connection from a later one under the same descriptor.
    private let cookie: UInt64
    /// Where it comes from; nil: not over TCP.
    let address: PeerAddress?
    let opened: Duration
    /// Bytes on the wire of the messages that came out of the socket.
    private let taken = Atomic<UInt64>(0)
    private let closed = Atomic(false)
    private let identified = Atomic(false)
    /// The routing id of the peer whose connection this is, plus one; 0: not known yet.
    private let owner = Atomic<UInt64>(0)

    /// Nil: the descriptor is no socket any more.
    ///
    /// - Parameter now: By ``monotonicTime()``.
    init?(descriptor: Int32, limits: ConnectionLimits, now: Duration = .zero) {
        cookie = nephos_socket_cookie(descriptor)
        guard cookie != 0 else { return nil }
        address = PeerAddress(of: descriptor)
        opened = now
        self.descriptor = descriptor
        self.limits = limits
    }

    /// Whether libzmq has said, or the kernel, that it is over.
    var isClosed: Bool { closed.load(ordering: .relaxed) }
    func noteClosed() { closed.store(true, ordering: .relaxed) }

    /// Whether its peer has proved whose it is.
    func isIdentified(at now: Duration) -> Bool {
        // A socket for a roster lets nobody else finish the handshake, and libzmq lets no handshake take longer.
        identified.load(ordering: .relaxed) || limits.admitsRosterAlone && now - opened > SocketCore.handshakeTime
    }
    func noteIdentified() { identified.store(true, ordering: .relaxed) }

    var takenBytes: UInt64 { taken.load(ordering: .relaxed) }
    func noteTaken(_ bytes: Int) { taken.wrappingAdd(UInt64(bytes), ordering: .relaxed) }

    func isOwned(by id: RoutingID) -> Bool { owner.load(ordering: .relaxed) == id.number + 1 }

    /// Makes it the connection of this peer, of whom so much has come out;
    /// false when it is that of a later one.
    ///
    /// When messages come out of an earlier connection with the same
    /// descriptor, that one's peer may have been taken for the owner.
    func own(_ id: RoutingID, taken bytes: Int) -> Bool {
        let current = owner.load(ordering: .relaxed)
        if current != 0, !id.isLater(than: RoutingID(number: current - 1)) { return false }
        owner.store(id.number + 1, ordering: .relaxed)
        taken.store(UInt64(bytes), ordering: .relaxed)
        return true
    }

    func isSame(as other: Connection) -> Bool { cookie == other.cookie }

    /// Nil when the connection is over.
    func counters() -> nephos_tcp_counters? {
        var counters = nephos_tcp_counters()
        // Asked for last: it was this connection's descriptor before, so then it was all along.
        guard !isClosed, nephos_tcp_counters_of(descriptor, &counters) == 0,
            nephos_socket_cookie(descriptor) == cookie
        else { return nil }
        return counters
    }

    /// A handshake's bytes, and some more.
    private static let handshakeBytesMax = 4096

    /// What has arrived and not come out of the socket; not above zero: nothing.
    func unreadBytes(_ counters: nephos_tcp_counters) -> Int {
        Int(clamping: Int64(clamping: counters.received) - Int64(clamping: takenBytes)) - Self.handshakeBytesMax
    }

    /// Cuts it if more has arrived than it may leave unread. Returns whether it did.
    func cutIfOver(_ counters: nephos_tcp_counters) -> Bool {
        guard unreadBytes(counters) > limits.unreadPerConnectionMax else { return false }
        cut()
        return true
    }

    /// Whether all that was sent is acknowledged: then libzmq has nothing left for it either.
    var hasSentAll: Bool { nephos_unacknowledged(descriptor) == 0 && nephos_socket_cookie(descriptor) == cookie }

    /// Ends the connection; libzmq notices by itself and lets go of all that it holds for it.
    func cut() {
        // A descriptor of our own, which stays what it is found to be.
        let own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0)
        guard own >= 0 else { return }
        defer { close(own) }
        guard nephos_socket_cookie(own) == cookie else { return }
        // What the kernel still holds for a peer that does not read goes too, when libzmq closes it.
        var atOnce = linger(l_onoff: 1, l_linger: 0)
        setsockopt(own, SOL_SOCKET, SO_LINGER, &atOnce, socklen_t(MemoryLayout<linger>.size))
        shutdown(own, Int32(SHUT_RDWR))
        limits.noteCut()
    }

    /// What CURVE adds to a frame.
    static let sealBytes = 33

    /// A frame's bytes on the wire: CURVE adds a name, a nonce, a seal and flags, ZMTP its own header.
    static func wireBytes(_ payload: Int) -> Int {
        let sealed = payload + sealBytes
        return sealed + (sealed > 255 ? 9 : 2)
    }
}

/// What the connections of one socket may make the process hold of what they send.
package final class ConnectionLimits: Sendable {
    /// Bytes that have arrived on one connection and have not come out of the socket.
    let unreadPerConnectionMax: Int
    /// The same of all connections together.
    let unreadMax: Int
    /// How long a new connection may say nothing at all; nil: for ever.
    let silenceMax: Duration?
    /// Whether only keys of the roster may connect.
    let admitsRosterAlone: Bool
    /// Connections that were cut.
    private let cuts = Atomic(0)

    package init(
        unreadPerConnectionMax: Int, unreadMax: Int, silenceMax: Duration? = nil, admitsRosterAlone: Bool = false
    ) {
        self.unreadPerConnectionMax = unreadPerConnectionMax
        self.unreadMax = unreadMax
        self.silenceMax = silenceMax
        self.admitsRosterAlone = admitsRosterAlone
    }

    var cutCount: Int { cuts.load(ordering: .relaxed) }
    func noteCut() { cuts.wrappingAdd(1, ordering: .relaxed) }
}

/// The connections of a loop's sockets by descriptor, for the loop's thread and for the one that watches.
final class ConnectionTable: Sendable {
    private let connections = Mutex<[Int32: Connection]>([:])

    subscript(descriptor: Int32) -> Connection? {
        get { connections.withLock { $0[descriptor] } }
        set { connections.withLock { $0[descriptor] = newValue } }
    }

    func all(under limits: ConnectionLimits) -> [Connection] {
        connections.withLock { table in table.values.filter { $0.limits === limits } }
    }

    func removeAll(under limits: ConnectionLimits) {
        connections.withLock { table in
            for (descriptor, connection) in table where connection.limits === limits {
                connection.noteClosed()
                table[descriptor] = nil
            }
        }
    }
}
