import Foundation
import GRDB
import NephosCore
import Testing

/// Every command says the same of where a store stands, and ends accordingly.
@Suite(.serialized) struct StandingTests {
    /// What `nephos watch` of the device says, up to the text.
    private func watch(_ device: Program, until text: String) async throws -> String {
        let watch = try device.start(["watch"])
        do { try await eventually("it is said: \(text)") { watch.output.contains(text) } } catch {
            watch.signal(SIGKILL)
            Issue.record("watch: \(await watch.outcome())")
            throw error
        }
        watch.signal(SIGINT)
        return await watch.outcome().output
    }

    @Test func nothingIsInSyncBeforeARefusedWriteIsDismissed() async throws {
        try await withHousehold { house in
            try await house.begin()
            let second = try await house.anotherDevice("second")
            let large = house.folder + "/large"
            try Data(String(repeating: "x", count: 600_000).utf8).write(to: URL(fileURLWithPath: large))
            #expect(try await house.person.run("kv", "sync").status == 0)
            #expect(try await second.run("kv", "set", "theirs", "--from", large).status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            // Here it fits; the server knows better.
            #expect(try await house.person.run("kv", "set", "mine", "--from", large).status == 0)
            #expect(try await house.nephos.run("up").status == 0)

            for command in [["kv", "sync"], ["verify"], ["kv", "sync", "--json"], ["verify", "--json"]] {
                let outcome = try await house.person.run(command)
                #expect(outcome.status == 6, "\(command): \(outcome)")
                #expect(!outcome.errors.contains("unexpected"), "\(command): \(outcome.errors)")
                #expect(!outcome.output.contains("In sync"), "\(command): \(outcome.output)")
                #expect(outcome.output.contains("mine"), "\(command): \(outcome.output)")
                #expect(
                    outcome.output.contains(command.contains("--json") ? "refused" : "rejected"),
                    "\(command): \(outcome.output)")
            }
            let watch = try house.person.start(["watch"])
            defer { watch.signal(SIGKILL) }
            try await eventually("the watch says what was refused") { watch.output.contains("nephos discard") }
            #expect(!watch.output.contains("in sync"), "\(watch.output)")

            // What was refused is not lost.
            let value = String(repeating: "x", count: 600_000)
            let why = try await house.person.run("why", "mine")
            #expect(why.status == 6 && why.output.contains("value         \(value)\n"))
            #expect(why.output.contains(", at most 1.0 MB. Nothing was stored.") && why.output.contains("make room"))
            let again = try #require(why.output.firstMatch(of: /then: (nephos .*)/)).output.1
            #expect(try await house.person.run("why", "--json").output.contains("\"value\":\"\(value)\""))
            #expect(try await house.person.run("why").output.count < 1000)

            let early = try await house.person.run(shell: String(again))
            #expect(early.status == 3, "\(again): \(early)")
            #expect(try await second.run("kv", "delete", "theirs").status == 0)
            let line = try await house.person.run(shell: String(again))
            #expect(line.status == 0, "\(again): \(line)")
            #expect(try await house.person.run("kv", "get", "mine", "--raw").output == value)
            #expect(try await house.person.run("kv", "sync").status == 0)
            #expect(try await house.person.run("verify").output.contains("In sync"))
            try await eventually("the watch says that it is in sync") { watch.output.contains(" in sync at") }
            watch.signal(SIGINT)
            _ = await watch.outcome()
        }
    }

    @Test func aValueInQuarantineIsCountedAndComesBack() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "bad", "precious").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            try damage("bad", in: house.deployment + "/data/keyvalue")
            #expect(try await house.nephos.run("up").status == 0)

            let second = try await house.anotherDevice("second")
            #expect(try await second.run("kv", "get", "bad").status != 0)
            // The operator finds it in the log, and is told of it.
            let log = FileManager.default.contents(atPath: house.deployment + "/log/keyvalue.log") ?? Data()
            let said = String(decoding: log, as: UTF8.self).split(separator: "\n").filter {
                $0.contains("A stored item does not open")
            }
            #expect(said.count == 1 && said.allSatisfy { $0.contains("store=") && $0.contains("sequence=") }, "\(said)")
            let status = try await house.nephos.run("status")
            #expect(status.status == 8, "\(status)")
            #expect(status.output.contains("1 key, record or document is in quarantine"), "\(status)")

            #expect(try await house.person.run("verify").status == 0)
            #expect(try await second.run("kv", "sync").status == 0)
            #expect(try await second.run("kv", "get", "bad", "--raw").output == "precious")
            for device in [house.person, second] {
                let outcome = try await device.run("verify")
                #expect(outcome.status == 0 && outcome.output.contains("In sync"), "\(outcome)")
            }
            #expect(try await house.nephos.run("status").status == 0)
        }
    }

    /// Turns a bit of the value's stored bytes.
    private func damage(_ key: String, in folder: String) throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.hasSuffix(".sqlite") }
        for file in files {
            try DatabaseQueue(path: folder + "/" + file).write { database in
                let body = try Data.fetchOne(
                    database, sql: "SELECT body FROM feed_items WHERE name = ?", arguments: [key])
                var damaged = try #require(body)
                damaged[damaged.count - 1] ^= 1
                try database.execute(sql: "UPDATE feed_items SET body = ? WHERE name = ?", arguments: [damaged, key])
            }
        }
        try #require(!files.isEmpty)
    }
}
