internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// Reads of snapshots off the loop: some at a time, the others in a queue, one for each connection.
///
/// What a connection sends after such a read waits until that is answered, so
/// that its requests are carried out, and their replies sent, in their order.
struct BulkReads {
    /// Bytes of reads that are not answered and of what waits behind them. With more, requests are refused until there
    /// is room.
    private static let bytesMax = 64 << 20
    /// The same of one account, so that none takes the place of all.
    private static let bytesOfAccountMax = 8 << 20
    /// Connections that may have a read at one time; each holds little until it is read.
    private static let connectionsMax = 8192
    /// The same of one account. More would only wait for each other.
    private static let connectionsOfAccountMax = 128
    /// Requests that may wait behind one read.
    private static let behindMax = 1000

    private struct Held {
        var reads = 0
        var bytes = 0
    }

    /// Connections with a read, and what waits behind it.
    private var parked: [UInt64: [GroupItem]] = [:]
    private var accounts: [AccountID: Held] = [:]
    private(set) var bytes = 0

    enum Admission {
        case joins
        /// It waits behind its connection's read, and comes again.
        case waits
        case refused
    }

    /// Reads, and what waits behind them.
    var count: Int { parked.values.reduce(parked.count) { $0 + $1.count } }

    /// Whether some of the items may have to wait, or others behind them.
    func concern(_ items: [GroupItem]) -> Bool { !parked.isEmpty || items.contains { $0.isBulk } }

    /// Whether the item may join a group now.
    mutating func admit(_ item: GroupItem) -> Admission {
        guard item.method != nil else { return .joins }
        let connection = item.context.peer.connection
        guard let behind = parked[connection] else {
            guard item.isBulk else { return .joins }
            guard parked.count < Self.connectionsMax, hasRoom(for: item),
                held(for: item).reads < Self.connectionsOfAccountMax
            else { return .refused }
            parked[connection] = []
            hold(item, reads: 1)
            return .joins
        }
        guard hasRoom(for: item), behind.count < Self.behindMax else { return .refused }
        parked[connection]?.append(item)
        hold(item, reads: 0)
        return .waits
    }

    private func held(for item: GroupItem) -> Held { item.context.caller.flatMap { accounts[$0.account] } ?? Held() }

    private func hasRoom(for item: GroupItem) -> Bool {
        let own = held(for: item).bytes
        // A large one by itself is taken in any case.
        return bytes + item.bytes <= Self.bytesMax && (own == 0 || own + item.bytes <= Self.bytesOfAccountMax)
    }

    private mutating func hold(_ item: GroupItem, reads: Int) {
        bytes += item.bytes
        guard let account = item.context.caller?.account else { return }
        accounts[account, default: Held()].reads += reads
        accounts[account, default: Held()].bytes += item.bytes
    }

    private mutating func letGo(_ item: GroupItem, reads: Int) {
        bytes -= item.bytes
        guard let account = item.context.caller?.account, var held = accounts[account] else { return }
        held.reads -= reads
        held.bytes -= item.bytes
        accounts[account] = held.reads > 0 || held.bytes > 0 ? held : nil
    }

    /// The item's read is answered.
    ///
    /// - Returns: Whether something has waited behind it, and goes on with ``goOn(_:)``.
    mutating func end(_ item: GroupItem) -> Bool {
        letGo(item, reads: 1)
        let connection = item.context.peer.connection
        guard parked[connection]?.isEmpty == true else { return true }
        parked[connection] = nil
        return false
    }

    /// What has waited behind the connection's read. Until then what it sends is added to that.
    mutating func goOn(_ connection: UInt64) -> [GroupItem] {
        let items = parked.removeValue(forKey: connection) ?? []
        for item in items { letGo(item, reads: 0) }
        return items
    }
}
