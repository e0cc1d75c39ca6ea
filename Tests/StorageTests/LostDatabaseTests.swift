import Foundation
import NephosCore
import NephosStorage
import Testing

/// An empty file where there was a database is no new database.
@Suite struct LostDatabaseTests {
    private func withFolder(_ body: (_ path: String) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "nephos-lost-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder + "/test.sqlite")
    }

    /// Whatever became of the file.
    @Test(arguments: [{ truncate($0, 0) }, { unlink($0) }] as [@Sendable (String) -> Int32])
    func aDatabaseThatIsLostIsNotTakenForANewOne(_ lose: @Sendable (String) -> Int32) throws {
        try withFolder { path in
            // The first time there is nothing to lose.
            let engine = try SQLiteEngine(path: path, ifLost: .refuse)
            try engine.migrate([Migration(name: "test-001", statements: ["CREATE TABLE lost_numbers (number BIGINT)"])])
            engine.close()
            try SQLiteEngine(path: path, ifLost: .refuse).close()

            try #require(lose(path) == 0)
            let refusal = #expect(throws: CloudError.self) { try SQLiteEngine(path: path, ifLost: .refuse) }
            #expect(refusal?.code == .storageFailure && refusal?.message.contains("lost") == true)
            // It was looked at, and left as it was.
            #expect(throws: CloudError.self) { try SQLiteEngine(path: path, ifLost: .refuse) }
            try SQLiteEngine(path: path, ifLost: .beginAnew).close()
            try SQLiteEngine(path: path, ifLost: .refuse).close()
        }
    }

    /// Of a database that has grown only in its log, nothing else tells.
    @Test func aLogThatIsLeftTellsOfADatabaseToo() throws {
        try withFolder { path in
            try Data([1]).write(to: URL(fileURLWithPath: path + "-wal"))
            #expect(throws: CloudError.self) { try SQLiteEngine(path: path, ifLost: .refuse) }
        }
    }
}
