import Foundation
import NephosCore
import NephosSimulation
import Testing

/// What somebody sees who watches a transfer at a terminal.
@Suite(.serialized) struct ProgressTests {
    /// Runs it with its errors on the screen.
    private func run(_ nephos: Program, _ arguments: [String], on screen: Screen) async throws -> Program.Outcome {
        try await nephos.run(arguments, before: ["bash", "-c", #"exec "$0" "$@" 2>"# + screen.name])
    }

    @Test func aPutAndAGetShowHowFastTheyGoAndHowLongTheyWillTake() async throws {
        try await withTenant { house in
            let (one, two) = (house.person, try await house.anotherDevice("second"))
            var random = SplitMix64(seed: 1)
            var content = Data(capacity: 3_000_008)
            while content.count < 3_000_000 { withUnsafeBytes(of: random.next()) { content.append(contentsOf: $0) } }
            let (file, got) = (house.folder + "/film", house.folder + "/got")
            try content.write(to: URL(fileURLWithPath: file))
            let limit = ["--limit-rate", "500K"]

            let wide = try Screen(columns: 120)
            defer { wide.close() }
            let put = try await run(one, ["docs", "put", file, "film"] + limit, on: wide)
            #expect(put.status == 0 && put.output == "Put /Documents/film (3.0 MB).\n", "\(put)")
            #expect(wide.lines.contains { $0.hasPrefix("reading ") && $0.contains("of 3.0 MB") }, "\(wide.lines)")
            let sending = /sending +\d+ %  [\d.]+ [kM]?B of 3\.\d MB  [\d.]+ [kM]?B\/s  [\d.]+ m?s left/
            #expect(wide.lines.contains { $0.firstMatch(of: sending) != nil }, "\(wide.lines)")
            // Nothing is left in the line.
            #expect(wide.lines.last == "", "\(wide.lines)")

            let narrow = try Screen(columns: 40)
            defer { narrow.close() }
            let fetched = try await run(two, ["docs", "get", "film", got] + limit, on: narrow)
            #expect(fetched.status == 0, "\(fetched)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: got)) == content)
            let fetching = /fetching +\d+ %  [\d.]+ [kM]?B of 3\.\d MB/
            #expect(narrow.lines.contains { $0.firstMatch(of: fetching) != nil }, "\(narrow.lines)")
            #expect(narrow.lines.allSatisfy { $0.count < 40 } && narrow.lines.last == "", "\(narrow.lines)")

            // Nobody sees it elsewhere, and a script does not want it.
            #expect(try await two.run("docs", "get", "film", got).errors == "")
            let quiet = try Screen(columns: 120)
            defer { quiet.close() }
            _ = try await run(two, ["docs", "get", "film", got, "--json"], on: quiet)
            #expect(quiet.lines == [""], "\(quiet.lines)")
        }
    }
}
