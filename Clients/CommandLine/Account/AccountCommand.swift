import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import NephosWire
import NephosZeroMQ

struct AccountCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "account",
        abstract:
            "Change the password, create app passwords, read the history of the account, close it; create and manage accounts.",
        subcommands: [],
        groupedSubcommands: [
            CommandGroup(name: "Your account", subcommands: [Audit.self, Password.self, AppPassword.self, Close.self]),
            CommandGroup(
                name: "As the operator",
                subcommands: [Create.self, List.self, Lock.self, Unlock.self, SetPassword.self]),
        ])

    private struct Row: Encodable {
        var account: String
        var accountId: String
        var createdAt: UInt64
        var devices: UInt32
        var locked: Bool
        var plan: String
        /// In lists: bytes that count on the plan, and when a device of it was last seen (milliseconds since 1970).
        var usedBytes: UInt64?
        var lastUsedAt: UInt64?

        init(_ wire: WireAccount) {
            account = wire.accountName
            accountId = wire.accountID
            createdAt = wire.createdAt
            devices = wire.deviceCount
            locked = wire.locked
            plan = wire.planID
        }
    }

    struct Create: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Create an account.")

        @Argument(help: "The name to sign in with.") var name: String
        @Option(
            help: "The plan, which sets how much the account may store (default: standard). List them: nephos plan list"
        ) var plan: String?
        @OptionGroup var password: PasswordOptions
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireCreateAccount()
            request.accountName = name
            request.planID = plan ?? ""
            let given = try password.given()
            let connection = try OperatorConnection(directory: deployment.directory)
            if given == nil {
                guard try !connection.hasAccount(name) else {
                    throw CloudError(.alreadyExists, "An account with this name exists.")
                }
                if let plan { try connection.requirePlan(plan) }
            }
            request.password = try given ?? password.asked(PasswordLimits.prompt, isNew: true)
            let reply = try connection.call(.identity, request, returning: WireCreateAccountReply.self)
            let next = try Terminal.hint(
                "\nNext, on a device: nephos sign-in \(connection.connectionString) --account \(ShellCommand.word(name))"
            )
            try output.print(
                ["account": name, "account_id": reply.accountID], text: "Created the account \(name).\(next)")
        }
    }

    struct List: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List the accounts, with what they store and their last use.")

        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let connection = try OperatorConnection(directory: deployment.directory)
            var request = WireListAccounts()
            var rows: [Row] = []
            let now = SystemClock().now
            while true {
                let reply = try connection.call(.identity, request, returning: WireListAccountsReply.self)
                rows += reply.accounts.map { account in
                    var row = Row(account)
                    row.usedBytes = account.usedBytes
                    row.lastUsedAt = account.lastSeenAt == 0 ? nil : account.lastSeenAt
                    return row
                }
                guard reply.more, let last = reply.accounts.last else { break }
                request.after = last.accountName
            }
            try output.print(
                rows,
                text: table(
                    ["ACCOUNT", "CREATED", "DEVICES", "PLAN", "USED", "LAST USED", "STATE"],
                    rows.map {
                        [
                            $0.account, tableTime(Timestamp(milliseconds: $0.createdAt), now: now), "\($0.devices)",
                            $0.plan,
                            describe(bytes: $0.usedBytes ?? 0),
                            $0.lastUsedAt.map { tableTime(Timestamp(milliseconds: $0), now: now) } ?? "never",
                            $0.locked ? "locked" : "active",
                        ]
                    }))
        }
    }

    struct Lock: ParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Lock an account: its devices stay signed in and are rejected.")

        @Argument(help: "The account's name.") var name: String
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            let account = try AccountCommand.setLocked(name, true, deployment)
            try output.print(
                Row(account), text: "Locked \(name). Its devices stay signed in, and are rejected within seconds.")
        }
    }

    struct Unlock: ParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Unlock an account.")

        @Argument(help: "The account's name.") var name: String
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            try output.print(Row(try AccountCommand.setLocked(name, false, deployment)), text: "Unlocked \(name).")
        }
    }

    private static func setLocked(_ name: String, _ locked: Bool, _ deployment: DeploymentOptions) throws -> WireAccount
    {
        var request = WireLockAccount()
        request.accountName = name
        request.locked = locked
        return try OperatorConnection(directory: deployment.directory)
            .call(.identity, request, returning: WireLockAccountReply.self).account
    }

    struct SetPassword: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Set a new password for an account.")

        @Argument(help: "The account's name.") var name: String
        @Flag(help: "Sign out all its devices.") var signOut = false
        @OptionGroup var password: PasswordOptions
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        func run() throws {
            var request = WireChangePassword()
            request.accountName = name
            let given = try password.given()
            let connection = try OperatorConnection(directory: deployment.directory)
            if given == nil { try connection.requireAccount(name) }
            request.newPassword = try given ?? password.asked(PasswordLimits.prompt, isNew: true)
            request.signOutOthers = signOut
            let reply = try connection.call(.identity, request, returning: WireChangePasswordReply.self)
            try output.print(
                SignedOut(account: name, signedOut: Int(reply.signedOut)),
                text: "Set the password of \(name)." + AccountCommand.signedOut(Int(reply.signedOut)))
        }
    }

    struct Password: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Change the password of the signed-in account.")

        @Flag(help: "Sign out all other devices.") var signOutOthers = false
        @Option(help: "Read the current password from the first line of this file.", completion: .file())
        var currentPasswordFile: String?
        @OptionGroup var password: PasswordOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var device: DeviceOptionGroup
        @OptionGroup var output: OutputOptions

        func run() async throws {
            var present = PasswordOptions()
            present.passwordFile = currentPasswordFile
            present.passwordStdin = false
            let (givenCurrent, givenNew) = (try present.given(), try password.given())
            try await device.withSession { session in
                let account = try session.requireAccount().accountName
                if givenCurrent == nil || givenNew == nil { try await session.requireAnswer(within: wait.duration) }
                let current = try givenCurrent ?? present.asked("Present password: ")
                let new = try givenNew ?? password.asked(PasswordLimits.prompt, isNew: true)
                let count = try await session.changePassword(
                    from: current, to: new, signsOutOthers: signOutOthers, timeout: wait.duration)
                try output.print(
                    SignedOut(account: account, signedOut: count),
                    text: "Changed the password of \(account)." + AccountCommand.signedOut(count))
            }
        }
    }

    private struct SignedOut: Encodable {
        var account: String
        /// Devices.
        var signedOut: Int
    }

    private static func signedOut(_ count: Int) -> String {
        switch count {
        case 0: ""
        case 1: " One device was signed out."
        default: " \(count) devices were signed out."
        }
    }

    struct Audit: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show sign-ins, rejected sign-ins, revoked devices and other changes of the account.")

        @Option(name: .shortAndLong, help: "Entries to show, at most 1000.") var limit = 50
        @OptionGroup var speaker: SpeakerOptions
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var number: UInt64
            var time: UInt64
            var event: String
            var device: String
            var deviceId: String
            var byOperator: Bool
            var details: [String: String]
        }

        func validate() throws {
            guard 1...1000 ~= limit else { throw ValidationError("--limit is from 1 to 1000.") }
        }

        func run() async throws {
            let reply = try await speaker.call(returning: WireListAuditReply.self) { account in
                var request = WireListAudit()
                request.accountName = account
                request.limit = UInt32(limit)
                return request
            }
            let reports = reply.entries.map {
                Report(
                    number: $0.number, time: $0.time, event: $0.event, device: $0.deviceName, deviceId: $0.deviceID,
                    byOperator: $0.byOperator, details: $0.details)
            }
            let rows = reply.entries.map(AuditEntry.init).map { entry in
                [tableTime(entry.time), entry.sentence, entry.who]
            }
            try output.print(
                reports,
                text: table(["TIME", "WHAT", "BY"], rows)
                    + (reply.more ? "\n(older entries are left out; see --limit)" : ""))
        }
    }

    struct Close: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Close an account forever: its keys are destroyed, its data is removed.",
            discussion: """
                You close your own account with its password. The operator closes any account by its name, and \
                sees when each service has finished.
                """)

        @Argument(help: "The account's name (operator only).") var name: String?
        @Flag(help: "Close it without asking.") var yes = false
        @Option(help: "Seconds to wait for the services (operator only).") var wait = 30
        @OptionGroup var password: PasswordOptions
        @OptionGroup var device: DeviceOptionGroup
        @OptionGroup var deployment: DeploymentOptions
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var account: String
            var accountId: String?
            /// When each service was done, in milliseconds since 1970.
            var services: [String: UInt64]?
        }

        func validate() throws {
            guard 0...86_400 ~= wait else { throw ValidationError("--wait is from 0 to 86400 seconds.") }
        }

        func run() async throws {
            guard let name else { return try await closeOwn() }
            let connection = try OperatorConnection(directory: deployment.directory)
            if !yes { try connection.requireAccount(name) }
            try confirm(name)
            var request = WireCloseAccount()
            request.accountName = name
            let id = try connection.call(.identity, request, returning: WireCloseAccountReply.self).accountID
            var read = WireReadClosure()
            read.accountID = id
            var reported: Set<String> = []
            let deadline = ContinuousClock.now + .seconds(wait)
            while true {
                let reply = try connection.call(.identity, read, returning: WireReadClosureReply.self)
                for service in reply.services where service.doneAt > 0 && reported.insert(service.service).inserted {
                    if !output.json {
                        try StandardOutput.line("\(service.service): keys destroyed, nothing is left")
                    }
                }
                let left = reply.services.filter { $0.doneAt == 0 }.map(\.service)
                if left.isEmpty || ContinuousClock.now >= deadline {
                    let services = Dictionary(reply.services.map { ($0.service, $0.doneAt) }) { first, _ in first }
                    try output.print(
                        Report(account: name, accountId: id, services: services),
                        text: left.isEmpty
                            ? "Closed \(name)."
                            : "Closed \(name). Not done yet, and done when they run: \(left.joined(separator: ", ")).")
                    return
                }
                try await Task.sleep(for: .milliseconds(200))
            }
        }

        private func closeOwn() async throws {
            let given = try password.given()
            try await device.withSession { session in
                let account = try session.requireAccount().accountName
                if !yes || given == nil { try await session.requireAnswer(within: deployment.wait.duration) }
                try confirm(account)
                try await session.closeAccount(
                    password: try given ?? password.asked(), timeout: deployment.wait.duration)
                _ = try? await session.signOut(keepsUnsent: true)
                try output.print(
                    Report(account: account),
                    text: "Closed \(account). The services destroy its keys and remove what it stored.")
            }
        }

        private func confirm(_ name: String) throws {
            guard !yes else { return }
            guard isatty(0) == 1 else {
                throw CloudError(.invalidArguments, "Closing an account cannot be undone. If it is meant, add --yes")
            }
            try StandardOutput.write("Closing \(name) cannot be undone. Type its name to go on: ")
            guard readLine() == name else {
                throw CloudError(.operationCancelled, "Nothing was closed.")
            }
        }
    }
}

