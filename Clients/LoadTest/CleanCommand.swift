import ArgumentParser
import NephosCore
import NephosWire
import NephosZeroMQ

struct CleanCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "clean", abstract: "Remove what runs that were killed (SIGKILL) have left behind.",
        discussion: """
            Temporary folders; and with --deployment the accounts and apps there whose names begin with LOAD. Do not \
            use it while another run is under way in that deployment.
            """)

    @Option(help: "A deployment that was measured.", completion: .directory) var deployment: String?

    func run() throws {
        for folder in TemporaryDeployment.removeLeftOvers() { print("Removed \(folder).") }
        guard let deployment else { return }
        let client = try OperatorClient(directory: deployment, transport: ZeroMQTransport())
        var accounts: [String] = []
        var accountList = WireListAccounts()
        while true {
            let page = try client.call(accountList, returning: WireListAccountsReply.self)
            accounts += page.accounts.map(\.accountName).filter { $0.hasPrefix(LoadNames.prefix.lowercased()) }
            guard page.more, let last = page.accounts.last else { break }
            accountList.after = last.accountName
        }
        var apps: [String] = []
        var appList = WireListApps()
        while true {
            let page = try client.call(appList, returning: WireListAppsReply.self)
            apps += page.apps.map(\.appID).filter { $0.hasPrefix(LoadNames.prefix) }
            guard page.more, let last = page.apps.last else { break }
            appList.after = last.appID
        }
        for account in accounts {
            var request = WireCloseAccount()
            request.accountName = account
            _ = try client.call(request, returning: WireCloseAccountReply.self)
            print("Closed \(account).")
        }
        for app in apps {
            var request = WireRemoveApp()
            request.appID = app
            _ = try client.call(request, returning: WireRemoveAppReply.self)
            print("Removed \(app).")
        }
    }
}
