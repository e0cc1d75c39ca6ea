import ArgumentParser
import Core
import Foundation
import NephosKit
import Wire

struct KeyValueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv", abstract: "The key-value store of an app.",
        subcommands: [
            Get.self, Set.self, Delete.self, List.self, Import.self, Export.self, History.self, Sync.self, Mirror.self,
            Adopt.self, Discard.self,
        ])

    /// How long a command that talks to the server may take.
    struct NetworkOptions: ParsableArguments {
        @OptionGroup var wait: WaitOptions
        @Flag(name: .long, help: "Do not wait for the server: the change is kept and sent later.") var offline = false

        var duration: Duration { wait.duration }
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print a key's value, from this device's copy.",
            discussion: "Exit code 2: there is no such key. Exit code 6: not known yet, nothing has been fetched.")

        @Argument(help: "The key.") var key: String
        @OptionGroup var store: StoreOptions
        @Flag(help: "Ask the server for changes first.") var fresh = false
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var key: String
            var type: String
            var value: JSONValue
        }

        func run() async throws {
            try await store.withStore { store, _ in
                var result = try store.read(key)
                // A device that has never fetched knows nothing; one fetch answers it.
                if fresh || (result == .notDownloadedYet && !network.offline) {
                    try await store.waitUntilCurrent(timeout: network.duration, isImpatient: true)
                    result = try store.read(key)
                }
                guard let value = result.value else {
                    throw result == .notDownloadedYet
                        ? CloudError(.storeOutOfStep, "This device has not fetched the store yet. Use: nephos kv sync")
                        : CloudError(.unknownItem, "The store has no such key.", details: ["key": key])
                }
                try output.print(
                    Report(key: key, type: value.typeName, value: JSONValue(value)), text: value.text)
            }
        }
    }

    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set a key, here at once, and on the server when it can be reached.")

        @Argument(help: "The key.") var key: String
        @Argument(help: "The value; `-` reads it from standard input.") var value: String
        @Option(help: "Its type. auto: true and false, numbers, JSON arrays and objects are what they look like.")
        var type = ValueType.auto
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let text =
                value == "-" ? String(decoding: FileHandle.standardInput.readDataToEndOfFile(), as: UTF8.self) : value
            let value = try PropertyValue(text: text, type: type)
            try await store.withStore { store, _ in
                try store.set(value, forKey: key)
                try await Sent.wait(store, keys: [key], network: network, output: output, done: "Set \(key).")
            }
        }
    }

    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Delete keys, all or none.")

        @Argument(help: "The keys.") var keys: [String]
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore { store, _ in
                try store.write(Swift.Set(keys).sorted().map { LocalWrite(key: ItemName($0), value: nil) })
                try await Sent.wait(
                    store, keys: keys, network: network, output: output,
                    done: "Deleted \(keys.joined(separator: ", ")).")
            }
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the store, from this device's copy.",
            discussion: "Waits for the first download. Exit code 6: it has not finished in time.")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore { store, _ in
                try await store.waitUntilDownloaded(timeout: network.offline ? .zero : network.duration)
                let values = try store.dictionary()
                let rows = values.sorted { $0.key < $1.key }.map { key, value in
                    [key, value.typeName, Self.shortened(value.text)]
                }
                try output.print(
                    values.mapValues(JSONValue.init),
                    text: rows.isEmpty ? "The store is empty." : table(["KEY", "TYPE", "VALUE"], rows))
            }
        }

        private static func shortened(_ text: String) -> String {
            let line = text.replacing("\n", with: " ")
            return line.count > 60 ? line.prefix(59) + "…" : line
        }
    }

    struct Import: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set the keys of a JSON object, all or none.",
            discussion:
                "What `nephos kv export` writes; {\"$date\": ...} and {\"$data\": ...} stand for dates and data.")

        @Argument(help: "The file; `-` is standard input.", completion: .file()) var file: String
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            guard
                let data = file == "-"
                    ? FileHandle.standardInput.readDataToEndOfFile() : FileManager.default.contents(atPath: file)
            else { throw CloudError(.invalidArguments, "The file cannot be read.", details: ["file": file]) }
            guard case .dictionary(let values) = PropertyValue(json: String(decoding: data, as: UTF8.self)) else {
                throw CloudError(.invalidArguments, "The file is not a JSON object without nulls.")
            }
            guard !values.isEmpty else {
                return try output.print([String: Int](), text: "There was nothing to import.")
            }
            try await store.withStore { store, _ in
                try store.write(values.sorted { $0.key < $1.key }.map { LocalWrite(key: $0.key, value: $0.value) })
                try await Sent.wait(
                    store, keys: values.keys.sorted().map(\.rawValue), network: network, output: output,
                    done: "Imported \(values.count) keys.")
            }
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the store as a JSON object.",
            discussion: "Waits for the first download. Exit code 6: it has not finished in time.")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions

        func run() async throws {
            try await store.withStore { store, _ in
                try await store.waitUntilDownloaded(timeout: network.offline ? .zero : network.duration)
                print(try OutputOptions.encode(store.dictionaryRepresentation.mapValues(JSONValue.init)))
            }
        }
    }

    struct History: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "What was overwritten or lost a conflict, newest first.")

        @Argument(help: "The key (default: all).") var key: String?
        @Option(help: "At most so many, up to 1000.") var limit = 20
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        private struct Row: Encodable {
            var key: String
            var value: JSONValue?
            var writtenAt: UInt64
            var device: String
            var lostConflict: Bool
            var winnerDevice: String
        }

        func run() async throws {
            try await store.withStore { store, session in
                // First, so that a server that is away is waited for once.
                let entries = try await store.history(forKey: key, limit: limit, timeout: wait.duration)
                let names = Dictionary(
                    ((try? await session.devices()) ?? []).map { ($0.id.rawValue, $0.name) }
                ) { first, _ in first }
                let rows = entries.map { entry in
                    Row(
                        key: entry.item.key.rawValue, value: entry.item.value.map(JSONValue.init),
                        writtenAt: entry.item.timestamp.time.milliseconds, device: entry.item.deviceID.rawValue,
                        lostConflict: entry.lostConflict, winnerDevice: entry.winnerDevice.rawValue)
                }
                let cells = rows.map { row in
                    [
                        describe(Timestamp(milliseconds: row.writtenAt)), row.key, names[row.device] ?? row.device,
                        row.lostConflict
                            ? "lost to \(names[row.winnerDevice] ?? row.winnerDevice)" : "overwritten",
                        row.value.map(\.value.text) ?? "(deleted)",
                    ]
                }
                try output.print(
                    rows,
                    text: rows.isEmpty
                        ? "Nothing was overwritten." : table(["WRITTEN", "KEY", "BY", "WHAT", "VALUE"], cells))
            }
        }
    }

    struct Sync: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send what waits, fetch what is new, and say where the store stands.",
            discussion: "Exit code 6: the server refused a write that nobody has dismissed (nephos kv discard).")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore { store, _ in
                store.synchronize()
                try await store.waitUntilCurrent(timeout: network.duration, isImpatient: true)
                try await store.waitUntilSent(timeout: network.duration, isImpatient: true)
                let status = try await store.status()
                let facts = ["token": status.head.description, "digest": status.digest.description]
                guard status.refused.isEmpty else {
                    try output.print(
                        facts.merging(["state": "refused"]) { $1 },
                        text: "Fetched at \(status.head). The server refused: "
                            + status.refused.map { "\($0.key) (\($0.error.message))" }.joined(separator: ", ")
                            + "\nSee: nephos why. Dismiss with: nephos kv discard")
                    throw ExitCode(6)
                }
                try output.print(
                    facts.merging(["state": "in_sync"]) { $1 },
                    text: "In sync at \(status.head), digest \(status.digest.short).")
            }
        }
    }

    struct Mirror: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep a defaults file (JSON or XML property list) and the store the same, until Ctrl-C.",
            discussion: """
                A file that goes away, or can no longer be read, ends the mirror and deletes nothing. So does one that \
                lacks more than 5 of its keys at once, and more than half of them.
                """)

        @Argument(help: "The file; made if it is not there.", completion: .file()) var file: String
        @Flag(help: "Let the file delete many keys at once.") var deleteMany = false
        @OptionGroup var store: StoreOptions

        func run() async throws {
            try await store.withStore { store, _ in
                print("Mirroring \(file). End with Ctrl-C.")
                fflush(nil)
                try await DefaultsMirror(store: store, path: file, deletesMany: deleteMany).run()
            }
        }
    }
}

