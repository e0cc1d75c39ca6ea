import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

extension AgentCommand {
    struct Run: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep the added folders in sync, until Ctrl-C.",
            discussion: """
                It prints a line for each change that it sends or makes. It may be ended at any time, also by \
                kill -9, and goes on when it is started again. With --once, --timeout says how long the server may let \
                it wait. Exit code 1: an agent of this home runs already.
                """)

        @Flag(help: "Sync once and exit, instead of going on.") var once = false
        @Flag(help: "Print only problems.") var quiet = false
        @OptionGroup var transfer: DocumentsCommand.TransferOptions
        @OptionGroup var wait: WaitOptions
        @OptionGroup var device: DeviceOptionGroup
        @OptionGroup var output: OutputOptions

        private struct Line: Encodable {
            var folder: String
            var action: String
            var path: String
            var detail: String?
        }

        func run() async throws {
            try await device.withSession { session in
                _ = try session.requireAccount()
                if let limits = transfer.limits { session.setTransferLimits(limits) }
                let store = try AgentStore(home: session.home.path)
                let notices = DesktopNotices()
                let agent = Agent(session, store) { folder in
                    var options = AgentOptions()
                    options.onActivity = { activity in
                        try? show(activity, folder)
                        notices.show(activity, folder)
                    }
                    return options
                }
                let folders = try store.folders()
                if folders.isEmpty { Standard.error("No folder is added yet. Use: nephos agent add FOLDER") }
                guard once else { return try await agent.run() }
                for folder in folders {
                    try await agent.runOnce(folder, timeout: wait.duration)
                    try output.print(
                        Line(folder: folder.path, action: "done", path: ""), text: "done      \(inLine(folder.path))")
                }
            }
        }

        private func show(_ activity: AgentActivity, _ folder: AgentFolder) throws {
            let isProblem = [.blocked, .conflict, .held, .stopped].contains(activity.action)
            guard isProblem || !quiet else { return }
            let place = activity.path.isEmpty ? folder.path : activity.path
            let text =
                switch activity.action {
                case .held:
                    "held      the deletion of \(activity.detail ?? "") files. Use: nephos agent allow, or nephos agent restore"
                case .ready: "ready     \(inLine(folder.path)), \(activity.detail ?? "0") items"
                default:
                    activity.action.rawValue.padding(toLength: 10, withPad: " ", startingAt: 0) + inLine(place)
                        + (activity.detail.map { ": " + inLine($0) } ?? "")
                }
            try output.print(
                Line(
                    folder: folder.path, action: activity.action.rawValue, path: activity.path, detail: activity.detail),
                text: text)
        }
    }

    struct Status: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show how far each folder is, and what is blocked.",
            discussion: """
                "no known work" means that the agent has sent and received everything that it knows of; "in sync" \
                that the server's digest has proved it. Exit code 1: the agent does not run, a folder stands \
                still, a file is blocked, or a deletion is held.
                """)

        @OptionGroup var agent: AgentOptionGroup
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await agent.withStore { store, control, session in
                let folders = try await FolderStatus.all(store, control, session)
                let text =
                    folders.isEmpty
                    ? "No folder. Use: nephos agent add FOLDER" : folders.map(\.text).joined(separator: "\n")
                try output.print(folders, text: text)
                guard folders.allSatisfy(\.isWell) else { throw ExitCode(1) }
            }
        }
    }
}
