import ArgumentParser
import NephosCore
import NephosKit

extension KeyValueCommand {
    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the value of a key.",
            discussion: """
                \(asking) Exit code 2: there is no such key. Exit code 4: no account is signed in, and the key \
                was not set here since.
                """)

        @Argument(help: "The key.") var key: String
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        @Flag(help: "Print the bytes of a text or of data without a line end.") var raw = false
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.limit) { store, session in
                if try session.account != nil { try await network.refresh.bring(store.scope) }
                let result = try store.read(key)
                guard let value = result.value else {
                    _ = try session.requireAccount()
                    throw result == .notDownloadedYet
                        ? notFetched
                        : CloudError(.unknownItem, "The store has no such key.", details: ["key": key])
                }
                if raw { return try StandardOutput.write(try value.rawBytes) }
                try output.print(
                    ["key": .string(key), "type": .string(value.typeName), "value": value], text: value.text)
            }
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List all keys with their values.", discussion: "\(asking) \(signedOut)")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.limit) { store, session in
                let values = try await KeyValueCommand.values(of: store, session, network)
                let rows = values.sorted { $0.key < $1.key }.map { key, value in
                    [key.rawValue, value.typeName, value.text]
                }
                try output.print(
                    .dictionary(values),
                    text: rows.isEmpty ? "The store is empty." : table(["KEY", "TYPE", "VALUE"], rows))
            }
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the store as a JSON object.",
            discussion: "\(asking) \(signedOut)")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        // It prints JSON in any case; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.limit) { store, session in
                let values = try await KeyValueCommand.values(of: store, session, network)
                try StandardOutput.write(PropertyValue.dictionary(values).json + "\n")
            }
        }
    }

    struct History: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List overwritten values, newest first, with the conflicts.")

        @Argument(help: "The key (default: all).") var key: String?
        @Option(help: "List at most this many, up to 1000.") var limit = 20
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard 1...1000 ~= limit else { throw ValidationError("--limit is from 1 to 1000.") }
        }

        func run() async throws {
            try await store.withStore(within: wait.duration) { store, session in
                // First, so that a server that is away is waited for once.
                let entries = try await store.history(forKey: key, limit: limit, timeout: wait.duration)
                let names = await DeviceNames(session, within: wait.duration)
                let cells = entries.map { entry in
                    [
                        tableTime(entry.item.timestamp.time), entry.item.key.rawValue, names[entry.item.deviceID],
                        entry.lostConflict ? "lost to \(names[entry.winnerDevice])" : "overwritten",
                        entry.item.value?.text ?? (entry.damaged ? "(damaged)" : "(deleted)"),
                    ]
                }
                let rows = entries.map { entry in
                    var row: [ItemName: PropertyValue] = [
                        "key": .string(entry.item.key.rawValue),
                        "written_at": .integer(Int64(clamping: entry.item.timestamp.time.milliseconds)),
                        "device": .string(entry.item.deviceID.rawValue), "lost_conflict": .boolean(entry.lostConflict),
                        "winner_device": .string(entry.winnerDevice.rawValue),
                    ]
                    row["value"] = entry.item.value
                    if entry.damaged { row["damaged"] = true }
                    return PropertyValue.dictionary(row)
                }
                try output.print(
                    .array(rows),
                    text: rows.isEmpty
                        ? "Nothing was overwritten." : table(["WRITTEN", "KEY", "BY", "WHAT", "VALUE"], cells))
            }
        }
    }

    static let asking =
        "The command asks the server first, for at most a second. If the server does not answer, you see this device's copy and its time. Exit code 6: with --offline, no data has been fetched yet."
    private static let signedOut = "Exit code 4: no account is signed in, and no key was set here since."

    private static let notFetched = CloudError(
        .storeOutOfStep, "This device has not fetched the store yet. Use: nephos kv sync")

    /// All that there is, once it has been downloaded.
    ///
    /// - Throws: ``CloudError`` `.notSignedIn` when there is nothing because nobody is: that is no empty store.
    private static func values(
        of store: KeyValueStore, _ session: Session, _ network: ReadOptions
    ) async throws -> [ItemName: PropertyValue] {
        if try session.account != nil {
            try await network.refresh.bring(store.scope)
            guard try await store.status().initialSyncFinished else { throw notFetched }
        }
        let values = try store.values()
        if values.isEmpty { _ = try session.requireAccount() }
        return values
    }
}
