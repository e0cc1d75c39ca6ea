import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

// Commands that compare a folder with its container, and one that tries a disk.
extension AgentCommand {
    struct Plan: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show what the agent would send and receive now. Nothing is changed.",
            discussion: """
                To see it before anything happens, add the folder with --paused, or pause it; nephos agent resume then \
                does it. Exit code 1: something would be done.
                """)

        @OptionGroup var options: ComparisonOptions

        func run() async throws {
            let differences = try await options.differences()
            let work = differences.filter { $0.action != .leave }
            var lines = differences.map { difference in
                difference.action.rawValue.padding(toLength: 9, withPad: " ", startingAt: 0) + inLine(difference.path)
                    + ComparisonOptions.note(difference)
            }
            lines.append(work.isEmpty ? "Nothing to do." : Self.summary(of: work))
            try options.output.print(differences.map(ComparisonOptions.Row.init), text: lines.joined(separator: "\n"))
            guard work.isEmpty else { throw ExitCode(1) }
        }

        private static func summary(of work: [FolderDifference]) -> String {
            let outward: Set<FolderDifference.Action> = [.send, .sending, .move, .delete]
            let sent = work.filter { outward.contains($0.action) }
            let received = work.filter { !outward.contains($0.action) }
            func text(_ some: [FolderDifference]) -> String {
                "\(counted(some.count, "change")) (\(describe(bytes: some.reduce(0) { $0 &+ $1.bytes })))"
            }
            return "To send: \(text(sent)). To receive: \(text(received))."
        }
    }

    struct OnlyHere: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "List files that would be lost with this disk.",
            discussion: """
                Files that the server does not have as they are here: not sent yet, rejected, blocked or ignored. Exit \
                code 1: there are some.
                """)

        @OptionGroup var options: ComparisonOptions

        func run() async throws {
            let files = try await options.differences().filter(\.isOnlyHere)
            var lines = files.map { "\(inLine($0.path))\(ComparisonOptions.note($0, isOnlyHere: true))" }
            lines.append(
                files.isEmpty
                    ? "The server has every file of the folder."
                    : "\(counted(files.count, "file is", "files are")) only here, "
                        + "\(describe(bytes: files.reduce(0) { $0 &+ $1.bytes })).")
            try options.output.print(files.map(ComparisonOptions.Row.init), text: lines.joined(separator: "\n"))
            guard files.isEmpty else { throw ExitCode(1) }
        }
    }

    /// A folder that is compared with its container.
    struct ComparisonOptions: ParsableArguments {
        @Argument(help: "The folder (default: the only one).", completion: .directory) var folder: String?
        @OptionGroup var wait: WaitOptions
        @OptionGroup var device: DeviceOptionGroup
        @OptionGroup var output: OutputOptions

        struct Row: Encodable {
            var action: String
            var path: String
            var bytes: UInt64
            var detail: String?

            init(_ difference: FolderDifference) {
                (action, path) = (difference.action.rawValue, difference.path)
                (bytes, detail) = (difference.bytes, difference.detail)
            }
        }

        func differences() async throws -> [FolderDifference] {
            try await device.withSession { session in
                let store = try AgentStore(home: session.home.path)
                let added = try store.folder(named: folder)
                let container = try await session.container(added.container, app: added.app)
                do throws(CloudError) { try await container.waitUntilCurrent(timeout: wait.duration) } catch {
                    Standard.error("\(error.message) The server's part is what this device knew of it last.")
                }
                return try await FolderComparison(added, container.tree(), store).compare()
            }
        }

        /// Size and reason, for a line.
        static func note(_ difference: FolderDifference, isOnlyHere: Bool = false) -> String {
            var parts = difference.bytes > 0 ? [describe(bytes: difference.bytes)] : []
            let reason =
                isOnlyHere && difference.action == .sending
                ? "not on the server yet"
                : isOnlyHere && difference.action == .send
                    ? difference.detail.map { "\($0), not sent yet" } : difference.detail
            if let reason { parts.append(inLine(reason)) }
            return parts.isEmpty ? "" : "  (\(parts.joined(separator: ", ")))"
        }
    }
}

extension AgentCommand {
    struct Check: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Try what a folder's disk can do for the agent.",
            discussion: """
                It makes a few files in a folder of its own there, and removes them. The folder need not be added. Exit \
                code 1: the agent cannot keep a folder there.
                """)

        @Argument(help: "The folder.", completion: .directory) var folder: String
        @OptionGroup var columns: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            let results = try await FolderCheck(path: folder).run()
            let rows = results.map { [$0.test, $0.works ? "yes" : "no", $0.works ? "" : $0.without] }
            let isUsable = results.allSatisfy { $0.works || !$0.isRequired }
            try output.print(
                results,
                text: table(["TEST", "WORKS", "WITHOUT IT"], rows)
                    + (isUsable ? "" : "\nThe agent cannot keep a folder here. Use a folder on another disk."))
            guard isUsable else { throw ExitCode(1) }
        }
    }
}
