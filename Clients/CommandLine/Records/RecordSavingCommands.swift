import ArgumentParser
import Foundation
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Save: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Save a record. It is saved here at once and sent to the server.",
            discussion: """
                Fields that you do not name stay unchanged, unless you give --replace. With - as the name, \
                records are read from standard input, and with --json-line from the argument, in the format of \
                nephos records export. Such records replace existing ones, all or none.

                If another device has saved the record meanwhile, the two are a conflict (nephos records \
                conflicts). --policy changed-keys lets your changed fields win, --policy all-keys lets all your \
                fields win.

                The bytes of --asset are copied into this device's home and sent before the record. nephos \
                records asset gets them.
                """)

        @Argument(help: "The record's name; - reads records from standard input.") var name: String?
        @OptionGroup var fields: FieldOptions
        @Option(name: .long, help: "The type of a new record; an existing record keeps its type.") var type: String?
        @Option(name: .long, help: "A field to remove.") var remove: [String] = []
        @Option(name: .long, help: "The record of the zone that it belongs to; an empty name removes it.")
        var parent: String?
        @Option(name: .long, help: "A record as a line of JSON.") var jsonLine: String?
        @Option(name: .long, help: "If another device has saved it meanwhile: unchanged, changed-keys or all-keys.")
        var policy = PolicyArgument.unchanged
        @Flag(help: "Remove fields that you do not name, even those that this device does not know.") var replace =
            false
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !replace || remove.isEmpty else {
                throw ValidationError("With --replace all fields go that are not named: --remove says nothing.")
            }
            guard (name == nil) != (jsonLine == nil) else {
                throw ValidationError("Give the record's name, or - for standard input, or --json-line.")
            }
            guard name != "-" && jsonLine == nil || fields.isEmpty && remove.isEmpty && type == nil && parent == nil
            else { throw ValidationError("A record in JSON has its type, fields and parent in it.") }
        }

        func run() async throws {
            // Said before anybody is asked for anything.
            let values = try await fields.values()
            let lines = try readLines()
            if let twice = remove.first(where: { values[$0] != nil }) {
                throw CloudError(
                    .invalidArguments, "A field is to be set and removed. Decide.", details: ["field": twice])
            }
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let records =
                    if let lines {
                        try await RecordsCommand.merged(
                            lines, in: database, within: network.limit, isWhole: replace
                        ).records
                    } else {
                        [try await changed(values, in: database)]
                    }
                let sent = try await SentRecords(database, zone: zone.zone)
                try await database.modify(saving: records, deleting: [], policy: policy.policy, replacing: replace)
                try await sent.wait(
                    records.map(\.id.name), network, output,
                    done: "Saved \(listed(records.map { inLine($0.id.name) })).")
            }
        }

        /// - Returns: Nil: it is said by arguments.
        private func readLines() throws -> [Record]? {
            if let jsonLine { return [try RecordLines.record(jsonLine, zone: zone.zone)] }
            guard name == "-" else { return nil }
            let text = try InputFile.read(
                "-", bytesMax: RecordLines.lineBytesMax,
                orElse: CloudError(.limitExceeded, "This is too much at once. Use: nephos records import -"))
            var records: [Record] = []
            for (index, line) in text.split(separator: UInt8(ascii: "\n")).enumerated() {
                records.append(try RecordLines.record(line, number: index + 1, zone: zone.zone))
            }
            guard !records.isEmpty else {
                throw CloudError(.invalidArguments, "There is no record in standard input.")
            }
            return records
        }

        private func changed(_ values: [String: RecordValue], in database: RecordDatabase) async throws -> Record {
            let id = RecordID(name ?? "", zone: zone.zone)
            let (known, isDownloaded) = try await database.known([id], within: network.limit)
            var record: Record
            if let there = known[id] {
                record = there
                guard type == nil || type == record.type else {
                    throw CloudError(
                        .invalidArguments, "The record has another type, and keeps it.",
                        details: ["record": id.name, "type": record.type])
                }
            } else {
                guard let type else {
                    throw CloudError(
                        isDownloaded ? .unknownItem : .storeOutOfStep,
                        isDownloaded
                            ? "There is no such record. A new one needs a type: --type"
                            : "This device does not know the record. A new one needs a type: --type",
                        details: ["record": id.name])
                }
                record = Record(id, type: type)
            }
            if replace { record.fields = [:] }
            record.fields.merge(values) { $1 }
            for field in remove {
                guard record.fields.removeValue(forKey: field) != nil else {
                    throw CloudError(
                        .unknownItem, "The record has no such field.", details: ["record": id.name, "field": field])
                }
            }
            if let parent { record.parent = parent.isEmpty ? nil : parent }
            return record
        }
    }

    /// Records as they are to be, over what this device has of them.
    ///
    /// - Parameters:
    ///   - limit: How long the server is waited for where it has to be asked; nil: it is not.
    ///   - isWhole: Also those that are so here: the server may have fields that this device does not know.
    /// - Returns: Those that are not so already.
    static func merged(
        _ lines: [Record], in database: RecordDatabase, within limit: Duration?, isWhole: Bool = false
    ) async throws -> (records: [Record], unchanged: Int) {
        var known: [RecordID: Record] = [:]
        for (_, ids) in Dictionary(grouping: lines.map(\.id), by: \.zone) {
            known.merge(try await database.known(ids, within: limit).records) { $1 }
        }
        var records: [Record] = []
        for line in lines {
            guard var record = known[line.id] else {
                records.append(line)
                continue
            }
            guard record.type == line.type else {
                throw CloudError(
                    .invalidArguments, "The record has another type, and keeps it.",
                    details: ["record": line.id.name, "type": record.type])
            }
            (record.fields, record.parent) = (line.fields, line.parent)
            if record.isChanged || isWhole { records.append(record) }
        }
        return (records, lines.count - records.count)
    }

    struct Delete: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Delete records, all or none.",
            discussion: """
                Records that refer to a deleted record are deleted too if the reference says so. A record that \
                another device has saved meanwhile becomes a conflict, except with another --policy than \
                unchanged. Exit code 2: a record does not exist, and nothing was deleted.
                """)

        @Argument(help: "The records' names.") var names: [String]
        @Option(name: .long, help: "If another device has saved it meanwhile: unchanged, changed-keys or all-keys.")
        var policy = PolicyArgument.unchanged
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let ids = names.map { RecordID($0, zone: zone.zone) }
                let (known, isDownloaded) = try await database.known(ids, within: network.limit)
                let unknown = ids.filter { known[$0] == nil }.map(\.name)
                if isDownloaded, let missing = unknown.first {
                    throw CloudError(
                        .unknownItem, "There is no such record. Nothing was deleted.",
                        details: ["record": missing, "zone": zone.zone])
                }
                let sent = try await SentRecords(database, zone: zone.zone)
                try await database.modify(saving: [], deleting: ids, policy: policy.policy, seen: Array(known.values))
                try await sent.wait(
                    names, unknown: unknown, network, output, done: "Deleted \(listed(names.map(inLine))).")
            }
        }
    }
}
