internal import NephosBus
internal import NephosCore

/// Requests that cost much, and wait for their turn: between two shares of them
/// the loop takes whatever else has come, so that nobody with a small request
/// waits for long. Accounts take turns, so that nobody waits for more than one
/// of each other account.
///
/// What a connection sends after one of them waits behind it, so that its
/// requests are carried out in their order.
struct HeavyQueue {
    /// Calls of one share, unless one request alone costs more: some milliseconds of work.
    static let shareCalls = 32
    /// Bytes of the bodies that wait. With more, requests are refused until there is room.
    private static let bytesMax = 64 << 20
    /// The same of one account, so that none takes the place of all.
    private static let bytesOfAccountMax = 16 << 20

    /// Nil: services, the operator, and whoever has no token.
    private typealias Key = AccountID?

    private struct Own {
        var items: [GroupItem] = []
        var bytes = 0
    }

    /// Whose turn it is.
    private var order: [Key] = []
    private var owners: [Key: Own] = [:]
    private(set) var count = 0
    private(set) var bytes = 0
    /// Those that wait of each connection, and with whose: all of a connection's wait together.
    private var connections: [UInt64: (count: Int, key: Key)] = [:]

    var isEmpty: Bool { count == 0 }

    /// Whether the item has to wait here: because it is large, because others of its connection wait, or because it
    /// is not small and with it a group would have more than one share of such.
    ///
    /// - Parameter calls: What those in the group cost that are not small.
    func concerns(_ item: GroupItem, besides calls: Int) -> Bool {
        // What reads much does so off the loop.
        if item.isBulk { return !connections.isEmpty && connections[item.context.peer.connection] != nil }
        if item.charged >= RequestCost.heavy { return true }
        if item.charged > 1, calls + item.charged > Self.shareCalls { return true }
        return !connections.isEmpty && connections[item.context.peer.connection] != nil
    }

    /// - Returns: False when there is no room.
    mutating func add(_ item: GroupItem) -> Bool {
        let own = owners[key(of: item)]?.bytes ?? 0
        // A large one by itself is taken in any case.
        guard bytes + item.bytes <= Self.bytesMax, own == 0 || own + item.bytes <= Self.bytesOfAccountMax else {
            return false
        }
        note(item)
        owners[key(of: item)]?.items.append(item)
        return true
    }

    /// Puts back the last ones of a share, which are the next again.
    mutating func putBack(_ share: [GroupItem]) {
        for item in share.reversed() {
            note(item, isNext: true)
            owners[key(of: item)]?.items.insert(item, at: 0)
        }
    }

    /// The next ones.
    mutating func takeShare() -> [GroupItem] {
        var share: [GroupItem] = []
        var calls = 0
        while calls < Self.shareCalls, let key = order.first, let item = owners[key]?.items.first {
            guard share.isEmpty || calls + item.charged <= Self.shareCalls else { break }
            order.removeFirst()
            take(item, of: key)
            share.append(item)
            calls += item.charged
        }
        return share
    }

    private func key(of item: GroupItem) -> Key {
        if let known = connections[item.context.peer.connection] { return known.key }
        return item.context.caller?.account
    }

    private mutating func note(_ item: GroupItem, isNext: Bool = false) {
        let key = key(of: item)
        if owners[key] == nil {
            owners[key] = Own()
            order.insert(key, at: isNext ? 0 : order.count)
        }
        owners[key]?.bytes += item.bytes
        connections[item.context.peer.connection, default: (0, key)].count += 1
        count += 1
        bytes += item.bytes
    }

    private mutating func take(_ item: GroupItem, of key: Key) {
        owners[key]?.items.removeFirst()
        owners[key]?.bytes -= item.bytes
        if owners[key]?.items.isEmpty ?? true { owners[key] = nil } else { order.append(key) }
        let connection = item.context.peer.connection
        connections[connection]?.count -= 1
        if connections[connection]?.count == 0 { connections[connection] = nil }
        count -= 1
        bytes -= item.bytes
    }
}
