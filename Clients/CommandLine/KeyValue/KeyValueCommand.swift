import ArgumentParser
import NephosCore
import NephosKit

struct KeyValueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv", abstract: "Read and change an app's key-value store.",
        subcommands: [
            Get.self, Set.self, Delete.self, List.self, Import.self, Export.self, History.self, Resolve.self, Sync.self,
            Mirror.self,
            Adopt.self, DiscardCommand.self,
        ])

    /// How long a command that talks to the server may take.
    struct NetworkOptions: ParsableArguments {
        @OptionGroup var wait: WaitOptions
        @Flag(name: .long, help: "Do not wait for the server; the change is sent later.") var offline = false

        var duration: Duration { wait.duration }
        /// Nil: the server is not asked.
        var limit: Duration? { offline ? nil : duration }
        /// What is written to a store or a zone needs no copy of it.
        var refresh: CopyRefresh { CopyRefresh(limit: limit, isWriting: true, needsCopy: false) }
    }

    struct Sync: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send pending changes, fetch new ones, and show whether the store is in sync.",
            discussion: """
                Exit code 6: the copies differ, a change is pending, or a change was rejected and not dismissed \
                (nephos discard).
                """)

        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions
        @Flag(name: .long, help: "Do not ask the server; show the state that this device knows.") var offline = false
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let limit = offline ? nil : wait.duration
            try await store.withStore(within: limit) { store, _ in
                store.synchronize()
                let asked = try await Asked(store.scope, within: limit)
                let status = asked.status
                let standing = Standing(status, failure: asked.failure)
                if asked.isInVain, let cause = standing.cause { throw asked.details(for: cause) }
                var facts = [
                    "state": standing.state.rawValue, "token": status.head.description,
                    "digest": status.digest.description,
                ]
                facts["reason"] = standing.reason
                try output.print(facts, text: standing.text)
                try standing.end()
            }
        }
    }
}
