import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWire

struct KeyValueCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv", abstract: "The key-value store of an app.",
        subcommands: [
            Get.self, Set.self, Delete.self, List.self, Import.self, Export.self, History.self, Sync.self, Mirror.self,
            Adopt.self, DiscardCommand.self,
        ])

    /// How long a command that talks to the server may take.
    struct NetworkOptions: ParsableArguments {
        @OptionGroup var wait: WaitOptions
        @Flag(name: .long, help: "Do not wait for the server: the change is kept and sent later.") var offline = false

        var duration: Duration { wait.duration }
    }

    /// How long a command that only reads may ask the server.
    struct ReadOptions: ParsableArguments {
        @OptionGroup var wait: WaitOptions
        @Flag(name: .long, help: "Do not ask the server: what this device has is shown as it is.") var offline = false

        var duration: Duration { wait.duration }
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print a key's value, from this device's copy.",
            discussion: "Exit code 2: there is no such key. Exit code 6: not known yet, nothing has been fetched.")

        @Argument(help: "The key.") var key: String
        @OptionGroup var store: StoreOptions
        @Flag(help: "Ask the server for changes first.") var fresh = false
        @OptionGroup var network: ReadOptions
        @Flag(help: "The bytes of a string or of data as they are, with nothing added.") var raw = false
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.duration) { store, _ in
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
                if raw { return try StandardOutput.write(try value.rawBytes) }
                try output.print(
                    ["key": .string(key), "type": .string(value.typeName), "value": value], text: value.text)
            }
        }
    }

    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set a key, here at once, and on the server when it can be reached.")

        @Argument(help: "The key.") var key: String
        @Argument(help: "The value; `-` reads it from standard input.") var value: String?
        @Option(help: "Read the value from this file.", completion: .file()) var from: String?
        @Option(
            help: """
                Its type. auto: true and false, numbers, JSON arrays and objects are what they look like, unless they \
                would not come out as typed. data: base64, or the raw bytes of a file or of standard input.
                """)
        var type = ValueType.auto
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let value = try PropertyValue(input(), type: type)
            try await store.withStore(within: network.duration, makesHome: true) { store, _ in
                try await store.writeWhereThereIsRoom(network) { try store.set(value, forKey: key) }
                try await Sent.wait(store, keys: [key], network: network, output: output, done: "Set \(inLine(key)).")
            }
        }

        private func input() throws -> ValueInput {
            switch (value, from) {
            case ("-", nil): return .bytes(try InputFile.read("-", bytesMax: type.inputBytesMax))
            case (let value?, nil): return .text(value)
            case (nil, let file?): return .bytes(try InputFile.read(file, bytesMax: type.inputBytesMax))
            default: throw CloudError(.invalidArguments, "Give the value, or with --from the file that has it.")
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
            try await store.withStore(within: network.duration) { store, _ in
                // Sent all the same: the server, or another device, may have one that is not known here.
                let unknown = try keys.filter { try store.read($0) == .absent }
                try store.transaction { changes in for key in keys { changes.removeValue(forKey: key) } }
                try await Sent.wait(
                    store, keys: keys, unknown: unknown, network: network, output: output,
                    done: Self.sentence(keys.filter { !unknown.contains($0) }, unknown))
            }
        }

        private static func sentence(_ deleted: [String], _ unknown: [String]) -> String {
            func list(_ keys: [String]) -> String { keys.map(inLine).joined(separator: ", ") }
            let sentences = [
                deleted.isEmpty ? nil : "Deleted \(list(deleted)).",
                unknown.isEmpty
                    ? nil
                    : "\(list(unknown)): not on this device; deleted also where the server or another device has it.",
            ]
            return sentences.compactMap { $0 }.joined(separator: " ")
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the store, from this device's copy.",
            discussion: "Waits for the first download. Exit code 6: it has not finished in time.")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.duration) { store, _ in
                try await store.waitUntilDownloaded(timeout: network.offline ? .zero : network.duration)
                let values = try store.values()
                let rows = values.sorted { $0.key < $1.key }.map { key, value in
                    [key.rawValue, value.typeName, Self.shortened(printable(value.text, keepsLines: false))]
                }
                try output.print(
                    .dictionary(values),
                    text: rows.isEmpty ? "The store is empty." : table(["KEY", "TYPE", "VALUE"], rows))
            }
        }

        private static func shortened(_ text: String) -> String {
            text.count > 60 ? text.prefix(59) + "…" : text
        }
    }

    struct Import: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set the keys of a JSON object or a property list (XML or binary), all or none.",
            discussion:
                "What `nephos kv export` writes; {\"$date\": ...} and {\"$data\": ...} stand for dates and data.")

        @Argument(help: "The file; `-` is standard input.", completion: .file()) var file: String
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let values = try PropertyValue.dictionary(
                inFile: InputFile.read(file, bytesMax: ValueType.json.inputBytesMax))
            guard !values.isEmpty else {
                return try output.print(.dictionary([:]), text: "There was nothing to import.")
            }
            try await store.withStore(within: network.duration, makesHome: true) { store, _ in
                let writes = values.sorted { $0.key < $1.key }.map { LocalWrite(key: $0.key, value: $0.value) }
                try await store.writeWhereThereIsRoom(network) { try store.write(writes) }
                try await Sent.wait(
                    store, keys: values.keys.sorted().map(\.rawValue), network: network, output: output,
                    done: "Imported \(values.count) \(values.count == 1 ? "key" : "keys").")
            }
        }
    }

    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the store as a JSON object.",
            discussion: "Waits for the first download. Exit code 6: it has not finished in time.")

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        // It prints JSON in any case; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.duration) { store, _ in
                try await store.waitUntilDownloaded(timeout: network.offline ? .zero : network.duration)
                try StandardOutput.write(PropertyValue.dictionary(try store.values()).json + "\n")
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

        func validate() throws {
            guard 1...1000 ~= limit else { throw ValidationError("--limit is from 1 to 1000.") }
        }

        func run() async throws {
            try await store.withStore(within: wait.duration) { store, session in
                // First, so that a server that is away is waited for once.
                let entries = try await store.history(forKey: key, limit: limit, timeout: wait.duration)
                let names = Dictionary(
                    ((try? await session.devices(timeout: wait.duration)) ?? []).map { ($0.id, $0.name) }
                ) { first, _ in first }
                func name(_ device: DeviceID) -> String { names[device] ?? device.rawValue }
                let cells = entries.map { entry in
                    [
                        describe(entry.item.timestamp.time), entry.item.key.rawValue, name(entry.item.deviceID),
                        entry.lostConflict ? "lost to \(name(entry.winnerDevice))" : "overwritten",
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

    struct Sync: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send what waits, fetch what is new, and say where the store stands.",
            discussion: """
                Exit code 6: the copies differ, something waits, or the server refused a write that nobody has \
                dismissed (nephos discard).
                """)

        @OptionGroup var store: StoreOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.duration) { store, _ in
                store.synchronize()
                let asked = try await Asked(store.scope, within: network.offline ? nil : network.duration)
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

    struct Mirror: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep a defaults file (JSON or XML property list) and the store the same, until Ctrl-C.",
            discussion: """
                A file that goes away, or can no longer be read, ends the mirror and deletes nothing. So does one that \
                lacks more than 5 of its keys at once, and more than half of them.

                What was edited in the file while no mirror ran is taken over; what it overwrites in the store is in \
                nephos kv history. A file that this device has never mirrored, and that has other values than the \
                store, is left alone (exit code 1) unless --prefer says which side's values stay.
                """)

        @Argument(help: "The file; made if it is not there.", completion: .file()) var file: String
        @Flag(help: "Let the file delete many keys at once.") var deleteMany = false
        @Option(help: "Whose values stay where it is not known which are the newer: file or store.")
        var prefer: Side?
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions

        /// As it is typed.
        enum Side: String, ExpressibleByArgument, CaseIterable {
            case file
            case store
        }

        func run() async throws {
            let prefers = prefer.flatMap { DefaultsMirror.Side(rawValue: $0.rawValue) }
            try await store.withStore(within: wait.duration) { store, _ in
                try await waitForDownload(store)
                try StandardOutput.line("Mirroring \(file). End with Ctrl-C.")
                try await DefaultsMirror(store: store, path: file, deletesMany: deleteMany, prefers: prefers).run()
            }
        }

        /// How long one attempt may take, which nothing can cancel, until it is said what is waited for.
        private static let attemptMax: Duration = .seconds(1)

        /// Waits for the first download, as long as it takes unless something else was said, and says what keeps it.
        ///
        /// - Throws: ``CloudError`` with the reason when it does not come by itself, or not in time.
        private func waitForDownload(_ store: KeyValueStore) async throws {
            let deadline = wait.given.map { ContinuousClock.now + $0 }
            var said: String?
            while try await !store.status().initialSyncFinished {
                let left = deadline.map { ContinuousClock.now.duration(to: $0) } ?? Self.attemptMax
                var failure: CloudError?
                do throws(CloudError) {
                    try await store.waitUntilCurrent(
                        timeout: min(max(left, .milliseconds(1)), Self.attemptMax), isImpatient: true)
                } catch { failure = error }
                let status = try await store.status()
                if status.initialSyncFinished { return }
                let cause = status.problem ?? failure
                if let cause, ExitStatus.of(cause) == .refused || deadline.map({ $0 <= .now }) == true { throw cause }
                let standing = Standing(status, failure: failure)
                if said != standing.line {
                    try StandardOutput.line("Waiting for the store: \(standing.line)")
                    said = standing.line
                }
                try await Task.sleep(for: .milliseconds(500))
            }
        }
    }
}

