import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// Items that leave their container for another once the server has all of their copy there.
///
/// `document_moves` has them by the container that they go to, with the positions of the requests that bring the copy.
/// Whatever takes the last of those out of the queue finishes the move in the same transaction: a crash leaves both, or
/// the item in the trash.
extension DocumentTransaction {
    // A content with a `source` has no bytes here: the chunks of that container do for it.
    static let moves = """
        CREATE TABLE document_moves (
            account TEXT NOT NULL, container TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
            source TEXT NOT NULL, item TEXT NOT NULL, change BLOB NOT NULL,
            PRIMARY KEY (account, container, first, source, item)
        ) WITHOUT ROWID;
        CREATE INDEX document_moves_by_source ON document_moves (account, source);

        """

    struct Move {
        /// The container that it leaves.
        var source: String
        var item: DocumentID
        /// What puts it into the trash there, unless it is another by then.
        var change: WireDocumentChange

        init(source: String, item: HeldDocument, change: WireDocumentChange) {
            (self.source, self.item, self.change) = (source, item.id, change)
        }

        fileprivate init?(_ row: Row) throws {
            guard let item = DocumentID(row["item"] as String) else { return nil }
            (source, self.item) = (row["source"], item)
            change = try WireDocumentChange(serializedBytes: row["change"] as Data)
        }
    }

    /// Notes that the item leaves the other container once the requests at these positions are answered.
    func add(_ move: Move, waitingFor positions: ClosedRange<Int64>) throws {
        try cached(
            "INSERT OR REPLACE INTO document_moves (account, container, first, last, source, item, change) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(
            arguments: arguments(
                positions.lowerBound, positions.upperBound, move.source, move.item.description,
                try move.change.serializedData()))
        try other(move.source).touch(move.item.name)
    }

    /// Of the item's changes that wait, the first and the last; nil: none does.
    func waitingPositions(of item: DocumentID) throws -> ClosedRange<Int64>? {
        let row = try Row.fetchOne(
            cached(
                "SELECT min(position) AS first, max(position) AS last FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3"),
            arguments: arguments(item.description))
        guard let first = row?["first"] as Int64?, let last = row?["last"] as Int64? else { return nil }
        return first...last
    }

    /// Moves that wait for the request at this position.
    private func moves(waitingFor position: Int64) throws -> [Move] {
        try Row.fetchAll(
            cached(
                "SELECT source, item, change FROM document_moves "
                    + "WHERE account = ?1 AND container = ?2 AND first <= ?3 AND last >= ?3"),
            arguments: arguments(position)
        ).compactMap { try Move($0) }
    }

    /// The request at this position is answered, and out of the queue.
    ///
    /// - Returns: Moves that have nothing to wait for any more.
    func takeFinishedMoves(after position: Int64) throws -> [Move] {
        let finished = try Row.fetchAll(
            cached(
                "SELECT source, item, change FROM document_moves AS m "
                    + "WHERE account = ?1 AND container = ?2 AND first <= ?3 AND last >= ?3 AND NOT EXISTS ("
                    + "SELECT 1 FROM outbox AS o WHERE o.account = ?1 AND o.service = 'documents' AND o.scope = ?2 "
                    + "AND o.position BETWEEN m.first AND m.last)"),
            arguments: arguments(position)
        ).compactMap { try Move($0) }
        for move in finished { try end(move) }
        return finished
    }

    /// Something of the request at this position was refused, or nobody knows any more whether the server has it.
    ///
    /// - Returns: Moves that come to nothing by that.
    func takeFailedMoves(at position: Int64) throws -> [Move] {
        let failed = try moves(waitingFor: position)
        for move in failed { try end(move) }
        return failed
    }

    private func end(_ move: Move) throws {
        try cached("DELETE FROM document_moves WHERE account = ?1 AND container = ?2 AND source = ?3 AND item = ?4")
            .execute(arguments: arguments(move.source, move.item.description))
        try other(move.source).touch(move.item.name)
    }

    /// Puts what has been copied into this container's trash, unless that was done here already.
    func leave(_ move: Move, id: OperationID, writer: Int64, now: Timestamp) throws {
        guard let item = try document(move.item), !item.isTrashed else { return }
        var request = WireApplyChanges()
        request.container = container
        request.changes = [move.change]
        try append(request, id: id, writer: writer, now: now)
    }

    /// What could not be copied as a whole stays, and a person hears of it.
    ///
    /// - Parameter target: The container that it was to go to.
    func stay(_ move: Move, leavingFor target: String, because error: CloudError?, now: Timestamp) throws {
        var refusal = CloudError(
            .constraintViolation,
            "This was not moved: something of it did not come to the other container. It is in both.",
            details: ["container": target])
        refusal.details["reason"] = error?.message
        let path = try pathText(of: move.item) ?? "?"
        try recordRefusal(of: move.item.name, at: path, refusal, now: now)
        try rows.tell(
            ChangeNotification(
                reason: .quotaViolationChange, changedKeys: [move.item.name], token: try rows.state().head,
                error: refusal))
    }

    /// Items of this container that leave it once another has all of them.
    func leaving() throws -> [HeldDocument] {
        // Nobody may have opened a container in this home with this release.
        try String.fetchAll(
            cached("SELECT DISTINCT item FROM document_moves WHERE account = ?1 AND source = ?2 ORDER BY item"),
            arguments: arguments()
        ).compactMap { try DocumentID($0).flatMap { try document($0) } }
    }
}
