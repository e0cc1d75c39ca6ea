/// Words of other programs that stand for a command.
enum Synonyms {
    static let all: [String: [String]] = [
        "trash": ["docs", "trash"], "share": ["docs", "publish"], "publish": ["docs", "publish"],
        "undo": ["docs", "undo"], "upload": ["docs", "put"], "download": ["docs", "get"], "sync": ["status"],
        "login": ["sign-in"], "logout": ["sign-out"], "start": ["up"], "stop": ["down"],
    ]

    /// The arguments with the command that a synonym stands for.
    ///
    /// - Returns: `stoodFor`: The command in words; nil: there was no synonym.
    static func expand(_ arguments: [String]) -> (arguments: [String], stoodFor: String?) {
        let isHelp = arguments.first == "help"
        let index = isHelp ? 1 : 0
        guard arguments.indices.contains(index), let command = all[arguments[index]] else { return (arguments, nil) }
        var expanded = arguments
        expanded.replaceSubrange(index...index, with: command)
        return (expanded, "nephos " + command.joined(separator: " "))
    }
}
