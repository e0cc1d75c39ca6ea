import ArgumentParser
import Foundation
import NephosCore
import NephosKit

struct SignInCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign-in", abstract: "Sign this device in to an account.",
        discussion: """
            The first sign-in creates the device's key, which stays in its home and identifies the device.

            If the server has a new address, sign in with its new connection string. The server's key is the \
            same, so you need no password.
            """)

    @Argument(help: "The connection string of nephos up: nephos://HOST:PORT/KEY") var connection: String
    @Option(name: .customLong("account"), help: "The account's name (default: the signed-in account).")
    var accountName: String?
    @OptionGroup var password: PasswordOptions
    @Option(help: "A name for this device (default: its last name, or this machine's name).") var deviceName: String?
    @Option(
        name: .customLong("class"), help: "computer, or small for a device with little storage (default: computer).")
    var policyClass = DeviceClass.computer
    @Option(help: "The app to sign in as (default: the deployment's default app).") var app: String?
    @Option(
        help: "A code from nephos devices allow-sign-in, to skip the wait after wrong passwords.")
    var code: String?
    @Flag(help: "Discard unsent, rejected and conflicting changes of another account.")
    var discardUnsent = false
    @OptionGroup var wait: WaitOptions
    @OptionGroup var device: DeviceOptionGroup
    @OptionGroup var output: OutputOptions

    func run() async throws {
        let connection = try ConnectionString(connection)
        guard deviceName?.isEmpty != true else {
            throw CloudError(.invalidArguments, "A device needs a name.", details: ["argument": "device_name"])
        }
        let account = try await requiredAccount()
        if !password.isGiven, let record = try await updated(connection, account) {
            return try output.print(
                SessionReport(record),
                text: "Signed in as \(record.accountName), device \(record.deviceName), as before. "
                    + "The server answers at \(connection.host):\(connection.port).")
        }
        let given = try password.given()
        let (record, waiting, home) = try await device.withSession(makesHome: true) { session in
            if given == nil {
                try await session.requireSignInPossible(
                    connection: connection, account: account, discardsUnsent: discardUnsent, timeout: wait.duration)
            }
            let password = try given ?? password.asked()
            let name = try deviceName ?? session.lastDeviceName(of: account) ?? ProcessInfo.processInfo.hostName
            let record = try await session.signIn(
                connection: connection, account: account, password: password, deviceName: name,
                policyClass: policyClass == .small ? .smallDevice : .computer, app: app.map { AppID($0) },
                discardsUnsent: discardUnsent, code: code ?? "", timeout: wait.duration)
            // An app may have no key-value store.
            let waiting = try? session.keyValueStore(app: app.map { AppID($0) }).signedOutKeys()
            return (record, waiting ?? [], session.home.path)
        }
        var report = SessionReport(record)
        var text = "Signed in as \(record.accountName), device \(record.deviceName)."
        if !waiting.isEmpty {
            report.notOffered = waiting.map(\.rawValue)
            let options = ShellCommand.options(app: record.defaultApp, isDefault: true, home: home)
            text +=
                "\nSet here while no account was signed in, and not sent yet: \(listed(waiting.map { inLine($0.rawValue) })). Send it with: nephos kv adopt\(options)"
        }
        text += Terminal.hint("\nNext, save something: nephos docs put FILE, or: nephos kv set KEY VALUE")
        try output.print(report, text: text)
    }
}

extension SignInCommand {
    private func requiredAccount() async throws -> String {
        if let accountName { return accountName }
        if try device.hasHome, let record = try await device.withSession({ try $0.account }) {
            return record.accountName
        }
        throw ValidationError("No account is signed in on this device. Give the account's name: --account NAME")
    }

    /// The session of a device that is signed in already, with its server's new address; nil: sign in.
    private func updated(_ connection: ConnectionString, _ account: String) async throws -> SessionRecord? {
        guard app == nil, deviceName == nil, code == nil, policyClass == .computer, try device.hasHome else {
            return nil
        }
        return try await device.withSession { session in
            try await session.updateAddress(connection: connection, account: account, timeout: wait.duration)
        }
    }
}

