internal import Bus

/// Scheduled actions, the next one first (a binary heap). Equal times keep the
/// order in which they were added.
struct TimerHeap {
    private final class Entry: LoopTimer {
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

    /// When the next action is due; nil when there is none.
    var next: Duration? { entries.first?.deadline }

    mutating func add(at deadline: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
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

    /// Runs what is due. An action may add others; those that are due at once
    /// run in the next turn, so that sockets get theirs.
    mutating func runDue(now: Duration) -> Bool {
        var due: [Entry] = []
        while let first = entries.first, first.deadline <= now { due.append(removeFirst(first)) }
        var ran = false
        for entry in due {
            guard let action = entry.action else { continue }
            entry.action = nil
            action()
            ran = true
        }
        return ran
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
