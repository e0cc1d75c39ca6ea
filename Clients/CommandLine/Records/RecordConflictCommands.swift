import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Conflicts: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List records that this device and another changed at the same time.",
            discussion: "The server's record is used until you decide with nephos records resolve.")

        @OptionGroup var database: DatabaseOptions
        @Option(name: .long, help: "Only in this zone (default: all).") var zone: String?
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, session in
                try await database.refresh(zone ?? RecordZone.defaultName, network)
                var found: [RecordConflict] = []
                for zone in try await database.zoneNames(zone) {
                    found += try await database.conflicts.list(zone: zone)
                }
                if found.isEmpty { try await database.requireDownloaded(zone) }
                try await database.sayWhatWaits(zone)
                guard !output.json else {
                    return try StandardOutput.write("[" + found.map(\.row).joined(separator: ",") + "]\n")
                }
                guard !found.isEmpty else { return try StandardOutput.line("There are no conflicts.") }
                let devices = network.offline ? nil : await DeviceNames(session, within: .seconds(1))
                let parts = found.map { $0.text(devices, options: self.database.options(database, session)) }
                try StandardOutput.line(parts.joined(separator: "\n"))
            }
        }
    }

    struct Resolve: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Decide a conflict: keep the server's record or yours.",
            discussion: "Exit code 2: the record has no conflict.")

        enum Kept: String, ExpressibleByArgument, CaseIterable {
            case server
            case client
        }

        @Argument(help: "The record's name.") var name: String
        @Option(help: "The record to keep: server, or client for the one saved here.") var keep: Kept
        @Option(help: "The conflict, as nephos conflicts prints it, if the record has several.")
        var conflict: Int64?
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let all = try await database.conflicts.list(zone: zone.zone).filter { $0.id.name == name }
                guard let conflict = self.conflict.map({ number in all.first { $0.number == number } }) ?? all.first
                else {
                    throw CloudError(
                        .unknownItem,
                        all.isEmpty
                            ? "The record has no conflict. See: nephos records conflicts"
                            : "This conflict is resolved already. The record has another one. See: nephos records conflicts",
                        details: ["record": name, "zone": zone.zone])
                }
                guard all.count == 1 || self.conflict != nil else {
                    throw CloudError(
                        .invalidArguments,
                        "The record has several conflicts. Name one with --conflict. See: nephos records conflicts",
                        details: [
                            "record": name, "conflicts": all.map { "\($0.number)" }.joined(separator: ", "),
                        ])
                }
                let sent = try await SentRecords(database, zone: zone.zone)
                let kept = try await database.conflicts.resolve(conflict, keeping: keep == .server ? .server : .client)
                try await sent.wait(
                    [name], network, output,
                    done: kept == nil ? "Resolved \(inLine(name)): it is deleted." : "Resolved \(inLine(name)).")
            }
        }
    }

    struct Refused: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "rejected", abstract: "List changes that the server rejected, other than conflicts.",
            discussion: """
                They stay here until you save the record again or dismiss them with nephos discard NAME. Once \
                the cause is gone, send them again with nephos records retry.
                """, aliases: ["refused"])

        @OptionGroup var database: DatabaseOptions
        @Option(name: .long, help: "Only in this zone (default: all).") var zone: String?
        @Flag(help: "Print the rejected records as lines of JSON.") var lines = false
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, session in
                try await database.refresh(zone ?? RecordZone.defaultName, network)
                var found: [RefusedRecord] = []
                for zone in try await database.zoneNames(zone) {
                    found += try await database.conflicts.rejected(zone: zone)
                }
                try await database.sayWhatWaits(zone)
                if lines {
                    for record in found.compactMap(\.record) {
                        try StandardOutput.write(printableJSON(RecordJSON.line(record)) + "\n")
                    }
                } else if output.json {
                    try StandardOutput.write("[" + found.map(\.row).joined(separator: ",") + "]\n")
                } else if found.isEmpty {
                    try StandardOutput.line("No change was rejected.")
                } else {
                    let rows = found.map { refused in
                        [
                            refused.id.description, tableTime(refused.refused),
                            refused.record?.fieldsLine ?? "(deletion)",
                            refused.error.sentence,
                        ]
                    }
                    let options = self.database.options(database, session)
                    let zones = Set(found.map(\.id.zone)).sorted()
                    let again = Set(found.filter { $0.record != nil }.map(\.id.zone)).sorted().map { zone in
                        let option = zone == RecordZone.defaultName ? "" : " --zone=\(ShellCommand.word(zone))"
                        return "nephos records retry\(options)\(option)"
                    }
                    try StandardOutput.line(
                        """
                        \(table(["RECORD", "WHEN", "WHAT", "WHY"], rows))
                        Dismiss:    \(zones.map { "nephos discard\(database.scope(of: $0).options(session)) NAME" }.joined(separator: "\n            "))
                        Save again: \(again.isEmpty ? "-" : again.joined(separator: "\n            "))
                        """)
                }
            }
        }
    }
}

