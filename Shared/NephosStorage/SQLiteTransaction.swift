internal import GRDBSQLite
internal import NephosCore

/// The engine's one transaction, begun and ended again for each group, over
/// statements that stay prepared.
///
/// It steps SQLite directly, on GRDB's connection: a group runs thousands of
/// small statements, and what GRDB does around each costs more than the statement.
final class SQLiteTransaction: Transaction {
    /// A prepared statement.
    private final class Prepared {
        /// A statement that has had more bytes gives them back with its next values.
        private static let roomMax = 64 << 10

        let handle: OpaquePointer
        let parameterCount: Int
        var isRunning = false
        /// The texts and blobs that the statement is bound to: SQLite reads them here.
        private var values = UnsafeMutableRawBufferPointer(start: nil, count: 0)

        init(_ sql: SQL, on connection: OpaquePointer) throws {
            var handle: OpaquePointer?
            let code = sqlite3_prepare_v3(connection, sql.text, -1, UInt32(SQLITE_PREPARE_PERSISTENT), &handle, nil)
            guard code == SQLITE_OK, let handle else {
                var error = SQLiteFailure.error(code)
                error.details["sqlite_message"] = String(cString: sqlite3_errmsg(connection))
                throw error
            }
            SQLRecord.note(sql.text, of: "\(sql.file)")
            self.handle = handle
            parameterCount = Int(sqlite3_bind_parameter_count(handle))
        }

        deinit {
            sqlite3_finalize(handle)
            values.deallocate()
        }

        /// Binds the values, and returns SQLite's code.
        ///
        /// Their bytes are copied to one place of the statement's own, side by
        /// side. That costs less than SQLite's own copies, one allocation for
        /// each, and less than holding each array where it is until the
        /// statement has run.
        func bind(_ values: [SQLValue]) -> Int32 {
            precondition(values.count == parameterCount, "A statement got the wrong number of values.")
            var byteCount = 0
            for value in values {
                switch value {
                case .text(let text): byteCount += text.utf8.count
                case .blob(let bytes): byteCount += bytes.count
                case .null, .integer, .real: break
                }
            }
            makeRoom(for: byteCount)
            var offset = 0
            for (place, value) in values.enumerated() {
                let code = bind(value, at: Int32(place + 1), &offset)
                guard code == SQLITE_OK else { return code }
            }
            return SQLITE_OK
        }

        private func bind(_ value: SQLValue, at index: Int32, _ offset: inout Int) -> Int32 {
            switch value {
            case .null: return sqlite3_bind_null(handle, index)
            case .integer(let number): return sqlite3_bind_int64(handle, index, number)
            case .real(let number): return sqlite3_bind_double(handle, index, number)
            case .text(let text):
                let bytes = text.withUTF8Bytes { keep($0, &offset) }
                let start = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
                return sqlite3_bind_text64(handle, index, start, UInt64(bytes.count), nil, UInt8(SQLITE_UTF8))
            case .blob(let blob) where blob.isEmpty:
                // A blob without an address would be NULL.
                return sqlite3_bind_zeroblob(handle, index, 0)
            case .blob(let blob):
                let bytes = blob.withUnsafeBytes { keep($0, &offset) }
                return sqlite3_bind_blob64(handle, index, bytes.baseAddress, UInt64(bytes.count), nil)
            }
        }

        private func keep(_ bytes: UnsafeRawBufferPointer, _ offset: inout Int) -> UnsafeRawBufferPointer {
            let place = UnsafeMutableRawBufferPointer(rebasing: values[offset..<offset + bytes.count])
            place.copyMemory(from: bytes)
            offset += bytes.count
            return UnsafeRawBufferPointer(place)
        }

        /// Never none, because a text without an address would be NULL.
        private func makeRoom(for byteCount: Int) {
            let isTooLarge = values.count > Self.roomMax && byteCount <= Self.roomMax
            guard values.count < max(byteCount, 1) || isTooLarge else { return }
            values.deallocate()
            values = .allocate(byteCount: max(byteCount, 256), alignment: 1)
        }
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
    private static let beginningToRead = SQL("BEGIN DEFERRED")
    private static let committing = SQL("COMMIT")
    private static let rollingBack = SQL("ROLLBACK")

