import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Zones: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List, create and delete the zones of a database.",
            subcommands: [ListZones.self, Make.self, DeleteZones.self],
            defaultSubcommand: ListZones.self)

        struct ListZones: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "list", abstract: "List the zones, with the number of records on this device.")

            @OptionGroup var database: DatabaseOptions
            @OptionGroup var network: ReadOptions
            @OptionGroup var columns: TableOptions
            @OptionGroup var output: OutputOptions

            private struct Row: Encodable {
                var name: String
                var id: String?
                var created: String?
                var records: Int?
                var pending: Bool?
            }

            func run() async throws {
                try await database.withDatabase(isOffline: network.offline) { database, _ in
                    try await database.refresh(nil, network)
                    var rows: [Row] = []
                    var cells: [[String]] = []
                    for zone in try await database.zones.list() {
                        // Of one that was never used here nobody knows.
                        let count = try? await database.recordCount(zone: zone.name)
                        rows.append(
                            Row(
                                name: zone.name, id: zone.id, created: zone.created?.description, records: count,
                                pending: zone.id == nil ? true : nil))
                        cells.append([
                            zone.name, count.map { "\($0)" } ?? "not downloaded", zone.created?.text ?? "-",
                            zone.id == nil ? "waits to be made" : "",
                        ])
                    }
                    try output.print(rows, text: table(["ZONE", "RECORDS", "MADE", ""], cells))
                }
            }
        }

        struct Make: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Create zones. An existing zone is not an error.")

            @Argument(help: "The zones' names.") var zones: [String]
            @OptionGroup var database: DatabaseOptions
            @OptionGroup var network: NetworkOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await database.withDatabase(isOffline: network.offline) { database, _ in
                    try await database.refresh(nil, network)
                    let sent = try await SentZones(database)
                    try await database.zones.modify(saving: zones)
                    try await sent.wait(zones, .make, network, output)
                }
            }
        }

        struct DeleteZones: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "delete", abstract: "Delete zones with all their records, on all devices.",
                discussion: "This cannot be undone. Exit code 2: a zone does not exist, and nothing was deleted."
            )

            @Argument(help: "The zones' names.") var zones: [String]
            @Flag(help: "Delete without asking.") var yes = false
            @OptionGroup var database: DatabaseOptions
            @OptionGroup var network: NetworkOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await database.withDatabase(isOffline: network.offline) { database, _ in
                    try await database.refresh(nil, network)
                    var counts: [String] = []
                    for zone in zones {
                        guard try await database.isKnown(zone) else {
                            throw CloudError(
                                .unknownItem, "There is no such zone. Nothing was deleted.", details: ["zone": zone])
                        }
                        let count = (try? await database.recordCount(zone: zone)).map {
                            " (\(counted($0, "record")) here)"
                        }
                        counts.append(inLine(zone) + (count ?? ""))
                    }
                    if !yes {
                        try Confirmation.ask(
                            """
                            Deletes \(listed(counts)) with all that is in it, on all devices. Nothing brings it back.
                            """)
                    }
                    let sent = try await SentZones(database)
                    try await database.zones.modify(deleting: zones)
                    try await sent.wait(zones, .delete, network, output)
                }
            }
        }
    }
}

extension RecordDatabase {
    /// Whether there may be such a zone: before the first download nobody knows.
    fileprivate func isKnown(_ zone: String) async throws -> Bool {
        do { return try await self.zones.zone(zone) != nil } catch {
            guard error.code == .storeOutOfStep else { throw error }
            return true
        }
    }
}

/// Waits for the server's word on zones.
private struct SentZones {
    private struct Report: Encodable {
        var state: String
        var zones: [String]
        var reason: String?
    }

    enum Change {
        case make, delete

        /// Here at once, and on the server once it is sent.
        func done(_ zones: String) -> String { self == .make ? "Made \(zones)." : "Deleted \(zones)." }
        func undone(_ zones: String) -> String {
            self == .make ? "Not made yet: \(zones)." : "Not deleted yet: \(zones)."
        }
    }

    private let database: RecordDatabase

    init(_ database: RecordDatabase) async throws { self.database = database }

    func wait(
        _ zones: [String], _ change: Change, _ network: RecordsCommand.NetworkOptions, _ output: OutputOptions
    ) async throws {
        let done = change.done(listed(zones.map(inLine)))
        var report = Report(state: "queued", zones: zones)
        if network.offline {
            return try output.print(report, text: "\(done) It is kept here, and sent later.")
        }
        do {
            try await database.scope.waitUntilSent(timeout: network.duration, isImpatient: true)
        } catch {
            guard ExitStatus.of(error) == .unreachable else {
                report.state = "blocked"
                try output.print(
                    report, text: "\(change.undone(listed(zones.map(inLine)))) It is kept on this device.")
                throw error
            }
            let unsent = Unsent(try await database.scope.status().problem ?? error)
            report.reason = unsent.reason
            return try output.print(report, text: unsent.text(done))
        }
        // One that was refused before is written anew by this.
        let refused = try await database.scope.status().refused.first { zones.contains($0.key.rawValue) }
        if let refused { throw refused.error }
        if change == .delete { try await requireGone(zones) }
        report.state = "sent"
        try output.print(report, text: done)
    }

    /// The server passes over what is another zone by now.
    private func requireGone(_ zones: [String]) async throws {
        let left = Set(try await database.zones.list().map(\.name)).intersection(zones)
        guard let first = left.sorted().first else { return }
        throw CloudError(
            .alreadyExists,
            "Another zone was made under this name meanwhile, and stays. Delete that one, if it is meant, by the same command.",
            details: ["zone": first])
    }
}
