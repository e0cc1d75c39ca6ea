import Foundation
import GRDB
import NephosCore
import Testing

/// Values go in and come out as they are, and what cannot be printed fails the command.
@Suite(.serialized) struct ValueTests {
    private func file(with text: String) throws -> String {
        let file = NSTemporaryDirectory() + "nephos-values-" + UUID().uuidString
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    /// Whoever runs a service sees what made it stand still.
    @Test func aGroupThatTakesLongIsInTheLog() async throws {
        try await withHousehold { house in
            try await house.begin()
            let file = house.folder + "/many.json"
            let service = try house.holder(.keyValue)
            let log = house.folder + "/deployment/log/keyvalue.log"
            var lines: [Substring] = []
            for round in 0..<30 where lines.isEmpty {
                let values = Dictionary(uniqueKeysWithValues: (0..<1000).map { ("key-\($0)", "value \(round)") })
                try JSONEncoder().encode(values).write(to: URL(fileURLWithPath: file))
                let importing = try house.person.start(["kv", "import", file])
                // A machine that stands still now and then: sooner or later while the service has a group under way,
                // which takes longer then than the 50 ms from which on it is told.
                while isRunning(importing.pid) {
                    kill(service, SIGSTOP)
                    try await Task.sleep(for: .milliseconds(80))
                    kill(service, SIGCONT)
                    try await Task.sleep(for: .milliseconds(5))
                }
                let imported = await importing.outcome()
                #expect(imported.status == 0, "\(imported)")
                lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
                    .filter { $0.contains("A group held the loop up") }
            }
            // Others that follow within ten seconds are only counted.
            #expect(lines.count == 1)
            #expect(lines.first?.contains("requests=") == true, "\(lines)")
        }
    }

    @Test func whatIsSetComesOutAsItWasTyped() async throws {
        try await withTenant { house in
            let typed = [
                "01234": "string", "1.10": "string", "+49123": "string", "0x10": "string", "inf": "string",
                "99999999999999999999": "string", "[1.10]": "string", "42": "integer", "2.0": "real", "true": "boolean",
            ]
            for (text, type) in typed.sorted(by: { $0.key < $1.key }) {
                #expect(try await house.person.run("kv", "set", "k", "--offline", "--", text).status == 0)
                #expect(try await house.person.run("kv", "get", "k").output == text + "\n")
                #expect(try await house.person.run("kv", "get", "k", "--json").output.contains("\"type\":\"\(type)\""))
            }
            for text in ["inf", "nan"] {
                #expect(try await house.person.run("kv", "set", "k", "--type", "real", text).status == 64)
            }
            // An export goes back in and is the same.
            let real = try file(
                with:
                    #"{"a":2.0,"b":2,"c":{"$date":"2026-01-31T12:00:00.123Z"},"d":{"$real":"inf"}}"#)
            defer { unlink(real) }
            #expect(try await house.person.run("kv", "import", real, "--offline").status == 0)
            let exported = try await house.person.run("kv", "export").output
            #expect(
                exported
                    == #"{"a":2.0,"b":2,"c":{"$date":"2026-01-31T12:00:00.123Z"},"d":{"$real":"inf"},"k":true}"# + "\n")
        }
    }

    @Test func whatCannotBeKeptIsRefusedAndNothingIsKept() async throws {
        try await withTenant { house in
            func list(_ element: String) -> String {
                "<?xml version=\"1.0\"?><plist><dict><key>good</key><true/><key>bad</key>\(element)</dict></plist>"
            }
            for (text, key) in [
                (list("<integer>9223372036854775808</integer>"), "bad"), (list("<real>1e400</real>"), "bad"),
                (list("<dict><key>CF$UID</key><integer>1</integer></dict>"), "bad"),
                (#"{"good": 1, "bad": {"$date": "2026-02-30T00:00:00Z"}}"#, "bad"),
                (#"{"good": 1, "bad": [0, null]}"#, "bad[1]"),
            ] {
                let file = try file(with: text)
                defer { unlink(file) }
                let refused = try await house.person.run("kv", "import", file, "--offline")
                #expect(refused.status == 64, "\(text): \(refused)")
                #expect(refused.errors.contains("key: \(key)\n"), "\(text): \(refused.errors)")
                #expect(refused.errors.contains("reason: "), "\(text): \(refused.errors)")
            }
            for date in ["2026-02-30T00:00:00Z", "10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"] {
                let refused = try await house.person.run("kv", "set", "k", "--type", "date", date, "--offline")
                #expect(refused.status == 64, "\(date): \(refused)")
            }
            let endless = try await house.person.run("kv", "set", "k", "-", "--offline", input: "/dev/zero")
            #expect(endless.status == 3, "\(endless)")
            #expect(try await house.person.run("kv", "list").output == "The store is empty.\n")
            for date in ["0001-01-01T00:00:00.000Z", "2026-01-31T12:00:00.123Z"] {
                #expect(
                    try await house.person.run("kv", "set", "k", "--type", "date", date, "--offline").status == 0)
                #expect(try await house.person.run("kv", "get", "k").output.contains(date))
            }
            // A pipe is a file, too.
            let piped = try await house.person.run(
                ["kv", "set", "k", "--offline", "--from"],
                before: ["bash", "-c", #"exec "$@" <(printf hello)"#, "bash"])
            #expect(piped.status == 0, "\(piped)")
            #expect(try await house.person.run("kv", "get", "k").output == "hello\n")
        }
    }

    @Test func aBinaryPropertyListIsImported() async throws {
        try await withHousehold { house in
            try await house.begin()
            let content: [String: Any] = [
                "text": "01234", "count": 7, "share": 2.5, "whole": true, "when": Date(timeIntervalSince1970: 1),
                "bytes": Data([0, 255]), "list": [1, "a"],
            ]
            let file = house.folder + "/defaults.plist"
            try PropertyListSerialization.data(fromPropertyList: content, format: .binary, options: 0)
                .write(to: URL(fileURLWithPath: file))
            let imported = try await house.person.run("kv", "import", file)
            #expect(imported.status == 0, "\(imported)")
            let expected = [
                #""bytes":{"$data":"AP8="}"#, #""count":7"#, #""list":[1,"a"]"#, #""share":2.5"#, #""text":"01234""#,
                #""when":{"$date":"1970-01-01T00:00:01.000Z"}"#, #""whole":true"#,
            ]
            #expect(try await house.person.run("kv", "export").output == "{\(expected.joined(separator: ","))}\n")
        }
    }

    private static let hostile = "\u{1b}[31mred\u{202e}\u{200d}\u{9b}\u{7}\u{ad}"

    /// Whether it shows the text, and none of it as a command to a terminal.
    private func isSafe(_ outcome: Program.Outcome) -> Bool {
        let bad = Set(Self.hostile.unicodeScalars).subtracting("[31mred".unicodeScalars)
        return outcome.output.contains("[31mred")
            && !(outcome.output + outcome.errors).unicodeScalars.contains { bad.contains($0) }
    }

    /// No device can be called so by itself.
    private func callDevices(_ name: String, in house: Household) throws {
        try DatabaseQueue(path: house.deployment + "/data/identity/identity.sqlite").write {
            try $0.execute(sql: "UPDATE devices SET name = ?", arguments: [name])
        }
    }

    @Test func whatOthersAreCalledAndWroteIsSafeWhereverItIsShown() async throws {
        try await withHousehold { house in
            try await house.begin()
            let person = house.person
            let other = try await house.anotherDevice("other")
            #expect(try await person.run("kv", "set", Self.hostile, "mine").status == 0)
            #expect(try await house.nephos.run("down").status == 0)
            try callDevices(Self.hostile, in: house)
            #expect(try await house.nephos.run("up").status == 0)
            for (number, options) in [[], ["--json"]].enumerated() {
                #expect(try await other.run("kv", "set", Self.hostile, "\(number)" + Self.hostile).status == 0)
                let watch = try await person.run(["watch", "--exit-after", "1"] + options)
                #expect(watch.status == 0 && isSafe(watch), "\(watch)")
                for command in [["kv", "history"], ["devices"]] {
                    let outcome = try await person.run(command + options)
                    #expect(outcome.status == 0 && isSafe(outcome), "\(command): \(outcome)")
                }
            }
            #expect(try await house.nephos.run("down").status == 0)
            #expect(try await person.run("kv", "set", Self.hostile, "late").status == 0)
            for options in [[], ["--json"]] {
                let why = try await person.run(["why"] + options)
                #expect(why.status == 5 && isSafe(why), "\(why)")
            }
        }
    }

    @Test func otherPeoplesTextIsSafeForATerminal() async throws {
        try await withTenant { house in
            let hostile = "\u{1b}[31mred\u{202e}\u{200d}"
            #expect(try await house.person.run("kv", "set", "red", hostile, "--offline").status == 0)
            for command in [["kv", "list"], ["kv", "get", "red"], ["kv", "get", "red", "--json"], ["kv", "export"]] {
                let output = try await house.person.run(command).output
                #expect(output.contains("[31mred"))
                #expect(!output.unicodeScalars.contains { ["\u{1b}", "\u{202e}", "\u{200d}"].contains($0) })
            }
            #expect(try await house.person.run("kv", "get", "red", "--raw").output == hostile)
        }
    }

    @Test func aCommandFailsWhoseOutputCouldNotBeWritten() async throws {
        try await withTenant { house in
            #expect(try await house.person.run("kv", "set", "k", "1", "--offline").status == 0)
            for command in [
                ["kv", "list"], ["kv", "export"], ["kv", "get", "k"], ["kv", "get", "k", "--json"], ["whoami"],
                ["devices"], ["status"], ["kv", "set", "k", "1", "--offline"], ["--help"], ["--version"],
            ] {
                let outcome = try await house.person.run(command, output: "/dev/full")
                #expect(outcome.status == 74, "\(command)")
                #expect(outcome.errors.contains("The output could not be written."), "\(command)")
            }
        }
    }
}