/// Waits for the server's word on a change, and says how it went.
enum Sent {
    private struct Report: Encodable {
        var state: String
        var keys: [String]
        var token: String?
        var reason: String?
    }

    /// - Throws: ``CloudError`` `.quotaExceeded` or another refusal.
    static func wait(
        _ store: KeyValueStore, keys: [String], network: KeyValueCommand.NetworkOptions, output: OutputOptions,
        done: String
    ) async throws {
        if network.offline {
            return try output.print(
                Report(state: "queued", keys: keys), text: "\(done) It is kept here and is sent later.")
        }
        do {
            try await store.waitUntilSent(timeout: network.duration, isImpatient: true)
        } catch {
            let reason = error.details["reason"] ?? error.message
            guard ExitStatus.of(error) == .unreachable else {
                // It waits for a person, who has to hear of it.
                try output.print(Report(state: "blocked", keys: keys), text: "\(done) It is kept on this device.")
                throw error
            }
            return try output.print(
                Report(state: "queued", keys: keys, reason: reason),
                text: """
                    \(done) It is kept on this device: \(reason)
                    The next command that reaches the server sends it, or nephos watch while it runs.
                    """)
        }
        let status = try await store.status()
        if let refused = status.refused.first(where: { keys.contains($0.key.rawValue) }) {
            throw refused.error
        }
        try output.print(Report(state: "sent", keys: keys, token: status.head.description), text: done)
    }
}
