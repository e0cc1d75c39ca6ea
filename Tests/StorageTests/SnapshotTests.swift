import Foundation
import GRDBSQLite
import NephosCore
import NephosStorage
import Synchronization
import Testing

/// Reads beside the loop, of a database in a file.
@Suite(.serialized) struct SnapshotTests {
    private static let migration = Migration(
        name: "test-001", statements: ["CREATE TABLE rows_seen (number BIGINT NOT NULL, bytes BLOB NOT NULL)"])
    private static let insert = SQL("INSERT INTO rows_seen (number, bytes) VALUES (?1, ?2)")
    private static let replace = SQL("UPDATE rows_seen SET bytes = ?1 WHERE number = 1")
    private static let count = SQL("SELECT COUNT(*) FROM rows_seen")
    private static let numbers = SQL("SELECT number FROM rows_seen ORDER BY number")

    private func withEngine(_ body: (SQLiteEngine, _ path: String) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "nephos-snapshots-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let engine = try SQLiteEngine(path: folder + "/test.sqlite")
        defer { engine.close() }
        try engine.migrate([Self.migration])
        try body(engine, folder + "/test.sqlite")
    }

    private func count(_ transaction: any ReadTransaction) throws -> Int64 {
        try transaction.first(Self.count) { $0.integer(0) } ?? -1
    }

    @Test func aSnapshotIsOneStateAndHasAllThatWasCommittedBefore() throws {
        try withEngine { engine, _ in
            func add() throws { _ = try engine.write { try $0.execute(Self.insert, [.integer(1), .blob([1])]) } }
            try add()
            try engine.snapshots.read { snapshot in
                let seen = try count(snapshot)
                #expect(seen == 1)
                try add()
                let still = try count(snapshot)
                #expect(still == 1)
            }
            let later = try engine.snapshots.read(count)
            #expect(later == 2)
        }
    }