struct SignOutCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sign-out", abstract: "Sign this device out. Its data stays until another account signs in.",
        discussion: "Pending changes are sent first, for at most --timeout seconds.")

    @Flag(help: "Sign out with unsent changes; they stay here until this account signs in again.")
    var keepUnsent = false
    @OptionGroup var wait: WaitOptions
    @OptionGroup var device: DeviceOptionGroup
    @OptionGroup var output: OutputOptions

    func run() async throws {
        try await device.withSession { session in
            let account = try session.requireAccount()
            if !keepUnsent, try await !session.unsentChanges().isEmpty {
                try await session.sendChanges(within: wait.duration)
            }
            let ended: SignedOut
            do throws(CloudError) {
                ended = try await session.signOut(keepsUnsent: keepUnsent, timeout: wait.given)
            } catch {
                if error.details["unsent"] != nil, !output.json { try await session.listUnsent() }
                throw error
            }
            var report = SessionReport(account)
            report.serverTold = ended.isTold
            report.unsent = ended.unsentCount
            let text =
                ended.isTold
                ? "Signed out of \(account.accountName)."
                : """
                Signed out of \(account.accountName) on this device. The server could not be told, and lists the \
                device as signed in until another one revokes it: nephos devices revoke \(account.deviceID)
                """
            // It was asked for, or was written in this moment.
            let left = try await session.leftUnsent
            report.undecided = left?.undecidedCount ?? 0
            try output.print(report, text: [text, left?.text].compactMap { $0 }.joined(separator: "\n"))
        }
    }
}

extension Session {
    /// Sends what waits, as far as the server takes it in time. What is left says why by itself.
    fileprivate func sendChanges(within limit: Duration) async throws {
        _ = try await scopes().each(in: self) { try? await $0.waitUntilSent(timeout: limit, isImpatient: true) }
    }

    /// Says what somebody would leave here unsent.
    fileprivate func listUnsent() async throws {
        for changes in try await unsentChanges() {
            let place = [changes.app?.rawValue, changes.name.isEmpty ? nil : changes.name].compactMap { $0 }
            let size = changes.bytes > 0 ? ", \(describe(bytes: changes.bytes)) of contents" : ""
            let count = max(changes.itemCount, changes.requestCount)
            Standard.error(
                "\(inLine(place.joined(separator: "/"))) (\(changes.service)): "
                    + "\(count) \(count == 1 ? "change waits" : "changes wait")\(size)")
            for item in changes.items.prefix(Self.listedMax) {
                let size = item.bytes > 0 ? " (\(describe(bytes: item.bytes)))" : ""
                Standard.error("  \(inLine(item.name))\(size)")
            }
            let rest = changes.itemCount - min(changes.items.count, Self.listedMax)
            if rest > 0 { Standard.error("  and \(rest) more") }
        }
    }

    private static let listedMax = 20
}

struct WhoAmICommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "whoami", abstract: "Show the signed-in account. Needs no network.")

    @OptionGroup var device: DeviceOptionGroup
    @OptionGroup var output: OutputOptions

    func run() async throws {
        try await device.withSession { session in
            let account = try session.requireAccount()
            var report = SessionReport(account)
            report.reason = account.ending?.sentence
            try output.print(
                report,
                text: """
                    account         \(report.account)
                    device          \(report.device) (\(report.deviceId))
                    app             \(report.app)
                    store           \(report.store ?? "-")
                    identity token  \(report.identityToken)
                    server          \(report.server)
                    home            \(session.home.path)
                    """ + (report.reason.map { "\n\($0)" } ?? ""))
        }
    }
}

/// How a device is treated where room matters, as it is typed.
enum DeviceClass: String, ExpressibleByArgument, CaseIterable {
    case computer
    case small
}

private struct SessionReport: Encodable {
    var account: String
    var accountId: String
    var device: String
    var deviceId: String
    var app: String
    var store: String?
    var identityToken: String
    /// Where identity is.
    var server: String
    /// Of a sign-in: keys that were set while nobody was signed in, and that `kv adopt` offers.
    var notOffered: [String]?
    /// Of a sign-out: whether the server knows.
    var serverTold: Bool?
    /// Of a sign-out: how many requests stay here unsent.
    var unsent: Int?
    /// Of a sign-out: how much stays here that was refused, or conflicts with others.
    var undecided: Int?
    /// Why the server has turned this device away.
    var reason: String?

    init(_ record: SessionRecord) {
        account = record.accountName
        accountId = record.accountID.rawValue
        device = record.deviceName
        deviceId = record.deviceID.rawValue
        app = record.defaultApp.rawValue
        store = record.storeIDs[record.defaultApp.rawValue]
        identityToken = record.identityToken
        server = record.identity.requests.joined(separator: ", ")
    }
}