extension RecordsCommand {
    struct Retry: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send rejected records again, once the cause is gone.",
            discussion: """
                If a record was rejected several times, the newest change is sent. A record that was saved \
                meanwhile, here or on another device, becomes a conflict. Delete a record again with nephos \
                records delete. Exit code 2: no record with this name was rejected.
                """)

        @Argument(help: "The records (default: all of the zone).") var names: [String] = []
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let all = try await database.conflicts.rejected(zone: zone.zone)
                if all.isEmpty { try await database.requireDownloaded(zone.zone) }
                let meant = Set(names.map { ItemName($0) })
                if let missing = meant.subtracting(all.map { ItemName($0.id.name) }).min() {
                    throw CloudError(
                        .unknownItem, "No change of this record was rejected. See: nephos records rejected",
                        details: ["record": missing.rawValue, "zone": zone.zone])
                }
                let found = names.isEmpty ? all : all.filter { meant.contains(ItemName($0.id.name)) }
                let records = found.compactMap(\.record)
                if records.count < found.count {
                    Standard.error("nephos: Deletions are done again with nephos records delete.")
                }
                let sent = try await SentRecords(database, zone: zone.zone)
                guard !records.isEmpty else {
                    return try sent.sayNothing(output, "There is nothing to save again.")
                }
                for round in Self.rounds(of: records) { try await database.saveInParts(round) }
                let saved = Set(records.map(\.id.name)).sorted()
                try await sent.wait(saved, network, output, done: "Saved \(listed(saved.map(inLine))).")
            }
        }

        /// What refers to others goes with them. Of one record there may be several, each made from what there was: a request
        /// has one of them, and the first the newest, which is to be the record.
        private static func rounds(of records: [Record]) -> [[Record]] {
            var rounds: [[Record]] = []
            var counts: [ItemName: Int] = [:]
            for record in records.reversed() {
                let round = counts[ItemName(record.id.name), default: 0]
                counts[ItemName(record.id.name)] = round + 1
                if round == rounds.count { rounds.append([]) }
                rounds[round].append(record)
            }
            return rounds.map(\.parentsFirst)
        }
    }
}

extension RecordDatabase {
    /// Saves records, in as few requests as there is room for.
    fileprivate func saveInParts(_ records: [Record]) async throws {
        let limit = RecordLimits.itemsMax
        guard records.count <= limit else {
            try await saveInParts(Array(records[..<limit]))
            return try await saveInParts(Array(records[limit...]))
        }
        do { try await modify(saving: records, deleting: [], atomically: false) } catch {
            guard error.code == .limitExceeded, records.count > 1 else { throw error }
            try await saveInParts(Array(records[..<(records.count / 2)]))
            try await saveInParts(Array(records[(records.count / 2)...]))
        }
    }

    /// The zone that is meant, or all in which there is something to decide.
    func zoneNames(_ zone: String?) async throws -> [String] {
        if let zone { return [zone] }
        return try await conflicts.undecidedZones()
    }

    /// - Throws: ``CloudError`` `.storeOutOfStep` where nobody here knows what is there.
    func requireDownloaded(_ zone: String?) async throws {
        guard !isPublic else { return }
        _ = try await zones.list()
        if let zone { _ = try await recordCount(zone: zone) }
    }

    /// What becomes of what is on its way nobody knows yet.
    ///
    /// - Parameter zone: Nil: all.
    func sayWhatWaits(_ zone: String?) async throws {
        let status = if let zone { try await status(zone: zone) } else { try await status() }
        let waiting = status.pending.count
        guard waiting > 0 else { return }
        Standard.error(
            "nephos: \(counted(waiting, "change")) \(waiting == 1 ? "waits" : "wait") to be sent: what becomes of it the server has not said. See: nephos why"
        )
    }
}

