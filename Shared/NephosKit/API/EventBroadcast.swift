import DequeModule
import NephosCore
import Synchronization

/// Hands each event to everyone who listens for such. Once it has finished, there is nothing to listen to.
///
/// What a listener has not read yet is bounded in events and bytes (``Backlog``).
final class EventBroadcast: Sendable {
    private struct Listener {
        weak var backlog: Backlog?
        var wants: @Sendable (DeviceEvent) -> Bool
    }

    private struct State {
        var listeners: [Listener] = []
        var isFinished = false
    }

    private let state = Mutex(State())

    /// - Parameter wants: Whether the listener is told of it. It is asked on the device's loop.
    func subscribe(_ wants: @escaping @Sendable (DeviceEvent) -> Bool) -> AsyncStream<DeviceEvent> {
        let backlog = Backlog()
        let isFinished = state.withLock { state in
            state.listeners.removeAll { $0.backlog == nil }
            if !state.isFinished { state.listeners.append(Listener(backlog: backlog, wants: wants)) }
            return state.isFinished
        }
        if isFinished { backlog.finish() }
        // Nobody else keeps it: it is gone with the stream.
        return AsyncStream { await backlog.next() }
    }

    func send(_ event: DeviceEvent) {
        for listener in state.withLock(\.listeners) where listener.wants(event) { listener.backlog?.take(event) }
    }

    func finish() {
        let last = state.withLock { state in
            defer { state = State(isFinished: true) }
            return state.listeners
        }
        for listener in last { listener.backlog?.finish() }
    }
}

/// What one listener has not read yet.
///
/// One that lags keeps what has changed longer than to what: above ``wholeBytesMax`` events come without the items' states,
/// which the listener can read where they are; above ``bytesMax`` or ``countMax`` the oldest go.
private final class Backlog: Sendable {
    private static let countMax = 10_000
    private static let wholeBytesMax = 8 << 20
    private static let bytesMax = 16 << 20

    private struct State {
        var events: Deque<(event: DeviceEvent, bytes: Int)> = []
        var bytes = 0
        var isFinished = false
        /// Waits for an event; there is none then.
        var reader: CheckedContinuation<DeviceEvent?, Never>?

        mutating func removeFirst() -> DeviceEvent? {
            guard let first = events.popFirst() else { return nil }
            bytes -= first.bytes
            return first.event
        }

        mutating func append(_ event: DeviceEvent) {
            var kept = (event: event, bytes: event.bytes)
            if bytes + kept.bytes > Backlog.wholeBytesMax {
                let event = event.withoutStates
                kept = (event, event.bytes)
            }
            events.append(kept)
            bytes += kept.bytes
            while events.count > 1, bytes > Backlog.bytesMax || events.count > Backlog.countMax { _ = removeFirst() }
        }
    }

    private let state = Mutex(State())

    /// The next event; nil: there is none any more.
    func next() async -> DeviceEvent? {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let (former, event): (CheckedContinuation<DeviceEvent?, Never>?, DeviceEvent??) =
                    state.withLock { state in
                        if let event = state.removeFirst() { return (nil, event) }
                        if state.isFinished { return (nil, .some(nil)) }
                        // A stream has one reader; a second takes the first one's place.
                        defer { state.reader = continuation }
                        return (state.reader, nil)
                    }
                former?.resume(returning: nil)
                if let event { continuation.resume(returning: event) }
            }
        } onCancel: {
            finish()
        }
    }

    /// Whoever waits for it gets it; else it is kept.
    func take(_ event: DeviceEvent) {
        // Both at one go: nobody may begin to wait in between.
        let reader = state.withLock { state -> CheckedContinuation<DeviceEvent?, Never>? in
            defer { state.reader = nil }
            if state.reader == nil, !state.isFinished { state.append(event) }
            return state.reader
        }
        reader?.resume(returning: event)
    }

    /// What was kept can be read still.
    func finish() {
        let reader = state.withLock { state in
            state.isFinished = true
            defer { state.reader = nil }
            return state.reader
        }
        reader?.resume(returning: nil)
    }
}

extension DeviceEvent {
    /// What it is of; nil: of the account.
    var scope: ScopeID? {
        switch self {
        case .change(let id, _), .didFetchChanges(let id, _): id
        case .accountChanged, .storage: nil
        }
    }

    /// Of one without anything in it.
    private static let bytesMin = 512

    /// About as many as it takes in memory.
    fileprivate var bytes: Int {
        switch self {
        case .change(_, let notification):
            notification.changedKeys.reduce(Self.bytesMin) { $0 + $1.bytesKept }
                + notification.items.reduce(0) {
                    $0 + $1.key.bytesKept + ($1.value?.canonicalBytes.count ?? 0) + Self.bytesMin
                }
        case .didFetchChanges(_, let status):
            status.pending.reduce(Self.bytesMin) { $0 + $1.keys.reduce(Self.bytesMin) { $0 + $1.bytesKept } }
                + status.refused.reduce(0) {
                    $0 + $1.key.bytesKept + ($1.value?.canonicalBytes.count ?? 0) + Self.bytesMin
                }
        case .accountChanged, .storage: Self.bytesMin
        }
    }

    /// The same with the names of what has changed alone.
    fileprivate var withoutStates: DeviceEvent {
        guard case .change(let id, var notification) = self else { return self }
        notification.items = []
        return .change(id, notification)
    }
}

extension ItemName {
    fileprivate var bytesKept: Int { rawValue.utf8.count + 32 }
}
