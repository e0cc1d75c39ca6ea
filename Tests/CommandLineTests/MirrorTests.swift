import Foundation
import NephosCore
import Testing

/// What somebody wrote in the file of a mirror is theirs, whether the mirror ran or not.
@Suite(.serialized) struct MirrorTests {
    private func content(_ file: String) -> String {
        FileManager.default.contents(atPath: file).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    private func write(_ text: String, to file: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
    }

    /// Runs a mirror until the condition holds.
    private func mirror(
        _ house: Tenant, _ file: String, _ options: [String] = [], until condition: (_ content: String) -> Bool
    ) async throws {
        let mirror = try house.person.start(["kv", "mirror", file] + options)
        do { try await eventually("the mirror has done it") { condition(content(file)) } } catch {
            mirror.signal(SIGKILL)
            Issue.record("mirror: \(await mirror.outcome()), \(content(file))")
            throw error
        }
        // What it does after that it does at once, or not at all.
        try await Task.sleep(for: .milliseconds(700))
        mirror.signal(SIGKILL)
        _ = await mirror.outcome()
    }

    @Test func whatWasEditedWhileNoMirrorRanIsTakenAndTheRestYields() async throws {
        try await withTenant { house in
            let file = house.folder + "/defaults.json"
            for (key, value) in [("edited", "1"), ("stale", "1"), ("removed", "1"), ("gone", "1")] {
                #expect(try await house.person.run("kv", "set", key, value).status == 0)
            }
            try await mirror(house, file) { $0.contains("\"stale\" : 1") }

            try write(#"{"edited": 2, "stale": 1, "gone": 1, "new": 3}"#, to: file)
            #expect(try await house.person.run("kv", "set", "edited", "4").status == 0)
            #expect(try await house.person.run("kv", "set", "stale", "5").status == 0)
            #expect(try await house.person.run("kv", "set", "fresh", "6").status == 0)
            #expect(try await house.person.run("kv", "delete", "gone").status == 0)
            try await mirror(house, file) { $0.contains("\"stale\" : 5") }

            let expected = #"{"edited":2,"fresh":6,"new":3,"stale":5}"# + "\n"
            #expect(try await house.person.run("kv", "export").output == expected)
            #expect(content(file).filter { !$0.isWhitespace } + "\n" == expected)
            #expect(try await house.person.run("kv", "sync").status == 0)
            let history = try await house.person.run("kv", "history", "edited", "--json").output
            #expect(history.contains(#""value":4"#), "\(history)")
        }
    }

    @Test func anEditThatTheServerRefusesIsSaid() async throws {
        try await withHousehold { house in
            try await house.begin()
            let second = try await house.anotherDevice("second")
            let file = house.folder + "/defaults.json"
            let large = String(repeating: "x", count: 600_000)
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            let mirror = try house.person.start(["kv", "mirror", file])
            let (notifications, keyValue) = (try house.holder(.notifications), try house.holder(.keyValue))
            defer { for pid in [mirror.pid, notifications, keyValue] { kill(pid, SIGCONT) } }
            try await eventually("it mirrors") { content(file).contains("\"k\" : 1") }

            // The room goes to another device, of which this one cannot hear before it has taken the edit.
            for pid in [mirror.pid, notifications] { kill(pid, SIGSTOP) }
            try write(large, to: house.folder + "/large")
            #expect(try await second.run("kv", "set", "theirs", "--from", house.folder + "/large").status == 0)
            kill(keyValue, SIGSTOP)
            try write(#"{"k": 1, "mine": ""# + large + #""}"#, to: file)
            kill(mirror.pid, SIGCONT)
            var taken = false
            let deadline = ContinuousClock.now + .seconds(30)
            while !taken, ContinuousClock.now < deadline {
                taken = try await house.person.run("kv", "get", "mine", "--offline").status == 0
            }
            #expect(taken)
            for pid in [notifications, keyValue] { kill(pid, SIGCONT) }
            try await eventually("it says so") { mirror.output.contains("rejected") && mirror.output.contains("mine") }
            mirror.signal(SIGINT)
            _ = await mirror.outcome()
        }
    }

    @Test func aFileThatIsCutOrBrokenWhileTheMirrorRunsEndsItAndDeletesNothing() async throws {
        try await withTenant { house in
            #expect(try await house.person.run("kv", "set", "k", "1").status == 0)
            for (text, reason) in [("", "is empty"), ("{\"k\": ", "cannot be taken over")] {
                let file = house.folder + "/defaults.json"
                let mirror = try house.person.start(["kv", "mirror", file], before: ["timeout", "30"])
                try await eventually("the file has the store") { content(file).contains("\"k\" : 1") }
                try write(text, to: file)
                let outcome = await mirror.outcome()
                #expect(outcome.status == 64, "\(outcome)")
                #expect(outcome.errors.contains(reason) && outcome.errors.contains(file), "\(outcome)")
                #expect(content(file) == text)
                #expect(try await house.person.run("kv", "export").output == "{\"k\":1}\n")
                unlink(file)
            }
        }
    }

    @Test func aFileOfWhichNothingIsKnownIsNotOverwritten() async throws {
        try await withTenant { house in
            let file = house.folder + "/defaults.json"
            let theirs = #"{"a": 1, "b": 1, "c": 1}"#
            for (side, expected) in [("file", "1"), ("store", "2")] {
                try? FileManager.default.removeItem(atPath: file)
                let name = file + "." + side + ".json"
                try write(theirs, to: name)
                #expect(try await house.person.run("kv", "set", "a", "2").status == 0)
                #expect(try await house.person.run("kv", "set", "b", "1").status == 0)
                #expect(try await house.person.run("kv", "delete", "c").status == 0)
                let refused = try await house.person.run(["kv", "mirror", name], before: ["timeout", "20"])
                #expect(refused.status == 1, "\(refused)")
                #expect(refused.errors.contains("--prefer file"), "\(refused)")
                #expect(refused.errors.contains("different: a\n"), "\(refused)")
                #expect(!refused.output.contains("Mirroring"), "\(refused)")
                #expect(content(name) == theirs)
                #expect(try await house.person.run("kv", "export").output == "{\"a\":2,\"b\":1}\n")

                try await mirror(house, name, ["--prefer", side]) {
                    $0.contains("\"a\" : \(expected)") || side == "file" && $0 == theirs
                }
                #expect(
                    try await house.person.run("kv", "export").output == "{\"a\":\(expected),\"b\":1,\"c\":1}\n")
                #expect(content(name).filter { !$0.isWhitespace } == "{\"a\":\(expected),\"b\":1,\"c\":1}")
            }
        }
    }

    @Test func aFileThatLostMostOfItsKeysWhileNoMirrorRanDeletesThemOnlyWhenAsked() async throws {
        try await withTenant { house in
            let file = house.folder + "/defaults.json"
            let all = house.folder + "/all.json"
            try JSONEncoder().encode(Dictionary(uniqueKeysWithValues: (0..<9).map { ("k\($0)", $0) }))
                .write(to: URL(fileURLWithPath: all))
            #expect(try await house.person.run("kv", "import", all).status == 0)
            try await mirror(house, file) { $0.contains("k8") }
            try write(#"{"k0": 0}"#, to: file)
            let refused = try await house.person.run(["kv", "mirror", file], before: ["timeout", "20"])
            #expect(refused.status == 1 && refused.errors.contains("--delete-many"), "\(refused)")
            #expect(content(file) == #"{"k0": 0}"#)
            let asked = try house.person.start(["kv", "mirror", "--delete-many", file])
            defer { asked.signal(SIGKILL) }
            let only = "{\"k0\":0}\n"
            while try await house.person.run("kv", "export").output != only, isRunning(asked.pid) {
                try await Task.sleep(for: .milliseconds(50))
            }
            #expect(try await house.person.run("kv", "export").output == only)
            asked.signal(SIGINT)
            _ = await asked.outcome()
            #expect(try await house.person.run("kv", "import", all).status == 0)
            // One that is gone says nothing of any key.
            try FileManager.default.removeItem(atPath: file)
            try await mirror(house, file) { $0.contains("k8") }
            #expect(try await house.person.run("kv", "get", "k8").status == 0)
        }
    }
}