extension RecordsCommand.DatabaseOptions {
    /// How options name the database, where another would be meant by itself; each begins with a space.
    func options(_ database: RecordDatabase, _ session: Session) -> String {
        var options = ShellCommand.options(
            app: database.app, isDefault: (try? session.account)??.defaultApp == database.app, home: session.home.path)
        if let container { options += " --container=\(ShellCommand.word(container))" }
        if isPublic { options += " --public" }
        return options
    }
}

extension RecordConflict {
    fileprivate var row: String {
        func json(_ record: Record?) -> String { record?.row ?? "null" }
        return "{\"name\":\(RecordValue.string(id.name).json),\"zone\":\(RecordValue.string(id.zone).json),"
            + "\"number\":\(number),\"found\":\(found.milliseconds),\"ancestor\":\(json(ancestor)),\"server\":\(json(server)),"
            + "\"client\":\(json(client))}"
    }

    /// - Parameter options: What says in a command which database is meant.
    fileprivate func text(_ devices: DeviceNames?, options: String) -> String {
        let names = Set([ancestor, server, client].flatMap { $0?.fields.keys.map(\.self) ?? [] }).sorted()
        func cells(_ name: String) -> [String] {
            let short = RecordValue.toldApart(
                ancestor?.fields[name], server?.fields[name], client?.fields[name])
            return [short[0], server == nil ? "(deleted)" : short[1], client == nil ? "(deleted)" : short[2]]
        }
        func parent(_ record: Record?) -> String { record.map { $0.parent ?? "-" } ?? "(deleted)" }
        // What both have alike is not in question.
        let differing = names.filter { server == nil || client == nil || server?.fields[$0] != client?.fields[$0] }
        var rows = (differing.isEmpty && names.count == 1 ? names : differing).map { [$0] + cells($0) }
        if [ancestor, server, client].contains(where: { $0?.parent != nil }), parent(server) != parent(client) {
            rows.append(["belongs to", ancestor == nil ? "-" : parent(ancestor), parent(server), parent(client)])
        }
        let by = server?.modified.map { " by \(devices?[$0.device] ?? $0.device.rawValue)" }
        let zone = id.zone == RecordZone.defaultName ? "" : " --zone=\(ShellCommand.word(id.zone))"
        let command = "nephos records resolve\(options)\(zone) --keep="
        let name = ShellCommand.arguments([id.name])
        let heading = ["  FIELD", "BEFORE", "SERVER", "HERE"]
        return """
            \(inLine(id.description)): saved here and\(inLine(by ?? " elsewhere")), found \(describe(found))
            \(table(heading, rows.map { ["  " + $0[0]] + $0.dropFirst() }))
              keep the server's  \(command)server --conflict=\(number) \(name)
              keep this one      \(command)client --conflict=\(number) \(name)
            """
    }
}

extension RecordValue {
    /// A field before, on the server and here, shortened; where the last two begin alike, from where they differ.
    fileprivate static func toldApart(_ values: RecordValue?...) -> [String] {
        let short = values.map { $0?.shortText ?? "-" }
        guard let server = values[1], let client = values[2], server != client, short[1] == short[2] else {
            return short
        }
        // Assets of one length, for instance, read alike.
        let isTextAlike = server.text == client.text
        func whole(_ value: RecordValue) -> String { isTextAlike ? value.json : value.text }
        let alike = zip(whole(server), whole(client)).prefix { $0 == $1 }.count
        let start = max(0, alike - 10)
        return values.map { value in
            guard let value else { return "-" }
            let rest = String(whole(value).dropFirst(start).prefix(60))
            return ((start > 0 ? "…" : "") + inLine(rest)).cut(toCells: 40)
        }
    }
}

extension RefusedRecord {
    fileprivate var row: String {
        "{\"name\":\(RecordValue.string(id.name).json),\"zone\":\(RecordValue.string(id.zone).json),"
            + "\"refused\":\(refused.milliseconds),\"error\":\(RecordValue.string(error.code.description).json),"
            + "\"reason\":\(RecordValue.string(error.sentence).json),\"record\":\(record?.row ?? "null")}"
    }
}
