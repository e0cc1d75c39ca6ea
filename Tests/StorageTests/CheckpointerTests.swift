import Foundation
import GRDBSQLite
import NephosCore
import Synchronization
import Testing

@testable import NephosStorage

/// Serialized: there is one hook for what opens a database, and one list of what was seen.
@Suite(.serialized) struct CheckpointerTests {
    @Test func itsConnectionFlushesWhateverTheDefaultIs() throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "checkpointer-\(UUID()).db").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        try Data().write(to: URL(filePath: path))
        // As if SQLite had been built to flush nothing. Others that open a
        // database meanwhile set what they need, as this one must.
        let flushNothing: @convention(c) (OpaquePointer?, UnsafeRawPointer?, UnsafeRawPointer?) -> Int32 = {
            connection, _, _ in sqlite3_exec(connection, "PRAGMA synchronous = OFF", nil, nil, nil)
        }
        let entry = unsafeBitCast(flushNothing, to: (@convention(c) () -> Void).self)
        sqlite3_auto_extension(entry)
        defer { sqlite3_cancel_auto_extension(entry) }

        var connection: OpaquePointer?
        defer { sqlite3_close_v2(connection) }
        #expect(Checkpointer.open(path, &connection) == SQLITE_OK)
        #expect(synchronous(of: connection) == 2)
    }

    /// The one that a checkpoint was really made over, and not another.
    @Test func theConnectionThatCopiesTheLogFlushes() throws {
        let directory = TemporaryDirectory()
        let path = directory.file("db")
        let engine = try SQLiteEngine(path: path)
        try engine.migrate([
            Migration(
                name: "bodies", statements: ["CREATE TABLE bodies (number INTEGER PRIMARY KEY, body BLOB NOT NULL)"])
        ])
        // The writer has its connection. What is opened from here on flushes nothing unless it says so, and when it is
        // closed it is asked what it said.
        let watch: @convention(c) (OpaquePointer?, UnsafeRawPointer?, UnsafeRawPointer?) -> Int32 = {
            connection, _, _ in
            sqlite3_exec(connection, "PRAGMA synchronous = OFF", nil, nil, nil)
            return sqlite3_trace_v2(
                connection, UInt32(SQLITE_TRACE_CLOSE),
                { _, _, connection, _ in
                    noteClosed(connection.map { OpaquePointer($0) })
                    return 0
                }, nil)
        }
        let entry = unsafeBitCast(watch, to: (@convention(c) () -> Void).self)
        sqlite3_auto_extension(entry)
        defer { sqlite3_cancel_auto_extension(entry) }

        let insert = SQL("INSERT INTO bodies (number, body) VALUES (?1, ?2)")
        let body = [UInt8](repeating: 7, count: 1 << 20)
        func isCopied() throws -> Bool {
            let size = try FileManager.default.attributesOfItem(atPath: path)[.size] as? Int
            return (size ?? 0) >= 12 << 20
        }
        // More than is in the log before a checkpoint is asked for.
        for number in 0..<17 {
            try engine.write { _ = try $0.execute(insert, [.integer(Int64(number)), .blob(body)]) }
        }
        for _ in 0..<1000 where closed.withLock({ $0.allSatisfy { $0.path != path } }) { usleep(10_000) }
        // By the thread beside: nothing has been committed since.
        #expect(try isCopied())
        #expect(closed.withLock { $0.filter { $0.path == path }.map(\.synchronous) } == [2])
        engine.close()
    }
}

/// What connections that were closed said of themselves, in all of the process.
private let closed = Mutex<[(path: String, synchronous: Int32?)]>([])

private func noteClosed(_ connection: OpaquePointer?) {
    guard let path = sqlite3_db_filename(connection, "main") else { return }
    let seen = (path: String(cString: path), synchronous: synchronous(of: connection))
    closed.withLock { $0.append(seen) }
}

private func synchronous(of connection: OpaquePointer?) -> Int32? {
    var statement: OpaquePointer?
    defer { sqlite3_finalize(statement) }
    guard sqlite3_prepare_v2(connection, "PRAGMA synchronous", -1, &statement, nil) == SQLITE_OK,
        sqlite3_step(statement) == SQLITE_ROW
    else { return nil }
    return sqlite3_column_int(statement, 0)
}
