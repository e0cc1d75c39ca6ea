import Foundation
import NephosCore
import NephosSimulation
import Testing

/// What a command says is so, is said in words that mean something to a person, and without waiting for what is known.
@Suite(.serialized) struct SayingTests {
    /// A content that is not here, or is.
    @Test func aGetWithoutAServerEndsAtOnce() async throws {
        try await withHousehold { house in
            try await house.begin()
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let file = house.folder + "/a"
            try Data(repeating: 7, count: 300_000).write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", "-r", file).status == 0)
            #expect(try await two.run("docs", "ls").output.contains("a"))
            #expect(try await house.nephos.run("down").status == 0)
            func time(_ device: Program, _ command: [String]) async throws -> (Duration, Program.Outcome) {
                let start = ContinuousClock.now
                let outcome = try await device.run(command)
                return (start.duration(to: .now), outcome)
            }
            // What the machine makes of the program itself.
            let base = try await time(two, ["docs", "ls", "--offline"]).0
            for command in [["docs", "get", "a", house.folder + "/b"], ["docs", "cat", "a"]] {
                let (long, outcome) = try await time(two, command)
                #expect(outcome.status == 5 && outcome.errors.contains("nothing answers at its address"), "\(outcome)")
                #expect(long < base * 3 + .seconds(4), "\(command): \(long), without a look \(base)")
            }
            let (long, kept) = try await time(one, ["docs", "get", "a", house.folder + "/b"])
            #expect(kept.status == 0 && long < base * 3 + .seconds(4), "\(kept): \(long)")
        }
    }

    /// The device learns of it while it looks.
    @Test func aZoneThatAnotherDeviceHasDeletedIsInNoList() async throws {
        try await withTenant { house in
            let (one, other) = (house.person, try await house.anotherDevice("other"))
            for command in [["verify"], ["why"], ["status"]] {
                #expect(try await one.run("records", "zones", "make", "gone").status == 0)
                #expect(try await one.run("records", "save", "a", "n=1", "--type", "T", "--zone", "gone").status == 0)
                #expect(try await other.run("records", "get", "a", "--zone", "gone").status == 0)
                #expect(try await one.run("records", "zones", "delete", "gone", "--yes").status == 0)
                let said = try await other.run(command)
                #expect(said.status == 0 && !said.output.contains("gone"), "\(command): \(said)")
            }
        }
    }

    @Test func whatWasDoneBeforeIsToldFromWhatIsNew() async throws {
        try await withTenant { house in
            let one = house.person
            #expect(try await one.run("docs", "mkdir", "old").output == "Made /Documents/old.\n")
            let made = try await one.run("docs", "mkdir", "-p", "old", "new")
            #expect(made.output == "Made /Documents/new. There already: /Documents/old.\n", "\(made)")
            #expect(try await one.run("docs", "mkdir", "old").output == "There already: /Documents/old.\n")
            let within = try await one.run("docs", "mkdir", "-p", "a/b", "a", "a")
            #expect(within.output == "Made /Documents/a/b, /Documents/a.\n", "\(within)")
            let json = try await one.run("docs", "mkdir", "old", "newer", "--json").output
            #expect(json.contains(#""existing":["/Documents/old"]"#), "\(json)")
        }
    }

    /// A name may be what is wrong, and long.
    @Test func noErrorFillsTheTerminal() async throws {
        try await withTenant { house in
            let refused = try await house.person.run("kv", "set", String(repeating: "k", count: 50_000), "1")
            #expect(refused.status != 0 && refused.errors.utf8.count < 4_000, "\(refused.errors.utf8.count)")
        }
    }

    /// In a home with an account, too, that is named which is asked for.
    @Test func aDeploymentThatIsNamedAndNotThereIsMissed() async throws {
        try await withTenant { house in
            let status = try await house.person.run("status", "--deployment", house.folder + "/nowhere")
            #expect(status.status == 8 && status.errors.contains("There is no deployment"), "\(status)")
        }
    }

    /// What was begun is gone on with where it was; what is done is as `cp -r` has it.
    @Test func aGetOfAFolderThatWasKilledIsGoneOnWithInItsPlace() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (source, target) = (house.folder + "/photos", house.folder + "/target")
            let files = FileManager.default
            try files.createDirectory(atPath: source + "/in", withIntermediateDirectories: true)
            var random = SplitMix64(seed: 1)
            for name in ["a", "in/b"] {
                var content = Data()
                while content.count < 3_000_000 {
                    withUnsafeBytes(of: random.next()) { content.append(contentsOf: $0) }
                }
                try content.write(to: URL(fileURLWithPath: source + "/" + name))
            }
            #expect(try await one.run("docs", "put", "-r", source).status == 0)
            #expect(try await two.run("docs", "ls").output.contains("photos"))
            func names(_ path: String) -> [String] { (try? files.contentsOfDirectory(atPath: path).sorted()) ?? [] }

            let get = ["docs", "get", "-r", "photos", target]
            for signal in [SIGKILL, SIGINT] {
                let running = try two.start(get + ["--limit-rate", "500K"])
                try await eventually("it is begun") { names(target).contains("in") }
                running.signal(signal)
                #expect(await running.outcome().status == 128 + signal)
                #expect(names(target).contains { $0.hasPrefix(".nephos-") && $0.hasSuffix(".part") })
            }
            // Of another folder it is a folder like any.
            #expect(try await two.run("docs", "mkdir", "other").status == 0)
            #expect(try await two.run("docs", "get", "-r", "other", target).status == 0)
            #expect(names(target).contains("other"))
            try files.removeItem(atPath: target + "/other")

