import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Explain: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show how the server would answer a query, and the index it would use.")

        @Argument(help: "The predicate (default: all records).") var predicate: String?
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @OptionGroup var which: QueryOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var way: String
            var index: IndexRow?
            var ranges: Int
            var answered: [String]
            var tested: [String]
            var rows: Int
            var examined: Int
            var wanted: IndexRow?
        }

        func run() async throws {
            let query = try which.query(predicate, output)
            try await database.withDatabase { database, session in
                try await database.bring(nil, CopyRefresh(limit: wait.duration))
                let plan = try await database.indexes.explain(query, in: zone.zone, timeout: wait.duration)
                let options = self.database.options(database, session)
                try output.print(
                    Report(
                        way: plan.way.rawValue, index: plan.index.map(IndexRow.init), ranges: plan.ranges,
                        answered: plan.answered, tested: plan.tested, rows: plan.rows, examined: plan.examined,
                        wanted: plan.wanted.map(IndexRow.init)),
                    text: Self.text(plan, options, isPublic: database.isPublic))
            }
        }

        private static func text(_ plan: RecordQueryPlan, _ options: String, isPublic: Bool) -> String {
            let way =
                switch plan.way {
                case .scan: "Looks at one record of the zone after the other."
                case .index: "Reads an index, in its order."
                case .indexSorted: "Reads an index, and puts in order what it finds."
                case .scanSorted: "Puts all records of the zone in order."
                }
            var lines = [way]
            if let index = plan.index {
                lines.append("  index     \(inLine(index.text)), in \(plan.ranges) place\(plan.ranges == 1 ? "" : "s")")
            }
            lines += plan.answered.map { "  answered  \(inLine($0))" }
            lines += plan.tested.map { "  tested    \(inLine($0))" }
            if isPublic, plan.rows == 0 {
                // What the caller may not see is in no number.
                lines.append("  read      not told where some records may not be for everyone")
            } else {
                let rows = "\(counted(plan.rows, "row")) of indexes"
                lines.append("  read      \(rows), \(counted(plan.examined, "record")), by the first call")
            }
            if let wanted = plan.wanted {
                lines.append("  faster    nephos records index add\(options) \(inLine(wanted.arguments))")
            }
            return lines.joined(separator: "\n")
        }
    }

    struct Index: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Manage indexes, which make queries on the server fast.",
            subcommands: [ListIndexes.self, Add.self, Remove.self], defaultSubcommand: ListIndexes.self)

        struct ListIndexes: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "ls", abstract: "List the indexes of a database.")

            @OptionGroup var database: DatabaseOptions
            @OptionGroup var wait: WaitOptions
            @OptionGroup var columns: TableOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await database.withDatabase { database, _ in
                    try RecordsCommand.print(try await database.indexes.list(timeout: wait.duration), output)
                }
            }
        }

        struct Add: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Create an index. An existing index is not an error.",
                discussion: """
                    It covers all zones of the database. If records of the type exist, the server builds it in the \
                    background and uses it once it is ready. Without fields it is an index of words, for self \
                    CONTAINS.
                    """)

            @OptionGroup var index: IndexOptions
            @OptionGroup var database: DatabaseOptions
            @OptionGroup var wait: WaitOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                let index = try index.index()
                try await database.withDatabase { database, _ in
                    try RecordsCommand.print(
                        try await database.indexes.modify(saving: [index], timeout: wait.duration), output)
                }
            }
        }

        struct Remove: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "remove", abstract: "Remove an index. Records stay.",
                discussion: "Exit code 2: there is no such index.", aliases: ["rm"])

            @OptionGroup var index: IndexOptions
            @OptionGroup var database: DatabaseOptions
            @OptionGroup var wait: WaitOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                let index = try index.index()
                try await database.withDatabase { database, _ in
                    let all = try await database.indexes.list(timeout: wait.duration)
                    guard all.contains(where: { $0.type == index.type && $0.fields == index.fields }) else {
                        throw CloudError(
                            .unknownItem, "There is no such index. See: nephos records index",
                            details: ["index": index.text])
                    }
                    try RecordsCommand.print(
                        try await database.indexes.modify(deleting: [index], timeout: wait.duration), output)
                }
            }
        }
    }

    struct IndexOptions: ParsableArguments {
        @Argument(help: "The records' type.") var type: String
        @Argument(
            help: "Up to three fields. A minus (after --) reverses the order; [c] ignores case, [d] ignores accents.")
        var fields: [String] = []

        @Option(name: .long, help: .hidden) var zone: String?

        func validate() throws {
            guard zone == nil else {
                throw ValidationError("An index serves all zones of the database: leave out --zone.")
            }
        }

        func index() throws(CloudError) -> RecordIndex {
            var all: [RecordIndex.Field] = []
            for text in fields {
                var name = text[...]
                let isDescending = name.first == "-"
                if isDescending { name = name.dropFirst() }
                var folding = ""
                if name.last == "]", let start = name.lastIndex(of: "[") {
                    folding = String(name[name.index(after: start)...].dropLast())
                    name = name[..<start]
                }
                guard FieldName(String(name)) != nil, ["", "c", "d", "cd", "dc"].contains(folding) else {
                    throw CloudError(
                        .invalidArguments, "This is no field of an index.",
                        details: ["field": text, "form": "title, -count, title[cd]"])
                }
                all.append(
                    RecordIndex.Field(
                        String(name), ascending: !isDescending, ignoresCase: folding.contains("c"),
                        ignoresAccents: folding.contains("d")))
            }
            return RecordIndex(type: type, fields: all)
        }
    }

    fileprivate static func print(_ indexes: [RecordIndex], _ output: OutputOptions) throws {
        let rows = indexes.map { index in
            [
                index.type, index.fields.isEmpty ? "(words)" : index.fields.map(\.text).joined(separator: " "),
                index.isReady ? "ready" : "being made",
            ]
        }
        try output.print(
            indexes.map(IndexRow.init),
            text: rows.isEmpty ? "There are no indexes." : table(["TYPE", "FIELDS", "STATE"], rows))
    }
}

/// An index as `--json` prints it.
private struct IndexRow: Encodable {
    var type: String
    var fields: [String]
    var state: String

    init(_ index: RecordIndex) {
        type = index.type
        fields = index.fields.map(\.text)
        state = index.isReady ? "ready" : "building"
    }
}

extension RecordIndex {
    fileprivate var text: String { ([type] + fields.map(\.text)).joined(separator: " ") }

    /// As it is typed into a shell.
    var arguments: String { ShellCommand.arguments([type] + fields.map(\.text)) }
}

extension RecordIndex.Field {
    fileprivate var text: String {
        let folding = (ignoresCase ? "c" : "") + (ignoresAccents ? "d" : "")
        return (ascending ? "" : "-") + name + (folding.isEmpty ? "" : "[\(folding)]")
    }
}
