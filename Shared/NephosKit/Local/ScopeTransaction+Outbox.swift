import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// The scope's operations that wait to be sent, in the order in which they were written.
extension ScopeTransaction {
    private static let columns =
        "position, operation, head, state, writer, created, attempts, next_attempt, error, edits"

    /// The oldest operations.
    ///
    /// - Parameter withPayloads: Whether their contents are read too, of which there may be a quarter of a megabyte each.
    func operations(
        limit: Int = .max, where condition: String = "1", withPayloads: Bool = true
    ) throws -> [OutboxOperation] {
        try Row.fetchAll(
            database.makeStatement(
                sql: "SELECT \(Self.columns)\(withPayloads ? ", payload" : "") FROM outbox "
                    + "WHERE account = ?1 AND service = ?2 AND scope = ?3 AND \(condition) "
                    + "ORDER BY position LIMIT ?4"),
            arguments: [account, service, scope.name, limit]
        ).map { row in
            let head = (row["head"] as Data?).flatMap { try? WireChangeToken(serializedBytes: $0) }
            return OutboxOperation(
                position: row["position"],
                id: OperationID(bytes: row["operation"] as Data) ?? OperationID(high: 0, low: 0),
                head: head.map { ChangeToken($0) } ?? .zero,
                state: OutboxOperation.State(rawValue: row["state"]) ?? .unsent,
                writer: row["writer"],
                created: Timestamp(milliseconds: UInt64(bitPattern: row["created"] as Int64)),
                attempts: row["attempts"],
                nextAttempt: Timestamp(milliseconds: UInt64(bitPattern: row["next_attempt"] as Int64)),
                error: (row["error"] as Data?).flatMap(StoredError.decode),
                payload: withPayloads ? row["payload"] as Data? ?? Data() : Data(), edits: row["edits"])
        }
    }

    /// What may be sent, the oldest first, without contents: it is looked at with each of them that is sent.
    func sendable(limit: Int) throws -> [OutboxOperation] {
        try operations(limit: limit, where: "state <> 'blocked'", withPayloads: false)
    }

    /// The operation at this position; nil: it is done with.
    func operation(at position: Int64) throws -> OutboxOperation? {
        try operations(limit: 1, where: "position = \(position)").first
    }

    /// An operation's content; empty: it has none here, or is done with.
    func payload(at position: Int64) throws -> Data {
        try Data.fetchOne(cached("SELECT payload FROM outbox WHERE position = ?1"), arguments: [position]) ?? Data()
    }

    /// The first that waits for a person.
    func firstBlocked() throws -> OutboxOperation? {
        try operations(limit: 1, where: "state = 'blocked'", withPayloads: false).first
    }

    func operationCount() throws -> Int {
        try Int.fetchOne(
            cached("SELECT count(*) FROM outbox WHERE account = ?1 AND service = ?2 AND scope = ?3"),
            arguments: [account, service, scope.name]) ?? 0
    }

    /// Where the operation is that is sent last; nil: none waits.
    func newestPosition() throws -> Int64? {
        try Int64.fetchOne(
            cached("SELECT max(position) FROM outbox WHERE account = ?1 AND service = ?2 AND scope = ?3"),
            arguments: [account, service, scope.name])
    }

    /// - Parameter payload: Its content; empty where that is in its model's own table.
    /// - Returns: Its position.
    @discardableResult
    func append(_ payload: Data = Data(), id: OperationID, writer: Int64, now: Timestamp) throws -> Int64 {
        try cached(
            "INSERT INTO outbox (account, service, scope, operation, state, writer, created, payload) "
                + "VALUES (?1, ?2, ?3, ?4, 'unsent', ?5, ?6, ?7)"
        ).execute(arguments: [
            account, service, scope.name, Data(id.bytes), writer, Int64(bitPattern: now.milliseconds), payload,
        ])
        return database.lastInsertedRowID
    }

    /// The same before whatever waits.
    func prepend(_ payload: Data, id: OperationID, writer: Int64, now: Timestamp) throws -> Int64 {
        let position = try firstPlace(of: 1)
        try put(payload, at: position, id: id, writer: writer, now: now)
        return position
    }

