import Foundation
import NephosCore
import Testing

/// What is said of everything that a device keeps in step.
@Suite(.serialized) struct ScopeTests {
    @Test func statusSaysWhereEverythingOfTheHomeStands() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("app", "create", "TEST.notes").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            #expect(try await house.person.run("kv", "set", "n", "1", "--app", "TEST.notes").status == 0)
            let status = try await house.person.run("status")
            #expect(status.status == 0 && status.output.contains("connection  nephos://"), "\(status)")
            #expect(status.output.contains("Signed in as ann, device d"), "\(status)")
            for app in ["default", "TEST.notes"] {
                #expect(status.output.contains("\n\(app) (keyvalue): in sync"), "\(status)")
            }
            let json = try await house.person.run("status", "--json").output
            for text in [#""account":"ann""#, #""state":"up""#, #""app":"TEST.notes""#, #""state":"in_sync""#] {
                #expect(json.contains(text), "\(text): \(json)")
            }
            let one = try await house.person.run("status", "--app", "TEST.notes")
            #expect(one.status == 0 && !one.output.contains("default") && !one.output.contains("SERVICE"), "\(one)")

            #expect(try await house.nephos.run("down").status == 0)
            #expect(try await house.person.run("kv", "set", "n", "2", "--app", "TEST.notes", "--offline").status == 0)
            var elsewhere = house.person
            elsewhere.environment["NEPHOS_DEPLOYMENT"] = house.folder + "/none"
            let away = try await elsewhere.run("status")
            #expect(away.status == 5 && !away.output.contains("SERVICE"), "\(away)")
            for app in ["default", "TEST.notes"] {
                let line = away.output.split(separator: "\n").first { $0.hasPrefix("\(app) (keyvalue): held up") }
                #expect(line?.contains("nothing answers at its address") == true, "\(away)")
            }
            #expect(away.output.contains("One change waits to be sent."), "\(away)")
            #expect(!away.output.contains("out of step"), "\(away)")
            let stopped = try await house.person.run("status")
            #expect(stopped.output.contains("The deployment is stopped. Start it with: nephos up"), "\(stopped)")
            #expect(stopped.status == 5 && !stopped.output.contains("not answering"), "\(stopped)")
            #expect(
                try await house.nephos.run("status", "--json").output.contains(
                    #""service":"records","state":"stopped""#))
            for command in ["why", "verify"] {
                #expect(try await elsewhere.run(command).status == 5)
            }
            #expect(try await elsewhere.run("sign-out", "--keep-unsent").status == 0)
            let nobody = try await elsewhere.run("status")
            #expect(nobody.status == 4 && nobody.output.contains("No account is signed in"), "\(nobody)")
            #expect(try await house.person.run("status").output.contains("No account is signed in"))
        }
    }

    /// It has no store to keep in step: none is missed, before and after it may have one.
    @Test func anAppWithoutKeyValueHoldsNothingUp() async throws {
        try await withHousehold { house in
            try await house.begin()
            let created = try await house.nephos.run(
                "app", "create", "TEST.notes", "--container", "TEST.papers", "--capability", "documents")
            #expect(created.status == 0, "\(created)")
            #expect(try await house.person.run("docs", "mkdir", "f", "--app", "TEST.notes").status == 0)
            for command in [["status"], ["verify"], ["why"]] {
                let outcome = try await house.person.run(command)
                #expect(outcome.status == 0 && !outcome.output.contains("TEST.notes (keyvalue)"), "\(outcome)")
            }
            #expect(try await house.person.run("kv", "set", "k", "1", "--app", "TEST.notes").status == 4)
        }
    }

    @Test func everyCommandSpeaksOfAllAppsUnlessOneIsNamed() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("app", "create", "TEST.notes").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "first").status == 0)
            #expect(try await house.person.run("kv", "set", "n", "1", "--app", "TEST.notes").status == 0)
            let verify = try await house.person.run("verify")
            #expect(verify.status == 0 && verify.output.contains("default (keyvalue)\n  In sync at"), "\(verify)")
            #expect(verify.output.contains("TEST.notes (keyvalue)\n  In sync at"), "\(verify)")
            #expect(try await house.person.run("verify", "--app", "default").output.hasPrefix("In sync at"))
            #expect(try await house.person.run("why", "--service", "documents").status == 2)

            let second = try await house.anotherDevice("second")
            let watch = try second.start(["watch", "--json", "--exit-after", "1"])
            try await eventually("it follows") { watch.output.contains("\"in_sync\"") }
            #expect(try await house.person.run("kv", "set", "k", "second").status == 0)
            let watched = await watch.outcome()
            #expect(watched.status == 0 && watched.output.contains(#""app":"default""#), "\(watched)")
            #expect(try await second.run("conflicts").output == "Nothing conflicts.\n")
            let conflicts = try await second.run("history")
            #expect(conflicts.status == 0 && conflicts.output.contains("k = first\n"), "\(conflicts)")
            #expect(conflicts.output.contains("by d\n"), "\(conflicts)")
            #expect(conflicts.output.contains("replaced by   second\n"), "\(conflicts)")
            #expect(conflicts.output.contains("get it back   nephos kv set --type=string k first"), "\(conflicts)")
            let json = try await second.run("history", "k", "--json").output
            #expect(json.contains(#""content":"first""#) && json.contains(#""replacement":"second""#), "\(json)")
            #expect(try await second.run("history", "other").output == "Nothing was overwritten.\n")
        }
    }

    @Test func aSilentServerIsTheReasonEverywhere() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let service = try house.holder(.keyValue)
            kill(service, SIGSTOP)
            defer { kill(service, SIGCONT) }
            let set = try await house.person.run("kv", "set", "k", "2", "--timeout", "1")
            #expect(set.status == 0 && set.output.contains("has not answered in time"), "\(set)")
            for command in [
                ["kv", "sync"], ["verify"], ["why"], ["status", "--app", "default"], ["kv", "sync", "--json"],
            ] {
                let outcome = try await house.person.run(command + ["--timeout", "1"])
                let said = outcome.output + outcome.errors
                #expect(outcome.status == 5 && said.contains("has not answered in time"), "\(command): \(outcome)")
                #expect(!said.contains("being sent") && !said.contains("get there"), "\(command): \(outcome)")
            }
        }
    }

    @Test func statusSaysThatChangesAreNotToldOf() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let before = try await house.person.run("status", "--app", "default")
            #expect(before.status == 0 && !before.output.contains("not told of"), "\(before)")
            let notifications = try house.holder(.notifications)
            kill(notifications, SIGSTOP)
            defer { kill(notifications, SIGCONT) }
            let status = try await house.person.run("status", "--app", "default")
            #expect(status.status == 0 && status.output.contains("(keyvalue): in sync"), "\(status)")
            #expect(status.output.contains("as of this look"), "\(status)")
            #expect(status.output.contains("Changes by other devices are not told of at once"), "\(status)")
            #expect(
                try await house.person.run("status", "--app", "default", "--json").output.contains(
                    #""following":false"#))
        }
    }

    @Test func aLargeValueIsOneShortLineOfAWatch() async throws {
        try await withTenant { house in
            let second = try await house.anotherDevice("second")
            #expect(try await second.run("kv", "sync").status == 0)
            let watches = try [["watch", "--exit-after", "1"], ["watch", "--exit-after", "1", "--json"]].map {
                try second.start($0)
            }
            for watch in watches {
                try await eventually("it follows") { watch.output.contains("in") && !watch.output.isEmpty }
            }
            let large = house.folder + "/large"
            let value = String(repeating: "x", count: 600_000)
            try Data(value.utf8).write(to: URL(fileURLWithPath: large))
            #expect(try await house.person.run("kv", "set", "large", "--from", large).status == 0)
            let text = await watches[0].outcome().output
            #expect(text.contains("… (600.0 kB)") && text.count < 1000, "\(text.prefix(2000))")
            #expect(await watches[1].outcome().output.contains("\"value\":\"\(value)\""))
        }
    }

    @Test func whatWaitsForAFormerStoreIsListedAndDecided() async throws {
        try await withHousehold { house in
            try await house.begin(lifetime: 10)
            let notes = ["--app", "TEST.notes"]
            #expect(try await house.nephos.run("app", "create", "TEST.notes").status == 0)
            #expect(try await house.person.run(["kv", "set", "n", "1"] + notes).status == 0)
            for (store, decision) in [("TEST.second", ["kv", "adopt"]), ("TEST.third", ["discard", "--left-behind"])] {
                #expect(try await house.nephos.run("down").status == 0)
                #expect(try await house.person.run(["kv", "set", "left", store, "--offline"] + notes).status == 0)
                var operatorProgram = house.person
                operatorProgram.environment["NEPHOS_IDENTITY_ACCESS_TOKEN_LIFETIME_SECONDS"] = "10"
                #expect(try await operatorProgram.run("up").status == 0)
                #expect(try await house.nephos.run("app", "update", "TEST.notes", "--store", store).status == 0)
                // Its next token tells the device.
                try await Task.sleep(for: .seconds(10))
                for command in [["kv", "sync"], ["why"], ["status"], ["verify"]] {
                    let outcome = try await house.person.run(command + notes)
                    #expect(outcome.status == 6, "\(command): \(outcome)")
                    #expect(outcome.output.contains("no longer has"), "\(command): \(outcome)")
                }
                let why = try await house.person.run(["why", "left"] + notes)
                #expect(why.output.contains("left: left behind") && why.output.contains("kv adopt --app"), "\(why)")
                #expect(try await house.person.run(["why", "--json"] + notes).output.contains(#""keys":["left"]"#))
                let decided = try await house.person.run(decision + notes)
                #expect(decided.status == 0 && decided.output.contains("left"), "\(decided)")
                let sync = try await house.person.run(["kv", "sync"] + notes)
                #expect(sync.status == 0, "\(sync)")
                let get = try await house.person.run(["kv", "get", "left"] + notes)
                #expect(decision == ["kv", "adopt"] ? get.output == "TEST.second\n" : get.status == 2, "\(get)")
            }
        }
    }
}
