internal import Core
internal import GRDBSQLite

/// The engine's one transaction, begun and ended again for each group, over
/// statements that stay prepared.
///
/// It steps SQLite directly, on GRDB's connection: a group runs thousands of
/// small statements, and what GRDB does around each costs more than the statement.
final class SQLiteTransaction: Transaction {
    /// A prepared statement. It holds its ``SQL``, so that the object's identity stays its own.
    private final class Prepared {
        let sql: SQL
        let handle: OpaquePointer
        let parameterCount: Int
        var isRunning = false

        init(_ sql: SQL, on connection: OpaquePointer) throws {
            self.sql = sql
            var handle: OpaquePointer?
            let code = sqlite3_prepare_v3(connection, sql.text, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &handle, nil)
            guard code == SQLITE_OK, let handle else {
                var error = SQLiteFailure.error(code)
                error.details["sqlite_message"] = String(cString: sqlite3_errmsg(connection))
                throw error
            }
            self.handle = handle
            parameterCount = Int(sqlite3_bind_parameter_count(handle))
        }

        deinit { sqlite3_finalize(handle) }
    }

    private struct Row: SQLRow {
        let handle: OpaquePointer

        func isNull(_ column: Int) -> Bool { sqlite3_column_type(handle, Int32(column)) == SQLITE_NULL }
        func integer(_ column: Int) -> Int64 { sqlite3_column_int64(handle, Int32(column)) }
        func real(_ column: Int) -> Double { sqlite3_column_double(handle, Int32(column)) }

        func text(_ column: Int) -> String {
            guard let start = sqlite3_column_text(handle, Int32(column)) else { return "" }
            let count = Int(sqlite3_column_bytes(handle, Int32(column)))
            return String(decoding: UnsafeBufferPointer(start: start, count: count), as: UTF8.self)
        }

        func blob(_ column: Int) -> [UInt8] {
            guard let start = sqlite3_column_blob(handle, Int32(column)) else { return [] }
            let count = Int(sqlite3_column_bytes(handle, Int32(column)))
            return [UInt8](UnsafeRawBufferPointer(start: start, count: count))
        }
    }

    private static let beginning = SQL("BEGIN IMMEDIATE")
    private static let committing = SQL("COMMIT")
    private static let rollingBack = SQL("ROLLBACK")

    private let connection: OpaquePointer
    private var statements: [ObjectIdentifier: Prepared] = [:]
    private var isOpen = false

    /// Why the transaction cannot go on. SQLite may have rolled it back by
    /// itself, and what ran after that would commit statement by statement.
    private var failure: CloudError?

    /// Set when a flush has failed: the system may have dropped the pages it
    /// could not write, so that a later flush would promise what is not there.
    private var hasLostFlush = false

    init(on connection: OpaquePointer) { self.connection = connection }

    /// Finalises the statements, which has to happen before the connection closes.
    func finalize() { statements.removeAll() }

    // MARK: Begin, commit, roll back

    func begin() throws {
        precondition(!isOpen, "A write began inside a write.")
        guard !hasLostFlush else {
            throw CloudError(
                .storageFailure,
                "The disk has failed to keep a write. Check the disk, then restart the service."
            )
        }
        failure = nil
        isOpen = true
        do { try execute(Self.beginning, []) } catch {
            isOpen = false
            throw error
        }
    }

    func commit() throws {
        if let failure { throw failure }
        try execute(Self.committing, [])
        isOpen = false
    }

    /// Undoes everything; it cannot fail in a way that keeps something.
    func rollBack() {
        guard isOpen else { return }
        failure = nil
        if sqlite3_get_autocommit(connection) == 0 { _ = try? execute(Self.rollingBack, []) }
        isOpen = false
    }

    // MARK: Statements

    @discardableResult
    func execute(_ statement: SQL, _ values: [SQLValue]) throws -> Int {
        let prepared = try borrow(statement)
        defer { giveBack(prepared) }
        try withBound(values, to: prepared) {
            var code = SQLITE_ROW
            while code == SQLITE_ROW { code = sqlite3_step(prepared.handle) }
            guard code == SQLITE_DONE else { throw failed(code) }
        }
        return Int(sqlite3_changes(connection))
    }

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        let prepared = try borrow(statement)
        defer { giveBack(prepared) }
        try withBound(values, to: prepared) {
            while true {
                let code = sqlite3_step(prepared.handle)
                if code == SQLITE_DONE { return }
                guard code == SQLITE_ROW else { throw failed(code) }
                guard try row(Row(handle: prepared.handle)) else { return }
            }
        }
    }

    private func borrow(_ sql: SQL) throws -> Prepared {
        precondition(isOpen, "A transaction was used after its write had ended.")
        if let failure { throw failure }
        if let prepared = statements[ObjectIdentifier(sql)] {
            // A query that runs itself again from within needs a second statement for a while.
            let free = prepared.isRunning ? try Prepared(sql, on: connection) : prepared
            free.isRunning = true
            return free
        }
        let prepared = try Prepared(sql, on: connection)
        statements[ObjectIdentifier(sql)] = prepared
        prepared.isRunning = true
        return prepared
    }

    private func giveBack(_ prepared: Prepared) {
        sqlite3_reset(prepared.handle)
        // What it was bound to is gone.
        sqlite3_clear_bindings(prepared.handle)
        prepared.isRunning = false
    }

    private func failed(_ code: Int32) -> CloudError {
        let error = SQLiteFailure.error(code)
        if !SQLiteFailure.isOfStatement(code) { failure = error }
        if code == SQLITE_IOERR | (4 << 8) { hasLostFlush = true }  // SQLITE_IOERR_FSYNC, a macro Swift does not import
        return error
    }

    /// Runs the body with the values bound, from the one at the place on.
    ///
    /// SQLite reads them where they lie: each is held in place, by a call of its
    /// own, until the body has returned. Copies would cost more than the binding.
    private func withBound(
        _ values: [SQLValue], from place: Int = 0, to prepared: Prepared, _ body: () throws -> Void
    ) throws {
        guard place < values.count else {
            precondition(place == prepared.parameterCount, "A statement got the wrong number of values.")
            return try body()
        }
        let handle = prepared.handle
        let index = Int32(place + 1)
        func next(_ code: Int32) throws {
            guard code == SQLITE_OK else { throw failed(code) }
            try withBound(values, from: place + 1, to: prepared, body)
        }
        switch values[place] {
        case .null: try next(sqlite3_bind_null(handle, index))
        case .integer(let number): try next(sqlite3_bind_int64(handle, index, number))
        case .real(let number): try next(sqlite3_bind_double(handle, index, number))
        case .text(var text):
            try text.withUTF8 {
                try $0.withMemoryRebound(to: CChar.self) {
                    try next(
                        sqlite3_bind_text64(
                            handle, index, $0.baseAddress, UInt64($0.count), nil, UInt8(SQLITE_UTF8)))
                }
            }
        case .blob(let bytes) where bytes.isEmpty:
            // A blob without an address would be NULL.
            try next(sqlite3_bind_zeroblob(handle, index, 0))
        case .blob(let bytes):
            try bytes.withUnsafeBytes {
                try next(sqlite3_bind_blob64(handle, index, $0.baseAddress, UInt64($0.count), nil))
            }
        }
    }
}
