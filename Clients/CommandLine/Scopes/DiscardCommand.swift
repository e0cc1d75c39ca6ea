import ArgumentParser
import NephosCore
import NephosKit

struct DiscardCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "discard",
        abstract: "Dismiss writes that the server refused, so that they are not listed any more.",
        discussion: """
            What the items hold stays as it is. `nephos why` lists refused writes with the reason. \
            Exit code 2: there is no refused write of the item. Where more than one store, container or zone has one of \
            that name, nothing is dismissed before --app, --service or --name says which is meant (64).

            With --left-behind: gives up the changes that were written for a store which the app no longer has, and \
            were never sent. `nephos kv adopt` offers them to the store that it has now.
            """)

    @Argument(help: "The items, such as keys (or --all).") var names: [String] = []
    @Flag(help: "Dismiss all of them.") var all = false
    @Flag(help: "Give up what was left behind in a store that the app no longer has.") var leftBehind = false
    @OptionGroup var scopes: ScopeOptions
    @OptionGroup var wait: WaitOptions
    @OptionGroup var output: OutputOptions

    func validate() throws {
        guard [!names.isEmpty, all, leftBehind].filter({ $0 }).count == 1 else {
            throw ValidationError("Name items, or give --all or --left-behind.")
        }
    }

    func run() async throws {
        try await scopes.withScopes(within: wait.duration) { scopes, session in
            if leftBehind { return try await giveUp(scopes) }
            var meant: [(scope: Scope, refused: [ItemName])] = []
            for scope in scopes {
                // As everywhere a name is typed: any that Swift's strings take for equal.
                let names = names.map(scope.itemName(typed:))
                meant.append(
                    (scope, try await scope.status().refused.map(\.key).filter { names.contains($0.rawValue) }))
            }
            try requireOne(meant)
            var dismissed: [ItemName] = []
            for (scope, refused) in meant { dismissed += try await scope.dismissRefused(all ? nil : refused) }
            if dismissed.isEmpty { _ = try session.requireAccount() }
            let missing = names.first { name in
                !scopes.contains { scope in dismissed.contains { $0.rawValue == scope.itemName(typed: name) } }
            }
            if let missing {
                throw CloudError(.unknownItem, "There is no refused write of this item.", details: ["item": missing])
            }
            try output.print(
                ["dismissed": dismissed.map(\.rawValue)],
                text: dismissed.isEmpty
                    ? "No write was refused." : "Dismissed \(listed(dismissed.map { inLine($0.rawValue) })).")
        }
    }

    /// What was refused elsewhere under the same name is not dismissed with it.
    private func requireOne(_ meant: [(scope: Scope, refused: [ItemName])]) throws {
        for name in names {
            let having = meant.filter { scope, refused in
                refused.contains { $0.rawValue == scope.itemName(typed: name) }
            }
            guard having.count > 1 else { continue }
            throw CloudError(
                .invalidArguments,
                "More than one has a refused write of this name; nothing was dismissed. Say which with --app, --service or --name.",
                details: ["key": name, "of": having.map(\.scope.label).joined(separator: ", ")])
        }
    }

    private func giveUp(_ scopes: [Scope]) async throws {
        var names: [ItemName] = []
        for scope in scopes { names += try await scope.discardLeftBehind().flatMap(\.names) }
        try output.print(
            ["discarded": names.map(\.rawValue)],
            text: names.isEmpty ? "Nothing was left behind." : "Gave up \(listed(names.map { inLine($0.rawValue) })).")
    }
}
