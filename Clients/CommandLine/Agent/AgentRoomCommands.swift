import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

// Which contents are on this device.
extension AgentCommand {
    struct Evict: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Free room on this device: files become placeholders.",
            discussion: """
                The files stay in the folder by name, each as a small placeholder that ends in .nephos. Their contents \
                stay on the server and on other devices. Only contents that the server is proved to have are removed, \
                and only while it can be reached. Files of less than 8 KiB and files that a program has open for writing \
                stay. Exit code 1: some files stay.
                """)

        @OptionGroup var options: ContentOptions

        func run() async throws {
            try await options.ask(evicts: true) { files, bytes in
                counted(files, "file is a placeholder", "files are placeholders") + " now."
                    + (bytes > 0 ? " Freed \(describe(bytes: UInt64(bytes)))." : "")
            }
        }
    }

    struct Download: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Download the contents of placeholders.",
            discussion: """
                Give a file, its placeholder, or a folder with placeholders in it. It waits for as long as contents \
                arrive; only a --timeout that you give ends it earlier. Ctrl-C ends the waiting, and the downloads \
                go on in the agent. Exit code 1: some files are not here.
                """)

        @OptionGroup var options: ContentOptions

        func run() async throws {
            try await options.ask(evicts: false) { files, _ in counted(files, "file is", "files are") + " here." }
        }
    }

    struct Policy: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show or set which contents of a folder are kept on this device.",
            discussion: """
                With --on-demand, new files of 8 KiB or more come as placeholders; nephos agent download gets them. With \
                --keep-free, the files that were not opened for longest become placeholders while the disk has less \
                free room than that. Neither does so in a checkout of git.
                """)

        @OptionGroup var options: FolderOptions
        @OptionGroup var changes: PolicyOptions

        private struct Row: Encodable {
            var folder: String
            var onDemand: Bool
            var keepFreeBytes: Int64
        }

        func run() async throws {
            try await options.tell { store, folder in
                let policy = try changes.apply(to: folder, store)
                let free =
                    policy.keptFreeBytes == 0
                    ? "" : " Keeps \(describe(bytes: UInt64(policy.keptFreeBytes))) of the disk free."
                try options.output.print(
                    Row(folder: folder.path, onDemand: policy.isOnDemand, keepFreeBytes: policy.keptFreeBytes),
                    text: "\(inLine(folder.path)): new files come "
                        + (policy.isOnDemand ? "as placeholders." : "with their contents.") + free)
            }
        }
    }

    /// The options of a policy.
    struct PolicyOptions: ParsableArguments {
        @Flag(inversion: .prefixedNo, help: "New files come as placeholders.") var onDemand: Bool?
        @Option(help: "Free room to keep on the disk, such as 20GB; 0: do not care.") var keepFree: PlanCommand.Size?

        /// - Returns: The policy from now on.
        func apply(to folder: AgentFolder, _ store: AgentStore) throws(CloudError) -> RoomPolicy {
            var policy = try store.policy(of: folder)
            if let onDemand { policy.isOnDemand = onDemand }
            if let keepFree { policy.keptFreeBytes = Int64(clamping: keepFree.bytes) }
            if onDemand != nil || keepFree != nil { try store.setPolicy(policy, of: folder) }
            return policy
        }
    }

    /// Files and folders in folders of the agent.
    struct ContentOptions: ParsableArguments {
        @Argument(help: "Files or folders.", completion: .file()) var paths: [String]
        @OptionGroup var wait: WaitOptions
        @OptionGroup var agent: AgentOptionGroup
        @OptionGroup var output: OutputOptions

        private struct Report: Encodable {
            var files: Int
            /// Freed; 0 for a download.
            var bytes: Int64
            var failures: [String: String]
            var failureCount: Int
        }

        /// Asks the running agent, and waits for the outcome.
        func ask(evicts: Bool, _ text: (_ files: Int, _ bytes: Int64) -> String) async throws {
            try await agent.withStore { store, control, _ in
                let places = try paths.map { try Self.place(of: $0, store) }
                guard control.isRunning else {
                    throw CloudError(.constraintViolation, "The agent does not run. Start it: nephos agent run")
                }
                for (folder, _) in places where try store.pauseEnd(of: folder) != nil {
                    throw CloudError(
                        .constraintViolation, "The folder is paused. Go on with: nephos agent resume",
                        details: ["folder": folder.path])
                }
                var report = Report(files: 0, bytes: 0, failures: [:], failureCount: 0)
                for (folder, path) in places {
                    let outcome = try await ask(path, evicts, folder, store, control)
                    report.files += outcome.files
                    report.bytes += outcome.bytes
                    report.failureCount += outcome.failureCount
                    report.failures.merge(outcome.failures) { first, _ in first }
                }
                let more = report.failureCount - report.failures.count
                let lines =
                    report.failures.sorted { $0.key < $1.key }.map { "\(inLine($0)): \($1)" }
                    + (more > 0 ? ["\(counted(more, "other file")) likewise."] : [])
                try output.print(report, text: ([text(report.files, report.bytes)] + lines).joined(separator: "\n"))
                guard report.failureCount == 0 else { throw ExitCode(1) }
            }
        }

        private func ask(
            _ path: [[UInt8]], _ evicts: Bool, _ folder: AgentFolder, _ store: AgentStore, _ control: AgentControl
        ) async throws -> ContentRequest.Outcome {
            let request = try store.request(path, evicts: evicts, in: folder)
            control.wake()
            let showsProgress = !output.json && isatty(2) == 1
            defer { if showsProgress { _ = Standard.write(Array("\r\u{1b}[K".utf8), to: 2) } }
            // A download takes its time. An agent that has nothing to wait for evicts at once.
            let limit = evicts ? wait.duration : wait.given
            let end = limit.map { ContinuousClock.now + $0 }
            var wellUntil = ContinuousClock.now
            Interrupt.hold()
            defer { Interrupt.release() }
            while try !store.isDone(request) {
                let report = try store.report(of: folder)
                if report?.problem == nil { wellUntil = .now }
                let isOver = report?.state == .stopped || wellUntil + wait.duration < .now
                let problem = isOver ? report?.problem : nil
                let isLate = end.map { $0 < .now } ?? false
                guard !isLate, !Interrupt.isPending, control.isRunning, problem == nil else {
                    try store.end(request)
                    throw CloudError(
                        isLate ? .deadlineExceeded : Interrupt.isPending ? .operationCancelled : .constraintViolation,
                        problem
                            ?? (isLate
                                ? "It is not done yet. See: nephos agent status"
                                : Interrupt.isPending ? "Ended by a signal." : "The agent has ended."))
                }
                if showsProgress, let (evicted, all) = try? store.progress(of: request, in: folder) {
                    let text = "\r\u{1b}[K\(evicts ? evicted : all - evicted) of \(counted(all, "file"))"
                    _ = Standard.write(Array(text.utf8), to: 2)
                }
                try? await Task.sleep(for: .milliseconds(100))
            }
            return try store.end(request) ?? ContentRequest.Outcome()
        }

        /// The folder of a path, and the names from there on.
        static func place(of path: String, _ store: AgentStore) throws(CloudError) -> (AgentFolder, [[UInt8]]) {
            // A placeholder's file is not there by its own name, but its folder is.
            let url = URL(fileURLWithPath: path).standardizedFileURL
            let full =
                FileManager.default.fileExists(atPath: path)
                ? absolute(path) : absolute(url.deletingLastPathComponent().path) + "/" + url.lastPathComponent
            guard let folder = try store.folders().first(where: { (full + "/").hasPrefix($0.path + "/") }) else {
                throw CloudError(
                    .unknownItem, "The path is in no folder of the agent. See: nephos agent list",
                    details: ["path": full])
            }
            let names: [[UInt8]] = Array(full.utf8).dropFirst(folder.path.utf8.count)
                .split(separator: UInt8(ascii: "/")).map { Array($0) }
            return (folder, names)
        }
    }
}
