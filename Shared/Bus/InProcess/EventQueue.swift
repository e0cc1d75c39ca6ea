/// What is going to happen, the next first (a binary heap). What happens at the
/// same time keeps the order in which it was added.
struct EventQueue {
    struct Event {
        var time: Duration
        var number: UInt64
        var action: () -> Void

        func isBefore(_ other: Event) -> Bool { (time, number) < (other.time, other.number) }
    }

    private var events: [Event] = []
    private var count: UInt64 = 0

    var next: Duration? { events.first?.time }

    mutating func add(at time: Duration, _ action: @escaping () -> Void) {
        count += 1
        events.append(Event(time: time, number: count, action: action))
        var index = events.count - 1
        while index > 0, events[index].isBefore(events[(index - 1) / 2]) {
            events.swapAt(index, (index - 1) / 2)
            index = (index - 1) / 2
        }
    }

    mutating func removeFirst() -> Event? {
        guard let first = events.first, let last = events.popLast() else { return nil }
        guard !events.isEmpty else { return first }
        events[0] = last
        var index = 0
        while true {
            var smallest = index
            for child in [2 * index + 1, 2 * index + 2]
            where child < events.count && events[child].isBefore(events[smallest]) {
                smallest = child
            }
            guard smallest != index else { return first }
            events.swapAt(index, smallest)
            index = smallest
        }
    }
}
