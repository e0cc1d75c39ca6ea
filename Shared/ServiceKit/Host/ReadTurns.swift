internal import Bus
internal import Core

/// Reads that wait for a thread. Accounts take turns, so that nobody waits for more than one read of each other one,
/// however many another has asked for.
struct ReadTurns {
    typealias Read = (item: GroupItem, reading: Router.Bulk.Reading)

    /// Those of each account, in the order in which they came; few, since ``BulkReads`` bounds them. Nil: of services
    /// and the operator.
    private var lines: [AccountID?: [Read]] = [:]
    /// Those with a line, in the order of their turns.
    private var turns: [AccountID?] = []

    mutating func add(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        let account = item.context.caller?.account
        if lines[account] == nil { turns.append(account) }
        lines[account, default: []].append((item, reading))
    }

    mutating func next() -> Read? {
        guard !turns.isEmpty else { return nil }
        let account = turns.removeFirst()
        guard let read = lines[account]?.removeFirst() else { return nil }
        if lines[account]?.isEmpty == true { lines[account] = nil } else { turns.append(account) }
        return read
    }
}
