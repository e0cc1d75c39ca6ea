import ArgumentParser
import NephosCore
import NephosKit

extension RecordsCommand {
    struct Roles: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Who may do what in a container's public database.",
            discussion: """
                By types of records. The creator is the account that has saved a record first; signed in is every account \
                that has the app; everyone is also who has no account. Whoever has several roles may do what any of them \
                may, and who may write may read. The container's administrators may do everything; the operator names \
                them: nephos container save ID --administrator NAME.
                """,
            subcommands: [ListRoles.self, SetRoles.self, ResetRoles.self], defaultSubcommand: ListRoles.self)

        /// Which container a command is about.
        struct PlaceOptions: ParsableArguments {
            @OptionGroup var device: DeviceOptionGroup
            @Option(name: .long, help: "The app (default: the one that signed in).") var app: String?
            @Option(name: .long, help: "The container (default: the first that the app lists).") var container: String?
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
                commandName: "list", abstract: "List who may do what, as the server has it.")

            @OptionGroup var place: PlaceOptions
            @OptionGroup var output: OutputOptions

            func run() async throws {
                try await place.withDatabase { database in
                    try Roles.print(try await database.roles(timeout: place.wait.duration), output)
                }
            }
        }

        struct SetRoles: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                commandName: "set", abstract: "Say who may do what with records of a type.",
                discussion: """
                    What is not named stays as it is. Rights are read, create and write with commas between them, or none. \
                    Only who is signed in can be let create, and without an account one can only read. What fewer than \
                    everyone may read is in no copy of the database; those who may read it ask the server for it.
                    """)

            @Argument(help: "The type; - for all of which nothing is said by themselves.") var type: String
            @Option(help: "Of who has saved a record first: read, write, or none.") var creator: RightsArgument?
            @Option(help: "Of every account that has the app: read, create, write, or none.")
            var signedIn: RightsArgument?
            @Option(help: "Also of who has no account: read, or none.") var everyone: RightsArgument?
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
                abstract: "Say nothing of types any more: what is said of all others holds for them.")

            @Argument(help: "The types; - for all of which nothing is said by themselves.") var types: [String]
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
            abstract: "A copy of a container's public database on this device.", subcommands: [Keep.self, Drop.self])

        struct Keep: AsyncParsableCommand {
            static let configuration = CommandConfiguration(
                abstract: "Keep a copy of all that everyone may read, in step from now on.")

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
            static let configuration = CommandConfiguration(abstract: "Keep it no longer: the server is asked.")

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
