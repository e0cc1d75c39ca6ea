import NephosCore
import NephosStorage
import Testing

@Suite struct SQLiteEngineTests {
    static let create = Migration(name: "numbers", statements: ["CREATE TABLE counted (value INTEGER PRIMARY KEY)"])
    static let insert = SQL("INSERT INTO counted (value) VALUES (?1)")
    static let count = SQL("SELECT count(*) FROM counted")
    let directory = TemporaryDirectory()

    func open(_ name: String = "db") throws -> SQLiteEngine {
        let engine = try SQLiteEngine(path: directory.file(name))
        try engine.migrate([Self.create])
        return engine
    }

    func count(_ engine: SQLiteEngine) throws -> Int64? {
        try engine.write { try $0.first(Self.count) { $0.integer(0) } }
    }

    @Test func synchronousIsReallyFull() throws {
        let engine = try open()
        #expect(try engine.write { try $0.first(SQL("PRAGMA synchronous")) { $0.integer(0) } } == 2)
        #expect(try engine.write { try $0.first(SQL("PRAGMA journal_mode")) { $0.text(0) } } == "wal")
        #expect(try engine.write { try $0.first(SQL("PRAGMA wal_autocheckpoint")) { $0.integer(0) } } == 0)
    }

    @Test func filesBelongToTheirOwnerOnly() throws {
        let engine = try open()
        try engine.write { _ = try $0.execute(Self.insert, [.integer(1)]) }
        for suffix in ["", "-wal", "-shm", ".lock"] {
            #expect(mode(of: directory.file("db" + suffix)) == 0o600, "db\(suffix)")
        }
    }

    @Test func everyKindOfValueComesBack() throws {
        let engine = try SQLiteEngine.inMemory()
        let statement = SQL("SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7")
        let long = String(repeating: "ü", count: 1000)
        let values: [SQLValue] = [
            .null, .integer(.min), .real(0.5), .text(""), .text(long), .blob([]), .blob([0, 1, 255]),
        ]
        try engine.write {
            let seen: Void? = try $0.first(statement, values) { row in
                #expect(row.isNull(0) && !row.isNull(3) && !row.isNull(5))
                #expect(row.integer(1) == .min && row.real(2) == 0.5)
                #expect(row.text(3).isEmpty && row.text(4) == long)
                #expect(row.blob(5).isEmpty && row.blob(6) == [0, 1, 255])
            }
            #expect(seen != nil)
        }
    }

    @Test func aBodyThatThrowsLeavesNothing() throws {
        let engine = try open()
        let failed = code {
            try engine.write {
                _ = try $0.execute(Self.insert, [.integer(1)])
                throw CloudError(.permissionFailure, "No.")
            }
        }
        #expect(failed == .permissionFailure)
        #expect(try count(engine) == 0)
    }

    @Test func aConstraintFailsTheStatementAndNotTheGroup() throws {
        let engine = try open()
        try engine.write { transaction in
            _ = try transaction.execute(Self.insert, [.integer(1)])
            #expect(code { _ = try transaction.execute(Self.insert, [.integer(1)]) } == .constraintViolation)
            _ = try transaction.execute(Self.insert, [.integer(2)])
        }
        #expect(try count(engine) == 2)
    }

    @Test func aStatementMayRunInsideItself() throws {
        let engine = try open()
        let pairs = try engine.write { transaction in
            for value in 1...3 { _ = try transaction.execute(Self.insert, [.integer(Int64(value))]) }
            let all = SQL("SELECT value FROM counted ORDER BY value")
            var pairs = 0
            try transaction.query(all, []) { _ in
                try transaction.query(all, []) { _ in
                    pairs += 1
                    return true
                }
                return true
            }
            return pairs
        }
        #expect(pairs == 9)
    }

    @Test func whatWasCommittedIsInTheFilesAtOnce() throws {
        let engine = try open()
        try engine.write { _ = try $0.execute(Self.insert, [.integer(1)]) }
        // What a process killed now would leave behind.
        write(bytes(of: directory.file("db")), to: directory.file("left"))
        write(bytes(of: directory.file("db-wal")), to: directory.file("left-wal"))
        #expect(try count(open("left")) == 1)
    }

    @Test func aGroupInProgressIsNotInTheFiles() throws {
        let engine = try open()
        try engine.write {
            _ = try $0.execute(Self.insert, [.integer(1)])
            write(bytes(of: directory.file("db")), to: directory.file("left"))
            write(bytes(of: directory.file("db-wal")), to: directory.file("left-wal"))
        }
        #expect(try count(open("left")) == 0)
        #expect(try count(engine) == 1)
    }

    @Test func aSecondWriterIsRefused() throws {
        let engine = try open()
        let refused = #expect(throws: CloudError.self) { _ = try SQLiteEngine(path: directory.file("db")) }
        #expect(refused?.code == .storageFailure)
        #expect(refused?.message.contains("Another process") == true)
        engine.close()
        #expect(try count(open()) == 0)
    }

