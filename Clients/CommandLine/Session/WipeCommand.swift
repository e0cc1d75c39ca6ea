import ArgumentParser
import NephosCore
import NephosKit

struct WipeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "wipe", abstract: "Remove the account's data and the device's key from this device.",
        discussion: """
            The server and other devices keep everything. The device is signed out first. Unsent, rejected \
            and conflicting changes exist only here, so they need --discard-unsent.
            """)

    @Flag(help: "Remove it without asking.") var yes = false
    @Flag(help: "Also discard unsent, rejected and conflicting changes.")
    var discardUnsent = false
    @OptionGroup var wait: WaitOptions
    @OptionGroup var device: DeviceOptionGroup
    @OptionGroup var output: OutputOptions

    private struct Report: Encodable {
        var home: String
        var account: String?
        /// How many changes went that were nowhere else.
        var discarded: Int
        /// Whether the server knows that the device is signed out.
        var serverTold: Bool
    }

    func run() async throws {
        // Before it signs out.
        try device.requireUnused()
        let report = try await device.withSession { session in
            let unsent = try await session.unsentChanges().reduce(0) { $0 + $1.requestCount }
            let count = try await unsent + session.undecidedCount() + session.signedOutKeyCount
            let name = try session.lastAccountName
            guard count == 0 || discardUnsent else {
                throw CloudError(
                    .constraintViolation,
                    "Changes are nowhere but on this device. Look at them (nephos why, nephos conflicts), or give them up (--discard-unsent).",
                    details: ["unsent": "\(count)", "home": session.home.path])
            }
            if !yes {
                let whose = name.map { " of the account \(inLine($0))" } ?? ""
                let lost = count > 0 ? "\n\(counted(count, "change")) that no other device has will be lost." : ""
                try Confirmation.ask(
                    "This removes everything\(whose) in \(inLine(session.home.path)).\(lost)",
                    otherwise: "This removes the home's content. If it is meant, add --yes")
            }
            var isTold = true
            if let account = try session.account, account.ending == nil {
                isTold = try await session.signOut(keepsUnsent: true, timeout: wait.given).isTold
            }
            return Report(home: session.home.path, account: name, discarded: count, serverTold: isTold)
        }
        try Session.removeHome(report.home)
        let untold =
            report.serverTold ? "" : " The server could not be told, and lists the device until another revokes it."
        try output.print(report, text: "Removed what \(inLine(report.home)) had.\(untold)")
    }
}

extension Session {
    /// Keys that were set while nobody was signed in, and that no account has.
    fileprivate var signedOutKeyCount: Int { (try? keyValueStore().signedOutKeys().count) ?? 0 }
}