    @Test func aSnapshotCannotBeWritten() throws {
        try withEngine { engine, _ in
            let snapshots = engine.snapshots
            #expect(throws: CloudError.self) {
                // However one gets at it.
                try snapshots.read {
                    _ = try ($0 as? any Transaction)?.execute(Self.insert, [.integer(1), .blob([1])])
                }
            }
            let written = try engine.write { try count($0) }
            #expect(written == 0)
        }
    }

    @Test func whatTakesTooLongIsEnded() throws {
        try withEngine { engine, _ in
            try engine.write {
                for number in 0..<2000 { try $0.execute(Self.insert, [.integer(Int64(number)), .blob([])]) }
            }
            // 2000^4 rows.
            let endless = SQL(
                "SELECT COUNT(*) FROM rows_seen a, rows_seen b, rows_seen c, rows_seen d WHERE a.number + b.number + c.number + d.number < 0"
            )
            do {
                _ = try engine.snapshots.read { try $0.first(endless) { $0.integer(0) } }
                Issue.record("It came to an end.")
            } catch let error as CloudError {
                #expect(error.code == .serviceBusy)
            }
            let all = try engine.snapshots.read(count)
            #expect(all == 2000)
        }
    }

    @Test func whatTakesTooLongWithEachRowIsEndedToo() throws {
        try withEngine { engine, _ in
            try engine.write {
                for number in 0..<100 { try $0.execute(Self.insert, [.integer(Int64(number)), .blob([])]) }
            }
            var rows = 0
            let error = #expect(throws: CloudError.self) {
                try engine.snapshots.read { snapshot in
                    // Far fewer than SQLite looks at the clock after.
                    try snapshot.query(Self.numbers, []) { _ in
                        rows += 1
                        usleep(500_000)
                        return rows < 20
                    }
                }
            }
            #expect(error?.code == .serviceBusy && rows >= 4 && rows < 10)
        }
    }

    /// Of two that read all the time one always reads.
    @Test func readersDoNotMakeTheLogGrow() throws {
        try withEngine { engine, path in
            _ = try engine.write { try $0.execute(Self.insert, [.integer(1), .blob([])]) }
            let isOver = Atomic(false)
            let done = DispatchSemaphore(value: 0)
            let snapshots = engine.snapshots
            for _ in 0..<3 {
                Thread.detachNewThread {
                    while !isOver.load(ordering: .relaxed) {
                        try? snapshots.read { snapshot in
                            try snapshot.query(Self.numbers, []) { _ in true }
                            usleep(30_000)
                        }
                    }
                    done.signal()
                }
            }
            var longest = 0
            for round in 0..<400 {
                let bytes = [UInt8](repeating: UInt8(round & 0xff), count: 1 << 20)
                _ = try engine.write { try $0.execute(Self.replace, [.blob(bytes)]) }
                let log = try FileManager.default.attributesOfItem(atPath: path + "-wal")[.size] as? Int
                longest = max(longest, log ?? 0)
            }
            isOver.store(true, ordering: .relaxed)
            for _ in 0..<3 { done.wait() }
            #expect(longest < 200 << 20, "\(longest >> 20) MiB of log")
        }
    }

    /// Another process that reads the database: a backup, an operator's tool.
    private final class Outsider {
        private var connection: OpaquePointer?

        init(_ path: String) {
            sqlite3_open_v2(path, &connection, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nil)
            sqlite3_exec(connection, "BEGIN; SELECT COUNT(*) FROM rows_seen", nil, nil, nil)
        }

        func end() {
            sqlite3_close_v2(connection)
            connection = nil
        }

        deinit { end() }
    }

    private func logBytes(_ path: String) throws -> Int {
        try FileManager.default.attributesOfItem(atPath: path + "-wal")[.size] as? Int ?? 0
    }

    /// Makes a log that is too long, beside an outsider.
    private func makeLongLog(_ engine: SQLiteEngine, _ path: String) throws -> Outsider {
        _ = try engine.write { try $0.execute(Self.insert, [.integer(1), .blob([])]) }
        let outsider = Outsider(path)
        for round in 0..<70 {
            let bytes = [UInt8](repeating: UInt8(round), count: 1 << 20)
            _ = try engine.write { try $0.execute(Self.replace, [.blob(bytes)]) }
        }
        return outsider
    }

    @Test func nobodyWaitsForALogThatWasCut() throws {
        try withEngine { engine, path in
            try makeLongLog(engine, path).end()
            for _ in 0..<1000 where try logBytes(path) > 0 {
                _ = try engine.write { try count($0) }
                usleep(10_000)
            }
            #expect(try logBytes(path) == 0)
            // Who only reads has nothing to do with the log.
            for _ in 0..<3 {
                _ = try engine.write { try count($0) }
                let start = ContinuousClock.now
                _ = try engine.snapshots.read(count)
                let waited = ContinuousClock.now - start
                #expect(waited < .milliseconds(500), "\(waited)")
            }
        }
    }

    @Test func whoReadsOutsideHoldsReadersUpForAMomentOnly() throws {
        try withEngine { engine, path in
            let outsider = try makeLongLog(engine, path)
            let snapshots = engine.snapshots
            let reads = Atomic(0)
            let longest = Mutex(Duration.zero)
            let isOver = Atomic(false)
            let done = DispatchSemaphore(value: 0)
            Thread.detachNewThread {
                while !isOver.load(ordering: .relaxed) {
                    let start = ContinuousClock.now
                    _ = try? snapshots.read { _ in reads.wrappingAdd(1, ordering: .relaxed) }
                    let took = ContinuousClock.now - start
                    longest.withLock { $0 = max($0, took) }
                    usleep(10_000)
                }
                done.signal()
            }
            for round in 0..<120 {
                _ = try engine.write { try $0.execute(Self.replace, [.blob([UInt8(round)])]) }
                usleep(50_000)
            }
            isOver.store(true, ordering: .relaxed)
            done.wait()
            outsider.end()
            #expect(longest.withLock { $0 } < snapshotDurationMax + .seconds(1))
            #expect(reads.load(ordering: .relaxed) > 100)
        }
    }
}
