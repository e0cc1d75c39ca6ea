import Foundation
import Testing

/// Values go in and come out as they are, and what cannot be printed fails the command.
@Suite(.serialized) struct ValueTests {
    private func file(with text: String) throws -> String {
        let file = NSTemporaryDirectory() + "nephos-values-" + UUID().uuidString
        try Data(text.utf8).write(to: URL(fileURLWithPath: file))
        return file
    }

    @Test func whatIsSetComesOutAsItWasTyped() async throws {
        try await withHousehold { house in
            try await house.begin()
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

    @Test func otherPeoplesTextIsSafeForATerminal() async throws {
        try await withHousehold { house in
            try await house.begin()
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
        try await withHousehold { house in
            try await house.begin()
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