extension AuditEntry {
    /// What happened, in a few words.
    fileprivate var sentence: String {
        let device = details["device"] ?? "a device"
        switch event {
        case "account.created": return "account created"
        case "account.locked": return "account locked"
        case "account.unlocked": return "account unlocked"
        case "password.changed":
            return "password changed" + (details["signed_out"].map { ", \($0) signed out" } ?? "")
        case "password.refused": return "password not changed: wrong one"
        case "plan.changed":
            let size = details["size_bytes"].flatMap { UInt64($0) }.map { " (\(describe(bytes: $0)))" } ?? ""
            return "plan is \(details["plan"] ?? "another")\(size) now"
        case "sign-in": return details["device"] == "new" ? "signed in, a new device" : "signed in again"
        case "sign-in.refused": return "sign-in refused: \(details["reason"] ?? "unknown")"
        case "sign-out": return "signed out"
        case "device.renamed": return "renamed \(details["former_name"] ?? "a device") to \(device)"
        case "sign-in.allowed": return "made a code for a new device's sign-in"
        case "device.revoked": return "revoked \(device)"
        case "app-password.created": return "created the app password \(details["name"] ?? "")"
        case "app-password.revoked": return "revoked the app password \(details["name"] ?? "")"
        case "token.reused": return "sign-in came from two places: ended for both, its key with it"
        default: return event
        }
    }

    fileprivate var who: String {
        if byOperator { return "operator" }
        if device == nil { return deviceName.isEmpty ? "unknown device" : "\(deviceName) (unknown)" }
        return deviceName
    }
}
