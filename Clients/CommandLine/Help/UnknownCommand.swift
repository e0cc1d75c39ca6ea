import ArgumentParser
import NephosKit

/// A subcommand that there is not. The parser looks at options first, and would say that it does not know those.
struct UnknownCommand {
    /// Those before it, `nephos` first.
    let parents: [String]
    let name: String
    /// The commands that may be meant.
    let meant: [[String]]

    var message: String {
        let command = (parents + [name]).map(ShellCommand.word).joined(separator: " ")
        let names = meant.map { $0.joined(separator: " ") }
        let hint =
            names.isEmpty
            ? "See: \(parents.joined(separator: " ")) --help" : "Did you mean: \(names.joined(separator: ", or: "))"
        return "There is no command \(command). \(hint)"
    }

    /// - Parameter arguments: Those of a command that the parser has refused.
    /// - Returns: Nil: all of its commands are there.
    init?(in arguments: some Sequence<String>, of root: any ParsableCommand.Type) {
        var command = root
        var parents = [root._commandName]
        for (index, word) in arguments.enumerated() {
            if index == 0, word == "help" { continue }
            let choices = command.configuration.subcommands
            guard !word.hasPrefix("-"), word != "help", !choices.isEmpty else { return nil }
            if let next = command.subcommand(word) {
                command = next
                parents.append(next._commandName)
                continue
            }
            let nearest = Self.nearest(to: word, of: choices.map { $0._commandName })
            // It may be an argument of what the command does without another word.
            guard nearest != nil || command.configuration.defaultSubcommand == nil else { return nil }
            (self.parents, name) = (parents, word)
            meant = nearest.map { [parents + [$0]] } ?? Self.paths(to: word, below: root, [root._commandName])
            return
        }
        return nil
    }

    /// Commands of this name at other places.
    private static func paths(
        to word: String, below command: any ParsableCommand.Type, _ path: [String]
    ) -> [[String]] {
        command.configuration.subcommands.flatMap { child in
            let path = path + [child._commandName]
            return (child._commandName == word ? [path] : []) + paths(to: word, below: child, path)
        }
    }

    /// The name that a misspelt word was meant for; nil when none is similar.
    static func nearest(to word: String, of names: [String]) -> String? {
        let distances = names.map { (distance: distance(word, $0), name: $0) }
        let allowed = max(1, min(3, word.count / 2))
        return distances.filter { $0.distance <= allowed }.min { $0 < $1 }?.name
            ?? names.filter { word.count > 1 && $0.hasPrefix(word) }.min()
    }

    /// Letters to put in, leave out, change or swap with the next.
    private static func distance(_ left: String, _ right: String) -> Int {
        let (left, right) = (Array(left), Array(right))
        var rows = [Array(0...right.count)]
        for i in left.indices {
            var row = [i + 1]
            for j in right.indices {
                var least = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (left[i] == right[j] ? 0 : 1))
                if i > 0, j > 0, left[i] == right[j - 1], left[i - 1] == right[j] {
                    least = min(least, rows[i - 1][j - 1] + 1)
                }
                row.append(least)
            }
            rows.append(row)
        }
        return rows[left.count][right.count]
    }
}
