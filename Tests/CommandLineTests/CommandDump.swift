import Foundation
import Testing

/// All commands, from the program's own description, so that none is forgotten.
struct CommandDump: Decodable {
    struct Command: Decodable {
        var commandName: String
        var subcommands: [Command]?
        var arguments: [Argument]?
    }

    struct Argument: Decodable {
        struct Name: Decodable {
            var name: String
        }
        var kind: String
        var isOptional: Bool
        var names: [Name]?
        var valueName: String?
    }

    /// A command that does something.
    struct Leaf: Sendable {
        var path: [String]
        /// Arguments that it cannot do without, with sample values.
        var sample: [String]
        var options: Set<String>

        var name: String { path.joined(separator: " ") }
    }

    var command: Command

    /// - Parameter values: Sample values, by the name of the argument.
    static func leaves(of nephos: Program, values: [String: String]) async throws -> [Leaf] {
        let text = try await nephos.run("--experimental-dump-help").output
        let dump = try JSONDecoder().decode(CommandDump.self, from: Data(text.utf8))
        return dump.command.leaves([], values).filter { $0.path.first != "help" && $0.path.last != "help" }
    }
}

extension CommandDump.Command {
    fileprivate func leaves(_ parents: [String], _ values: [String: String]) -> [CommandDump.Leaf] {
        let children = subcommands ?? []
        guard children.isEmpty else {
            return children.flatMap { child in
                child.leaves(parents + [child.commandName], values)
            }
        }
        var sample: [String] = []
        for argument in arguments ?? [] where !argument.isOptional {
            let value = values[argument.valueName ?? ""] ?? "x"
            switch argument.kind {
            case "positional": sample.append(value)
            case "option": sample += ["--" + (argument.names?.last?.name ?? ""), value]
            default: break
            }
        }
        let options = (arguments ?? []).filter { $0.kind != "positional" }.flatMap { $0.names ?? [] }.map(\.name)
        return [CommandDump.Leaf(path: parents, sample: sample, options: Set(options))]
    }
}
