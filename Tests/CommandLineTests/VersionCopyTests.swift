import Foundation
import Testing

/// Versions of a file are looked at, and got, one beside the other.
@Suite(.serialized) struct VersionCopyTests {
    @Test func twoTextsInConflictAreLookedAtAndGotBeside() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("phone"))
            let file = house.folder + "/s.txt"
            func put(_ text: String, _ device: Program, _ options: String...) async throws -> Program.Outcome {
                try Data(text.utf8).write(to: URL(fileURLWithPath: file))
                return try await device.run(["docs", "put", file] + options)
            }
            #expect(try await two.run("docs", "ls").status == 0)
            #expect(try await put("first\nphone\nlast\n", two, "--offline").status == 0)
            #expect(try await put("first\nhome\nlast\n", one).status == 0)
            #expect(try await two.run("docs", "mkdir", "other").status == 6)

            // Each device counts the conflict among what it says of itself.
            let status = try await two.run("status", "--json").output
            #expect(status.contains(#""conflicts":1"#), "\(status)")
            let text = try await two.run("status").output
            #expect(text.contains("One conflict waits to be decided. See: nephos conflicts"), "\(text)")

            let diff = try await one.run("docs", "diff", "--versions", "s.txt")
            #expect(diff.status == 0 && diff.output.hasSuffix(" first\n-home\n+phone\n last\n"), "\(diff)")
            #expect(diff.output.contains("by phone (17 B)"), "\(diff)")
            let json = try await one.run("docs", "diff", "--versions", "s.txt", "--json").output
            #expect(json.contains(#""equal":false"#) && json.contains(#""-home","+phone""#), "\(json)")

            let conflicts = try await one.run("docs", "conflicts").output
            #expect(conflicts.contains(/keep phone's \(17 B, \d\d:\d\d\)  +nephos docs resolve/), "\(conflicts)")
            #expect(conflicts.contains(/keep d's \(16 B, \d\d:\d\d\)  +nephos docs resolve/), "\(conflicts)")
            let get = try #require(conflicts.firstMatch(of: /nephos docs get .*/)).output
            let version = try #require(get.firstMatch(of: /[0-9a-f]{32}/)).output
            #expect(
                try await one.run("docs", "cat", "s.txt", "--version-id", String(version)).output
                    == "first\nphone\nlast\n")

            let place = house.folder + "/got"
            try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
            #expect(try await one.run("docs", "get", "s.txt", place).status == 0)
            let got = try await one.run("docs", "get", "s.txt", "--version-id", String(version), place)
            #expect(got.status == 0, "\(got)")
            let names = try FileManager.default.contentsOfDirectory(atPath: place).sorted()
            #expect(
                names.count == 2 && names[0].contains(/^s \(phone, \d{4}-\d\d-\d\d \d\d\.\d\d\.\d\d\)\.txt$/)
                    && names[1] == "s.txt", "\(names)")
            #expect(try String(contentsOfFile: place + "/s.txt", encoding: .utf8) == "first\nhome\nlast\n")
            #expect(try String(contentsOfFile: place + "/" + names[0], encoding: .utf8) == "first\nphone\nlast\n")
        }
    }

    @Test func aFilesLastChangeIsShownLineByLine() async throws {
        try await withTenant { house in
            let file = house.folder + "/s.txt"
            let lines = (1...40).map { "line \($0)" }
            for text in [lines, lines.filter { $0 != "line 20" } + ["end"]] {
                try Data(text.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: file))
                #expect(try await house.person.run("docs", "put", file).status == 0)
            }
            let diff = try await house.person.run("docs", "diff", "--versions", "s.txt").output
            #expect(diff.contains("\n@@ -17 +17 @@\n line 17\n line 18\n line 19\n-line 20\n line 21\n"), "\(diff)")
            #expect(diff.hasSuffix("\n line 40\n+end\n") && !diff.contains("line 10"), "\(diff)")
            try Data([0, 1, 2]).write(to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "put", file).status == 0)
            #expect(
                try await house.person.run("docs", "diff", "--versions", "s.txt").output.hasSuffix(
                    "They differ, and are no texts.\n"))
            let none = String(repeating: "1", count: 32)
            #expect(try await house.person.run("docs", "diff", "s.txt", "--version-id", none).status == 2)
            #expect(try await house.person.run("docs", "cat", "s.txt", "--version-id", none).status == 2)
            #expect(try await house.person.run("docs", "diff", "s.txt").status == 2)
        }
    }
}
