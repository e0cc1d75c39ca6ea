import ArgumentParser
import NephosCore
import NephosWire

struct ContainerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "container",
        abstract: "Set the class, owner and limits of containers.",
        subcommands: [Save.self, List.self])

    /// What a container is for.
    enum Class: String, CaseIterable, ExpressibleByArgument {
        case documents, backup, stream, library

        var wire: WireContainerClass { ContainerClass(named: rawValue)?.wire ?? .unspecified }
    }

    /// How its names clash.
    enum Names: String, CaseIterable, ExpressibleByArgument {
        case folded, bytes

        var wire: WireContainerNames { self == .bytes ? .bytes : .folded }
    }

    private struct Row: Encodable {
        var container: String
        var containerClass: String
        var names: String
        /// The only app that changes it.
        var writer: String?
        /// The app whose the public databases are, and who may do everything in those.
        var owner: String?
        var administrators: [String]
        /// How long it is kept.
        var trashDays: Int
        var versionDays: Int

        init(_ definition: WireContainerDefinition) {
            container = definition.containerID
            containerClass = ContainerClass(definition.containerClass)?.name ?? "unknown"
            names = definition.names == .folded ? "folded" : "bytes"
            writer = definition.writerApp.isEmpty ? nil : definition.writerApp
            owner = definition.ownerApp.isEmpty ? nil : definition.ownerApp
            administrators = definition.administratorNames
            let known = ContainerClass(definition.containerClass) ?? .documents
            trashDays = definition.trashDays > 0 ? Int(definition.trashDays) : known.trashDays
            versionDays = definition.versionDays > 0 ? Int(definition.versionDays) : known.versionDays
        }

        private enum CodingKeys: String, CodingKey {
            case container
            case containerClass = "class"
            case names, writer, owner, administrators, trashDays, versionDays
        }
    }

    struct Save: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set properties of a container. Properties that you do not name stay unchanged.",
            discussion: """
                Class and names apply to accounts that have not used the container yet. Accounts that have used \
                it keep theirs. All other properties apply to every account within seconds.

                documents: a person's files; counts on the plan. backup: counts on the plan, keeps 10 versions, \
                has no folder Documents. stream: the newest 1000 files of at most 50 MB for 30 days; has its own \
                limit. library: kept until removed; has its own limit. The trash keeps items for 30 days \
                (stream: 7), and versions are kept for a year.

                The public database of records counts on its owner's plan. The owner is the first app that \
                listed the container, unless you set another one. Set it before the database is used: records \
                saved under another owner stay there, and are visible again only under that owner.
                """)

        @Argument(
            help:
                "The container's id: a team's prefix and a name, such as A1B2C3.com.example.notes; or default for the default app's container."
        )
        var id: String
        @Option(name: .customLong("class"), help: "documents, backup, stream or library (initially documents).")
        var containerClass: Class?
        @Option(
            help: "bytes: only equal names collide; folded: names that differ only in case do, too (initially bytes).")
        var names: Names?
        @Option(help: "The only app that may change it; other apps read it (initially every app that lists it).")
        var writer: String?
        @Flag(help: "Let every app that lists it change it.") var noWriter = false
        @Option(help: "Days to keep items in the trash, 1 to 3650; 0 for the default of the class.")
        var trashDays: Int?
        @Option(help: "Days to keep former versions, 1 to 3650; 0 for the default of the class.")
        var versionDays: Int?
        @Option(help: "The app that owns the public database of records.") var owner: String?
        @Option(
            name: .customLong("administrator"),
            help:
                "An account that may do everything in the public database; repeat for more. They replace the list."
        )
        var administrators: [String] = []
        @Flag(help: "Remove all administrators.") var noAdministrators = false
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func validate() throws {
            guard !noAdministrators || administrators.isEmpty else {
                throw ValidationError("--no-administrators and --administrator contradict each other.")
            }
            guard !noWriter || writer == nil else {
                throw ValidationError("--no-writer and --writer contradict each other.")
            }
            for days in [trashDays, versionDays].compactMap({ $0 }) {
                guard 0...DocumentLimits.retentionDaysMax ~= days else {
                    throw ValidationError(
                        "It is kept for 1 to \(DocumentLimits.retentionDaysMax) days, or for 0: as the class has it.")
                }
            }
        }

        /// How often it is begun anew where somebody else is quicker.
        private static let triesMax = 4

        func run() throws {
            let connection = try OperatorConnection(directory: deployment.directory)
            try print(Row(save(over: connection, triesLeft: Self.triesMax)))
        }

        private func save(over connection: OperatorConnection, triesLeft: Int) throws -> WireContainerDefinition {
            do {
                return try connection.call(.identity, request(connection), returning: WireSaveContainerReply.self)
                    .definition
            } catch let error as CloudError where error.code == .serverRecordChanged && triesLeft > 1 {
                return try save(over: connection, triesLeft: triesLeft - 1)
            }
        }

        private func request(_ connection: OperatorConnection) throws -> WireSaveContainer {
            var request = WireSaveContainer()
            let known = try connection.containers().first { $0.containerID == id && $0.version > 0 }
            if let known { request.definition = known } else { request.isFirst = true }
            request.definition.containerID = id
            if let containerClass { request.definition.containerClass = containerClass.wire }
            if let names { request.definition.names = names.wire }
            if let writer { request.definition.writerApp = writer }
            if noWriter { request.definition.writerApp = "" }
            if let trashDays { request.definition.trashDays = UInt32(trashDays) }
            if let versionDays { request.definition.versionDays = UInt32(versionDays) }
            request.definition.ownerApp = owner ?? ""
            if noAdministrators || !administrators.isEmpty { request.administrators.accountNames = administrators }
            return request
        }

        private func print(_ row: Row) throws {
            try output.print(
                row,
                text: """
                    \(row.container) is a container of the class \(row.containerClass), with \(row.names) names, for \
                    accounts that begin from now on. What lies in the trash is kept for \(row.trashDays) days, former \
                    versions for \(row.versionDays). Its public database is \(row.owner ?? "no app")'s\
                    \(row.administrators.isEmpty ? "" : ", administered by \(row.administrators.joined(separator: ", "))").
                    """)
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the containers that apps list or that have properties.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let rows = try OperatorConnection(directory: deployment.directory).containers().map(Row.init)
            try output.print(
                rows,
                text: table(
                    ["CONTAINER", "CLASS", "NAMES", "TRASH", "VERSIONS", "CHANGED BY", "OWNER", "ADMINISTRATORS"],
                    rows.map {
                        [
                            $0.container, $0.containerClass, $0.names, "\($0.trashDays) days", "\($0.versionDays) days",
                            $0.writer ?? "each app that lists it", $0.owner ?? "-",
                            $0.administrators.isEmpty ? "-" : $0.administrators.joined(separator: " "),
                        ]
                    }))
        }
    }
}

extension OperatorConnection {
    /// What is said of containers, all of them.
    fileprivate func containers() throws -> [WireContainerDefinition] {
        var request = WireListContainers()
        var definitions: [WireContainerDefinition] = []
        while true {
            let reply = try call(.identity, request, returning: WireListContainersReply.self)
            definitions += reply.definitions
            guard reply.more, let last = reply.definitions.last else { return definitions }
            request.after = last.containerID
        }
    }
}
