import ArgumentParser
import NephosCore
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
}