            #expect(try await two.run(get).status == 0)
            #expect(names(target) == ["a", "in"] && names(target + "/in") == ["b"])
            for name in ["a", "in/b"] {
                #expect(files.contentsEqual(atPath: source + "/" + name, andPath: target + "/" + name))
            }
            #expect(try await two.run(get).status == 0)
            #expect(names(target) == ["a", "in", "photos"])
        }
    }

    /// The folder is there, and what says that it is not got yet could not be written.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aFolderThatWasJustMadeIsGoneOnWithToo() async throws {
        try await withTenant { house in
            let person = house.person
            #expect(try await person.run("docs", "mkdir", "-p", "photos/in").status == 0)
            let disk = try SmallDisk(megabytes: 4, entries: 1)
            defer { disk.remove() }
            let get = ["docs", "get", "-r", "photos", disk.folder + "/target/"]
            #expect(try await person.run(get).status != 0)
            try disk.setEntries(100)
            #expect(try await person.run(get).status == 0)
            let files = FileManager.default
            #expect(try files.contentsOfDirectory(atPath: disk.folder) == ["target"])
            #expect(try files.contentsOfDirectory(atPath: disk.folder + "/target") == ["in"])
        }
    }

    /// A package that has another name by now is the one that was begun.
    @Test func aGetFromAPackageIsGoneOnWithWhateverThePackageIsCalled() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            let (source, target) = (house.folder + "/P.bundle", house.folder + "/target")
            let files = FileManager.default
            try files.createDirectory(atPath: source + "/in/deep", withIntermediateDirectories: true)
            var (random, content) = (SplitMix64(seed: 1), Data())
            while content.count < 3_000_000 {
                withUnsafeBytes(of: random.next()) { content.append(contentsOf: $0) }
            }
            try content.write(to: URL(fileURLWithPath: source + "/in/deep/a"))
            #expect(try await one.run("docs", "put", "--package", source).status == 0)
            #expect(try await two.run("docs", "ls").output.contains("P.bundle"))
            let running = try two.start(["docs", "get", "-r", "P.bundle/in", target, "--limit-rate", "500K"])
            try await eventually("it is begun") { files.fileExists(atPath: target + "/deep") }
            running.signal(SIGKILL)
            _ = await running.outcome()
            #expect(try await two.run("docs", "mv", "P.bundle", "Q.bundle").status == 0)
            #expect(try await two.run("docs", "get", "-r", "Q.bundle/in", target).status == 0)
            #expect(try files.contentsOfDirectory(atPath: target) == ["deep"])
        }
    }

    @Test func aWatchOfDocumentsNamesThem() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            #expect(try await one.run("docs", "mkdir", "letters").status == 0)
            #expect(try await two.run("docs", "ls").status == 0)
            let (text, json) = (try two.start(["watch"]), try two.start(["watch", "--json"]))
            defer { for watch in [text, json] { watch.signal(SIGKILL) } }
            try await eventually("they are in sync") {
                text.output.contains("in sync") && json.output.contains("in_sync")
            }
            let file = house.folder + "/a.txt"
            try Data("1".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await one.run("docs", "put", file, "letters/a.txt").status == 0)
            try await eventually("it is named") {
                text.output.contains(" changed /Documents/letters/a.txt\n")
                    && json.output.replacing("\\/", with: "/").contains("/Documents/letters/a.txt")
            }
            #expect(try await one.run("docs", "rm", "letters/a.txt").status == 0)
            try await eventually("it is in the trash") { text.output.contains("a.txt (in the trash)\n") }
            // The JSON has the ids, too.
            let line = try #require(json.output.split(separator: "\n").first { $0.contains("a.txt") })
            let row = try #require(JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
            let (keys, paths) = (row["keys"] as? [String], row["paths"] as? [String: String])
            #expect(keys?.contains { paths?[$0] == "/Documents/letters/a.txt" } == true, "\(line)")
        }
    }

    @Test func zonesThatAreNotDeletedAreNotCalledSo() async throws {
        try await withTenant { house in
            let one = house.person
            let made = try await one.run("records", "zones", "make", "work")
            #expect(made.status == 0 && made.output == "Made work.\n", "\(made)")
            #expect(try await house.nephos.run("account", "lock", house.accountName).status == 0)
            let locked = try await one.run("records", "zones", "delete", "work", "--yes")
            #expect(locked.status == 7 && !locked.output.contains("Deleted"), "\(locked)")
            #expect(locked.output.contains("Not deleted yet: work. It is kept on this device."), "\(locked)")
            #expect(try await house.nephos.run("account", "unlock", house.accountName).status == 0)
            #expect(try await one.run("status").status == 0)
        }
    }

    @Test func anAppThatDoesNotExistIsOneThingToAllCommands() async throws {
        try await withTenant { house in
            for command in [
                ["kv", "get", "k"], ["kv", "list"], ["kv", "set", "k", "1"], ["docs", "ls"], ["docs", "get", "a"],
                ["docs", "mkdir", "a"], ["records", "ls"], ["records", "get", "a"], ["records", "zones"],
                ["records", "query", "n > 1"], ["records", "save", "a", "n=1"], ["status"], ["watch"], ["verify"],
                ["why", "k"], ["why"], ["conflicts"], ["discard", "k"], ["discard", "--all"],
                ["status", "--service", "documents"], ["verify", "--service", "records"],
                ["status", "--name", "TYPO.app"], ["conflicts", "--service", "documents", "--name", "x"],
                ["docs", "status"], ["kv", "history"],
            ] {
                let outcome = try await house.person.run(command + ["--app", "TYPO.app", "--timeout", "20"])
                #expect(outcome.status == 4, "\(command): \(outcome)")
            }
        }
    }
}
