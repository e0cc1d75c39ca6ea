internal import NephosCore

internal import struct Foundation.Data

/// The last known head of each scope, so that a subscriber is told at once.
///
/// Bounded: at its limit the older half is let go of, and asked for again when needed.
struct HeadCache {
    private let limit: Int
    private var recent: [ScopeKey: Head] = [:]
    private var older: [ScopeKey: Head] = [:]

    struct Head: Hashable {
        var token: ChangeToken
        /// The bytes of the scope's ``SetDigest/mark``; empty: not known.
        var digest: Data
    }

    init(limit: Int = 200_000) { self.limit = limit }

    subscript(key: ScopeKey) -> Head? { recent[key] ?? older[key] }

    /// Takes note of a head; an older one than the known is ignored. At one and the same head a digest may be another, where
    /// one that was damaged was put right.
    mutating func note(_ head: Head, of key: ScopeKey) {
        if let known = self[key] {
            guard known.token < head.token || known.token == head.token && !head.digest.isEmpty, known != head else {
                return
            }
        }
        recent[key] = head
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
