import Foundation
import Testing

/// The trash, as a person looks into it and takes one thing out.
@Suite(.serialized) struct TrashTests {
    private func batch(_ outcome: Program.Outcome) throws -> String {
        String(try #require(outcome.output.firstMatch(of: /docs undo ([0-9a-f]{32})/)).1)
    }

    @Test func theTrashSaysSizeAndDayAndDeviceAndGivesBackOneFile() async throws {
        try await withTenant { house in
            let (one, file) = (house.person, house.folder + "/x")
            for name in ["F/a/x", "F/b", "single"] {
                try Data(name.utf8).write(to: URL(fileURLWithPath: file))
                #expect(try await one.run("docs", "put", "-p", file, name).status == 0)
            }
            let single = try await one.run("docs", "rm", "single")
            #expect(single.status == 0 && single.output.contains("/Documents/single (6 B)."), "\(single)")
            let folder = try await one.run("docs", "rm", "-r", "F")
            #expect(folder.status == 0 && folder.output.contains("/Documents/F (8 B)."), "\(folder)")
            let (first, second) = (try batch(single), try batch(folder))

            let list = try await house.anotherDevice("phone").run("docs", "trash")
            let rows = list.output.split(separator: "\n")
            #expect(rows.count == 3 && rows[0].contains(/DELETED +KEPT UNTIL +BY +SIZE +BATCH +WHAT/), "\(list)")
            #expect(rows[1].contains(/\ d +8 B +/) && rows[1].hasSuffix("\(second)  /Documents/F"), "\(list)")
            #expect(rows[2].contains(/\ d +6 B +/) && rows[2].hasSuffix("\(first)  /Documents/single"), "\(list)")
            let days = rows[1].matches(of: /\d{4}-\d\d-\d\d/).map { String($0.output) }
            let formatter = DateFormatter()
            formatter.dateFormat = "yyyy-MM-dd"
            let dates = days.compactMap { formatter.date(from: $0) }
            #expect(dates.count == 2 && abs(dates[1].timeIntervalSince(dates[0]) / 86_400 - 30) < 0.1, "\(list)")
            let json = try await one.run("docs", "trash", "--json").output
            #expect(json.contains(#""bytes":8"#) && json.contains(#""device_name":"d""#), "\(json)")

            let within = try await one.run("docs", "trash", second).output
            #expect(within.contains("/Documents/F/a/x") && within.contains("/Documents/F/b"), "\(within)")
            #expect(try await one.run("docs", "trash", String(repeating: "1", count: 32)).status == 2)

            let back = try await one.run("docs", "undo", "--only", "F/a/x")
            #expect(back.status == 0 && back.output == "Brought back: /Documents/F/a/x.\n", "\(back)")
            let names = try await one.run("docs", "find", "*").output
            #expect(names == "/Documents/F\n/Documents/F/a\n/Documents/F/a/x\n", "\(names)")
            #expect(try await one.run("docs", "cat", "F/a/x").output == "F/a/x")
            #expect(try await one.run("docs", "undo", "--only", "F/a/x").status == 2)
            #expect(try await one.run("docs", "undo", "--only", "single", first).status == 0)
            let gone = try await one.run("docs", "rm", "--for-good", second)
            #expect(gone.status == 0 && gone.output == "Removed for good: 3 B.\n", "\(gone)")
        }
    }

    @Test func numbersInNamesDoNotPileUp() async throws {
        try await withTenant { house in
            let (one, file) = (house.person, house.folder + "/x")
            func put(_ names: String...) async throws {
                for name in names {
                    try Data(name.utf8).write(to: URL(fileURLWithPath: file))
                    #expect(try await one.run("docs", "put", file, name).status == 0)
                }
            }
            try await put("s.txt", "s 2.txt", "Report 2025.txt")
            #expect(try await one.run("docs", "rm", "s 2.txt", "Report 2025.txt").status == 0)
            try await put("s 2.txt", "Report 2025.txt")
            let back = try await one.run("docs", "undo")
            #expect(back.status == 0, "\(back)")
            let names = try await one.run("docs", "find", "*").output
            let expected = ["Report 2025 2.txt", "Report 2025.txt", "s 2.txt", "s 3.txt", "s.txt"]
            #expect(names == expected.map { "/Documents/\($0)\n" }.joined(), "\(names)")
        }
    }

    @Test func storageSaysWhatIsThereMoreThanOnce() async throws {
        try await withTenant { house in
            let (one, file) = (house.person, house.folder + "/x")
            try Data((0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }).write(
                to: URL(fileURLWithPath: file))
            for name in ["a", "b", "c"] { #expect(try await one.run("docs", "put", file, name).status == 0) }
            let storage = try await one.run("storage", "show")
            #expect(storage.output.contains(/VERSIONS +SAME +SIZE/), "\(storage)")
            #expect(storage.output.contains("200.0 kB"), "\(storage)")
            #expect(try await one.run("storage", "show", "--json").output.contains(#""same_bytes":200000"#))
        }
    }
}
