import Foundation
import NephosCore
import Testing

/// What the commands for records say to whoever meets them for the first time.
@Suite(.serialized) struct RecordTextTests {
    @Test func aConflictWithADeletionIsCalledAConflictAndCountedInTheStatus() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("records", "save", "x", "title=before", "--type", "Note").status == 0)
            let none = try await one.run("status", "--json")
            #expect(none.output.contains(#""conflicts":0"#), "\(none)")
            let output = house.folder + "/changes"
            let isConflict = try await house.makeRecordConflict(
                one, other, deletes: true, late: ["records", "changes", "--json"], to: output)
            #expect(isConflict)
            let said = String(decoding: FileManager.default.contents(atPath: output) ?? Data(), as: UTF8.self)
            #expect(said.contains("a conflict, see: nephos records conflicts"), "\(said)")
            #expect(!said.contains("was deleted"), "\(said)")
            // It is the same on all devices: nothing is out of step for it.
            let status = try await one.run("status")
            #expect(status.output.contains("One conflict waits to be decided. See: nephos conflicts"), "\(status)")
            #expect(status.status == 0)
            #expect(try await one.run("status", "--json").output.contains(#""conflicts":1"#))
        }
    }

    /// It is neither of a home nor of a deployment.
    @Test func aFileThatSomebodyNamesAndIsNotThereIsNotFound() async throws {
        try await withTenant { house in
            let missing = house.folder + "/nosuch"
            for command in [
                ["kv", "set", "k", "--type", "data", "--from", missing], ["kv", "import", missing],
                ["records", "import", missing], ["docs", "put", missing],
                ["records", "save", "x", "--type", "T", "--asset", "a=" + missing],
            ] {
                let refused = try await house.person.run(command)
                #expect(refused.status == 2, "\(command): \(refused)")
                #expect(refused.errors.contains("There is no such file") && refused.errors.contains(missing))
            }
            for command in [["kv", "import", house.folder], ["records", "import", house.folder]] {
                let refused = try await house.person.run(command)
                #expect(refused.status == 64 && refused.errors.contains("This is a folder"), "\(command): \(refused)")
            }
        }
    }

    @Test func whoeverInterruptsASaveHearsThatItIsKept() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("records", "save", "x", "a=1", "--type", "T").status == 0)
            let service = try house.holder(.records)
            kill(service, SIGSTOP)
            let saving = try house.person.start(["records", "save", "x", "a=2", "--timeout", "60"])
            try await Task.sleep(for: .seconds(4))
            saving.signal(SIGINT)
            let ended = await saving.outcome()
            kill(service, SIGCONT)
            #expect(ended.status == 128 + SIGINT, "\(ended)")
            #expect(ended.errors.contains("It is kept on this device. nephos status sends it"), "\(ended)")
            let sent = try await house.person.run("records", "get", "x", "--fresh")
            #expect(sent.output.contains("a  2"), "\(sent)")
        }
    }

    /// How many there are that are not for the caller is not told: none that were read would be untrue.
    @Test func whatAQueryOfAPublicDatabaseReadsIsNotSaidToBeNothing() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(
                try await house.person.run("records", "save", "x", "a=1", "--type", "T", "--public").status == 0)
            for role in ["read", "none"] {
                _ = try await house.person.run("container", "save", "default", "--administrator", Household.accountName)
                let set = try await house.person.run("records", "roles", "set", "T", "--everyone", role)
                #expect(set.status == 0, "\(set)")
                let plan = try await house.person.run("records", "explain", "a = 1", "--type", "T", "--public")
                #expect(plan.status == 0 && !plan.output.contains(" 0 records"), "\(plan)")
            }
        }
    }

    @Test func wordsThatOthersWouldTakeAreTakenOrExplained() async throws {
        try await withHousehold { house in
            try await house.begin()
            let zone = try await house.person.run("records", "index", "add", "T", "a", "--zone", "work")
            #expect(zone.status == 64 && zone.errors.contains("serves all zones"), "\(zone)")
            let administrator = try await house.person.run(
                "container", "save", "default", "--administrator", Household.accountName)
            #expect(administrator.status == 0, "\(administrator)")
            let set = try await house.person.run("records", "roles", "set", "T", "--everyone", "-")
            #expect(set.status == 0 && set.output.contains("none"), "\(set)")
            let unknown = try await house.person.run("records", "roles", "set", "T", "--everyone", "nobody")
            #expect(unknown.status == 64 && unknown.errors.contains("'none'"), "\(unknown)")
        }
    }

    @Test func whatIsMissingIsSaidWithTheLineThatMakesIt() async throws {
        try await withTenant { house in
            let person = house.person
            let lines = (0...1000).map { #"{"name":"r\#($0)","type":"Note","fields":{"count":\#($0 % 7)}}"# + "\n" }
            let file = house.folder + "/lines"
            try Data(lines.joined().utf8).write(to: URL(fileURLWithPath: file))
            let imported = try await person.run("records", "import", file)
            #expect(imported.status == 0 && imported.output == "Imported 1001 records.\n", "\(imported)")
            let arguments = ["records", "query", "--server", "--type", "Note", "--sort", "-count"]
            let refused = try await person.run(arguments)
            #expect(refused.status == 3, "\(refused)")
            let line = try #require(refused.errors.firstMatch(of: /make it: (nephos .*)/), "\(refused)").output.1
            #expect(line == "nephos records index add -- Note -count")
            #expect(try await person.run(shell: String(line)).status == 0)
            while true {
                let indexes = try await person.run("records", "index").output
                guard indexes.contains("being made") else { break }
            }
            #expect(try await person.run(arguments).status == 0)
        }
    }

    @Test func whatNoFieldCanBeCalledIsNamed() async throws {
        try await withTenant { house in
            for option in [[], ["--string"]] {
                let refused = try await house.person.run(
                    ["records", "save", "x", "--type", "T"] + option + ["photo@=x"])
                #expect(refused.status == 64 && refused.errors.contains("field: photo@"), "\(refused)")
            }
        }
    }

    @Test func aPublicDatabaseIsCalledOne() async throws {
        try await withHousehold { house in
            try await house.begin()
            let person = house.person
            #expect(try await person.run("records", "save", "x", "a=1", "--type", "T", "--public").status == 0)
            let named = try await house.nephos.run(
                "container", "save", "default", "--administrator", Household.accountName)
            #expect(named.status == 0 && named.output.contains("administered by \(Household.accountName)"), "\(named)")
            let deadline = ContinuousClock.now + .seconds(30)
            while try await person.run("records", "roles", "set", "T", "--everyone", "read").status != 0 {
                try #require(ContinuousClock.now < deadline)
            }
            let kept = try await person.run("records", "copy", "keep")
            #expect(kept.output.hasPrefix("The copy has "), "\(kept)")
            let status = try await person.run("status")
            #expect(
                status.output.contains("default/default, its public database's copy (records): in sync"), "\(status)")
            #expect(!status.output.contains("_public"), "\(status)")
        }
    }
}
