import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "ls", abstract: "List the records of a zone, from this device's copy.",
            discussion:
                """
                The command waits for the first download. Exit code 6: the download has not finished in time. \
                Exit code 2: there is no such zone.
                """)

        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @Option(name: .long, help: "Only records of this type (default: all).") var type: String?
        @Option(name: .long, help: "List at most this many (default: all).") var limit: Int?
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard (limit ?? 1) >= 1 else { throw ValidationError("--limit is at least 1.") }
        }

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let pages = database.pages(
                    matching: RecordQuery(type: type, limit: limit), in: zone.zone, from: network.source())
                try await RecordList.print(pages, output, empty: "There are no records.")
            }
        }
    }

    struct Get: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print records, from this device's copy.",
            discussion: """
                Exit code 2: a record does not exist. Exit code 8: the server cannot read a record. The others \
                are printed.
                """)

        @Argument(help: "The records' names.") var names: [String]
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @Flag(help: "Ask the server, without the changes pending here.") var server = false
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !server || !network.offline else {
                throw ValidationError("--server asks the server, and --offline does not. Give one of them.")
            }
        }

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, session in
                try await database.refresh(server ? nil : zone.zone, network)
                let ids = names.map { RecordID($0, zone: zone.zone) }
                let found = try await database.records(
                    ids, from: network.source(asksServer: server), timeout: network.limit)
                let records = ids.compactMap { found[$0] }
                if output.json {
                    try RecordList.print(records, output, empty: "")
                } else if !records.isEmpty {
                    let devices = network.offline ? nil : await DeviceNames(session, within: .seconds(1))
                    try StandardOutput.line(records.flatMap { $0.lines(devices) }.joined(separator: "\n"))
                }
                let absent = ids.filter { found[$0] == nil }
                guard !absent.isEmpty else { return }
                if let missing = absent.first {
                    throw CloudError(
                        .unknownItem, "There is no such record.",
                        details: ["record": missing.name, "zone": missing.zone])
                }
            }
        }
    }

    struct Query: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print the records that match a predicate.",
            discussion: """
                An example of a predicate is 'count > 3 AND title BEGINSWITH[c] "a"' (docs/predicates.md). Every \
                record has the fields _recordName, _creationDate, _modificationDate, _creator, _modifier, \
                _changeTag and _parent. This device's copy answers, with the pending changes; with --server the \
                server answers. Exit code 2: nothing was found.
                """)

        @Argument(help: "The predicate (default: all records).") var predicate: String?
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var which: QueryOptions
        @Option(name: .long, help: "Print at most this many (default: all).") var limit: Int?
        @Option(name: .long, help: "Only these fields, one a column: title,count.") var fields: String?
        @Flag(help: "Ask the server, without the changes pending here.") var server = false
        @Flag(help: "Let the server read the whole zone if no index fits the query.") var scan = false
        @OptionGroup var network: ReadOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard (limit ?? 1) >= 1 else { throw ValidationError("--limit is at least 1.") }
            guard !server || !network.offline else {
                throw ValidationError("--server asks the server, and --offline does not. Give one of them.")
            }
        }

        func run() async throws {
            let columns = fields.map { $0.split(separator: ",").map(String.init) }
            var query = try which.query(
                predicate, limit: limit, fields: columns?.filter { !$0.hasPrefix("_") }, output)
            query.allowsScan = scan
            let asked = query
            try await database.withDatabase(isOffline: network.offline) { database, session in
                try await database.refresh(server ? nil : zone.zone, network)
                let pages = database.pages(
                    matching: asked, in: zone.zone, from: network.source(asksServer: server))
                let count: Int
                do {
                    count = try await RecordList.print(
                        pages, output, columns: columns ?? [], empty: "Nothing was found.")
                } catch let error as CloudError where error.details["reason"] == "index_needed" {
                    throw advised(error, self.database.options(database, session))
                }
                if count == 0 { throw ExitStatus.notFound }
            }
        }

        /// Says which line makes the index that is needed.
        private func advised(_ error: CloudError, _ options: String) -> CloudError {
            guard let index = error.neededIndex else { return error }
            var error = CloudError(
                error.code,
                "The zone has too many records for a query that no index serves. Make one, as said below, or let the server go through all of them: --scan",
                details: error.details)
            error.details["make_it"] = "nephos records index add\(options) \(index.arguments)"
            return error
        }
    }
}
