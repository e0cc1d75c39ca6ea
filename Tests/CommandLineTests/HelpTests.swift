import ArgumentParser
import Foundation
import Testing

@testable import nephos

/// Pages of help, topics, synonyms and completion.
@Suite struct HelpTests {
    private static func paths(below command: NamedCommand = NamedCommand(in: [String]())) -> [[String]] {
        let path = Array(command.path.dropFirst())
        let children = command.type.configuration.subcommands
        guard !children.isEmpty else { return [path] }
        return children.flatMap { paths(below: NamedCommand(in: path + [$0._commandName])) }
    }

    private static func page(_ path: [String]) -> String {
        HelpPage(NephosCommand.helpMessage(for: NamedCommand(in: path).type, columns: 80), for: path).text
    }

    @Test func eachPageFits80ColumnsAndHasAnExample() {
        let paths = Self.paths()
        #expect(paths.count > 100)
        for path in paths {
            let page = Self.page(path)
            let example = page.components(separatedBy: "\nEXAMPLE").dropFirst().first
            #expect(example?.contains("\n  nephos \(path.joined(separator: " "))") == true, "\(page)")
            for line in page.components(separatedBy: "\n") where line.count > 80 {
                // An example is one line, to be copied.
                #expect(line.hasPrefix("  nephos "), "\(path): \(line)")
            }
        }
    }

    @Test func eachExampleIsACommandThatParses() throws {
        for (name, examples) in Examples.all where !name.isEmpty {
            for example in examples {
                let words = try #require(DocumentedCommandTests.commands(in: "    " + example).first).words
                #expect(
                    words.starts(with: name.split(separator: " ").map(String.init)) || name == "storage"
                        || name == "devices")
                let command = NamedCommand(in: words)
                do { _ = try command.type.parseAsRoot(Array(words.dropFirst(command.path.count - 1))) } catch {
                    Issue.record("\(example): \(NephosCommand.message(for: error))")
                }
            }
        }
    }

    @Test(arguments: [
        ("kv get", "10"), ("up", "30"), ("settings set", "30"), ("secrets rotate-master-keys", "600"), ("status", "2"),
        ("kv mirror", "no limit"),
    ])
    func aPageNamesItsOwnTimeout(_ command: String, _ limit: String) {
        let page = Self.page(command.split(separator: " ").map(String.init))
        #expect(page.contains("Seconds to wait for the server (default: \(limit))."), "\(page)")
    }

    @Test func optionsAreLeftOutOfLongUsageLinesOnly() {
        let short = "USAGE: nephos down [--json]"
        #expect(HelpPage.shortUsage(short) == short)
        let options = (1...9).map { "[--option-\($0) <value> ...]" }.joined(separator: " ")
        #expect(
            HelpPage.shortUsage("Usage: nephos a <path> [<others> ...] --keep <keep> \(options) [-r]")
                == "Usage: nephos a <path> [<others> ...] --keep <keep> [options]")
        let other = String(repeating: "x", count: 90) + " [--no]"
        #expect(HelpPage.shortUsage(other) == other)
    }

    @Test func wrongUsageShowsTheShortUsageLine() async throws {
        let said = try await Program(name: "nephos").run("kv", "set", "--no-such-option")
        #expect(said.status == 64 && said.errors.contains("[options]\n"), "\(said)")
        #expect(said.errors.split(separator: "\n").allSatisfy { $0.count <= 80 }, "\(said)")
    }

    @Test func topicsExplainAndCommandsOfThatNameFollow() async throws {
        let nephos = Program(name: "nephos")
        for topic in HelpTopic.allCases {
            #expect(topic.text.split(separator: "\n").allSatisfy { $0.count <= 80 }, "\(topic.text)")
            let said = try await nephos.run("help", topic.rawValue)
            #expect(said.status == 0 && said.output.hasPrefix(topic.text + "\n"), "\(said)")
            let isCommand = NephosCommand.subcommand(topic.rawValue) != nil
            #expect(said.output.contains("USAGE: nephos \(topic.rawValue)") == isCommand, "\(said)")
            for found in DocumentedCommandTests.commands(in: topic.text.replacing(/^|\n/, with: "\n    ")) {
                let isKnown = NamedCommand(in: found.words).type.configuration.subcommands.isEmpty
                #expect(isKnown, "\(found)")
            }
        }
        let root = try await nephos.run("--help").output
        #expect(
            HelpTopic.allCases.allSatisfy { root.contains($0.rawValue) } && root.contains("START HERE:\n  nephos init"),
            "\(root)")
    }

    @Test func aSynonymRunsItsCommandAndNamesIt() async throws {
        let nephos = Program(name: "nephos")
        for (word, command) in Synonyms.all {
            #expect(NephosCommand.subcommand(word) == nil, "\(word)")
            #expect(NamedCommand(in: command).path.count == command.count + 1, "\(word)")
        }
        let trash = try await nephos.run("trash", "--help")
        let plain = try await nephos.run("docs", "trash", "--help")
        #expect(trash.status == 0 && trash.output == plain.output && !plain.output.isEmpty, "\(trash)")
        #expect(trash.errors == "This runs nephos docs trash.\n" && plain.errors.isEmpty, "\(trash)")
        #expect(try await nephos.run("help", "share").output.contains("USAGE: nephos docs publish"))
        let json = try await nephos.run("trash", "--home", "/nowhere", "--json")
        #expect(json.status == 4 && json.errors.hasPrefix("{"), "\(json)")
    }

    @Test func completionsAreInstalledWhereTheShellReads() async throws {
        let folder = NSTemporaryDirectory() + "nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: folder) }
        var nephos = Program(name: "nephos", environment: ["HOME": folder, "SHELL": "/usr/bin/fish"])
        for name in ["XDG_DATA_HOME", "XDG_CONFIG_HOME"] { nephos.environment[name] = folder + "/" + name }
        for (words, file) in [
            (["bash"], "XDG_DATA_HOME/bash-completion/completions/nephos"), (["zsh"], ".zsh/completions/_nephos"),
            ([], "XDG_CONFIG_HOME/fish/completions/nephos.fish"),
        ] {
            let printed = try await nephos.run(["completions"] + words)
            #expect(printed.status == 0 && printed.output.contains("rotate-signing-key"), "\(words): \(printed.errors)")
            let installed = try await nephos.run(["completions", "--install"] + words)
            #expect(installed.status == 0 && installed.output.contains("\(folder)/\(file)"), "\(installed)")
            #expect(try String(contentsOfFile: "\(folder)/\(file)", encoding: .utf8) == printed.output)
        }
        nephos.environment["SHELL"] = "/bin/other"
        let unknown = try await nephos.run("completions")
        #expect(unknown.status == 64 && unknown.errors.contains("Name a shell"), "\(unknown)")
    }
}