/// What a value is made of.
enum ValueInput {
    case text(String)
    /// The bytes of a file or of standard input.
    case bytes(Data)
}

extension PropertyValue {
    /// - Throws: ``CloudError`` `.invalidArguments` when the input is not of the type, or not text where text is
    ///   needed.
    init(_ input: ValueInput, type: ValueType) throws(CloudError) {
        switch input {
        case .text(let text): try self.init(text: text, type: type)
        case .bytes(let data) where type == .data: self = .data(data)
        case .bytes(let data):
            guard let text = String(validating: data, as: UTF8.self) else {
                throw CloudError(.invalidArguments, "The value is not text in UTF-8. Use: --type data")
            }
            try self.init(text: text, type: type)
        }
    }

    /// The content of a file to import.
    static func dictionary(inFile data: Data) throws(CloudError) -> [ItemName: PropertyValue] {
        let data = data.starts(with: [0xef, 0xbb, 0xbf]) ? data.dropFirst(3) : data
        let value: PropertyValue
        // Binary, or XML: no JSON begins so.
        if data.starts(with: Data("bplist".utf8)) || data.first(where: { $0 > 0x20 }) == UInt8(ascii: "<") {
            value = try PropertyValue(propertyList: data)
        } else if let text = String(validating: data, as: UTF8.self) {
            value = try PropertyValue(json: text)
        } else {
            throw CloudError(.invalidArguments, "The file is neither a property list nor JSON in UTF-8.")
        }
        // A dictionary of one key that begins with a dollar sign is wrapped when it is exported.
        guard case .dictionary(let values) = value else {
            throw CloudError(.invalidArguments, "The file is not one dictionary, or JSON object.")
        }
        return values
    }

