import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// Items whose sync somebody has paused: their contents are neither sent nor fetched until it is resumed.
///
/// What brings contents of such an item is always a request of its own, so that nothing else waits with it.
extension DocumentTransaction {
    static let pauses = """
        CREATE TABLE document_pauses (
            account TEXT NOT NULL, container TEXT NOT NULL, item TEXT NOT NULL,
            paused_at INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, error BLOB,
            PRIMARY KEY (account, container, item)
        ) WITHOUT ROWID;

        """

    /// Items of one container that may be paused.
    static let pausesMax = 10_000

    enum PauseState: Int64 {
        /// Nothing of it goes.
        case paused = 0
        /// What waits is sent; if that goes well, it is paused no longer; if it conflicts, it stays so.
        case resuming = 1
        /// The same, and it stays paused in any case.
        case uploading = 2
    }

    struct Pause {
        var state: PauseState
        /// Why it was not resumed; nil: nobody has tried, or nobody knows yet.
        var error: CloudError?
    }

    func pauses() throws -> [DocumentID: Pause] {
        if let pauses = known.pauses { return pauses }
        let rows = try Row.fetchAll(
            cached("SELECT item, state, error FROM document_pauses WHERE account = ?1 AND container = ?2"),
            arguments: arguments())
        let pauses = Dictionary(
            rows.compactMap { row in
                DocumentID(row["item"] as String).map {
                    (
                        $0,
                        Pause(
                            state: PauseState(rawValue: row["state"]) ?? .paused,
                            error: (row["error"] as Data?).flatMap(StoredError.decode))
                    )
                }
            }
        ) { $1 }
        known.pauses = pauses
        return pauses
    }

    func pause(of item: DocumentID) throws -> Pause? { try pauses()[item] }

    /// - Parameter pause: Nil: it is paused no longer.
    func setPause(_ pause: Pause?, of item: DocumentID, now: Timestamp) throws {
        if let pause {
            try cached(
                "INSERT INTO document_pauses (account, container, item, paused_at, state, error) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (account, container, item) "
                    + "DO UPDATE SET state = excluded.state, error = excluded.error"
            ).execute(
                arguments: arguments(
                    item.description, Int64(clamping: now.milliseconds), pause.state.rawValue,
                    pause.error.map(StoredError.encode)))
        } else {
            try cached("DELETE FROM document_pauses WHERE account = ?1 AND container = ?2 AND item = ?3")
                .execute(arguments: arguments(item.description))
        }
        known.pauses = nil
        try touch(item.name)
    }

    /// The item was removed: nobody would find it to resume it, and what waits of it finds a place.
    func removePause(of item: ItemName) throws {
        guard try !pauses().isEmpty else { return }
        try cached("DELETE FROM document_pauses WHERE account = ?1 AND container = ?2 AND item = ?3")
            .execute(arguments: arguments(item.rawValue))
        known.pauses = nil
    }

    // MARK: What waits of them

    /// Requests that bring contents of an item and were not answered yet, the oldest first.
    func contentRequests(of item: DocumentID) throws -> [OutboxOperation] {
        try Int64.fetchAll(
            cached(
                "SELECT DISTINCT position FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 ORDER BY position"),
            arguments: arguments(item.description)
        ).compactMap { position in
            guard let operation = try rows.operation(at: position) else { return nil }
            let request = try WireApplyChanges(serializedBytes: operation.payload)
            return request.changes.contains { $0.item == item.wire && $0.content != nil } ? operation : nil
        }
    }

    /// Requests that a pause keeps here, the oldest first. One that was sent before is on its way.
    func pausedRequests() throws -> [OutboxOperation] {
        guard try !pauses().isEmpty else { return [] }
        let positions = try Int64.fetchAll(
            cached(
                "SELECT DISTINCT c.position FROM document_pauses AS p JOIN document_changes AS c "
                    + "ON c.account = p.account AND c.container = p.container AND c.item = p.item "
                    + "WHERE p.account = ?1 AND p.container = ?2 AND p.state = 0 ORDER BY c.position"),
            arguments: arguments())
        return try positions.compactMap { position in
            guard let operation = try rows.operation(at: position), operation.state == .unsent else { return nil }
            let request = try WireApplyChanges(serializedBytes: operation.payload)
            let isPaused = try request.changes.contains { change in
                guard change.content != nil, let id = DocumentID(bytes: change.item) else { return false }
                return try pause(of: id)?.state == .paused
            }
            return isPaused ? operation : nil
        }
    }

