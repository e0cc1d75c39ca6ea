import ArgumentParser
import Foundation
import Testing

@testable import nephos

/// Every `nephos` command in the README, the runbooks and the pages is one that the program accepts.
@Suite struct DocumentedCommandTests {
    private static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    /// The pages with commands. The table of docs/commands.md is generated, and has its own check.
    static let pages: [String] = {
        let runbooks = (try? FileManager.default.contentsOfDirectory(atPath: root.path + "/ops/runbooks")) ?? []
        return [
            "README.md", "docs/getting-started.md", "docs/concepts.md", "docs/command-line.md", "docs/operation.md",
            "docs/metrics.md", "docs/records.md", "docs/cloudkit.md", "docs/sdk.md", "docs/security.md",
            "docs/settings.md", "docs/tutorial-app.md",
        ] + runbooks.sorted().map { "ops/runbooks/" + $0 }
    }()

    struct Found: CustomStringConvertible {
        var line: Int
        var words: [String]
        /// Between backticks in a sentence, where a command may be named without its arguments.
        var isNamed = false
        var description: String { "line \(line): nephos \(words.joined(separator: " "))" }
    }

    @Test(arguments: pages) func everyCommandParses(_ page: String) throws {
        let text = try String(contentsOf: Self.root.appendingPathComponent(page), encoding: .utf8)
        for found in Self.commands(in: text) {
            do { _ = try NephosCommand.parseAsRoot(found.words) } catch {
                guard NephosCommand.exitCode(for: error) != .success else { continue }
                let message = NephosCommand.message(for: error)
                guard !found.isNamed || message.contains("Unknown option") || message.contains("Unexpected argument")
                else { continue }
                Issue.record("\(page), \(found): \(message)")
            }
        }
    }

    @Test func runbooksHaveCommands() throws {
        #expect(Self.pages.count { $0.hasPrefix("ops/runbooks/") } >= 7)
        let text =
            "Run `nephos kv get KEY`, then:\n\n    A=b nephos status -v | less   # all\n\n```sh\nnephos down && nephos up\n```\n"
        #expect(
            Self.commands(in: text).map(\.words) == [["kv", "get", "KEY"], ["status", "-v"], ["down"], ["up"]])
    }

    /// The commands in code: in blocks, and between backticks.
    static func commands(in text: String) -> [Found] {
        var found: [Found] = []
        var isFenced = false
        for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            if line.hasPrefix("```") {
                isFenced.toggle()
                continue
            }
            let isNamed = !isFenced && !line.hasPrefix("    ")
            let code =
                !isNamed
                ? [String(line)]
                : line.split(separator: "`", omittingEmptySubsequences: false).enumerated()
                    .filter { $0.offset % 2 == 1 }.map { String($0.element) }
            for words in code.flatMap(commands(inShell:)) {
                found.append(Found(line: number + 1, words: words, isNamed: isNamed))
            }
        }
        return found
    }

    /// The arguments of each `nephos` in a line of shell, also behind `docker-compose run --rm`.
    private static func commands(inShell line: String) -> [[String]] {
        var all: [[String]] = []
        var words: [String] = []
        var word = ""
        var quote: Character?
        func endWord() {
            if !word.isEmpty { words.append(word) }
            word = ""
        }
        func endCommand() {
            endWord()
            if let start = words.firstIndex(of: "nephos"), words[..<start].allSatisfy(isBefore) {
                all.append(Array(words[(start + 1)...]))
            }
            words = []
        }
        for character in line {
            switch (character, quote) {
            case (let character, let open?) where character == open: quote = nil
            case ("'", nil), ("\"", nil): quote = character
            case (" ", nil): endWord()
            case ("#", nil) where word.isEmpty:
                endCommand()
                return all.filter(isWhole)
            case ("|", nil), (";", nil), ("&", nil), (">", nil), ("(", nil), (")", nil): endCommand()
            default: word.append(character)
            }
        }
        endCommand()
        return all.filter(isWhole)
    }

    private static func isBefore(_ word: String) -> Bool {
        word.contains("=") || ["docker-compose", "docker", "compose", "run", "--rm", "-T", "sudo", "$"].contains(word)
    }

    /// Not an abbreviation, and not a heading.
    private static func isWhole(_ words: [String]) -> Bool {
        !words.isEmpty
            && !words.contains { $0.contains("...") || $0.contains("…") || $0.hasPrefix("[") || $0.hasPrefix("<") }
    }
}
