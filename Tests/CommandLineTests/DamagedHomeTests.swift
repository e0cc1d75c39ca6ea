import Foundation
import GRDB
import NephosCore
import Testing

/// A home in which a row is not what was written: every command that needs it ends with 8, and says where.
@Suite(.serialized) struct DamagedHomeTests {
    private struct Damage {
        var table: String
        var column: String
        /// Commands that cannot go on, and what they name.
        var commands: [[String]]
        var named: String
    }

    // What waits comes first: it is sent as soon as a command asks the server.
    private static let damages = [
        Damage(
            table: "pending_writes", column: "value",
            commands: [["kv", "get", "waits", "--offline"], ["kv", "export", "--offline"]], named: "key: waits"),
        Damage(
            table: "record_changes", column: "change",
            commands: [["records", "ls", "--offline"], ["records", "get", "waits", "--offline"]],
            named: "device.sqlite"),
        Damage(
            table: "outbox", column: "payload",
            commands: [["docs", "ls"], ["docs", "status"], ["why"], ["status"]], named: "device.sqlite"),
        Damage(
            table: "items", column: "value",
            commands: [["kv", "get", "k"], ["kv", "export"]], named: "key: k"),
        Damage(
            table: "facts", column: "value",
            commands: [["kv", "get", "k"], ["docs", "ls"], ["records", "ls"], ["status"], ["why"]],
            named: "device.sqlite"),
    ]

    /// No message begins so.
    private static let junk = String(repeating: "ff", count: 12)

    private func change(_ house: Tenant, _ damage: Damage, to value: String) throws {
        try DatabaseQueue(path: house.folder + "/home/device.sqlite").write { database in
            try database.execute(
                sql: "UPDATE \(damage.table) SET \(damage.column) = \(value) WHERE length(\(damage.column)) > 0")
        }
    }

    /// It is on a disk that is not mounted, say: what was never sent is in it.
    @Test func aFolderOfContentsThatIsElsewhereIsNamedAndNotMadeAnew() async throws {
        try await withTenant { house in
            let (person, folder) = (house.person, house.folder + "/home/content")
            let contents = (0..<3).map { number in
                Data((0..<200_000).map { UInt8(truncatingIfNeeded: $0 &* (number + 7) >> 3) })
            }
            for (number, content) in contents.enumerated() {
                try content.write(to: URL(fileURLWithPath: house.folder + "/\(number)"))
            }
            #expect(try await person.run("docs", "put", house.folder + "/0").status == 0)
            #expect(try await person.run("docs", "put", house.folder + "/1", "--offline").status == 0)
            try FileManager.default.moveItem(atPath: folder, toPath: folder + ".away")
            #expect(try await person.run("docs", "get", "0", house.folder + "/got").status == 0)
            #expect(FileManager.default.contents(atPath: house.folder + "/got") == contents[0])
            let put = try await person.run("docs", "put", house.folder + "/2", "--timeout", "2")
            #expect(put.status == 8 && put.errors.contains(folder) && put.errors.contains("content.made"), "\(put)")
            #expect(!FileManager.default.fileExists(atPath: folder))
            let why = try await person.run("why", "--timeout", "2")
            #expect(why.output.contains("Bring it back"), "\(why)")
            try FileManager.default.moveItem(atPath: folder + ".away", toPath: folder)
            let sent = try await person.run("docs", "put", house.folder + "/2")
            #expect(sent.status == 0, "\(sent)")
            let other = try await house.anotherDevice("second")
            #expect(try await other.run("docs", "get", "1", house.folder + "/again").status == 0)
            #expect(FileManager.default.contents(atPath: house.folder + "/again") == contents[1])
        }
    }

    @Test func whatIsDamagedIsNamed() async throws {
        try await withTenant { house in
            let file = house.folder + "/file"
            try Data("content".utf8).write(to: URL(fileURLWithPath: file))
            for preparation in [
                ["kv", "set", "k", "1"], ["docs", "put", file], ["records", "save", "r", "a=1", "--type", "T"],
                ["kv", "set", "waits", "1", "--offline"], ["docs", "put", file, "waits", "--offline"],
                ["records", "save", "waits", "a=1", "--type", "T", "--offline"],
            ] {
                let prepared = try await house.person.run(preparation)
                #expect(prepared.status == 0, "\(prepared)")
            }
            for damage in Self.damages {
                try change(house, damage, to: "CAST(x'\(Self.junk)' || \(damage.column) AS BLOB)")
                for command in damage.commands {
                    let ended = try await house.person.run(command)
                    let said = ended.output + ended.errors
                    #expect(ended.status == 8, "\(damage.table): \(command) \(ended)")
                    #expect(said.contains("is damaged") && said.contains(damage.named), "\(command): \(said)")
                }
                // In place: a copy of a home would end the sign-in.
                try change(house, damage, to: "substr(\(damage.column), \(Self.junk.count / 2 + 1))")
            }
        }
    }
}
