import Foundation
import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

/// Whatever keeps a store from being in sync: each command names that, and nothing else.
@Suite(.serialized) struct CauseTests {
    @Test func whyNamesWhatIsInTheWayNow() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.nephos.run("app", "create", "TEST.notes").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "1", "--app", "TEST.notes").status == 0)

            #expect(try await house.nephos.run("down").status == 0)
            #expect(try await house.person.run("kv", "set", "k", "2", "--offline").status == 0)
            for _ in 1...2 {
                let away = try await house.person.run("why")
                #expect(away.status == 5, "\(away)")
                // Once of each of the two stores, and not as a difference that nobody knows of.
                #expect(
                    away.output.components(separatedBy: "nothing answers at its address").count == 3, "\(away)")
                #expect(!away.output.lowercased().contains("out of step"), "\(away)")
                #expect(away.output.contains("attempts      0"), "\(away)")
                #expect(!away.output.contains("It was sent"), "\(away)")
            }
            #expect(try await house.nephos.run("up").status == 0)
            let sent = try await house.person.run("why")
            #expect(sent.status == 0 && sent.output.contains("Nothing waits"), "\(sent)")

            #expect(try await house.nephos.run("account", "lock", Household.accountName).status == 0)
            while try await house.person.run("kv", "sync").status == 0 {}
            #expect(try await house.person.run("kv", "set", "k", "3", "--offline").status == 0)
            let locked = try await house.person.run("why")
            #expect(locked.status == 7 && locked.output.contains("locked"), "\(locked)")
            #expect(!locked.output.contains("blocked by    network"), "\(locked)")
            #expect(!locked.output.contains("accountTemporarilyUnavailable"), "\(locked)")
            #expect(try await house.person.run("why", "--json").output.contains(#""state":"problem""#))
            // What was sent meanwhile need not wait for its minute.
            let held = try await house.person.run("kv", "set", "held", "1")
            #expect(held.status == 7, "\(held)")
            #expect(try await house.nephos.run("account", "unlock", Household.accountName).status == 0)
            var written = try await house.person.run("kv", "set", "k", "3")
            for _ in 0..<20 where written.output != "Set k.\n" {
                try await Task.sleep(for: .milliseconds(200))
                written = try await house.person.run("kv", "set", "k", "3")
            }
            #expect(written.output == "Set k.\n", "\(written)")
            #expect(try await house.person.run("kv", "sync").status == 0)

            #expect(try await house.nephos.run("app", "remove", "TEST.notes").status == 0)
            #expect(
                try await house.person.run("kv", "set", "k", "2", "--app", "TEST.notes", "--offline").status == 0)
            let unsent = try await house.person.run("sign-out")
            #expect(unsent.status == 1 && unsent.errors.contains("apps: TEST.notes: 1"), "\(unsent)")
            #expect(try await house.person.run("sign-out", "--keep-unsent").status == 0)
            let nobody = try await house.person.run("why")
            #expect(nobody.status == 4 && !nobody.output.contains("notSignedIn"), "\(nobody)")
        }
    }

    @Test func anotherKeyAtTheAddressIsNamedAndNothingIsPromised() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (file, lines) = (house.folder + "/file", house.folder + "/lines")
            try Data("text".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "put", file, "there").status == 0)
            #expect(try await house.person.run("records", "save", "there", "n=1", "--type", "T").status == 0)
            let exported = try await house.person.run("records", "export").output
            try Data(exported.replacing("there", with: "other").utf8).write(to: URL(fileURLWithPath: lines))
            #expect(try await house.person.run("kv", "sync").status == 0)
            for more in [[], ["--switch", "--force"]] {
                #expect(try await house.nephos.run(["secrets", "rotate-service-keys"] + more).status == 0)
            }
            for write in [
                ["kv", "set", "z1", "red"], ["docs", "mkdir", "folder"], ["docs", "rm", "there"],
                ["records", "save", "r", "n=1", "--type", "T"], ["records", "delete", "there"],
                ["records", "zones", "make", "zone"], ["records", "import", lines],
            ] {
                let kept = try await house.person.run(write)
                #expect(kept.status == 0, "\(write): \(kept)")
                #expect(kept.output.contains("kept on this device: What answers at the server's"), "\(write): \(kept)")
                #expect(kept.output.contains("does not have the server's key"), "\(write): \(kept)")
                #expect(!kept.output.contains("server_key") && !kept.output.contains("The next command"), "\(kept)")
            }
            for read in [["docs", "ls"], ["records", "ls"], ["docs", "find", "folder"]] {
                let outcome = try await house.person.run(read)
                #expect(outcome.status == 0 && !outcome.errors.contains("server_key"), "\(read): \(outcome)")
                #expect(outcome.errors.contains("does not have the server's key"), "\(read): \(outcome)")
            }
            let why = try await house.person.run("why")
            #expect(why.status == 5 && why.output.contains("does not have the server's key"), "\(why)")
            try await watch(house.person, until: "does not have the server's key")
        }
    }

    @Test func aWatchSaysWhatKeepsItFromBeingInSyncOnce() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "sync").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            let watch = try house.person.start(["watch"])
            defer { watch.signal(SIGKILL) }
            func lines(_ text: String) -> Int { watch.output.components(separatedBy: text).count - 1 }
            try await eventually("it is away") { lines("nothing answers at its address") == 1 }
            try await Task.sleep(for: .seconds(4))
            #expect(lines("held up") == 1, "\(watch.output)")
            #expect(try await house.nephos.run("up").status == 0)
            try await eventually("it is in sync") { lines(" in sync at") == 1 }
            #expect(try await house.nephos.run("down").status == 0)
            let gone = ContinuousClock.now
            try await eventually("it is away again") { lines("nothing answers at its address") == 2 }
            #expect(gone.duration(to: .now) < .seconds(15))
            watch.signal(SIGINT)
            _ = await watch.outcome()
        }
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aHomeWithoutRoomIsTheCauseAtOnce() async throws {
        try await withHousehold { house in
            let disk = try SmallDisk(megabytes: 4, at: house.folder + "/home")
            defer { disk.remove() }
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            for isFull in [true, false] {
                if isFull { try disk.fill() } else { try disk.setReadOnly() }
                let cause = isFull ? "is full" : "read-only"
                let before = ContinuousClock.now
                for command in [["kv", "sync"], ["verify"], ["kv", "get", "k", "--fresh"], ["why"]] {
                    let outcome = try await house.person.run(command)
                    #expect(outcome.status == 8, "\(command): \(outcome)")
                    #expect((outcome.output + outcome.errors).contains(cause), "\(command): \(outcome)")
                }
                #expect(before.duration(to: .now) < .seconds(10))
                try await watch(house.person, until: cause)
                if isFull { try disk.empty() }
            }
        }
    }

    /// Waits until `nephos watch` of the device says it.
    private func watch(_ device: Program, until text: String) async throws {
        let watch = try device.start(["watch"])
        defer { watch.signal(SIGKILL) }
        try await eventually("it is said: \(text)") { watch.output.contains(text) }
        watch.signal(SIGINT)
        _ = await watch.outcome()
    }

    @Test func whatIsPrintedOfAKeyIsOneLineAndTrue() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "a\nb\tc", "1").output == "Set a\\u{a}b\\u{9}c.\n")
            let delete = try await house.person.run("kv", "delete", "a\nb\tc", "never-was")
            #expect(
                delete.status == 0 && delete.output.hasPrefix("Deleted a\\u{a}b\\u{9}c. never-was: not on this device;")
            )
            let again = try await house.person.run("kv", "delete", "never-was", "--json")
            #expect(again.output.contains(#""not_on_this_device":["never-was"]"#), "\(again)")
            let wide = house.folder + "/wide.json"
            let values = ["fine": "1", "large": String(repeating: "x", count: 1_100_000)]
            try JSONEncoder().encode(values).write(to: URL(fileURLWithPath: wide))
            let refused = try await house.person.run("kv", "import", wide)
            #expect(refused.status == 3 && refused.errors.contains("key: large"), "\(refused)")
            for command in [["kv", "set", "k", "--from", "/nonexistent"], ["kv", "import", "/nonexistent"]] {
                let missing = try await house.person.run(command)
                #expect(missing.status == 2, "\(missing)")
                #expect(missing.errors.contains("reason: No such file"), "\(missing)")
            }
            #expect(try await house.nephos.run("plan", "save", "tiny", "1MB").status == 0)
            #expect(try await house.nephos.run("plan", "assign", "tiny", "--app", "T9.nope").status == 2)
        }
    }

    @Test func aDeploymentWithoutASecretIsNotStarted() async throws {
        try await withHousehold { house in
            let identity = house.deployment + "/identity.secret.json"
            try FileManager.default.moveItem(atPath: identity, toPath: identity + ".away")
            let missing = try await house.nephos.run("up")
            #expect(missing.status == 8 && missing.errors.contains("identity.secret.json"), "\(missing)")
            try FileManager.default.moveItem(atPath: identity + ".away", toPath: identity)
            let readable = house.deployment + "/keyvalue.secret.json"
            let good = try #require(FileManager.default.contents(atPath: readable))
            try Data("garbage".utf8).write(to: URL(fileURLWithPath: readable))
            let damaged = try await house.nephos.run("up")
            #expect(damaged.status == 8 && damaged.errors.contains("damaged"), "\(damaged)")
            try good.write(to: URL(fileURLWithPath: readable))
            chmod(readable, 0o644)
            let open = try await house.nephos.run("up")
            #expect(open.status == 8 && open.errors.contains("chmod 600"), "\(open)")
            #expect(house.held.isEmpty)
        }
    }

    @Test func aStartThatIsInterruptedInItsLastMomentIsTakenBackToo() async throws {
        try await withHousehold { house in
            let up = try house.nephos.start(["up"])
            try await eventually("one runs that can be kept from answering") {
                guard let pid = house.run.holder(of: .service(.documents)) else { return false }
                return kill(pid, SIGSTOP) == 0
            }
            try await eventually("all run") { house.held.count == 6 }
            // So that the question that they are asked now is answered, after the signal.
            try await Task.sleep(for: .milliseconds(500))
            up.signal(SIGTERM)
            kill(try house.holder(.documents), SIGCONT)
            let outcome = await up.outcome()
            #expect(outcome.status == 130, "\(outcome)")
            #expect(house.held.isEmpty)
        }
    }
}
