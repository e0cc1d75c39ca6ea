import Foundation
import NephosServiceKit
import Testing

/// A command that there is not is said to be none, whatever options follow it.
@Suite struct UnknownCommandTests {
    @Test(arguments: [
        (
            ["records", "chnages", "--home", "/nowhere"], "nephos records chnages",
            "Did you mean: nephos records changes"
        ),
        (["record", "ls"], "nephos record", "Did you mean: nephos records"),
        (["docs", "lst", "--offline"], "nephos docs lst", "Did you mean: nephos docs ls"),
        // One that has a command for no word, which takes none.
        (["records", "zones", "mkae", "a"], "nephos records zones mkae", "Did you mean: nephos records zones make"),
        // Whoever asks for its help as well.
        (["help", "dosc"], "nephos dosc", "Did you mean: nephos docs"),
        // It is a command somewhere else.
        (["links"], "nephos links", "Did you mean: nephos docs links"),
        (["tree", "Letters"], "nephos tree", "Did you mean: nephos docs tree"),
        (["xyzzy", "--json-nothing"], "nephos xyzzy", "See: nephos --help"),
        (["kv", "a\u{1b}b", "--home", "x"], #"nephos kv "#, "See: nephos kv --help"),
    ])
    func aMistypedCommandIsNamedAndTheNearestSaid(_ words: [String], _ command: String, _ hint: String) async throws {
        let nephos = Program(name: "nephos")
        let said = try await nephos.run(words)
        #expect(said.status == 64, "\(said)")
        #expect(said.errors.hasPrefix("Error: There is no command \(command)"), "\(said)")
        #expect(said.errors.contains(hint) && !said.errors.contains("\u{1b}"), "\(said)")
        let json = try await nephos.run(words + ["--json"])
        #expect(json.status == 64 && json.errors.contains(#""message":"There is no command "#), "\(json)")
    }

    @Test func whatIsWrongOtherwiseIsSaidAsBefore() async throws {
        let nephos = Program(name: "nephos")
        for (words, text) in [
            (["records", "changes", "--hmoe", "x"], "Unknown option '--hmoe'"),
            (["kv", "set", "k"], "Give the value"), (["backup", "one", "two"], "Unexpected argument"),
            (["records", "index", "a", "b"], "2 unexpected arguments"),
        ] {
            let said = try await nephos.run(words)
            #expect(said.status == 64 && said.errors.contains(text), "\(words): \(said)")
        }
    }
}
