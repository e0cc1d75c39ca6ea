import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Roles: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set who may read and change a container's public database.",
            discussion: """
                Rights are set for each type of record. creator: the account that saved the record first. signed \
                in: every account that has the app. everyone: also devices without an account. An account has \
                the rights of all its roles, and a right to write includes reading. The container's \
                administrators may do everything; the operator names them: nephos container save ID \
                --administrator NAME.
                """,
            subcommands: [ListRoles.self, SetRoles.self, ResetRoles.self], defaultSubcommand: ListRoles.self)

        /// Which container a command is about.
        struct PlaceOptions: ParsableArguments {
            @OptionGroup var device: DeviceOptionGroup
            @Option(name: .long, help: "The app (default: the signed-in app).") var app: String?
            @Option(name: .long, help: "The container (default: the app's first).") var container: String?
            @OptionGroup var wait: WaitOptions

            func withDatabase(_ body: (RecordDatabase) async throws -> Void) async throws {
                try await device.withSession { session in
                    _ = try session.requireAccount()
                    try await body(
                        session.recordContainer(container, app: app.map { AppID($0) }).publicDatabase)
                }
            }
        }

        struct ListRoles: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "list", abstract: "List the rights, as the server has them.")

            @OptionGroup var place: PlaceOptions
            @OptionGroup var columns: TableOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await place.withDatabase { database in
                    try Roles.print(try await database.roles(timeout: place.wait.duration), output)
                }
            }
        }

        struct SetRoles: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "set", abstract: "Set the rights for records of a type.",
                discussion: """
                    Roles that you do not name stay unchanged. Rights are read, create and write with commas between \
                    them, or none. Only signed-in accounts can create; devices without an account can only read. \
                    Records that not everyone may read are in no copy of the database; the server is asked for them.
                    """)

            @Argument(help: "The type; - for all types without their own rights.") var type: String
            @Option(help: "The account that saved the record first: read, write, or none.") var creator: RightsArgument?
            @Option(help: "Every account that has the app: read, create, write, or none.")
            var signedIn: RightsArgument?
            @Option(help: "Everyone, even without an account: read, or none.") var everyone: RightsArgument?
            @OptionGroup var place: PlaceOptions
            @OptionGroup var output: OutputOptions

            func validate() throws {
                guard creator != nil || signedIn != nil || everyone != nil else {
                    throw ValidationError("Give --creator, --signed-in or --everyone.")
                }
            }

            func run() async throws {
                let type = type == "-" ? nil : type
                try await place.withDatabase { database in
                    let known = try await database.roles(timeout: place.wait.duration).types
                    var roles =
                        known.first { $0.type == type } ?? known.first { $0.type == nil } ?? RecordTypeRoles(type: nil)
                    roles.type = type
                    if let creator { roles.creator = creator.rights }
                    if let signedIn { roles.signedIn = signedIn.rights }
                    if let everyone { roles.everyone = everyone.rights }
                    try Roles.print(
                        try await database.modifyRoles(saving: [roles], timeout: place.wait.duration), output)
                }
            }
        }

        struct ResetRoles: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "reset",
                abstract: "Remove the rights of types; the rights for all other types apply to them.")

            @Argument(help: "The types; - for all types without their own rights.") var types: [String]
            @OptionGroup var place: PlaceOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await place.withDatabase { database in
                    try Roles.print(
                        try await database.modifyRoles(
                            deleting: types.map { $0 == "-" ? nil : $0 }, timeout: place.wait.duration), output)
                }
            }
        }

        private struct Row: Encodable {
            /// Nil: of all of which nothing is said by themselves.
            var type: String?
            var creator: [String]
            var signedIn: [String]
            var everyone: [String]

            init(_ roles: RecordTypeRoles) {
                type = roles.type
                creator = roles.creator.words
                signedIn = roles.signedIn.words
                everyone = roles.everyone.words
            }

            var cells: [String] {
                [type.map(inLine) ?? "all others"]
                    + [creator, signedIn, everyone].map { $0.isEmpty ? "none" : $0.joined(separator: ", ") }
            }
        }

        private struct Report: Encodable {
            var owner: String
            var isAdministrator: Bool
            var isChanging: Bool
            var types: [Row]
        }

        private static func print(_ roles: RecordRoles, _ output: OutputOptions) throws {
            let rows = roles.types.map(Row.init)
            var text = table(["TYPE", "CREATOR", "SIGNED IN", "EVERYONE"], rows.map(\.cells))
            text += "\n\nThe database is the app's \(roles.owner)."
            if roles.isAdministrator { text += " You are one of its administrators." }
            if roles.isChanging { text += "\nWhat has become of who may read is being told to its readers." }
            try output.print(
                Report(
                    owner: roles.owner.rawValue, isAdministrator: roles.isAdministrator, isChanging: roles.isChanging,
                    types: rows), text: text)
        }
    }

    /// Rights, with commas between them.
    struct RightsArgument: ExpressibleByArgument {
        /// What is said of a word that is none.
        static var allValueStrings: [String] { RecordTypeRoles.Rights.named.map { String($0.word) } + ["none"] }

        var rights: RecordTypeRoles.Rights

        init?(argument: String) {
            rights = []
            guard argument != "none", argument != "-" else { return }
            for word in argument.split(separator: ",", omittingEmptySubsequences: false) {
                guard let right = RecordTypeRoles.Rights.named.first(where: { $0.word == word }) else { return nil }
                rights.insert(right.right)
            }
        }
    }

    struct Copy: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep a copy of a container's public database on this device.",
            subcommands: [Keep.self, Drop.self])

        struct Keep: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Keep a copy of all records that everyone may read, and keep it in sync.")

            @OptionGroup var place: Roles.PlaceOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await place.withDatabase { database in
                    try await database.keepCopy()
                    try await database.waitUntilCurrent(timeout: place.wait.duration, isImpatient: true)
                    let count = try await database.recordCount()
                    try output.print(["records": count], text: "The copy has \(counted(count, "record")).")
                }
            }
        }

        struct Drop: AsyncParsableCommand {
            static let configuration = CommandConfiguration(abstract: "Remove the copy; the server is asked again.")

            @OptionGroup var place: Roles.PlaceOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await place.withDatabase { database in
                    try await database.dropCopy()
                    try output.print(["copy": false], text: "There is no copy any more: the server is asked.")
                }
            }
        }
    }
}

extension RecordTypeRoles.Rights {
    fileprivate static let named: [(word: Substring, right: Self)] = [
        ("read", .read), ("create", .create), ("write", .write),
    ]

    fileprivate var words: [String] { Self.named.filter { contains($0.right) }.map { String($0.word) } }
}
