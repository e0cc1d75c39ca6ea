import Foundation
import GRDB
import NephosCore
import NephosServiceKit
import Testing

/// What a service keeps is put back as it was before, damaged or lost, in files and with the real programs.
@Suite(.serialized) struct LostDataTests {
    /// What becomes of key-value's database, and what its log says then.
    private enum Loss: String, CaseIterable {
        case oldCopy, cutLog, damagedLog, emptyWithLog, emptyWithoutLog

        /// Without a word the log stays, which is copied into the database when a service ends.
        var isKilled: Bool { [.cutLog, .damagedLog, .emptyWithLog].contains(self) }

        var said: String {
            switch self {
            case .oldCopy, .cutLog, .damagedLog: "The database is an old copy"
            case .emptyWithLog, .emptyWithoutLog: "The database is lost"
            }
        }
    }

    private func bytes(_ file: String) -> Int {
        (try? FileManager.default.attributesOfItem(atPath: file)[.size] as? Int) ?? 0
    }

    /// Ends a service, and what would start it again, before either can do anything.
    private func kill(_ service: ServiceName, of house: Household) throws {
        let pids = (try house.holder(service), try house.holder(.supervisor))
        for (pid, signal) in [(pids.0, SIGSTOP), (pids.1, SIGKILL), (pids.0, SIGKILL)] { Glibc.kill(pid, signal) }
    }

    private func lose(_ database: String, _ loss: Loss, copy: String) throws {
        let log = database + "-wal"
        switch loss {
        case .oldCopy:
            let folder = (database as NSString).deletingLastPathComponent
            try FileManager.default.removeItem(atPath: folder)
            try FileManager.default.copyItem(atPath: copy, toPath: folder)
        case .cutLog:
            try #require(bytes(log) > 0)
            // To its header: all that the file holds was copied there before, and is whole.
            try #require(bytes(log) > 32 + 24 + 4096)
            try #require(truncate(log, 32) == 0)
        case .damagedLog:
            try #require(bytes(log) > 32 + 24 + 4096)
            // The check of its header.
            let file = try #require(FileHandle(forUpdatingAtPath: log))
            try file.seek(toOffset: 24)
            try file.write(contentsOf: [UInt8](repeating: 0xa5, count: 8))
            try file.close()
        case .emptyWithLog:
            try #require(bytes(log) > 0)
            try #require(truncate(database, 0) == 0)
        case .emptyWithoutLog:
            try #require(bytes(log) == 0)
            try #require(truncate(database, 0) == 0)
        }
    }

    /// Copies the log into the database, and reads that: while it is open nothing more is copied, so what comes after
    /// is in the log alone, however long the commands take. Read only, so that its end copies nothing either.
    private func reader(of database: String) throws -> DatabaseQueue {
        // The service writes whenever it likes: its lock is waited for.
        var configuration = Configuration()
        configuration.busyMode = .timeout(10)
        let writer = try DatabaseQueue(path: database, configuration: configuration)
        _ = try writer.writeWithoutTransaction { try $0.checkpoint(.full) }
        configuration.readonly = true
        configuration.allowsUnsafeTransactions = true
        let queue = try DatabaseQueue(path: database, configuration: configuration)
        try queue.inDatabase { connection in
            try connection.beginTransaction(.deferred)
            _ = try Int.fetchOne(connection, sql: "SELECT COUNT(*) FROM sqlite_schema")
        }
        try writer.close()
        return queue
    }

    @Test func whatDevicesHoldComesBackWhateverBecameOfTheDatabase() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (person, database) = (house.person, house.deployment + "/data/keyvalue/keyvalue.sqlite")
            let copy = house.folder + "/copy"
            #expect(try await person.run("kv", "set", "kept", "1").status == 0)
            for (number, loss) in Loss.allCases.enumerated() {
                #expect(try await person.run("kv", "set", "gone", "here").status == 0)
                if loss == .oldCopy {
                    #expect(try await house.nephos.run("down").status == 0)
                    try FileManager.default.copyItem(atPath: house.deployment + "/data/keyvalue", toPath: copy)
                    #expect(try await house.nephos.run("up").status == 0)
                }
                let reader = loss.isKilled ? try reader(of: database) : nil
                #expect(try await person.run("kv", "set", "changed", "\(number)").status == 0)
                #expect(try await person.run("kv", "delete", "gone").status == 0)
                #expect(try await person.run("kv", "sync").status == 0)
                if loss.isKilled { try kill(.keyValue, of: house) }
                #expect(try await house.nephos.run("down").status == 0)
                try lose(database, loss, copy: copy)
                try reader?.close()
                let log = bytes(house.deployment + "/log/keyvalue.log")

                #expect(try await house.nephos.run("up").status == 0)
                let sync = try await person.run("kv", "sync")
                #expect(sync.status == 0, "\(loss): \(sync)")
                let proof = try await person.run("verify")
                #expect(proof.status == 0, "\(loss): \(proof)")
                let expected = "{\"changed\":\(number),\"kept\":1}\n"
                #expect(try await person.run("kv", "export").output == expected, "\(loss)")
                // One that holds nothing has it from the server.
                let other = try await house.anotherDevice("\(loss)")
                #expect(try await other.run("kv", "export").output == expected, "\(loss)")
                let said = FileManager.default.contents(atPath: house.deployment + "/log/keyvalue.log")?.dropFirst(log)
                #expect(String(decoding: said ?? Data(), as: UTF8.self).contains(loss.said), "\(loss)")
            }
        }
    }

    /// Nobody else has what it kept, and without it every device would be one that nobody knows.
    @Test func identityDoesNotBeginWithoutTheAccountsThatItHad() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("down").status == 0)
            let database = house.deployment + "/data/identity/identity.sqlite"
            try FileManager.default.copyItem(atPath: database, toPath: house.folder + "/copy")
            try #require(truncate(database, 0) == 0)
            let up = try await house.nephos.run("up")
            #expect(up.status == 8, "\(up)")
            #expect(up.errors.contains("The database is lost") && up.errors.contains("Restore"), "\(up)")
            #expect(house.held.isEmpty && bytes(database) == 0)
            try? FileManager.default.removeItem(atPath: database)
            try FileManager.default.copyItem(atPath: house.folder + "/copy", toPath: database)
            #expect(try await house.nephos.run("up").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "1").output == "Set k.\n")
        }
    }
}
