import ArgumentParser
import NephosCore
import NephosKit

extension KeyValueCommand {
    struct Adopt: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send keys that were set while no account was signed in to the present account.",
            discussion: """
                The keys keep the times at which they were set. If the account has a newer value, that value \
                stays, and yours is listed in nephos conflicts.
                """
        )

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.limit) { store, session in
                _ = try session.requireAccount()
                let offered = try await store.offerSignedOutContent()
                let keys = offered.keys.sorted().map(\.rawValue)
                guard !keys.isEmpty else {
                    return try output.print(
                        ["keys": [String]()], text: "No key was set while no account was signed in.")
                }
                do {
                    try await Sent.wait(
                        store, keys: keys, network: network, output: output,
                        done: "Offered \(listed(keys.map(inLine))).", whenSent: { try outcome(of: offered, in: store) })
                } catch let error as CloudError {
                    throw try await refusal(error, of: offered, in: store)
                }
            }
        }

        /// Of what was taken: the keys of which the account has something newer.
        private func superseded(
            _ offered: [ItemName: PropertyValue?], in store: KeyValueStore
        ) throws -> [ItemName] {
            let kept = try store.signedOutKeys()
            return try offered.filter { key, value in try !kept.contains(key) && store.read(key).value != value }.keys
                .sorted()
        }

        private func outcome(
            of offered: [ItemName: PropertyValue?], in store: KeyValueStore
        ) throws -> (superseded: [String], text: String) {
            let newer = try superseded(offered, in: store)
            let adopted = offered.keys.filter { !newer.contains($0) }.sorted()
            func list(_ keys: [ItemName]) -> String { listed(keys.map { inLine($0.rawValue) }) }
            let sentences = [
                adopted.isEmpty ? nil : "Adopted \(list(adopted)).",
                newer.isEmpty
                    ? nil
                    : "Not adopted, since the account has something newer: \(list(newer)). See: nephos conflicts",
            ]
            return (newer.map(\.rawValue), sentences.compactMap { $0 }.joined(separator: "\n"))
        }

        /// Says of each key whether the account has it.
        private func refusal(
            _ error: CloudError, of offered: [ItemName: PropertyValue?], in store: KeyValueStore
        ) async throws -> CloudError {
            let keys = offered.keys.sorted().map(\.rawValue)
            let refused = try await store.status().refused.map(\.key.rawValue).filter(keys.contains)
            guard !refused.isEmpty else { return error }
            let kept = try store.signedOutKeys().map(\.rawValue)
            let newer = try superseded(offered, in: store).map(\.rawValue)
            let adopted = keys.filter { !kept.contains($0) && !newer.contains($0) }
            var error = error
            if !adopted.isEmpty { error.details["adopted"] = adopted.joined(separator: ", ") }
            if !newer.isEmpty { error.details["superseded"] = newer.joined(separator: ", ") }
            error.details["not_adopted"] = refused.joined(separator: ", ")
            error.details["kept"] = "Keys that were not adopted stay here. Make room, and adopt again."
            return error
        }
    }
}
