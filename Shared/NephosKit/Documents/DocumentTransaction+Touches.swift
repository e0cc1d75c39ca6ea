import Foundation
import GRDB
import NephosCore

/// What live queries read: which items may have changed since they looked, whichever process changed them.
///
/// Each transaction that changes what is read of an item adds its name to a log, which is bounded; whoever lags behind
/// what is kept of it looks at everything again.
extension DocumentTransaction {
    /// Entries that are kept, of all containers together.
    static let touchesMax: Int64 = 65_536
    /// How often older ones are removed, in entries.
    private static let sweepEach: Int64 = 1024
    /// Of how many items of a transaction it is known that they were noted. Some are noted twice where it changes more.
    private static let knownMax = 4096

    /// What is read of the item may be other than before.
    func touch(_ name: ItemName) throws {
        guard !name.isEmpty, known.touched.insert(name).inserted else { return }
        if known.touched.count > Self.knownMax { known.touched = [name] }
        try cached("INSERT INTO document_touches (account, container, item) VALUES (?1, ?2, ?3)")
            .execute(arguments: arguments(name.rawValue))
        let latest = rows.database.lastInsertedRowID
        guard latest % Self.sweepEach == 0 else { return }
        try cached("DELETE FROM document_touches WHERE revision <= ?1").execute(arguments: [latest - Self.touchesMax])
    }

    /// The same of everything that the request changes.
    func touchItems(at position: Int64) throws {
        let items = try String.fetchAll(
            cached("SELECT DISTINCT item FROM document_changes WHERE position = ?1"), arguments: [position])
        for item in items { try touch(ItemName(item)) }
    }

    /// The place of the newest entry.
    func latestTouch() throws -> Int64 {
        try Int64.fetchOne(cached("SELECT seq FROM sqlite_sequence WHERE name = 'document_touches'")) ?? 0
    }

    /// Items that may have changed after the entry at this place, and how far that goes; more may follow.
    ///
    /// - Returns: Nil: some of it is not kept any more.
    func touched(after revision: Int64, limit: Int) throws -> (items: [DocumentID], upTo: Int64)? {
        let latest = try latestTouch()
        guard latest > revision else { return ([], revision) }
        let oldest = try Int64.fetchOne(cached("SELECT min(revision) FROM document_touches")) ?? latest + 1
        guard oldest <= revision + 1 else { return nil }
        let found = try Row.fetchAll(
            cached(
                "SELECT revision, item FROM document_touches WHERE revision > ?3 AND account = ?1 AND container = ?2 "
                    + "ORDER BY revision LIMIT ?4"),
            arguments: arguments(revision, limit))
        let upTo = found.count < limit ? latest : found.last.map { $0["revision"] as Int64 } ?? latest
        return (Set(found.compactMap { DocumentID($0["item"] as String) }).sorted(), upTo)
    }
}