    /// Puts what brings contents of the item, and what has to follow that, into requests of their own, behind all that
    /// waits: so nothing of other items waits with it. Moves, and what describes the item, stay where they are.
    ///
    /// - Parameter make: Names a request, and says who writes it and when.
    /// - Returns: Uploads that may have been begun for requests that are no more.
    /// - Throws: ``CloudError`` `.constraintViolation`: it was changed together with others, under conditions.
    func isolate(
        _ item: DocumentID, _ make: () -> (id: OperationID, now: Timestamp, writer: Int64)
    ) throws -> [Data] {
        var ended: [Data] = []
        let positions = try Int64.fetchAll(
            cached(
                "SELECT DISTINCT position FROM document_changes "
                    + "WHERE account = ?1 AND container = ?2 AND item = ?3 ORDER BY position"),
            arguments: arguments(item.description))
        var (isMade, hasContent) = (false, false)
        for position in positions {
            guard let operation = try rows.operation(at: position), operation.state == .unsent else { continue }
            let request = try WireApplyChanges(serializedBytes: operation.payload)
            var (own, rest) = ([WireDocumentChange](), [WireDocumentChange]())
            for change in request.changes {
                guard change.item == item.wire else {
                    rest.append(change)
                    continue
                }
                if case .create? = change.kind { isMade = true }
                hasContent = hasContent || change.content != nil
                if isMade || hasContent && change.followsContent { own.append(change) } else { rest.append(change) }
            }
            guard !own.isEmpty else { continue }
            try move(own, leaving: rest, of: request, operation, make())
            guard rest.isEmpty, own.contains(where: { $0.content != nil }) else { continue }
            ended.append(request.transferID.isEmpty ? Data(operation.id.bytes) : request.transferID)
        }
        return ended
    }

    private func move(
        _ own: [WireDocumentChange], leaving rest: [WireDocumentChange], of request: WireApplyChanges,
        _ operation: OutboxOperation, _ made: (id: OperationID, now: Timestamp, writer: Int64)
    ) throws {
        // What all of it takes for granted holds for all of it or for nothing.
        guard request.conditions.isEmpty || rest.isEmpty else {
            throw CloudError(
                .constraintViolation,
                "The file was changed together with others, under conditions, and that was not sent. Pause it once it is."
            )
        }
        let versions = Set(own.compactMap(\.content?.version))
        let contents = try contents(at: operation.position)
        func nodes(_ isOwn: Bool) throws -> [Data] {
            let named = try contents.filter { versions.contains($0.version.wire) == isOwn && !$0.chunks.isEmpty }
                .flatMap { try CutChunk.nodes(of: $0.chunks) }
            return request.nodes.isEmpty ? [] : named
        }
        var next = WireApplyChanges()
        next.container = request.container
        next.sourceContainer = request.sourceContainer
        next.conditions = request.conditions
        next.changes = own
        next.nodes = try nodes(true)
        let position = try append(next, id: made.id, writer: made.writer, now: made.now)
        for content in contents where versions.contains(content.version.wire) {
            try moveContent(content.version.wire, to: position)
        }
        // What leaves another container waits for both parts.
        try cached(
            "UPDATE document_moves SET last = ?4 WHERE account = ?1 AND container = ?2 AND first <= ?3 AND last >= ?3"
        ).execute(arguments: arguments(operation.position, position))
        guard !rest.isEmpty else {
            try removeChanges(at: operation.position)
            return try rows.removeOperation(at: operation.position)
        }
        var left = request
        left.changes = rest
        left.nodes = try nodes(false)
        _ = try rows.setPayload(left.serializedData(), at: operation.position)
        try setChanges(rest, at: operation.position)
    }
}

extension WireDocumentChange {
    /// Whether it means another thing before a content of its item than after it.
    var followsContent: Bool {
        switch kind {
        case .place, .attributes: false
        default: true
        }
    }
}
