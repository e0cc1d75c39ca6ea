import ArgumentParser
import NephosCore
import NephosKit

extension KeyValueCommand {
    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set a key. The value is saved here at once and sent to the server.",
            discussion: """
                Exit code 6: the server has a newer value from another device; nephos conflicts lists your \
                value.
                """)

        @Argument(help: "The key.") var key: String
        @Argument(help: "The value; - reads it from standard input.") var value: String?
        @Option(help: "Read the value from this file.", completion: .file()) var from: String?
        @Option(help: "Set this former value again, as nephos history and nephos why show it.") var former: String?
        @Option(
            help:
                "The type. auto: true, false, numbers, JSON arrays and objects are recognized if they print as you typed them. data: base64, or the bytes of a file or of standard input."
        )
        var type = ValueType.auto
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard [value, from, former].compactMap({ $0 }).count == 1 else {
                throw ValidationError("Give the value, or with --from the file that has it, or --former.")
            }
        }

        func run() async throws {
            let typed = try input().map { try PropertyValue($0, type: type) }
            try await store.withStore(within: network.limit, makesHome: typed != nil) { store, session in
                let value: PropertyValue
                if let typed { value = typed } else { value = try await formerValue(in: store, session) }
                try await store.write(session, network) { try store.set(value, forKey: key) }
                try await Sent.wait(
                    store, keys: [key], network: network, output: output, done: "Set \(inLine(key)).",
                    superseded: { try store.read(key).holds(value) ? [] : [key] })
            }
        }

        /// Nil: it is what the key had before.
        private func input() throws -> ValueInput? {
            if let file = value == "-" ? value : from {
                return .bytes(try InputFile.read(file, bytesMax: type.inputBytesMax))
            }
            return value.map { .text($0) }
        }

        private static let historyMax = 1000

        private func formerValue(in store: KeyValueStore, _ session: Session) async throws -> PropertyValue {
            _ = try session.requireAccount()
            var found: PropertyValue?
            if former == RefusedWrite.former {
                let refused = try await store.status().refused
                // By bytes, as the line that names it was printed; else as it may be typed.
                let named = refused.first { $0.key == ItemName(key) } ?? refused.first { $0.key.rawValue == key }
                found = named?.value
            } else {
                let history = try await store.history(
                    forKey: key, limit: Self.historyMax, timeout: network.duration)
                found = history.first { "\($0.item.timestamp.rawValue)" == former }?.item.value
            }
            guard let found else {
                throw CloudError(
                    .unknownItem, "The key had no such value, or it is not kept any more. See: nephos history",
                    details: ["key": key, "former": former ?? ""])
            }
            return found
        }
    }

    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Delete keys, all or none.")

        @Argument(help: "The keys.") var keys: [String]
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await store.withStore(within: network.limit) { store, session in
                var unknown: [String] = []
                try await store.write(session, network) {
                    // Sent all the same: the server, or another device, may have one that is not known here.
                    unknown = try keys.filter { try store.read($0) == .absent }
                    try store.transaction { changes in for key in keys { changes.removeValue(forKey: key) } }
                }
                try await Sent.wait(
                    store, keys: keys, unknown: unknown, network: network, output: output,
                    done: Self.sentence(keys.filter { !unknown.contains($0) }, unknown),
                    superseded: { try keys.filter { try !store.read($0).holds(nil) } })
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

    struct Resolve: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Accept the current values: their conflicts are no longer listed on any device.",
            discussion: "The other values stay in nephos history for 30 days. Exit code 2: a key has no conflict.")

        @Argument(help: "The keys (or --all).") var keys: [String] = []
        @Flag(help: "All keys with conflicts.") var all = false
        @Option(help: "Only conflicts up to this time, in milliseconds since 1970 (default: all).")
        var until: UInt64?
        @OptionGroup var store: StoreOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard keys.isEmpty == all else { throw ValidationError("Name keys, or give --all.") }
        }

        func run() async throws {
            try await store.withStore(within: wait.duration) { store, session in
                _ = try session.requireAccount()
                var count = 0
                var without: [String] = []
                for key in all ? [nil] : keys.map(Optional.some) {
                    let resolved = try await store.conflicts.resolve(
                        forKey: key, recordedUntil: until.map { Timestamp(milliseconds: $0) }, timeout: wait.duration)
                    count += resolved
                    if let key, resolved == 0 { without.append(key) }
                }
                if let missing = without.first {
                    throw CloudError(
                        .unknownItem,
                        until == nil
                            ? "This key has no conflict. See: nephos conflicts"
                            : "This key has no conflict of that time any more. See: nephos conflicts",
                        details: ["key": missing, "resolved": "\(count)"])
                }
                try output.print(
                    ["resolved": .integer(Int64(count))],
                    text: count == 0 ? "Nothing conflicts." : "Resolved \(counted(count, "conflict")).")
            }
        }
    }

    struct Import: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set keys from a JSON object or a property list (XML or binary), all or none.",
            discussion:
                """
                `nephos kv export` writes this format. {"$date": ...} is a date and {"$data": ...} is data.
                """)

        @Argument(help: "The file; - is standard input.", completion: .file()) var file: String
        @OptionGroup var store: StoreOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let values = try PropertyValue.dictionary(
                inFile: InputFile.read(file, bytesMax: ValueType.json.inputBytesMax))
            guard !values.isEmpty else {
                return try output.print(.dictionary([:]), text: "There was nothing to import.")
            }
            try await store.withStore(within: network.limit, makesHome: true) { store, session in
                let writes = values.sorted { $0.key < $1.key }.map { LocalWrite(key: $0.key, value: $0.value) }
                try await store.write(session, network) { try store.write(writes) }
                try await Sent.wait(
                    store, keys: values.keys.sorted().map(\.rawValue), network: network, output: output,
                    done: "Imported \(counted(values.count, "key")).",
                    superseded: {
                        try writes.filter { try !store.read($0.key).holds($0.value) }.map(\.key.rawValue)
                    })
            }
        }
    }
}