    @Test func aDamagedFileIsRefusedWithACure() throws {
        do {
            let engine = try open()
            try engine.write { for value in 0..<5000 { _ = try $0.execute(Self.insert, [.integer(Int64(value))]) } }
            engine.close()
        }
        var file = bytes(of: directory.file("db"))
        #expect(file.count > 16384)
        for offset in 8192..<9000 { file[offset] = 0xa5 }
        write(file, to: directory.file("db"))
        let refused = #expect(throws: CloudError.self) { _ = try SQLiteEngine(path: directory.file("db")) }
        #expect(refused?.code == .storageFailure)
        #expect(refused?.message.contains("restore the last backup") == true)

        write(Array("Not a database, but long enough to be looked at as one.".utf8), to: directory.file("text"))
        let foreign = #expect(throws: CloudError.self) { _ = try SQLiteEngine(path: directory.file("text")) }
        #expect(foreign?.message.contains("restore the last backup") == true)
    }

    /// More than the cache holds: SQLite writes pages to the log, reads them again and writes them anew before it
    /// commits.
    @Test func largeTransactionsAreWholeOrGone() throws {
        let engine = try open()
        try engine.migrate([Migration(name: "wide", statements: ["CREATE TABLE wide (value BLOB)"])])
        let insert = SQL("INSERT INTO wide (value) VALUES (?1)")
        let change = SQL("UPDATE wide SET value = ?1 WHERE rowid % 7 = ?2")
        let sum = SQL("SELECT sum(length(value)) FROM wide")
        let small = SQL("PRAGMA cache_size = 10")
        try engine.write { _ = try $0.first(small) { $0.integer(0) } }
        var expected: Int64 = 0
        for round in 0..<12 {
            let size = 300 + round * 131
            let isKept = round % 3 != 2
            let failed = code {
                try engine.write { transaction in
                    for _ in 0..<500 { _ = try transaction.execute(insert, [.blob(.init(repeating: 1, count: size))]) }
                    _ = try transaction.execute(
                        change, [.blob(.init(repeating: 2, count: size + 50)), .integer(Int64(round % 7))])
                    let now = try transaction.first(sum) { $0.integer(0) }
                    guard isKept else { throw CloudError(.operationCancelled, "Stop.") }
                    expected = now ?? 0
                }
            }
            #expect(failed == (isKept ? nil : .operationCancelled))
            #expect(try engine.write { try $0.first(sum) { $0.integer(0) } } == expected)
            // What a crash would leave.
            write(bytes(of: directory.file("db")), to: directory.file("left"))
            write(bytes(of: directory.file("db-wal")), to: directory.file("left-wal"))
            let left = try SQLiteEngine(path: directory.file("left"))
            #expect(try left.write { try $0.first(sum) { $0.integer(0) } } == expected)
        }
    }

    @Test(arguments: ["with space", "100%", "%41", "a?b=c", "a#b", "ü", "file:x"])
    func aDatabaseIsNamedAsItIsTold(_ name: String) throws {
        try open(name).write { _ = try $0.execute(Self.insert, [.integer(1)]) }
        #expect(mode(of: directory.file(name)) == 0o600)
        #expect(try count(try open(name)) == 1)
    }

    @Test func aMissingDirectoryIsNamed() {
        let refused = #expect(throws: CloudError.self) { _ = try SQLiteEngine(path: directory.file("none/db")) }
        #expect(refused?.code == .storageFailure)
        #expect(refused?.details["file"]?.hasSuffix("none/db") == true)
    }

    @Test func aFullDiskStoresNothing() throws {
        let engine = try open()
        try engine.write { _ = try $0.execute(Self.insert, [.integer(1)]) }
        let limit = SQL("PRAGMA max_page_count = 10")
        try engine.write { _ = try $0.first(limit) { $0.integer(0) } }
        let failed = code {
            try engine.write { transaction in
                // As a host does: one request's failure is its reply, and the group goes on.
                for value in 2..<20000 {
                    _ = try? transaction.execute(Self.insert, [.integer(Int64(value))])
                }
            }
        }
        #expect(failed == .storageFailure)
        #expect(try count(engine) == 1)
        let unlimited = SQL("PRAGMA max_page_count = 100000")
        try engine.write { _ = try $0.first(unlimited) { $0.integer(0) } }
        try engine.write { _ = try $0.execute(Self.insert, [.integer(2)]) }
        #expect(try count(engine) == 2)
    }

    @Test func checkpointsMoveTheLogWithoutLosingAnything() throws {
        let engine = try open()
        let wide = Migration(name: "wide", statements: ["CREATE TABLE wide (value BLOB)"])
        try engine.migrate([Self.create, wide])
        let insert = SQL("INSERT INTO wide (value) VALUES (?1)")
        for round in 0..<60 {
            try engine.write { _ = try $0.execute(insert, [.blob(.init(repeating: UInt8(round), count: 1 << 20))]) }
        }
        engine.checkpoint()
        engine.close()
        let reopened = try open()
        #expect(try reopened.write { try $0.first(SQL("SELECT count(*) FROM wide")) { $0.integer(0) } } == 60)
    }

    @Test func aGroupThatWroteNothingDoesNotTouchTheLog() throws {
        let engine = try open()
        try engine.write { _ = try $0.execute(Self.insert, [.integer(1)]) }
        let before = bytes(of: directory.file("db-wal"))
        for _ in 0..<10 { _ = try count(engine) }
        #expect(bytes(of: directory.file("db-wal")) == before)
    }

    @Test func aClosedEngineSaysSo() throws {
        let engine = try open()
        engine.close()
        engine.close()
        engine.checkpoint()
        #expect(code { _ = try count(engine) } == .storageFailure)
    }
}
