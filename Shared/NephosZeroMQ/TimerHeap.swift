internal import HeapModule
internal import NephosBus

/// Scheduled actions, the next one first. Equal times keep the order in which they were added.
struct TimerHeap {
    fileprivate final class Entry: LoopTimer, Comparable {
        let deadline: Duration
        let number: UInt64
        var action: (() -> Void)?

        init(deadline: Duration, number: UInt64, action: @escaping () -> Void) {
            self.deadline = deadline
            self.number = number
            self.action = action
        }

        func cancel() { action = nil }

        static func == (one: Entry, other: Entry) -> Bool { one.number == other.number }
        static func < (one: Entry, other: Entry) -> Bool {
            (one.deadline, one.number) < (other.deadline, other.number)
        }
    }

    private var entries = Heap<Entry>()
    private var count: UInt64 = 0

    private var sweepAt = 64

    /// When the next action is due; nil when there is none.
    mutating func nextDeadline() -> Duration? {
        while let first = entries.min {
            if first.action != nil { return first.deadline }
            entries.removeMin()
        }
        return nil
    }

    mutating func add(at deadline: Duration, _ action: @escaping () -> Void) -> any LoopTimer {
        sweepIfCrowded()
        count += 1
        let entry = Entry(deadline: deadline, number: count, action: action)
        entries.insert(entry)
        return entry
    }

    /// Takes out what is due, for the caller to run: an action may add timers.
    mutating func takeDue(now: Duration) -> [Due] {
        var due: [Due] = []
        while let first = entries.min, first.deadline <= now { due.append(Due(entry: entries.removeMin())) }
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
        sweepAt = max(64, entries.count * 2)
    }
}
