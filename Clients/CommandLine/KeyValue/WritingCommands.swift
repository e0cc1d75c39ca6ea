import ArgumentParser
import NephosCore
import NephosKit

extension KeyValueCommand {
    struct Set: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set a key, here at once, and on the server when it can be reached.",
            discussion: """
                Exit code 6: the server has a newer value of another device; what was set is in nephos conflicts.
                """)

        @Argument(help: "The key.") var key: String
        @Argument(help: "The value; `-` reads it from standard input.") var value: String?
        @Option(help: "Read the value from this file.", completion: .file()) var from: String?
        @Option(help: "Set what the key had before: which, nephos history and nephos why say.") var former: String?
        @Option(
            help: """
                Its type. auto: true and false, numbers, JSON arrays and objects are what they look like, unless they \
                would not come out as typed. data: base64, or the raw bytes of a file or of standard input.
                """)
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
            abstract: "Keep what keys hold: their conflicts are listed no more, on any device.",
            discussion: """
                The losing values stay in nephos history for 30 days.
                Exit code 2: a key has no conflict.
                """)

        @Argument(help: "The keys (or --all).") var keys: [String] = []
        @Flag(help: "Of all keys.") var all = false
        @Option(help: "Only conflicts that the server has recorded by then, in milliseconds since 1970 (default: all).")
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
