import Foundation
import GRDB
import Testing

/// A record whose row does not open at the server, through the whole programs.
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

    @Test func whatDoesNotOpenIsCountedAndComesBackWithTheNextCommand() async throws {
        try await withHousehold { house in
            try await house.begin()
            for name in ["kept", "lost"] {
                #expect(try await house.person.run("records", "save", name, "n=1", "--type", "Note").status == 0)
            }
            #expect(try await house.nephos.run("down").status == 0)
            try damage("lost", in: house.deployment + "/data/records")
            #expect(try await house.nephos.run("up").status == 0)
            // It has nothing of it that could bring it back.
            let other = try await house.anotherDevice("other")
            let found = try await other.run("records", "ls")
            #expect(found.status == 0 && found.output.contains("kept") && !found.output.contains("lost"), "\(found)")
            let status = try await house.nephos.run("status")
            #expect(status.status == 8, "\(status)")
            #expect(status.output.contains("1 key, record or document is in quarantine"), "\(status)")

            #expect(try await house.person.run("records", "ls").status == 0)
            let verified = try await house.person.run("verify", "--service", "records")
            #expect(verified.status == 0, "\(verified)")
            let again = try await other.run("records", "ls")
            #expect(again.output.contains("kept") && again.output.contains("lost"), "\(again)")
            #expect(try await house.nephos.run("status").status == 0)
        }
    }
}
