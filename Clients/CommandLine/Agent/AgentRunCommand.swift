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
                let store = try AgentStore(home: session.home.path)
                let agent = Agent(session, store) { folder in
                    var options = AgentOptions()
                    options.onActivity = { try? show($0, folder) }
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
            let isProblem = [.blocked, .held, .stopped].contains(activity.action)
            guard isProblem || !quiet else { return }
            let place = activity.path.isEmpty ? folder.path : activity.path
            let text =
                switch activity.action {
                case .held:
                    "held      the deletion of \(activity.detail ?? "") items. Use: nephos agent allow, or nephos agent restore"
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

        private struct Report: Encodable {
            struct Blocked: Encodable {
                var path: String
                var reason: String
            }

            var folder: String
            var running: Bool
            var state: String
            var problem: String?
            var items: Int
            var dirtyFolders: Int
            var waiting: Int
            var downloads: Int
            var unsent: Int
            var heldDeletions: Int
            var watchedFolders: Int
            var unwatchedFolders: Int
            var lastFullScan: Date?
            var blocked: [Blocked]

            var isWell: Bool { running && state != "stopped" && blocked.isEmpty && heldDeletions == 0 }
        }

        func run() async throws {
            try await agent.withStore { store, control, session in
                let isRunning = control.isRunning
                var reports: [Report] = []
                for folder in try store.folders() {
                    reports.append(try await report(folder, store, isRunning, session))
                }
                let text =
                    reports.isEmpty
                    ? "No folder. Use: nephos agent add FOLDER" : reports.map(describe).joined(separator: "\n")
                try output.print(reports, text: text)
                guard reports.allSatisfy(\.isWell) else { throw ExitCode(1) }
            }
        }

        private func report(
            _ folder: AgentFolder, _ store: AgentStore, _ isRunning: Bool, _ session: Session
        ) async throws -> Report {
            let report = try store.report(of: folder) ?? FolderReport()
            let container = try? await session.container(folder.container, app: folder.app)
            let status = try? await container?.scope.status()
            let unsent = status?.pending.count ?? 0
            let state: String =
                switch report.state {
                case _ where !isRunning: "not running"
                case _ where report.heldDeletionCount > 0: "held"
                case .idle where unsent > 0: "sending"
                case .idle where report.blockedCount > 0: "blocked"
                case .idle: report.isProved ? "in sync" : "no known work"
                case .syncing: "syncing"
                case .scanning: "scanning"
                case .stopped: "stopped"
                }
            return Report(
                folder: folder.path, running: isRunning, state: state,
                problem: report.problem ?? status?.pending.first?.reason, items: report.itemCount,
                dirtyFolders: report.dirtyFolderCount, waiting: report.waitingCount, downloads: report.downloadCount,
                unsent: unsent, heldDeletions: report.heldDeletionCount, watchedFolders: report.watchedFolderCount,
                unwatchedFolders: report.unwatchedFolderCount, lastFullScan: report.lastFullScan,
                blocked: try store.blocked(in: folder).map { .init(path: $0.text, reason: $0.reason) })
        }

        private func describe(_ report: Report) -> String {
            var lines = ["\(inLine(report.folder)): \(report.state), \(counted(report.items, "item"))"]
            if let problem = report.problem { lines.append("  \(inLine(problem))") }
            if !report.running { lines.append("  Start the agent: nephos agent run") }
            if report.dirtyFolders > 0 { lines.append("  to look at: \(counted(report.dirtyFolders, "folder"))") }
            if report.unsent > 0 { lines.append("  to send: \(counted(report.unsent, "request"))") }
            if report.waiting + report.downloads > 0 {
                lines.append("  to receive: \(counted(report.waiting + report.downloads, "item"))")
            }
            if report.heldDeletions > 0 {
                lines.append(
                    "  held: the deletion of \(counted(report.heldDeletions, "item")). Use: nephos agent allow, or nephos agent restore"
                )
            }
            if report.unwatchedFolders > 0 {
                lines.append(
                    "  \(counted(report.unwatchedFolders, "folder")) without a watch, scanned every 5 minutes: raise fs.inotify.max_user_watches"
                )
            }
            lines += report.blocked.map { "  blocked: \(inLine($0.path)): \(inLine($0.reason))" }
            return lines.joined(separator: "\n")
        }
    }
}
