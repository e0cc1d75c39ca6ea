import ArgumentParser
import Foundation
import NephosAgent
import NephosCore
import NephosKit

struct AgentCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "agent", abstract: "Keep folders on this device in sync with containers.",
        discussion: """
            Add a folder on each device, and leave nephos agent run running. Then a file saved in the folder on \
            one device appears in the folders of the others.
            """,
        subcommands: [
            Add.self, List.self, Remove.self, Run.self, Status.self, Pause.self, Resume.self, Allow.self, Restore.self,
            Evict.self, Download.self, Policy.self, Plan.self, OnlyHere.self, Check.self, Coordinate.self,
        ])

    /// A folder that was added, as it is printed.
    struct Row: Encodable {
        var folder: String
        var app: String
        var container: String

        init(_ added: AgentFolder) {
            (folder, app, container) = (added.path, added.app.rawValue, added.container)
        }
    }
}

/// The folders of a home, for commands that do not need the server.
struct AgentOptionGroup: ParsableArguments {
    @OptionGroup var device: DeviceOptionGroup

    func withStore<Result: Sendable>(
        _ body: (AgentStore, AgentControl, Session) async throws -> Result
    ) async throws -> Result {
        try await device.withSession(isOffline: true) { session in
            let home = session.home.path
            return try await body(AgentStore(home: home), AgentControl(home: home), session)
        }
    }
}

extension AgentStore {
    /// - Throws: ``CloudError`` `.unknownItem`.
    func folder(at path: String) throws(CloudError) -> AgentFolder {
        let full = absolute(path)
        guard let folder = try folders().first(where: { $0.path == full }) else {
            throw CloudError(
                .unknownItem, "The agent does not keep this folder. See: nephos agent list", details: ["folder": full])
        }
        return folder
    }

    /// - Parameter path: Nil: the only folder.
    func folder(named path: String?) throws(CloudError) -> AgentFolder {
        if let path { return try folder(at: path) }
        let folders = try folders()
        guard folders.count == 1, let folder = folders.first else {
            throw CloudError(
                folders.isEmpty ? .unknownItem : .invalidArguments,
                folders.isEmpty
                    ? "The agent keeps no folder. Use: nephos agent add FOLDER"
                    : "The agent keeps several folders. Name one.")
        }
        return folder
    }
}

/// Without links and `..`, as far as the folder exists.
func absolute(_ path: String) -> String {
    if let real = realpath(path, nil) {
        defer { free(real) }
        return String(cString: real)
    }
    return URL(fileURLWithPath: path).standardizedFileURL.path
}

