import Foundation
import NephosCore
import NephosServiceKit
import Testing

/// What commands say of what this device has never fetched: that nobody here knows, and at once.
@Suite(.serialized) struct NotFetchedTests {
    @Test func whatCannotBeFetchedHidesNoOtherConflict() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            #expect(try await one.run("kv", "set", "k", "1").status == 0)
            #expect(try await one.run("records", "save", "x", "title=before", "--type", "Note").status == 0)
            #expect(try await house.makeRecordConflict(one, other))
            // Of one service nothing can be fetched; of the other what is here already need not be.
            for (service, named) in [(ServiceName.keyValue, "keyvalue"), (.records, "records")] {
                let holder = try house.holder(service)
                kill(holder, SIGSTOP)
                defer { kill(holder, SIGCONT) }
                for options in [[], ["--json"]] {
                    let listed = try await one.run(["conflicts", "--timeout", "2"] + options)
                    #expect(listed.status == 5, "\(listed)")
                    #expect(listed.output.contains("nephos records resolve"), "\(listed)")
                    #expect(listed.errors.contains(named), "\(listed)")
                }
            }
            #expect(try await one.run("conflicts").status == 0)
        }
    }

    @Test func ofWhatWasNeverFetchedNothingIsSaidThatNobodyHereKnows() async throws {
        try await withHousehold { house in
            try await house.begin()
            let early = try await house.anotherDevice("early")
            for command in [
                ["docs", "ls"], ["docs", "tree"], ["docs", "find", "x"], ["docs", "find", "x", "--json"],
                ["docs", "find", "x", "--watch"], ["docs", "trash"], ["docs", "conflicts"],
                ["docs", "conflicts", "--json"], ["records", "ls"], ["records", "query", "n == 1"],
                ["records", "export"], ["records", "zones", "list"], ["records", "conflicts"],
                ["records", "conflicts", "--json"], ["records", "conflicts", "--zone", "work"],
            ] {
                let start = ContinuousClock.now
                let unknown = try await early.run(command + ["--offline"], before: ["timeout", "20"])
                #expect(unknown.status == 6 && unknown.output.isEmpty, "\(command): \(unknown)")
                #expect(start.duration(to: .now) < .seconds(15), "\(command)")
            }
            // Who may ask waits for the first download, for as long as was said.
            let services = try [house.holder(.documents), house.holder(.records)]
            defer { for service in services { kill(service, SIGCONT) } }
            for service in services { kill(service, SIGSTOP) }
            #expect(try await early.run("records", "save", "r", "n=1", "--type", "T", "--offline").status == 0)
            for command in [
                ["docs", "find", "x"], ["docs", "conflicts"], ["records", "conflicts"],
                ["conflicts"], ["conflicts", "--service", "records"],
            ] {
                let unheard = try await early.run(command + ["--timeout", "2"], before: ["timeout", "20"])
                #expect(unheard.status == 5 && unheard.output.isEmpty, "\(command): \(unheard)")
            }
            for service in services { kill(service, SIGCONT) }
            let conflicts = try await early.run("conflicts")
            #expect(conflicts.status == 0 && conflicts.output == "Nothing conflicts.\n", "\(conflicts)")
            // From now on it is known.
            for (command, said) in [
                (["docs", "conflicts"], "Nothing conflicts.\n"),
                (["records", "conflicts"], "There are no conflicts.\n"),
            ] {
                #expect(try await early.run(command).output == said)
                let known = try await early.run(command + ["--offline"])
                #expect(known.status == 0 && known.output == said, "\(command): \(known)")
            }
            #expect(try await early.run("docs", "find", "x", "--offline").status == 2)
        }
    }
}
