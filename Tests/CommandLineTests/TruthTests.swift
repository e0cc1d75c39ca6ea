import Foundation
import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

/// What is said is so, and what it advises helps.
@Suite(.serialized) struct TruthTests {
    private func file(_ house: some Resident, _ name: String, _ text: String) throws -> String {
        let file = house.folder + "/" + name
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    private func many(_ house: some Resident, _ count: Int) throws -> String {
        let file = house.folder + "/many.json"
        let values = Dictionary(uniqueKeysWithValues: (0..<count).map { ("key-\($0)", $0) })
        try JSONEncoder().encode(values).write(to: URL(fileURLWithPath: file))
        return file
    }

    private func signInSecond(_ house: some Resident) async throws -> Program {
        var second = house.person
        second.environment["NEPHOS_HOME"] = house.folder + "/second"
        let signIn = try await second.run(
            "sign-in", try await house.connection, "--account", house.accountName, "--device-name", "second")
        try #require(signIn.status == 0, "\(signIn)")
        return second
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aSignOutThatCannotBeKeptIsNotAskedFor() async throws {
        try await withHousehold { house in
            let disk = try SmallDisk(megabytes: 4, at: house.folder + "/home")
            defer { disk.remove() }
            try await house.begin()
            #expect(try await house.person.run("kv", "sync").status == 0)
            try disk.fill()
            // What a session needs to begin is there; what its end needs is not.
            let junk = open(house.folder + "/home/junk", O_WRONLY)
            try #require(junk >= 0 && ftruncate(junk, lseek(junk, 0, SEEK_END) - (72 << 10)) == 0)
            close(junk)
            let refused = try await house.person.run("sign-out")
            #expect(refused.status == 8 && refused.errors.contains("is full"), "\(refused)")
            try disk.empty()
            let sync = try await house.person.run("kv", "sync")
            #expect(sync.status == 0, "\(sync)")
            #expect(try await house.person.run("sign-out").status == 0)
        }
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func aServerWithoutRoomHasAnswered() async throws {
        try await withHousehold { house in
            let disk = try SmallDisk(megabytes: 96, at: house.deployment + "/data/keyvalue")
            defer { disk.remove() }
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            try disk.fill()
            let large = try file(house, "large", String(repeating: "x", count: 300_000))
            #expect(try await house.person.run("kv", "set", "large", "--from", large).status == 0)
            for command in [["why"], ["kv", "sync"], ["verify"], ["why", "--timeout", "2"]] {
                let outcome = try await house.person.run(command)
                let said = outcome.output + outcome.errors
                #expect(outcome.status == 8, "\(command): \(outcome)")
                #expect(said.contains("The server's disk is full"), "\(command): \(outcome)")
                #expect(!said.contains("has not answered"), "\(command): \(outcome)")
                #expect(!said.contains("blocked by    network"), "\(command): \(outcome)")
                if command.first == "why" { #expect(said.contains("blocked by    server"), "\(command): \(outcome)") }
            }
            try disk.empty()
        }
    }

    /// What makes room goes past what waits for it: that is done, and not only kept here.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatGoesPastWhatWaitsForRoomIsSaidToBeDone() async throws {
        try await withHousehold { house in
            let disk = try SmallDisk(megabytes: 96, at: house.deployment + "/data/documents")
            defer { disk.remove() }
            try await house.begin()
            let small = try file(house, "small", "x")
            #expect(try await house.person.run("docs", "put", small).status == 0)
            try disk.fill()
            let large = try file(house, "large", String(repeating: "x", count: 300_000))
            let kept = try await house.person.run("docs", "put", large)
            #expect(kept.status == 0 && kept.output.contains("It is kept on this device"), "\(kept)")
            let removed = try await house.person.run("docs", "rm", "small")
            #expect(removed.status == 0 && !removed.output.contains("kept on this device"), "\(removed)")
            #expect(removed.errors.contains("What was changed before is still kept on this device"), "\(removed)")
            try disk.empty()
        }
    }

    @Test func aBudgetThatIsUsedUpEndsEveryCommandAlike() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "sync").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            var operatorProgram = house.nephos
            operatorProgram.environment["NEPHOS_KEYVALUE_BUDGET_CAPACITY"] = "20"
            operatorProgram.environment["NEPHOS_KEYVALUE_BUDGET_REFILL_PER_SECOND"] = "1"
            operatorProgram.environment["NEPHOS_KEYVALUE_BUDGET_SPARE_PERCENT"] = "0"
            #expect(try await operatorProgram.run("up").status == 0)
            let large = try file(house, "large", String(repeating: "x", count: 600_000))
            #expect(try await house.person.run("kv", "set", "large", "--from", large).status == 0)
            #expect(try await house.person.run("kv", "set", "k", "2", "--offline").status == 0)
            for command in [["kv", "sync"], ["verify"], ["why"]] {
                let outcome = try await house.person.run(command + ["--timeout", "1"])
                #expect(outcome.status == 3, "\(command): \(outcome)")
            }
        }
    }

