import ArgumentParser
import NephosCore
import NephosKit

struct DiscardCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "discard",
        abstract: "Dismiss rejected changes, so that they are no longer listed.",
        discussion: """
            The items keep their content. `nephos why` lists rejected changes with the reason. Exit code 2: \
            no change of this item was rejected. If several stores, containers or zones have an item with \
            this name, choose one with --app, --service or --name; until then nothing is dismissed (exit \
            code 64).

            --left-behind gives up unsent changes of a store that the app no longer uses. `nephos kv adopt` \
            sends them to the present store instead.
            """)

    @Argument(help: "The items, such as keys (or --all).") var names: [String] = []
    @Flag(help: "Dismiss all rejected changes.") var all = false
    @Flag(help: "Give up unsent changes of a store that the app no longer uses.") var leftBehind = false
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
                throw CloudError(.unknownItem, "No change of this item was rejected.", details: ["item": missing])
            }
            try output.print(
                ["dismissed": dismissed.map(\.rawValue)],
                text: dismissed.isEmpty
                    ? "No change was rejected." : "Dismissed \(listed(dismissed.map { inLine($0.rawValue) })).")
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
                "Several have a rejected change with this name; nothing was dismissed. Choose one with --app, --service or --name.",
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
