import Foundation
import GRDB
import NephosCore
import NephosWire

/// Items that the server cannot read any more. What is here of one stays as it is, and makes it whole there only if it is
/// what the server had, or was made from it.
extension DocumentTransaction.Synced {
    /// Whether it says what the item is, for a server that cannot read it any more.
    var canHeal: Bool { item.map { $0.kind != .unspecified && $0.kind != .coming } ?? false }

    /// Keeps of a damaged item what is here, where that is of the server's history.
    ///
    /// - Parameters:
    ///   - mine: What is here.
    ///   - written: Where the server has written what it cannot read.
    ///   - end: How far its history and that of what is here are the same.
    /// - Returns: Whether what is here makes it whole.
    mutating func keep(_ mine: DocumentTransaction.Synced?, written: UInt64, sharedUpTo end: UInt64) -> Bool {
        // Of two histories the numbers say nothing of each other: neither is the other's past.
        guard let mine, mine.body?.isEmpty == false, min(mine.sequence, written) <= end else { return false }
        body = mine.body
        guard mine.sequence >= written else {
            // What is here came before it, and is never taken for it.
            sequence = min(sequence, mine.sequence)
            return false
        }
        // Of another history it has what is to come to this one, and is no later a state of it.
        sequence = min(sequence, written)
        return mine.canHeal
    }
}

extension DocumentTransaction {
    /// Stores that the server cannot read the item. What is here of another history is kept apart until it can: then it is
    /// offered, as what is here of any item that the server has otherwise.
    func put(damaged item: Synced, replacing old: Synced?, _ state: inout ScopeState) throws {
        var old = old
        if let kept = old, kept.canHeal, item.body?.isEmpty ?? true {
            try doubt(kept, isNewer: true, &state)
            old = nil
        }
        try store(item, replacing: old, &state)
        try refresh(item.name)
    }

    // MARK: Requests that wait

    /// Counts that a request was refused once more because an item is damaged that it changes.
    ///
    /// - Returns: How often by now, and since when, which is never in the future: the clock may have been ahead.
    func countHealing(at position: Int64, now: Timestamp) throws -> (count: Int, since: Timestamp) {
        try cached(
            "UPDATE document_changes SET healings = healings + 1, healings_since = "
                + "CASE WHEN healings_since BETWEEN 1 AND ?2 THEN healings_since ELSE ?2 END WHERE position = ?1"
        ).execute(arguments: [position, Int64(clamping: now.milliseconds)])
        let row = try Row.fetchOne(
            cached("SELECT max(healings), min(healings_since) FROM document_changes WHERE position = ?1"),
            arguments: [position])
        return (
            row?[0] as Int? ?? 0, Timestamp(milliseconds: UInt64(clamping: row?[1] as Int64? ?? 0))
        )
    }

    /// The requests that wait for an item to be whole again.
    func waitingForHealing() throws -> Set<Int64> {
        try Set(
            Int64.fetchCursor(
                cached("SELECT position FROM document_changes INDEXED BY document_changes_healing WHERE healings > 0")))
    }
}