    /// A string's or data's own bytes.
    fileprivate var rawBytes: Data {
        get throws(CloudError) {
            switch self {
            case .string(let text): return Data(text.utf8)
            case .data(let data): return data
            default:
                throw CloudError(
                    .invalidArguments, "Only strings and data have raw bytes.", details: ["type": typeName])
            }
        }
    }
}

/// Waits for the server's word on a change, and says how it went.
enum Sent {
    private struct Report: Encodable {
        var state: String
        var keys: [String]
        /// Of a deletion: the keys that this device had not. Whether anybody else had, it does not know.
        var notOnThisDevice: [String]?
        var token: String?
        var reason: String?
    }

    /// - Throws: ``CloudError`` `.quotaExceeded` or another refusal.
    static func wait(
        _ store: KeyValueStore, keys: [String], unknown: [String] = [], network: KeyValueCommand.NetworkOptions,
        output: OutputOptions, done: String
    ) async throws {
        var report = Report(state: "queued", keys: keys, notOnThisDevice: unknown.isEmpty ? nil : unknown)
        if network.offline { return try output.print(report, text: "\(done) It is kept here and is sent later.") }
        do {
            try await store.waitUntilSent(timeout: network.duration, isImpatient: true)
        } catch {
            guard ExitStatus.of(error) == .unreachable else {
                // It waits for a person, who has to hear of it.
                report.state = "blocked"
                try output.print(report, text: "\(done) It is kept on this device.")
                throw error
            }
            let cause = try await store.status().problem ?? error
            let reason = cause.code == .deadlineExceeded ? cause.details["reason"] : nil
            report.reason = reason ?? Standing.words(cause)
            var lines = ["\(done) It is kept on this device: \(report.reason ?? "")"]
            // A server that has another key is not the one that this device knows, however often it is asked.
            if cause.details["reason"] != Self.otherKey {
                lines.append("The next command that reaches the server sends it, or nephos watch while it runs.")
            }
            return try output.print(report, text: lines.joined(separator: "\n"))
        }
        let status = try await store.status()
        if let refused = status.refused.first(where: { keys.contains($0.key.rawValue) }) {
            throw refused.error
        }
        report.state = "sent"
        report.token = status.head.description
        try output.print(report, text: done)
    }

    /// As the connection names it.
    private static let otherKey = "server_key"
}
