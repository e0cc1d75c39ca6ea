import Foundation
import GRDBSQLite
import Testing

@testable import NephosStorage

@Suite struct CheckpointerTests {
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
        var statement: OpaquePointer?
        defer { sqlite3_finalize(statement) }
        sqlite3_prepare_v2(connection, "PRAGMA synchronous", -1, &statement, nil)
        #expect(sqlite3_step(statement) == SQLITE_ROW)
        #expect(sqlite3_column_int(statement, 0) == 2)
    }
}
