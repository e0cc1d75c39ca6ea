internal import NephosBus
internal import NephosCore
internal import NephosStorage

/// What the requests of one group have cost so far, by account: what a request costs is known once it has run, and many
/// that looked small may hold the loop up together.
///
/// An account that has had its share waits, with all that its connections have sent after that, for its turn among the
/// large requests (``HeavyQueue``). Its first request of a group is carried out in any case, so that nobody waits for
/// what others do.
struct GroupShares {
    /// Rows of one account in a group: some milliseconds of work. ``RequestCost/bytesPerRow`` bytes are as much as one.
    static let rowsOfAccountMax = 8192
    /// Rows of a group. Beyond them no account has more than its first request carried out.
    static let rowsMax = 32_768

    private var rows = 0
    private var accounts: [AccountID: Int] = [:]
    /// Whose was the last one, who is most likely next: comparing costs less than hashing. Its cost is here, and in the
    /// table when another one comes.
    private var latest: (account: AccountID, cost: Int)?
    /// Of those that wait: their connections' requests are carried out in their order.
    private var connections: Set<UInt64> = []

    /// Whether the item waits for another group; notes it then.
    mutating func defers(_ item: GroupItem) -> Bool {
        // The service's own work is in steps, and what was prepared off the loop has waited long enough.
        guard case .request = item.work, let account = item.context.caller?.account else { return false }
        let own = cost(of: account)
        guard
            own >= Self.rowsOfAccountMax || own > 0 && rows >= Self.rowsMax
                || !connections.isEmpty && connections.contains(item.context.peer.connection)
        else { return false }
        connections.insert(item.context.peer.connection)
        item.isDeferred = true
        return true
    }

    /// Notes what an item has cost that has run.
    mutating func note(_ item: GroupItem) {
        let cost = max(1, item.cost.rows + (item.bytes + item.cost.bytes) / RequestCost.bytesPerRow)
        rows += cost
        guard let account = item.context.caller?.account else { return }
        guard latest?.account == account else {
            if let latest { accounts[latest.account] = latest.cost }
            return latest = (account, (accounts[account] ?? 0) + cost)
        }
        latest?.cost += cost
    }

    private func cost(of account: AccountID) -> Int {
        if let latest, latest.account == account { return latest.cost }
        return accounts[account] ?? 0
    }
}
