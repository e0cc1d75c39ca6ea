import NephosCore
import NephosKit
import Synchronization

/// What a watch has said of where a scope stands.
final class Said: Sendable {
    let scope: Scope
    /// Begins a line that is about it; empty: it is the only one.
    let label: String

    private struct Last {
        var said: Standing?
        /// What it was when it was looked at last, and since when.
        var seen: (standing: Standing, since: ContinuousClock.Instant)?
        var fetched: ContinuousClock.Instant?
    }

    private let last = Mutex(Last())

    init(_ scope: Scope, isOneOfMany: Bool) {
        self.scope = scope
        label = isOneOfMany ? scope.label + ": " : ""
    }

    /// Whether it was not in sync when it was looked at last, or is so unsaid: somebody waits to hear that it is. So
    /// does one who was told that there is more to it.
    var isDue: Bool {
        last.withLock { last in
            guard let seen = last.seen?.standing else { return false }
            return seen.state != .inSync || last.said?.state != .inSync || last.said?.notes.isEmpty != true
        }
    }

    /// Whether the server has been heard since.
    func hasFetched(since time: ContinuousClock.Instant) -> Bool {
        last.withLock { $0.fetched.map { $0 > time } ?? false }
    }

    /// Whether this has to be said. What only passes is no news: a write on its way, a comparison that goes on.
    ///
    /// - Parameter isInOrder: All that came before it has been printed; else events may still be on their way.
    func isNews(_ standing: Standing, isInOrder: Bool) -> Bool {
        last.withLock { last in
            if isInOrder { last.fetched = .now }
            if last.seen?.standing.isSameCause(as: standing) != true { last.seen = (standing, .now) }
            let age = last.seen.map { $0.since.duration(to: .now) } ?? .zero
            let patience: Duration =
                switch standing.state {
                case .refused, .outOfStep, .problem, .leftBehind, .damaged: .zero
                case .inSync: isInOrder ? .zero : .milliseconds(400)
                case .pending, .notFetched, .notCompared: .seconds(3)
                }
            guard age >= patience, last.said?.isSameCause(as: standing) != true else { return false }
            last.said = standing
            return true
        }
    }
}

/// What the account's devices are called, asked for when a name is missing.
actor WatchedNames {
    private let session: Session
    private let limit: Duration
    private var names: DeviceNames?

    init(_ session: Session, within limit: Duration) {
        self.session = session
        self.limit = limit
    }

    func name(of device: DeviceID) async -> String? {
        if let name = names?.known(device) { return name }
        let fresh = await DeviceNames(session, within: limit)
        names = fresh
        return fresh.known(device)
    }
}