    @Test func whoseDeviceDidNotHearOfRoomAsksForItFirst() async throws {
        try await withTenant { house in
            let connection = house.connection
            var second = house.person
            second.environment["NEPHOS_HOME"] = house.folder + "/second"
            let signIn = ["sign-in", connection, "--account", house.accountName]
            #expect(try await second.run(signIn + ["--device-name", "lamp"]).status == 0)
            let large = try file(house, "large", String(repeating: "x", count: 600_000))
            #expect(try await house.person.run("kv", "set", "large", "--from", large).status == 0)
            #expect(try await second.run("kv", "sync").status == 0)
            #expect(try await house.person.run("kv", "delete", "large").status == 0)
            let outcome = try await second.run("kv", "set", "mine", "--from", large)
            #expect(outcome.status == 0, "\(outcome)")
            // What has no room there either is refused, and a device keeps its name.
            #expect(try await second.run("kv", "set", "more", "--from", large).status == 3)
            #expect(try await second.run("sign-out").status == 0)
            let again = try await second.run(signIn)
            #expect(again.output.contains("device lamp"), "\(again)")
        }
    }

    /// By itself, and by another, which it hears of when it lists them.
    @Test func aDeviceThatWasRenamedKeepsThatName() async throws {
        try await withTenant { house in
            let second = try await signInSecond(house)
            let signIn = ["sign-in", house.connection, "--account", house.accountName]
            #expect(try await second.run("devices", "rename", "second", "lamp").status == 0)
            #expect(try await second.run("sign-out").status == 0)
            let again = try await second.run(signIn)
            #expect(again.output.contains("device lamp"), "\(again)")
            #expect(try await house.person.run("devices", "rename", "lamp", "desk").status == 0)
            #expect(try await second.run("devices").status == 0)
            #expect(try await second.run("sign-out").status == 0)
            let last = try await second.run(signIn)
            #expect(last.output.contains("device desk"), "\(last)")
        }
    }

