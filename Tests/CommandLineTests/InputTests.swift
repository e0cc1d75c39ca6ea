import Foundation
import Testing

/// Files and values as people make them.
@Suite(.serialized) struct InputTests {
    @Test func anEditorsLineEndIsNoPartOfAPassword() async throws {
        try await withTenant { house in
            let file = house.folder + "/password"
            let connection = house.connection
            for (index, end) in ["\r\n", "\n", "\r", ""].enumerated() {
                try Data("secret phrase 123\(end)".utf8).write(to: URL(fileURLWithPath: file))
                let made = try await house.nephos.run("account", "create", "bob\(index)", "--password-file", file)
                #expect(made.status == 0, "\(made)")
                var device = house.nephos
                device.environment["NEPHOS_HOME"] = house.folder + "/home-of-bob\(index)"
                device.environment["NEPHOS_PASSWORD"] = "secret phrase 123"
                let typed = try await device.run("sign-in", connection, "--account", "bob\(index)")
                #expect(typed.status == 0, "\(end.debugDescription): \(typed)")
                device.environment["NEPHOS_PASSWORD"] = nil
                let again = try await device.run(
                    "sign-in", connection, "--account", "bob\(index)", "--password-stdin", input: file)
                #expect(again.status == 0, "\(end.debugDescription): \(again)")
            }
            // A password may end with a space, and have a CR within.
            try Data("secret\rphrase 1 \r\n".utf8).write(to: URL(fileURLWithPath: file))
            #expect(
                try await house.nephos.run("account", "create", "eve", "--password-file", file).status == 0)
            var eve = house.nephos
            eve.environment["NEPHOS_HOME"] = house.folder + "/home-of-eve"
            eve.environment["NEPHOS_PASSWORD"] = "secret\rphrase 1 "
            #expect(try await eve.run("sign-in", connection, "--account", "eve").status == 0)
        }
    }

    @Test func booleansAndEmptyListsAreTyped() async throws {
        try await withTenant { house in
            let saved = try await house.person.run(
                "records", "save", "e", "l=[]", "done=true", "open=false", "word=True", "--type", "T",
                "--string", "text=true")
            #expect(saved.status == 0, "\(saved)")
            let line = try await house.person.run("records", "export").output
            let fields = #""fields":{"done":1,"l":{"$list":"strings"},"open":0,"text":"true","word":"True"}"#
            #expect(line.contains(fields), "\(line)")
            #expect(try await house.person.run("records", "query", "done == 1").status == 0)
        }
    }

    @Test func importSavesParentsBeforeChildren() async throws {
        try await withTenant { house in
            #expect(try await house.person.run("records", "save", "there", "n=1", "--type", "T").status == 0)
            func line(_ name: String, _ parent: String?) -> String {
                let parent = parent.map { #","parent":"\#($0)""# } ?? ""
                return #"{"name":"\#(name)","type":"T"\#(parent),"fields":{"n":1}}"#
            }
            // Deeper than one batch is long, the deepest first; and one whose parent is on the server alone.
            var lines = (1...600).map { line("leaf\($0)", "middle\($0 % 5)") }
            lines += (0..<5).map { line("middle\($0)", "top") } + [line("of-there", "there"), line("top", nil)]
            // The later line of one name is the one that counts.
            lines.insert(line("twice", "top"), at: 0)
            lines.append(#"{"name":"twice","type":"T","fields":{"n":2}}"#)
            let file = house.folder + "/records.jsonl"
            try Data(lines.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let made = try await house.person.run("records", "import", file, "--timeout", "60")
            #expect(made.status == 0 && made.output.contains("Imported"), "\(made)")
            #expect(try await house.person.run("records", "refused").output == "No change was rejected.\n")
            let other = try await house.anotherDevice("other")
            let exported = try await other.run("records", "export").output
            #expect(exported.split(separator: "\n").count == 609, "\(exported.count)")
            #expect(exported.contains(#""name":"leaf600","parent":"middle0""#) || exported.contains("leaf600"))
            #expect(try await other.run("records", "get", "twice").output.contains("n  2"))

            // A parent that is nowhere is said with its line, and parents in a circle end too.
            let bad = [line("orphan", "nowhere"), line("x", "y"), line("y", "x"), line("good", nil)]
            try Data(bad.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
            let refused = try await house.person.run("records", "import", file, "--timeout", "60")
            #expect(refused.status != 0 && refused.errors.contains("line 1: orphan"), "\(refused)")
            #expect(try await house.person.run("records", "get", "good").status == 0)
        }
    }
}
