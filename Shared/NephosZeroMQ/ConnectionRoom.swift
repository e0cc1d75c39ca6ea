internal import CNephosZeroMQ
internal import NephosBus
internal import NephosCore

/// How many connections the sockets of one loop may have at one time.
///
/// An open connection takes a descriptor and memory, whether it says anything
/// or not. All connections together may have fifteen sixteenths of the
/// descriptors, and half of the memory that the process may have; of both, a
/// loop of requests has three quarters and a loop of content one.
struct ConnectionRoom {
    /// What an idle connection adds to the memory that the limit counts: 135 to 150 kB measured, nearly all of it queues
    /// of libzmq, of which 40 kB are resident.
    static let bytesPerConnection = 160 << 10
    /// Kept free for files and connections of our own. At the limit libzmq's
    /// accept spins a core.
    private static let headroom = 64

    let connectionsMax: Int
    /// What no descriptor of a connection may reach.
    private let descriptorsMax: Int

    /// Connections that are not identified may have so many, however many others there are.
    var strangersMin: Int { connectionsMax / 4 }

    /// - Parameters:
    ///   - descriptors: That the process may have.
    ///   - memoryBytes: That it may have; `Int.max`: no limit.
    init(descriptors: Int, memoryBytes: Int, for work: LoopWork) {
        descriptorsMax = max(1, descriptors - Self.headroom)
        // Those that were cut keep their descriptors for a moment.
        let all = min(descriptorsMax - descriptorsMax / 16, memoryBytes / 2 / Self.bytesPerConnection)
        connectionsMax = max(1, work == .content ? all / 4 : all / 4 * 3)
    }

    /// By the limits of this process, whose descriptors are raised to what it may have.
    init(for work: LoopWork) {
        var descriptors: UInt = 1024
        _ = nephos_raise_descriptor_limit(&descriptors)
        self.init(
            descriptors: Int(clamping: descriptors), memoryBytes: Int(clamping: nephos_data_limit()), for: work)
    }

    init(connectionsMax: Int, descriptorsMax: Int = .max) {
        self.connectionsMax = connectionsMax
        self.descriptorsMax = descriptorsMax
    }

    /// A new descriptor takes the lowest free number, so its number tells how full the table is.
    func hasRoom(for descriptor: Int32) -> Bool { Int(descriptor) < descriptorsMax }
}

/// The accepted connections of one loop, and which of them are cut when there
/// are too many.
///
/// Those go whose peers are not identified; of them the oldest of the address
/// that has the most. So whoever comes gets in, and one that fills the table
/// from a few addresses pushes out its own. When few strangers are left, all
/// connections are looked at alike.
struct AcceptedConnections {
    private var all: [ObjectIdentifier: Connection] = [:]
    /// In the order in which they came, and some that are gone.
    private var inOrder: [Connection] = []

    var count: Int { all.count }

    mutating func add(_ connection: Connection) {
        if inOrder.count > 2 * all.count + 64 { inOrder.removeAll { all[ObjectIdentifier($0)] == nil } }
        all[ObjectIdentifier(connection)] = connection
        inOrder.append(connection)
    }

    mutating func remove(_ connection: Connection) { all[ObjectIdentifier(connection)] = nil }

    /// Takes out so many, which the caller cuts.
    mutating func removeLeastWanted(_ count: Int, of room: ConnectionRoom, at now: Duration) -> [Connection] {
        inOrder.removeAll { all[ObjectIdentifier($0)] == nil }
        let strangers = inOrder.filter { !$0.isIdentified(at: now) }
        let candidates = strangers.count > room.strangersMin ? strangers : inOrder
        // A connection's rank is the number of its address's that came after it.
        var ranks: [PeerAddress?: Int] = [:]
        var ranked: [(rank: Int, place: Int)] = []
        for place in candidates.indices.reversed() {
            let rank = ranks[candidates[place].address, default: 0]
            ranks[candidates[place].address] = rank + 1
            ranked.append((rank, place))
        }
        ranked.sort { ($1.rank, $0.place) < ($0.rank, $1.place) }
        let chosen = ranked.prefix(count).map { candidates[$0.place] }
        for connection in chosen { remove(connection) }
        return chosen
    }
}
