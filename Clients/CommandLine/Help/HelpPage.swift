import ArgumentParser
import Foundation
import NephosCore

/// A command whose `--timeout` has another default than ``WaitOptions/standard``.
protocol OwnTimeout {
    /// Nil: no limit.
    static var standardTimeout: Duration? { get }
}

/// The text of `--help`: the parser's, with a short USAGE line, an example, and the command's own default of `--timeout`.
struct HelpPage {
    private static let columns = 80

    let text: String

    /// - Parameters:
    ///   - parsed: The parser's text.
    ///   - arguments: Those that asked for help.
    init(_ parsed: String, for arguments: some Sequence<String>) {
        // A description for programs, a completion script or the version.
        guard parsed.hasPrefix("OVERVIEW: ") || parsed.hasPrefix("USAGE: ") else {
            text = parsed
            return
        }
        let command = NamedCommand(in: arguments)
        let lines = parsed.components(separatedBy: "\n").map { line in
            Self.shortUsage(line).replacing(" SUBCOMMANDS:", with: ":")
        }
        var page = lines.joined(separator: "\n")
        if let own = command.type as? any OwnTimeout.Type {
            let limit = own.standardTimeout.map { "\($0.milliseconds / 1000)" } ?? "no limit"
            let standard = WaitOptions.standard.milliseconds / 1000
            page = page.replacing("(default: \(standard))", with: "(default: \(limit))")
        }
        if let examples = Examples.all[command.path.dropFirst().joined(separator: " ")],
            let usage = page.range(of: "\nUSAGE: "),
            let end = page.range(of: "\n\n", range: usage.upperBound..<page.endIndex)
        {
            let isRoot = command.path.count == 1
            let heading = isRoot ? "START HERE:" : examples.count == 1 ? "EXAMPLE:" : "EXAMPLES:"
            page.insert(
                contentsOf: ([heading] + examples.map { "  \($0)" }).joined(separator: "\n") + "\n\n",
                at: end.upperBound)
        }
        text = page
    }

    /// A USAGE line without the optional options, if it would not fit in a terminal's line.
    static func shortUsage(_ line: String) -> String {
        guard line.count > columns, line.hasPrefix("USAGE: ") || line.hasPrefix("Usage: ") else { return line }
        let short = line.replacing(#/ \[-[^\]]*\]/#, with: "")
        return short == line ? line : short + " [options]"
    }
}

/// The command that arguments name, as far as they do.
struct NamedCommand {
    /// `nephos` first.
    private(set) var path: [String]
    private(set) var type: any ParsableCommand.Type

    init(in arguments: some Sequence<String>, of root: any ParsableCommand.Type = NephosCommand.self) {
        (path, type) = ([root._commandName], root)
        for (index, word) in arguments.enumerated() where index > 0 || word != "help" {
            guard let next = type.subcommand(word) else { break }
            (path, type) = (path + [next._commandName], next)
        }
    }
}

extension ParsableCommand {
    /// The subcommand that is called so.
    static func subcommand(_ word: String) -> (any ParsableCommand.Type)? {
        configuration.subcommands.first { $0._commandName == word || $0.configuration.aliases.contains(word) }
    }
}