    private let connection: OpaquePointer
    private let isReadOnly: Bool
    private let deadline: ReadDeadline?
    /// By the statements' numbers.
    private var statements: [Prepared?] = []
    private var isOpen = false

    /// Why the transaction cannot go on. SQLite may have rolled it back by
    /// itself, and what ran after that would commit statement by statement.
    private var failure: CloudError?

    /// Whether the disk was full for something in this transaction.
    private(set) var lacksRoom = false

    /// Set when a flush has failed: the system may have dropped the pages it
    /// could not write, so that a later flush would promise what is not there.
    private var hasLostFlush = false

    /// - Parameters:
    ///   - isReadOnly: Whether the connection cannot write.
    ///   - deadline: After it no row is handed out: what is done with one may take longer than SQLite took to find it.
    init(on connection: OpaquePointer, isReadOnly: Bool = false, until deadline: ReadDeadline? = nil) {
        self.connection = connection
        self.isReadOnly = isReadOnly
        self.deadline = deadline
    }

    /// Finalises the statements, which has to happen before the connection closes.
    func finalize() { statements.removeAll() }

    /// How often SQLite has prepared a statement anew.
    var repreparations: Int {
        statements.reduce(0) { sum, prepared in
            sum + (prepared.map { Int(sqlite3_stmt_status($0.handle, SQLITE_STMTSTATUS_REPREPARE, 0)) } ?? 0)
        }
    }

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
        lacksRoom = false
        isOpen = true
        do { try execute(isReadOnly ? Self.beginningToRead : Self.beginning, []) } catch {
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
        try bind(values, to: prepared)
        var code = SQLITE_ROW
        while code == SQLITE_ROW { code = sqlite3_step(prepared.handle) }
        guard code == SQLITE_DONE else { throw failed(code) }
        return Int(sqlite3_changes(connection))
    }

    func query(_ statement: SQL, _ values: [SQLValue], _ row: (any SQLRow) throws -> Bool) throws {
        let prepared = try borrow(statement)
        defer { giveBack(prepared) }
        try bind(values, to: prepared)
        while true {
            let code = sqlite3_step(prepared.handle)
            if code == SQLITE_DONE { return }
            guard code == SQLITE_ROW else { throw failed(code) }
            if let deadline, deadline.hasPassed { throw ReadDeadline.passed }
            guard try row(Row(handle: prepared.handle)) else { return }
        }
    }

    private func borrow(_ sql: SQL) throws -> Prepared {
        precondition(isOpen, "A transaction was used after its write had ended.")
        if let failure { throw failure }
        if sql.number < statements.count, let prepared = statements[sql.number] {
            // A query that runs itself again from within needs a second statement for a while.
            let free = prepared.isRunning ? try Prepared(sql, on: connection) : prepared
            free.isRunning = true
            return free
        }
        let prepared = try Prepared(sql, on: connection)
        while statements.count <= sql.number { statements.append(nil) }
        statements[sql.number] = prepared
        prepared.isRunning = true
        return prepared
    }

    private func bind(_ values: [SQLValue], to prepared: Prepared) throws {
        let code = prepared.bind(values)
        guard code == SQLITE_OK else { throw failed(code) }
    }

    private func giveBack(_ prepared: Prepared) {
        // It stays bound to its own copies of the values until it gets others.
        sqlite3_reset(prepared.handle)
        prepared.isRunning = false
    }

    private func failed(_ code: Int32) -> CloudError {
        let error = SQLiteFailure.error(code)
        if !SQLiteFailure.isOfStatement(code) { failure = error }
        if code & 0xff == SQLITE_FULL { lacksRoom = true }
        if code == SQLITE_IOERR | (4 << 8) { hasLostFlush = true }  // SQLITE_IOERR_FSYNC, a macro Swift does not import
        return error
    }
}