extension AgentCommand {
    struct Add: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Keep a folder in sync from now on.",
            discussion: """
                The folder is created if it is missing. Files that are in it already are sent, and files of the \
                container are downloaded. If both have a file of one name with different contents, both \
                contents are kept (nephos conflicts). Exit code 1: the folder, or one in or around it, is added \
                already.
                """)

        @Argument(help: "The folder.", completion: .directory) var folder: String
        @Flag(help: "Take over a folder that another device's agent has kept, such as a copy of one.")
        var takeOver = false
        @Flag(help: "Do nothing with it before nephos agent resume: look at nephos agent plan first.")
        var paused = false
        @OptionGroup var policy: PolicyOptions
        @OptionGroup var container: DocumentsCommand.ContainerOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.device.withSession { session in
                let account = try session.requireAccount().accountID
                let found = try await session.container(container.container, app: container.app.map { AppID($0) })
                let store = try AgentStore(home: session.home.path)
                let path = absolute(folder)
                let isNew = !FileManager.default.fileExists(atPath: path)
                try Self.check(path, try store.folders(), home: session.home.path)
                let mark = try RootFolder.adopt(path, takesOver: takeOver)
                let added = try store.add(
                    path: absolute(folder), app: found.app, container: found.id, account: account, mark: mark,
                    pausedUntil: paused ? .distantFuture : nil)
                _ = try policy.apply(to: added, store)
                let control = try AgentControl(home: session.home.path)
                control.wake()
                let next =
                    paused
                    ? "\nSee what would be done: nephos agent plan. Do it: nephos agent resume"
                    : control.isRunning ? "" : "\nStart the agent: nephos agent run"
                try output.print(
                    Row(added), text: "\(isNew ? "Made and added" : "Added") \(inLine(added.path)).\(next)")
            }
        }

        private static func check(_ path: String, _ folders: [AgentFolder], home: String) throws(CloudError) {
            func isIn(_ inner: String, _ outer: String) -> Bool {
                outer == "/" || (inner + "/").hasPrefix(outer + "/")
            }
            func overlaps(_ other: String) -> Bool { isIn(path, other) || isIn(other, path) }
            if let secret = ["roster.json", "device.sqlite"].first(where: {
                FileManager.default.fileExists(atPath: path + "/" + $0)
            }) {
                throw CloudError(
                    .invalidArguments,
                    "This folder has a server's or a device's keys in it, which must not be on other devices.",
                    details: ["folder": path, "file": secret])
            }
            if overlaps(absolute(home)) {
                throw CloudError(
                    .invalidArguments, "The folder and the device's home must not be in each other.",
                    details: ["folder": path, "home": home])
            }
            guard let other = folders.first(where: { overlaps($0.path) }) else { return }
            throw CloudError(
                .alreadyExists, "The agent keeps this folder, or one in or around it, already.",
                details: ["folder": other.path])
        }
    }

    struct List: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "List the folders that the agent keeps in sync.")

        @OptionGroup var agent: AgentOptionGroup
        @OptionGroup var tables: TableOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await agent.withStore { store, _, _ in
                let folders = try store.folders().map(Row.init)
                let text =
                    folders.isEmpty
                    ? "No folder. Use: nephos agent add FOLDER"
                    : table(["FOLDER", "CONTAINER", "APP"], folders.map { [$0.folder, $0.container, $0.app] })
                try output.print(folders, text: text)
            }
        }
    }

    struct Remove: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Stop keeping a folder in sync. All files stay, here and on other devices.",
            discussion: """
                A folder with placeholders is not removed, since they would be of no use without the agent. Download \
                their files first, or use --leave-placeholders. Exit code 1: there are placeholders.
                """)

        @Argument(help: "The folder.", completion: .directory) var folder: String
        @Flag(help: "Remove the folder though it has placeholders.") var leavePlaceholders = false
        @OptionGroup var agent: AgentOptionGroup
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await agent.withStore { store, control, _ in
                let added = try store.folder(at: folder)
                let placeholders = try store.placeholderCount(in: added)
                guard leavePlaceholders || placeholders == 0 else {
                    throw CloudError(
                        .constraintViolation,
                        "The folder has placeholders. Get their files with nephos agent download, or use --leave-placeholders.",
                        details: ["folder": added.path, "placeholders": "\(placeholders)"])
                }
                try store.remove(added)
                control.wake()
                RootFolder.release(added)
                try output.print(Row(added), text: "Removed \(inLine(added.path)) from the agent. Its files stay.")
            }
        }
    }

    /// One folder, for commands that change its rows.
    struct FolderOptions: ParsableArguments {
        @Argument(help: "The folder (default: the only one).", completion: .directory) var folder: String?
        @OptionGroup var agent: AgentOptionGroup
        @OptionGroup var output: OutputOptions

        /// Changes rows of the folder, and wakes the agent.
        func tell(_ body: @escaping (AgentStore, AgentFolder) throws -> Void) async throws {
            try await agent.withStore { store, control, _ in
                defer { control.wake() }
                try body(store, try store.folder(named: folder))
            }
        }
    }

    struct Pause: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Leave a folder alone for a while: nothing is sent or received.",
            discussion: """
                Changes that the agent has handed over before are still sent. The agent closes the folder, so that its \
                disk can be unmounted. nephos agent run --once syncs all the same.
                """)

        @OptionGroup var options: FolderOptions
        @Option(name: .customLong("for"), help: "How long: 90s, 30m, 12h, 7d, 4w (default: until nephos agent resume).")
        var duration: TimeSpan?

        private struct Paused: Encodable {
            var folder: String
            /// Nil: it has no end.
            var until: Date?
        }

        func run() async throws {
            try await options.tell { store, folder in
                let end = duration.map { Date(timeIntervalSinceNow: TimeInterval($0.duration.components.seconds)) }
                try store.pause(folder, until: end ?? .distantFuture)
                let text = end.map { " until \(describe(Timestamp($0)))" } ?? ""
                try options.output.print(
                    Paused(folder: folder.path, until: end),
                    text: "Paused \(inLine(folder.path))\(text). Go on with: nephos agent resume")
            }
        }
    }

    struct Resume: AsyncParsableCommand {
        static let configuration = CommandConfiguration(abstract: "Go on with a folder that was paused.")

        @OptionGroup var options: FolderOptions

        func run() async throws {
            try await options.tell { store, folder in
                let wasPaused = try store.pauseEnd(of: folder) != nil
                try store.pause(folder, until: nil)
                try options.output.print(
                    Row(folder),
                    text: wasPaused ? "Going on with \(inLine(folder.path))." : "\(inLine(folder.path)) is not paused.")
            }
        }
    }

    struct Allow: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Send a large deletion that is held.",
            discussion: """
                If more than 50 files and more than a quarter of a folder disappear from this disk, the agent does \
                not delete them on other devices before you allow it. nephos agent status lists them, and nephos agent \
                restore brings them back instead.
                """)

        @OptionGroup var options: FolderOptions

        func run() async throws {
            try await options.tell { store, folder in
                let count = try store.heldCount(in: folder)
                if count > 0 { try store.allowDeletions(count, in: folder) }
                try options.output.print(
                    ["deletions": count],
                    text: count == 0
                        ? "No deletion is held." : "Allowed: \(counted(count, "file")) will be deleted on all devices.")
            }
        }
    }

    struct Restore: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Bring back the files of a large deletion that is held.")

        @OptionGroup var options: FolderOptions

        func run() async throws {
            try await options.tell { store, folder in
                let count = try store.heldCount(in: folder)
                if count > 0 { try store.requestRestore(in: folder) }
                try options.output.print(
                    ["restored": count],
                    text: count == 0 ? "No deletion is held." : "\(counted(count, "file")) will be downloaded again.")
            }
        }
    }
}

extension AgentStore {
    fileprivate func heldCount(in folder: AgentFolder) throws(CloudError) -> Int {
        try report(of: folder)?.heldDeletionCount ?? 0
    }
}
