internal import HeapModule

/// What is going to happen, the next first. What happens at the same time keeps the order in which it was added.
struct EventQueue {
    struct Event: Comparable {
        var time: Duration
        var number: UInt64
        var action: () -> Void

        static func == (one: Event, other: Event) -> Bool { one.number == other.number }
        static func < (one: Event, other: Event) -> Bool { (one.time, one.number) < (other.time, other.number) }
    }

    private var events = Heap<Event>()
    private var count: UInt64 = 0

    var next: Duration? { events.min?.time }

    mutating func add(at time: Duration, _ action: @escaping () -> Void) {
        count += 1
        events.insert(Event(time: time, number: count, action: action))
    }

    mutating func removeFirst() -> Event? { events.popMin() }
}
