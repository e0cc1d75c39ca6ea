internal import CNephosZeroMQ
internal import Foundation
internal import NephosCore

/// Cuts connections that make the process hold more than their socket allows.
///
/// On the context's own thread, so that it goes on while the loop is busy. It
/// looks only at connections on which something has arrived since the last
/// look (the kernel tells, `epoll`), and at those that have something waiting:
/// idle ones cost nothing.
struct ConnectionWatch {
    /// How often it looks, at most. One thread of libzmq takes in about 20 MiB meanwhile.
    static let interval: Duration = .milliseconds(50)
    private struct Waiting {
        var connection: Connection
        var bytes: Int
        /// What had come out when it was last seen to move.
        var taken: UInt64
        var since: Duration
    }

    private struct Newcomer {
        var connection: Connection
        var due: Duration
    }

    /// Readable when something has arrived anywhere.
    let epoll: Int32
    private let table: ConnectionTable
    private let room: ConnectionRoom
    private var waiting: [Int32: Waiting] = [:]
    /// In the order of ``Newcomer/due``, as all wait for the same time.
    private var newcomers: [Newcomer] = []
    private var checkedNewcomers = 0
    private var accepted = AcceptedConnections()
    private var lastLook = Duration.zero
    private var events = [epoll_event](repeating: epoll_event(), count: 256)

    init(table: ConnectionTable, room: ConnectionRoom) {
        self.table = table
        self.room = room
        epoll = epoll_create1(Int32(EPOLL_CLOEXEC))
    }

    // MARK: What libzmq tells

    mutating func opened(_ descriptor: Int32, under limits: ConnectionLimits, isAccepted: Bool, now: Duration) {
        guard let connection = Connection(descriptor: descriptor, limits: limits, now: now) else { return }
        // Another connection's end under this descriptor may not have been told.
        if let known = table[descriptor] {
            if known.isSame(as: connection) { return }
            forget(known)
        }
        table[descriptor] = connection
        if isAccepted {
            accepted.add(connection)
            let excess = accepted.count - room.connectionsMax
            if excess > 0 {
                for one in accepted.removeLeastWanted(excess + room.connectionsMax / 64, of: room, at: now) {
                    one.cut()
                }
            }
            if !room.hasRoom(for: descriptor) {
                accepted.remove(connection)
                return connection.cut()
            }
        }
        // Writable too: libzmq may have read what arrived before this thread
        // looks, and then the kernel has no other event to tell. While a peer's
        // replies fill its connection, it is none either: that is looked at by
        // whoever sends them (``SendLedger``).
        var event = epoll_event(
            events: EPOLLIN.rawValue | EPOLLOUT.rawValue | EPOLLET.rawValue, data: epoll_data_t(fd: descriptor))
        // Ends with the connection: the kernel forgets a closed descriptor.
        epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event)
        if isAccepted, let silence = limits.silenceMax {
            newcomers.append(Newcomer(connection: connection, due: now + silence))
        }
    }

    mutating func closed(_ descriptor: Int32) {
        if let connection = table[descriptor] { forget(connection) }
    }

    private mutating func forget(_ connection: Connection) {
        let descriptor = connection.descriptor
        connection.noteClosed()
        if waiting[descriptor]?.connection === connection { waiting[descriptor] = nil }
        if table[descriptor] === connection {
            table[descriptor] = nil
            accepted.remove(connection)
        }
    }

    /// A socket was closed, and its connections with it.
    mutating func ended(_ limits: ConnectionLimits) {
        for connection in table.all(under: limits) { forget(connection) }
    }

    // MARK: Looking

    /// Whether to be woken by ``epoll``: not before the next look is due.
    func wantsNews(at now: Duration) -> Bool { now >= lastLook + Self.interval }

    /// When to look without news; nil: never.
    var nextLook: Duration? {
        let look = waiting.isEmpty ? nil : lastLook + Self.interval
        let newcomer = checkedNewcomers < newcomers.count ? newcomers[checkedNewcomers].due : nil
        return [look, newcomer].compactMap { $0 }.min()
    }

    mutating func look(at now: Duration) {
        guard now >= lastLook + Self.interval else { return checkNewcomers(now) }
        lastLook = now
        // Those that waited before, and those on which something arrived.
        for entry in Array(waiting.values) { check(entry.connection, now) }
        while true {
            let count = epoll_wait(epoll, &events, Int32(events.count), 0)
            for event in events.prefix(Int(max(0, count))) {
                if let connection = table[event.data.fd] { check(connection, now) }
            }
            guard count == events.count else { break }
        }
        cutOldest()
        checkNewcomers(now)
    }

    private mutating func check(_ connection: Connection, _ now: Duration) {
        guard let counters = connection.counters() else { return forget(connection) }
        let taken = connection.takenBytes
        let bytes = connection.unreadBytes(counters)
        guard bytes > 0, !connection.cutIfOver(counters) else {
            waiting[connection.descriptor] = nil
            return
        }
        var entry =
            waiting[connection.descriptor] ?? Waiting(connection: connection, bytes: 0, taken: taken, since: now)
        entry.bytes = bytes
        if entry.taken != taken { (entry.taken, entry.since) = (taken, now) }
        waiting[connection.descriptor] = entry
    }

    /// Of the connections of a socket that together hold too much, cuts those
    /// of which nothing has come out for longest: they do not finish what they
    /// began, and who sends whole messages is not among them.
    private mutating func cutOldest() {
        var totals: [ObjectIdentifier: Int] = [:]
        for entry in waiting.values { totals[ObjectIdentifier(entry.connection.limits), default: 0] += entry.bytes }
        for (socket, total) in totals {
            let entries = waiting.values.filter { ObjectIdentifier($0.connection.limits) == socket }
            guard let max = entries.first?.connection.limits.unreadMax, total > max else { continue }
            var excess = total - max
            for entry in entries.sorted(by: { ($0.since, -$0.bytes) < ($1.since, -$1.bytes) }) where excess > 0 {
                entry.connection.cut()
                waiting[entry.connection.descriptor] = nil
                excess -= entry.bytes
            }
        }
    }

    /// Whoever has connected says so (`ZMQ_PROBE_ROUTER`), or asks something.
    private mutating func checkNewcomers(_ now: Duration) {
        while checkedNewcomers < newcomers.count, newcomers[checkedNewcomers].due <= now {
            let connection = newcomers[checkedNewcomers].connection
            if !connection.isClosed, connection.takenBytes == 0 { connection.cut() }
            checkedNewcomers += 1
        }
        if checkedNewcomers > newcomers.count / 2 {
            newcomers.removeFirst(checkedNewcomers)
            checkedNewcomers = 0
        }
    }
}
