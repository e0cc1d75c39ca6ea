import Foundation
import GRDB
import NephosCore
import NephosWire

/// Items that a listing lacks, though nothing told that they were removed: nobody knows yet what became of them. They are
/// read as they were, under what waits, until the service has said.
extension DocumentTransaction {
    static let doubts = """
        CREATE TABLE document_doubts (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            sequence INTEGER NOT NULL, body BLOB NOT NULL,
            is_newer INTEGER NOT NULL, position INTEGER, is_unknown INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;

        """

    /// An item of which nobody knows what became of it.
    struct Doubt {
        var item: Synced
        /// It was changed here later than the history goes that the service and this device have in common.
        var isNewer: Bool
    }

    /// Most containers never have any, and then nothing is looked up.
    func hasDoubts() throws -> Bool {
        if let known = known.hasDoubts { return known }
        let hasDoubts =
            try Bool.fetchOne(
                cached("SELECT EXISTS (SELECT 1 FROM document_doubts WHERE account = ?1 AND container = ?2)"),
                arguments: arguments()) ?? false
        known.hasDoubts = hasDoubts
        return hasDoubts
    }

    /// Takes the item out of what the server has told, and keeps it.
    func doubt(_ item: Synced, isNewer: Bool, _ state: inout ScopeState) throws {
        if let digest = item.digest(key: state.digestKey) { state.digest.remove(digest) }
        try cached("DELETE FROM documents WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.name.rawValue))
        // What is kept apart of an item that the server could not read is all that is here of it.
        if item.body?.isEmpty ?? true, try doubt(of: item.name) != nil { return try refresh(item.name) }
        known.hasDoubts = true
        try cached(
            "INSERT OR REPLACE INTO document_doubts (account, container, item, sequence, body, is_newer) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        ).execute(
            arguments: arguments(item.name.rawValue, Int64(bitPattern: item.sequence), item.body ?? Data(), isNewer))
        try refresh(item.name)
    }

    func doubt(of name: ItemName) throws -> Doubt? {
        guard try hasDoubts() else { return nil }
        return try Row.fetchOne(
            cached(
                "SELECT item, sequence, body, is_newer FROM document_doubts "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3"), arguments: arguments(name.rawValue)
        ).map { Doubt(item: Self.synced($0), isNewer: $0["is_newer"]) }
    }

    /// What became of the item is known: it is gone, or is offered, or the server has told of it.
    func endDoubt(of name: ItemName) throws {
        try removeDoubt(of: name)
        try refresh(name)
    }

    /// The same, where what is read of it is made anew anyway.
    func removeDoubt(of name: ItemName) throws {
        guard try hasDoubts() else { return }
        try cached("DELETE FROM document_doubts WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(name.rawValue))
    }

    // MARK: Questions

    private static let isAsked = "position IN (SELECT position FROM outbox)"

    /// Nobody has been asked, but for what waits to be asked: another listing has come.
    func askAnew() throws {
        guard try hasDoubts() else { return }
        try cached(
            "UPDATE document_doubts SET position = NULL, is_unknown = 0 "
                + "WHERE account = ?1 AND container = ?2 AND NOT coalesce(\(Self.isAsked), 0)"
        ).execute(arguments: arguments())
    }

    func unasked(limit: Int) throws -> [DocumentID] {
        guard try hasDoubts() else { return [] }
        return try String.fetchAll(
            cached(
                "SELECT item FROM document_doubts WHERE account = ?1 AND container = ?2 AND position IS NULL "
                    + "ORDER BY item LIMIT ?3"), arguments: arguments(limit)
        ).compactMap { DocumentID($0) }
    }

    func setAsked(_ items: [DocumentID], at position: Int64) throws {
        for item in items {
            try cached(
                "UPDATE document_doubts SET position = ?4 WHERE account = ?1 AND container = ?2 AND item = ?3"
            ).execute(arguments: arguments(item.description, position))
        }
    }

    func setUnknown(_ item: DocumentID) throws {
        try cached(
            "UPDATE document_doubts SET is_unknown = 1 WHERE account = ?1 AND container = ?2 AND item = ?3"
        ).execute(arguments: arguments(item.description))
    }

    /// Whether a question waits for its answer.
    func hasQuestions() throws -> Bool {
        try Bool.fetchOne(
            cached(
                "SELECT EXISTS (SELECT 1 FROM document_doubts WHERE account = ?1 AND container = ?2 "
                    + "AND is_unknown = 0 AND \(Self.isAsked))"), arguments: arguments()) ?? false
    }

    /// What the service knows nothing of, in the order of its names, one by one: after a restore that may be all that
    /// there was. The body ends no doubts.
    func forEachUnknown(_ body: (Synced) throws -> Void) throws {
        let statement = try rows.database.makeStatement(
            sql: "SELECT item, sequence, body FROM document_doubts WHERE account = ?1 AND container = ?2 "
                + "AND is_unknown = 1 ORDER BY item")
        let found = try Row.fetchCursor(statement, arguments: arguments())
        while let row = try found.next() { try body(Self.synced(row)) }
    }

    /// The item, if the service knows nothing of it.
    func unknownItem(_ id: DocumentID) throws -> Synced? {
        try Row.fetchOne(
            cached(
                "SELECT item, sequence, body FROM document_doubts WHERE account = ?1 AND container = ?2 "
                    + "AND item = ?3 AND is_unknown = 1"), arguments: arguments(id.description)
        ).map(Self.synced)
    }

    /// How many are ended at a time.
    private static let endedEach = 1000

    /// What became of these is known: they are offered.
    func endUnknown() throws {
        var after = ""
        while true {
            let names = try String.fetchAll(
                cached(
                    "SELECT item FROM document_doubts WHERE account = ?1 AND container = ?2 AND is_unknown = 1 "
                        + "AND item > ?3 ORDER BY item LIMIT \(Self.endedEach)"), arguments: arguments(after))
            for name in names { try endDoubt(of: ItemName(name)) }
            guard names.count == Self.endedEach, let last = names.last else { return }
            after = last
        }
    }
}
