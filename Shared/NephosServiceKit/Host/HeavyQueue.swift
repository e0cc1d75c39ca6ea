internal import NephosBus
internal import NephosCore

/// Requests that cost much, and wait for their turn: between two shares of them
/// the loop takes whatever else has come, so that nobody with a small request
/// waits for long.
///
/// What a connection sends after one of them waits behind it, so that its
/// requests are carried out in their order.
struct HeavyQueue {
    /// Calls of one share, unless one request alone costs more: some milliseconds of work.
    static let shareCalls = 32
    /// Bytes of the bodies that wait. With more, requests are refused until there is room.
    private static let bytesMax = 64 << 20

    /// Those that were taken are gone, with their bodies and replies.
    private var items: [GroupItem?] = []
    private var first = 0
    private(set) var bytes = 0
    private var connections: [UInt64: Int] = [:]

    var isEmpty: Bool { first == items.count }
    var count: Int { items.count - first }

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
        guard bytes + item.bytes <= Self.bytesMax else { return false }
        items.append(item)
        bytes += item.bytes
        connections[item.context.peer.connection, default: 0] += 1
        return true
    }

    /// Puts back the last ones of a share, which are the next again.
    mutating func putBack(_ share: [GroupItem]) {
        items.replaceSubrange(..<first, with: share.map { $0 })
        first = 0
        for item in share {
            bytes += item.bytes
            connections[item.context.peer.connection, default: 0] += 1
        }
    }

    /// The next ones.
    mutating func takeShare() -> [GroupItem] {
        var share: [GroupItem] = []
        var calls = 0
        while first < items.count, calls < Self.shareCalls {
            guard let item = items[first] else { break }
            guard share.isEmpty || calls + item.charged <= Self.shareCalls else { break }
            items[first] = nil
            first += 1
            share.append(item)
            calls += item.charged
            bytes -= item.bytes
            let connection = item.context.peer.connection
            let left = (connections[connection] ?? 1) - 1
            connections[connection] = left == 0 ? nil : left
        }
        if first == items.count || first > 256 {
            items.removeFirst(first)
            first = 0
        }
        return share
    }
}
