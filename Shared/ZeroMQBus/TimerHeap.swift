internal import Bus

/// Scheduled actions, the next one first (a binary heap). Equal times keep the
/// order in which they were added.
struct TimerHeap {
    fileprivate final class Entry: LoopTimer {
        let deadline: Duration
        let number: UInt64
        var action: (() -> Void)?

        init(deadline: Duration, number: UInt64, action: @escaping () -> Void) {
            self.deadline = deadline
            self.number = number
            self.action = action
        }

        func cancel() { action = nil }

        func isBefore(_ other: Entry) -> Bool { (deadline, number) < (other.deadline, other.number) }
    }

    private var entries: [Entry] = []
    private var count: UInt64 = 0

    private var sweepAt = 64

    /// When the next action is due; nil when there is none.
    mutating func nextDeadline() -> Duration? {
        while let first = entries.first {
            if first.action != nil { return first.deadline }
            _ = removeFirst(first)
        }
        return nil
    }

    mutating func add(at deadline: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        sweepIfCrowded()
        count += 1
        let entry = Entry(deadline: deadline, number: count, action: action)
        entries.append(entry)
        var index = entries.count - 1
        while index > 0, entries[index].isBefore(entries[(index - 1) / 2]) {
            entries.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
        return entry
    }

    /// Takes out what is due, for the caller to run: an action may add timers.
    mutating func takeDue(now: Duration) -> [Due] {
        var due: [Due] = []
        while let first = entries.first, first.deadline <= now { due.append(Due(entry: removeFirst(first))) }
        return due
    }

    /// An action that is due, unless one before it cancels it.
    struct Due {
        fileprivate let entry: Entry

        func run() {
            guard let action = entry.action else { return }
            entry.action = nil
            action()
        }
    }

    /// Most timers are deadlines, and cancelled: they go before they are due.
    private mutating func sweepIfCrowded() {
        guard entries.count >= sweepAt else { return }
        entries.removeAll { $0.action == nil }
        // In ascending order an array is a heap.
        entries.sort { $0.isBefore($1) }
        sweepAt = max(64, entries.count * 2)
    }

    private mutating func removeFirst(_ first: Entry) -> Entry {
        let last = entries.removeLast()
        guard !entries.isEmpty else { return first }
        entries[0] = last
        var index = 0
        while true {
            var smallest = index
            for child in [2 * index + 1, 2 * index + 2]
            where child < entries.count && entries[child].isBefore(entries[smallest]) {
                smallest = child
            }
            guard smallest != index else { return first }
            entries.swapAt(index, smallest)
            index = smallest
        }
    }
}
