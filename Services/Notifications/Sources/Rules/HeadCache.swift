internal import Core

/// The last known head of each scope, so that a subscriber is told at once.
///
/// Bounded: at its limit the older half is let go of, and asked for again when needed.
struct HeadCache {
    private let limit: Int
    private var recent: [ScopeKey: ChangeToken] = [:]
    private var older: [ScopeKey: ChangeToken] = [:]

    init(limit: Int = 200_000) { self.limit = limit }

    subscript(key: ScopeKey) -> ChangeToken? { recent[key] ?? older[key] }

    /// Takes note of a head; an older one than the known is ignored.
    mutating func note(_ token: ChangeToken, of key: ScopeKey) {
        if let known = self[key], known >= token { return }
        recent[key] = token
        if recent.count > limit / 2 {
            older = recent
            recent = [:]
        }
    }

    /// Forgets the heads of a service that was restored: they may be of a lost future.
    mutating func forget(_ service: ServiceName) {
        recent = recent.filter { $0.key.service != service }
        older = older.filter { $0.key.service != service }
    }
}
