internal import Bus
internal import Core
internal import Storage

/// Reads of snapshots off the loop: some at a time, the others in a queue, one for each connection.
///
/// What a connection sends after such a read waits until that is answered, so
/// that its requests are carried out, and their replies sent, in their order.
struct BulkReads {
    /// Bytes of what waits behind reads. With more, requests are refused until there is room.
    private static let bytesMax = 64 << 20
    /// Connections that may have a read at one time; each holds little until it is read.
    private static let connectionsMax = 8192
    /// The same of one account. More would only wait for each other.
    private static let connectionsOfAccountMax = 128
    /// Requests that may wait behind one read.
    private static let behindMax = 1000

    /// Connections with a read, and what waits behind it.
    private var parked: [UInt64: [GroupItem]] = [:]
    private var counts: [AccountID: Int] = [:]
    private var bytes = 0

    enum Admission {
        case joins
        /// It waits behind its connection's read, and comes again.
        case waits
        case refused
    }

    /// Whether some of the items may have to wait, or others behind them.
    func concern(_ items: [GroupItem]) -> Bool { !parked.isEmpty || items.contains { $0.isBulk } }

    /// Whether the item may join a group now.
    mutating func admit(_ item: GroupItem) -> Admission {
        let isBulk = item.isBulk
        if case .submission = item.work { return .joins }
        let connection = item.context.peer.connection
        guard parked[connection] == nil else {
            guard bytes + item.bytes <= Self.bytesMax, parked[connection, default: []].count < Self.behindMax
            else { return .refused }
            bytes += item.bytes
            parked[connection]?.append(item)
            return .waits
        }
        if isBulk {
            let account = item.context.caller?.account
            guard parked.count < Self.connectionsMax,
                account.map({ counts[$0, default: 0] < Self.connectionsOfAccountMax }) ?? true
            else { return .refused }
            parked[connection] = []
            if let account { counts[account, default: 0] += 1 }
        }
        return .joins
    }

    /// The item's read is answered.
    ///
    /// - Returns: Whether something has waited behind it, and goes on with ``goOn(_:)``.
    mutating func end(_ item: GroupItem) -> Bool {
        if let account = item.context.caller?.account {
            let left = (counts[account] ?? 1) - 1
            counts[account] = left == 0 ? nil : left
        }
        let connection = item.context.peer.connection
        guard parked[connection]?.isEmpty == true else { return true }
        parked[connection] = nil
        return false
    }

    /// What has waited behind the connection's read. Until then what it sends is added to that.
    mutating func goOn(_ connection: UInt64) -> [GroupItem] {
        let items = parked.removeValue(forKey: connection) ?? []
        bytes -= items.reduce(0) { $0 + $1.bytes }
        return items
    }
}
