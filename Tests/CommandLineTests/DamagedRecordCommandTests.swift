import Foundation
import GRDB
import Testing

/// What the server cannot read of records is named wherever they are listed.
@Suite(.serialized) struct DamagedRecordCommandTests {
    /// Turns a bit of the record's stored bytes.
    private func damage(_ name: String, in folder: String) throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.hasSuffix(".sqlite") }
        for file in files {
            try DatabaseQueue(path: folder + "/" + file).write { database in
                let body = try Data.fetchOne(
                    database, sql: "SELECT body FROM feed_items WHERE name = ?", arguments: [name])
                var damaged = try #require(body)
                damaged[damaged.count - 1] ^= 1
                try database.execute(sql: "UPDATE feed_items SET body = ? WHERE name = ?", arguments: [damaged, name])
            }
        }
        try #require(!files.isEmpty)
    }

    @Test func whatTheServerCannotReadIsNamedWithWhatIsListed() async throws {
        try await withHousehold { house in
            try await house.begin()
            for name in ["kept", "lost"] {
                #expect(try await house.person.run("records", "save", name, "n=1", "--type", "Note").status == 0)
            }
            #expect(try await house.nephos.run("down").status == 0)
            try damage("lost", in: house.deployment + "/data/records")
            #expect(try await house.nephos.run("up").status == 0)
            // It has nothing of it that could heal it.
            let other = try await house.anotherDevice("other")
            for command in [["ls"], ["query", "n == 1"], ["query", "n == 1", "--server"]] {
                let found = try await other.run(["records"] + command)
                #expect(found.status == 0 && found.output.contains("kept"), "\(command): \(found)")
                #expect(!found.output.contains("lost"), "\(command): \(found)")
                #expect(found.errors.contains("the server cannot read them any more: lost"), "\(command): \(found)")
            }
        }
    }
}