    @Test func aServiceThatSaysNothingIsNotSaidToStoreNothing() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let whole = try await house.person.run("storage")
            #expect(whole.output.contains("keyvalue") && !whole.output.contains("for want of"), "\(whole)")
            let process = try house.holder(.keyValue)
            kill(process, SIGSTOP)
            defer { kill(process, SIGCONT) }
            let outcome = try await house.person.run("storage", "--timeout", "1")
            #expect(outcome.output.contains("Not listed, for want of an answer: what keyvalue stores."), "\(outcome)")
        }
    }

    @Test func anEmptyPasswordIsNotSentAndADeviceNeedsAName() async throws {
        try await withTenant { house in
            let connection = house.connection
            var empty = house.person
            empty.environment["NEPHOS_PASSWORD"] = ""
            empty.environment["NEPHOS_HOME"] = house.folder + "/other"
            let signIn = ["sign-in", connection, "--account", house.accountName]
            let outcome = try await empty.run(signIn)
            #expect(outcome.status == 64 && outcome.errors.contains("$NEPHOS_PASSWORD"), "\(outcome)")
            #expect(try await empty.run("account", "create", "bob").status == 64)
            var named = house.person
            named.environment["NEPHOS_HOME"] = house.folder + "/other"
            let nameless = try await named.run(signIn + ["--device-name", ""])
            #expect(nameless.status == 64 && nameless.errors.contains("A device needs a name."), "\(nameless)")
            let long = try file(house, "long", String(repeating: "x", count: 100_000))
            let tooLong = try await named.run(signIn + ["--password-file", long])
            #expect(tooLong.status == 64 && tooLong.errors.contains("password"), "\(tooLong)")
            #expect(!tooLong.errors.contains("value"), "\(tooLong)")
            let audit = try await house.nephos.run("account", "audit", "--account", house.accountName).output
            #expect(!audit.contains("refused"), "\(audit)")
        }
    }

    @Test func whatManyKeysWaitForIsSaidInAFewLines() async throws {
        try await withHousehold { house in
            try await house.begin()
            #expect(try await house.person.run("kv", "sync").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            let one = try file(house, "one.json", "{\"one\":1}")
            let imported = try await house.person.run("kv", "import", one, "--offline")
            #expect(imported.output.hasPrefix("Imported 1 key. "), "\(imported)")
            #expect(try await house.person.run("kv", "import", try many(house, 950), "--offline").status == 0)
            let tooMany = try await house.person.run("kv", "import", try many(house, 1100), "--offline")
            #expect(tooMany.status == 3, "\(tooMany)")
            #expect(tooMany.errors.contains("The store has too many keys: 1101, at most 1024. Nothing"), "\(tooMany)")
            let why = try await house.person.run("why")
            #expect(why.output.contains(" and 945 more: "), "\(why)")
            #expect(why.output.split(separator: "\n").allSatisfy { $0.count < 200 }, "\(why)")
            #expect(try await house.person.run("why", "--json").output.contains("\"key-949\""))
            // A count is a number; what somebody has named is not.
            let signOut = try await house.person.run("sign-out", "--json")
            #expect(signOut.errors.contains("\"unsent\":2") && signOut.errors.contains("\"apps\":\""), "\(signOut)")
            let sync = try await house.person.run("kv", "sync", "--offline")
            #expect(sync.status == 6 && sync.output.contains("2 changes wait"), "\(sync)")
            #expect(sync.output.components(separatedBy: "2 changes wait").count == 2, "\(sync)")
            #expect(try await house.person.run("kv", "export", "--json").output.contains("\"one\":1"))
        }
    }

    @Test func whoseSignInHasEndedIsToldSoAndWhatHelps() async throws {
        try await withTenant { house in
            let second = try await signInSecond(house)
            #expect(try await second.run("kv", "sync").status == 0)
            #expect(try await house.nephos.run("devices", "--help").output.contains("A device in use"))
            #expect(
                try await house.person.run("devices", "revoke", "second").status == 0)
            while try await second.run("kv", "sync").status == 0 {}
            #expect(try await second.run("kv", "set", "k", "1", "--offline").status == 0)
            let signOut = try await second.run("sign-out")
            #expect(signOut.status == 1 && signOut.errors.contains("Sign in again"), "\(signOut)")
            #expect(!signOut.errors.contains("Connect and wait"), "\(signOut)")

            #expect(try await house.nephos.run("account", "close", house.accountName, "--yes").status == 0)
            while try await house.person.run("kv", "sync").status == 0 {}
            let closed = try await house.person.run("kv", "sync")
            #expect(closed.status == 4 && closed.errors.contains("may have been closed"), "\(closed)")
            #expect(!closed.errors.contains("token"), "\(closed)")
        }
    }

    @Test func aClosedOutputIsNoFileOfTheCommands() async throws {
        try await withTenant { house in
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let closing = ["sh", "-c", #"exec "$@" <&- >&- 2>&-"#, "sh"]
            let get = try await house.person.run("kv", "get", "k", before: closing)
            #expect(get.status == 74, "\(get)")
            let watch = try house.person.start(["watch"], before: closing)
            defer { watch.signal(SIGKILL) }
            func opened(_ descriptor: Int) -> String {
                (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(watch.pid)/fd/\(descriptor)"))
                    ?? ""
            }
            try await eventually("it has opened its database") {
                (3..<60).contains { opened($0).hasSuffix("device.sqlite") }
            }
            for descriptor in 0...2 { #expect(opened(descriptor) == "/dev/null") }
        }
    }

    /// But for the times, and where the store's feed began.
    private func form(_ text: some StringProtocol) -> String {
        String(text).replacingOccurrences(
            of: "[0-9]{2}:[0-9]{2}:[0-9]{2}", with: "TIME", options: .regularExpression
        ).replacingOccurrences(of: "at [0-9]{10,}:0,", with: "at TOKEN,", options: .regularExpression)
    }

    @Test func whatTheReadmeShowsIsWhatIsPrinted() async throws {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let readme = form(try String(contentsOf: root.appendingPathComponent("README.md"), encoding: .utf8))
        try await withTenant { house in
            let (a, b) = (try await house.anotherDevice("device-a"), try await house.anotherDevice("device-b"))
            let watch = try b.start(["watch", "--exit-after", "1"])
            try await eventually("it follows") { watch.output.contains("in sync at") }
            let set = try await a.run("kv", "set", "greeting", "hello from a, 06:40:38")
            let watched = await watch.outcome()
            #expect(readme.contains("'hello from a'\n" + form(set.output)), "\(set)")
            #expect(readme.contains("told:\n" + form(watched.output)), "\(watched)")
            let get = try await b.run("kv", "get", "greeting")
            #expect(readme.contains("kv get greeting\n" + form(get.output)), "\(get)")
        }
    }

    @Test func watchNamesTheDeviceAndItsChangesInWords() async throws {
        try await withTenant { house in
            let (a, b) = (try await house.anotherDevice("device-a"), try await house.anotherDevice("device-b"))
            let file = house.folder + "/values.json"
            try Data(#"{"one":1,"two":2}"#.utf8).write(to: URL(fileURLWithPath: file))
            let watch = try b.start(["watch", "--exit-after", "3"])
            try await eventually("it follows") { watch.output.contains("in sync at") }
            for (words, line) in [
                (["kv", "set", "theme", "night"], " device-a changed theme = night\n"),
                (["kv", "import", file], " device-a changed 2 items:\n  one = 1\n  two = 2\n"),
                (["kv", "delete", "theme"], " device-a deleted theme\n"),
            ] {
                #expect(try await a.run(words).status == 0)
                try await eventually("\(line)") { watch.output.contains(line) || !isRunning(watch.pid) }
                #expect(watch.output.contains(line), "\(watch.output)")
            }
            #expect(await watch.outcome().status == 0)
        }
    }

    /// What the store of nobody has is not what the file is to become.
    @Test func aMirrorEndsWhenTheDeviceSignsOut() async throws {
        try await withTenant { house in
            let file = house.folder + "/defaults.json"
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            #expect(try await house.person.run("kv", "sync").status == 0)
            let mirror = try house.person.start(["kv", "mirror", file], before: ["timeout", "60"])
            func content() -> String {
                FileManager.default.contents(atPath: file).map { String(decoding: $0, as: UTF8.self) } ?? ""
            }
            try await eventually("the file is filled") { content().contains("\"k\" : 1") }
            #expect(try await house.person.run("sign-out").status == 0)
            let outcome = await mirror.outcome()
            #expect(outcome.status == 4 && outcome.errors.contains("left as it is"), "\(outcome)")
            #expect(content().contains("\"k\" : 1"))
        }
    }

    @Test func anOperatorsTapShowsWhatIdentityPublishes() async throws {
        try await withHousehold { house in
            try await house.begin()
            let tap = try house.nephos.start(["watch", "--bus", "--exit-after", "1", "--json"])
            // It hears what is published once it has connected, which nobody is told.
            var count = 0
            while isRunning(tap.pid), count < 100 {
                let app = ["app", "create", "T.tapped-\(count)", "--name", "Tapped"]
                #expect(try await house.nephos.run(app).status == 0)
                count += 1
            }
            let outcome = await tap.outcome()
            #expect(outcome.status == 0 && outcome.output.contains("app/T.tapped-"), "\(outcome)")
        }
    }
}
