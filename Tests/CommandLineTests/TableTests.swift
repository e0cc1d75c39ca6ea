import Foundation
import Testing

/// Tables by the cells of a terminal.
@Suite(.serialized) struct TableTests {
    /// Names, and the cells that a terminal gives them.
    private static let names = [
        ("U\u{308}bung.pdf", 9), ("日本語.txt", 10), ("😀.png", 6), ("plain.txt", 9), ("e\u{301}\u{302}", 1), ("한글", 4),
    ]

    @Test func columnsAlignByCellsAndNothingIsCut() async throws {
        try await withTenant { house in
            for (name, _) in Self.names {
                #expect(try await house.person.run("kv", "set", name, "v").status == 0)
            }
            let long = String(repeating: "long ", count: 40) + "end"
            #expect(try await house.person.run("kv", "set", "wide", long).status == 0)
            let list = try await house.person.run("kv", "list")
            let lines = list.output.split(separator: "\n").map(String.init)
            #expect(lines.count == Self.names.count + 2, "\(list)")
            #expect(lines.contains { $0.hasSuffix("  string  " + long) }, "\(list)")
            let width = 10
            for (name, cells) in Self.names {
                let line = name + String(repeating: " ", count: width - cells) + "  string  v"
                // A store has names in their composed form.
                #expect(lines.contains(line), "\(name): \(list)")
            }
            // COLUMNS is a terminal's.
            var narrow = house.person
            narrow.environment["COLUMNS"] = "30"
            #expect(try await narrow.run("kv", "list").output == list.output)
        }
    }

    @Test func aTerminalsLinesFitAndAreCutInTheMiddle() async throws {
        try await withTenant { house in
            let name = "U\u{308}bung " + String(repeating: "日本", count: 20) + " end.pdf"
            let file = house.folder + "/file"
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try await house.person.run("docs", "put", file, name).status == 0)
            for (columns, environment) in [(60, ""), (50, "50")] {
                let screen = try Screen(columns: 60)
                defer { screen.close() }
                var person = house.person
                if !environment.isEmpty { person.environment["COLUMNS"] = environment }
                let listed = try await person.run(
                    "docs", "ls", before: ["bash", "-c", #"exec "$0" "$@" >"# + screen.name])
                #expect(listed.status == 0, "\(listed)")
                try await eventually("it is written") { screen.text.contains(".pdf") }
                let line = try #require(screen.text.components(separatedBy: "\r\n").first { $0.contains(".pdf") })
                #expect(line.contains("U\u{308}bung") && line.contains("…") && line.contains("end.pdf"), "\(line)")
                let cells = line.reduce(0) { $0 + ($1.unicodeScalars.contains { $0.value > 0x3000 } ? 2 : 1) }
                #expect(cells <= columns, "\(cells): \(line)")
            }
        }
    }

    @Test func aTerminalShowsAgesColoursAndWholeCellsOnRequest() async throws {
        try await withTenant { house in
            let name = String(repeating: "long-", count: 30)
            #expect(try await house.person.run("devices", "rename", "d", name).status == 0)
            func shown(_ words: [String], _ environment: [String: String] = [:]) async throws -> String {
                let screen = try Screen(columns: 60)
                defer { screen.close() }
                var person = house.person
                person.environment.merge(["TERM": "xterm", "NO_COLOR": ""].merging(environment) { $1 }) { $1 }
                let outcome = try await person.run(words, before: ["bash", "-c", #"exec "$0" "$@" >"# + screen.name])
                #expect(outcome.status == 0, "\(outcome)")
                try await eventually("it is written") { screen.text.contains("dev_") }
                return screen.text
            }
            let devices = try await shown(["devices"])
            #expect(devices.contains("\u{1b}[32mthis device\u{1b}[0m") && devices.contains("just now"), "\(devices)")
            #expect(devices.contains("…") && !devices.contains(name), "\(devices)")
            #expect(try await shown(["devices", "list", "--wide"]).contains(name))
            #expect(try await !shown(["devices"], ["NO_COLOR": "1"]).contains("\u{1b}[3"))
            #expect(try await !shown(["devices"], ["TERM": "dumb"]).contains("\u{1b}[3"))
            // A script reads whole cells, dates and no colours.
            let plain = try await house.person.run("devices").output
            #expect(plain.contains(name) && plain.contains(/20\d\d-\d\d-\d\d/) && !plain.contains("\u{1b}"), "\(plain)")
        }
    }
}
