internal import Bus
internal import Core

/// Reads that wait for a thread. Accounts take turns, so that nobody waits for more than one read of each other one,
/// however many another has asked for.
struct ReadTurns {
    typealias Read = (item: GroupItem, reading: Router.Bulk.Reading)

    /// Those of one account, in the order in which they came. Those that were taken are gone.
    private struct Line {
        var reads: [Read?] = []
        var first = 0
    }

    /// Nil: of services and the operator.
    private var lines: [AccountID?: Line] = [:]
    /// Those with a line, in the order of their turns.
    private var turns: [AccountID?] = []

    mutating func add(_ item: GroupItem, _ reading: Router.Bulk.Reading) {
        let account = item.context.caller?.account
        if lines[account] == nil { turns.append(account) }
        lines[account, default: Line()].reads.append((item, reading))
    }

    mutating func next() -> Read? {
        guard !turns.isEmpty else { return nil }
        let account = turns.removeFirst()
        guard var line = lines.removeValue(forKey: account), let read = line.reads[line.first] else { return nil }
        line.reads[line.first] = nil
        line.first += 1
        if line.first < line.reads.count {
            lines[account] = line
            turns.append(account)
        }
        return read
    }
}
