import ArgumentParser
import Core
import NephosKit

extension KeyValueCommand {
    struct Adopt: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Offer the keys that were set while nobody was signed in to the account that is signed in now.",
            discussion: "They keep the times at which they were set: where the account has something newer, that stays."
        )

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.duration) { store, session in
                _ = try session.requireAccount()
                let keys = try await store.adoptSignedOutContent().map(\.rawValue)
                guard !keys.isEmpty else {
                    return try output.print(
                        ["keys": [String]()], text: "Nothing was set while nobody was signed in.")
                }
                do {
                    try await Sent.wait(
                        store, keys: keys, network: network, output: output,
                        done: "Adopted \(listed(keys.map(inLine))).")
                } catch let error as CloudError {
                    throw try await refusal(error, of: keys, in: store)
                }
            }
        }

        /// Says of each key whether the account has it.
        private func refusal(
            _ error: CloudError, of keys: [String], in store: KeyValueStore
        ) async throws -> CloudError {
            let refused = try await store.status().refused.map(\.key.rawValue).filter(keys.contains)
            guard !refused.isEmpty else { return error }
            let kept = try store.signedOutKeys().map(\.rawValue)
            let adopted = keys.filter { !kept.contains($0) }
            var error = error
            if !adopted.isEmpty { error.details["adopted"] = adopted.joined(separator: ", ") }
            error.details["not_adopted"] = refused.joined(separator: ", ")
            error.details["kept"] = "What was not adopted stays here. Make room, and adopt again."
            return error
        }
    }

    struct Discard: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Dismiss writes that the server refused, so that they are not listed any more.",
            discussion: """
                What the keys hold stays as it is. `nephos why` lists refused writes with the reason. \
                Exit code 2: there is no refused write of the key.
                """)

        @Argument(help: "The keys (or --all).") var keys: [String] = []
        @Flag(help: "Dismiss all of them.") var all = false
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard keys.isEmpty == all else { throw ValidationError("Name keys, or give --all.") }
        }

        func run() async throws {
            try await store.withStore(within: wait.duration) { store, _ in
                // As everywhere a key is typed: any name that Swift's strings take for equal.
                let refused = try await store.status().refused.map(\.key).filter { keys.contains($0.rawValue) }
                let dismissed = try store.dismissRefused(all ? nil : refused)
                if let missing = keys.first(where: { key in !dismissed.contains { $0.rawValue == key } }) {
                    throw CloudError(
                        .unknownItem, "There is no refused write of this key.", details: ["key": missing])
                }
                try output.print(
                    ["dismissed": dismissed.map(\.rawValue)],
                    text: dismissed.isEmpty
                        ? "No write was refused."
                        : "Dismissed \(listed(dismissed.map { inLine($0.rawValue) })).")
            }
        }
    }
}
