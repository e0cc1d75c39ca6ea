import Foundation
import NephosCore
import Testing

/// What operators and people change with a command changes that, and nothing else.
@Suite(.serialized) struct AdministrationCommandTests {
    @Test func anUpdateOfAnAppChangesWhatItNames() async throws {
        try await withHousehold { house in
            try await house.begin()
            let id = "A1B2C3.com.example.notes"
            let created = try await house.nephos.run(
                "app", "create", id, "--name", "Notes", "--store", "A1B2C3.notes", "--container", "A1B2C3.papers",
                "--capability", "key-value", "--capability", "documents")
            #expect(created.status == 0, "\(created)")
            let updated = try await house.nephos.run("app", "update", id, "--name", "Papers", "--json")
            #expect(updated.status == 0, "\(updated)")
            for kept in ["\"Papers\"", "A1B2C3.notes", "A1B2C3.papers", "key-value", "documents"] {
                #expect(updated.output.contains(kept), "\(kept): \(updated.output)")
            }
            #expect(!updated.output.contains("records"), "\(updated.output)")
            let listed = try await house.nephos.run("app", "list", "--json")
            #expect(listed.output.contains("A1B2C3.notes") && listed.output.contains("Papers"), "\(listed)")
        }
    }

    @Test func listsShowUseAndOwners() async throws {
        try await withHousehold { house in
            try await house.begin()
            let accounts = try await house.nephos.run("account", "list")
            #expect(accounts.output.contains(#/USED.*\n.* 20\d\d-\d\d-\d\d/#), "\(accounts)")
            #expect(try await house.nephos.run("account", "list", "--json").output.contains("\"used_bytes\":0"))
            let plans = try await house.nephos.run("plan", "list")
            #expect(
                plans.output.contains(try Regex("standard +5\\.0 GB +1 +\\d")), "\(plans)")
        }
    }

    @Test func aCodeLetsANewDeviceInWhileOthersGuess() async throws {
        try await withHousehold { house in
            try await house.begin()
            let connection = try await house.connection
            func device(_ name: String, _ password: String) -> Program {
                var device = house.nephos
                device.environment["NEPHOS_HOME"] = house.folder + "/" + name
                device.environment["NEPHOS_PASSWORD"] = password
                return device
            }
            let arguments = ["sign-in", connection, "--account", Household.accountName, "--device-name"]
            // Five guesses are free, and each further one makes the wait twice as long: as many, as that the next
            // commands come well within it, however slow the machine is.
            let clock = ContinuousClock()
            let end = clock.now + .seconds(240)
            var guesses = 0
            var (wait, longest) = (Duration.zero, Duration.zero)
            var isTold = false
            while !isTold || wait < .seconds(1) + longest * 4 {
                try #require(clock.now < end, "after \(guesses) guesses a wait of \(wait)")
                let began = clock.now
                let guess = try await device("guesser", "guess \(guesses)").run(arguments + ["guesser"])
                longest = max(longest, began.duration(to: clock.now))
                isTold = guess.errors.contains("Too many")
                guard !isTold else { continue }
                guesses += 1
                if guesses >= 5 { wait = .seconds(1 << (guesses - 5)) }
            }
            let locked = try await device("new", "correct horse battery").run(arguments + ["new"])
            #expect(locked.status != 0, "\(locked)")
            let code = try await house.person.run("devices", "allow-sign-in")
            #expect(code.status == 0, "\(code)")
            let word = try #require(code.output.split(separator: "\n").first.map(String.init))
            let signIn = try await device("new", "correct horse battery").run(arguments + ["new", "--code", word])
            #expect(signIn.status == 0, "after \(guesses) guesses: \(signIn)")
            #expect(try await device("new", "").run("kv", "sync").status == 0)
        }
    }
}