    /// Where the first of so many goes that come one after the other before whatever waits.
    func firstPlace(of count: Int) throws -> Int64 {
        let first = try Int64.fetchOne(cached("SELECT min(position) FROM outbox")) ?? 1
        return min(first, 1) - Int64(count)
    }

    /// The same as appending it, at a place that is free.
    func put(_ payload: Data, at position: Int64, id: OperationID, writer: Int64, now: Timestamp) throws {
        try cached(
            "INSERT INTO outbox (position, account, service, scope, operation, state, writer, created, payload) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, 'unsent', ?6, ?7, ?8)"
        ).execute(arguments: [
            position, account, service, scope.name, Data(id.bytes), writer, Int64(bitPattern: now.milliseconds),
            payload,
        ])
    }

    /// Whether the operation still waits, under this id.
    func isWaiting(_ operation: OutboxOperation) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM outbox WHERE position = ?1 AND operation = ?2"),
            arguments: [operation.position, Data(operation.id.bytes)]) ?? false
    }

    /// The same unless another process has put something else in its place: it may be late.
    ///
    /// - Parameter id: What it was sent as; it may have another by now.
    func update(_ operation: OutboxOperation, sentAs id: OperationID) throws {
        var sent = operation
        sent.id = id
        if try isWaiting(sent) { try update(operation) }
    }

    /// Keeps what was read in this transaction as it is now.
    func update(_ operation: OutboxOperation) throws {
        try cached(
            "UPDATE outbox SET operation = ?2, state = ?3, attempts = ?4, next_attempt = ?5, error = ?6, "
                + "head = ?7 WHERE position = ?1"
        ).execute(arguments: [
            operation.position, Data(operation.id.bytes), operation.state.rawValue, operation.attempts,
            Int64(bitPattern: operation.nextAttempt.milliseconds), operation.error.map(StoredError.encode),
            operation.head == .zero ? nil : try WireChangeToken(operation.head).serializedData(),
        ])
    }

    /// Puts another operation into an operation's place.
    func replace(_ operation: OutboxOperation) throws {
        try update(operation)
        try cached("UPDATE outbox SET payload = ?2, edits = edits + 1 WHERE position = ?1")
            .execute(arguments: [operation.position, operation.payload])
    }

    /// Gives an operation that was never sent another content.
    ///
    /// - Returns: False: it was sent, or is gone.
    func setPayload(_ payload: Data, at position: Int64) throws -> Bool {
        try cached("UPDATE outbox SET payload = ?2, edits = edits + 1 WHERE position = ?1 AND state = 'unsent'")
            .execute(arguments: [position, payload])
        return database.changesCount > 0
    }

    func removeOperation(at position: Int64) throws {
        try cached("DELETE FROM outbox WHERE position = ?1").execute(arguments: [position])
    }

    /// Lets everything that waited for a person be tried again.
    ///
    /// - Returns: How much that was.
    @discardableResult
    func unblock() throws -> Int {
        try cached(
            "UPDATE outbox SET state = 'sent', next_attempt = 0 "
                + "WHERE state = 'blocked' AND account = ?1 AND service = ?2 AND scope = ?3"
        ).execute(arguments: [account, service, scope.name])
        return database.changesCount
    }

    /// Whatever waits for its next attempt may have it now.
    func hasten() throws {
        try cached(
            "UPDATE outbox SET next_attempt = 0 "
                + "WHERE state <> 'blocked' AND account = ?1 AND service = ?2 AND scope = ?3"
        ).execute(arguments: [account, service, scope.name])
    }

    /// The operation as it is now, marked as sent; nil: it is gone. From here on
    /// its id and its content belong together.
    ///
    /// It gets its id only now: a home that was restored from a copy may hold,
    /// under an id that was sent since, what the operation was before.
    ///
    /// - Parameter counts: Whether the server is there, so that this is an attempt; else that is known by its end.
    func freeze(
        _ operation: OutboxOperation, counts: Bool = true, makeID: () -> OperationID
    ) throws -> OutboxOperation? {
        guard var current = try operations(limit: 1, where: "position = \(operation.position)").first else {
            return nil
        }
        current.isFirst = current.state == .unsent && current.attempts == 0
        current.isCounted = counts
        if current.state == .unsent {
            current.id = makeID()
            current.head = try state().head
        }
        current.state = .sent
        if counts { current.attempts += 1 }
        try update(current)
        return current
    }
}
