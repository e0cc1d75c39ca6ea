import ArgumentParser
import NephosCore
import NephosKit

struct DocumentsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "docs", abstract: "Copy, list, share and restore files of an app's containers.",
        discussion: """
            Paths begin in the folder Documents, which people see: Letters/a.txt, Documents/Letters/a.txt \
            and /Documents/Letters/a.txt name the same file. A leading / means the top of the container; \
            items outside Documents are private to the app. You can use id: and an item's id (see --json) in \
            place of a path.

            Each command asks the server for changes first, for at most a second. If the server does not \
            answer, you see this device's copy. Content is downloaded when you ask for it. Changes are saved \
            on this device at once and sent as soon as possible.
            """,
        subcommands: [
            List.self, Tree.self, Find.self, Put.self, Get.self, Diff.self, Cat.self, Copy.self, Move.self,
            MakeFolder.self,
            Remove.self,
            Trash.self, Undo.self, Versions.self, Conflicts.self, Resolve.self, Restore.self, Retry.self, Status.self,
            Publish.self, Links.self, Unpublish.self,
            Download.self, Evict.self, Cache.self, Pause.self, Resume.self, Renditions.self, Attributes.self,
            SetAttributes.self,
        ])

    typealias NetworkOptions = KeyValueCommand.NetworkOptions

    /// How fast a command moves contents.
    struct TransferOptions: ParsableArguments {
        /// As `curl` takes it: `500K`, `2M`, 1024 to the unit; also `2MB`, `64MiB`, or bytes.
        struct Rate: ExpressibleByArgument {
            var bytesPerSecond: Int

            init?(argument: String) {
                let isShort = ["k", "m", "g"].contains(argument.suffix(1).lowercased())
                guard let size = PlanCommand.Size(argument: isShort ? argument + "iB" : argument),
                    (1000...(1 << 40)).contains(size.bytes)
                else { return nil }
                bytesPerSecond = Int(size.bytes)
            }
        }

        @Option(
            name: .long, help: "The highest speed in bytes a second, such as 500K or 2M.")
        var limitRate: Rate?

        var limits: TransferLimits? {
            limitRate.map { TransferLimits(upload: $0.bytesPerSecond, download: $0.bytesPerSecond) }
        }
    }

    /// Where something goes that a command copies or moves.
    struct TargetOptions: ParsableArguments {
        @Option(name: .long, help: "The target container of the same app (default: the same container).")
        var toContainer: String?

        /// - Returns: Nil: the one that it is in.
        func open(
            besides container: UbiquityContainer, _ session: Session, _ network: NetworkOptions
        ) async throws -> UbiquityContainer? {
            guard let toContainer, toContainer != container.id else { return nil }
            let other = try await session.container(toContainer, app: container.app)
            try await CopyRefresh(limit: network.limit, isWriting: true).bring(other.scope)
            return other
        }
    }

    /// Which container a command is about.
    struct ContainerOptions: ParsableArguments {
        @OptionGroup var device: DeviceOptionGroup

        @Option(name: .long, help: "The app (default: the signed-in app).") var app: String?
        @Option(name: .long, help: "The container (default: the app's first).") var container: String?

        /// How long a command goes on with contents that the server has lost and this device has.
        private static let offerPatience: Duration = .seconds(5)

        /// Opens the container, with its names on this device as new as the server tells.
        ///
        /// - Parameters:
        ///   - isOffline: The server is asked for nothing, and another command sends the changes.
        ///   - transfer: How fast contents are moved.
        func withContainer<Result: Sendable>(
            _ refresh: CopyRefresh, isOffline: Bool = false, transfer: TransferOptions? = nil,
            _ body: (UbiquityContainer, Session) async throws -> Result
        ) async throws -> Result {
            try await device.withSession(isOffline: isOffline) { session in
                _ = try session.requireAccount()
                if let limits = transfer?.limits { session.setTransferLimits(limits) }
                let container = try await session.container(container, app: app.map { AppID($0) })
                // Opening the container starts sending pending changes of earlier commands.
                let waiting = refresh.limit == nil ? nil : try? await container.outbox.paths()
                let names = refresh.limit == nil ? nil : try? await container.outbox.names()
                try await refresh.bring(container.scope)
                let result = try await body(container, session)
                let versions = (waiting ?? [:]).values.reduce(into: [:]) { $0.merge($1) { first, _ in first } }
                try SentDocuments.tell(
                    ofConflicts: try await container.outbox.conflicting(versions),
                    renamed: try await container.outbox.renamed(since: names ?? [:]))
                if let limit = refresh.limit {
                    await container.scope.waitUntilOffered(within: min(limit, Self.offerPatience))
                }
                return result
            }
        }

        /// The same for what needs the server besides, such as contents.
        func withContainer<Result: Sendable>(
            within limit: Duration?, isOffline: Bool = false, transfer: TransferOptions? = nil,
            _ body: (UbiquityContainer, Session) async throws -> Result
        ) async throws -> Result {
            try await withContainer(CopyRefresh(limit: limit), isOffline: isOffline, transfer: transfer, body)
        }

        func withContainer<Result: Sendable>(
            _ network: ReadOptions, _ body: (UbiquityContainer, Session) async throws -> Result
        ) async throws -> Result {
            try await withContainer(network.refresh, isOffline: network.offline, body)
        }

        func withContainer<Result: Sendable>(
            _ network: NetworkOptions, transfer: TransferOptions? = nil,
            _ body: (UbiquityContainer, Session) async throws -> Result
        ) async throws -> Result {
            try await withContainer(
                CopyRefresh(limit: network.limit, isWriting: true), isOffline: network.offline, transfer: transfer, body
            )
        }
    }
}

/// An item as `--json` prints it.
struct DocumentRow: Encodable {
    var path: String
    var name: String
    var id: String
    var kind: String
    var size: UInt64
    /// Milliseconds since 1970, negative before.
    var created: Int64?
    var modified: Int64?
    var version: String?
    var device: String?
    var executable: Bool?
    var tags: [String]?
    /// Where it stands among the favourites.
    var favourite: Int64?
    var doNotBackUp: Bool?
    /// What its further contents are called.
    var renditions: [String]?
    var trashed: Bool?
    var batch: String?
    var conflicts: Int?
    var pending: String?
    var state: String
    /// How much of the content is sent; only while it is.
    var percent: Int?
    /// What of the content is on this device.
    var downloadingStatus: String
    /// How much of it has come; only while it comes.
    var percentDownloaded: Int?
    /// Why it has not come.
    var downloadProblem: String?
    var pinned: Bool?
    var paused: Bool?
    /// Why it could not be resumed.
    var pauseProblem: String?
    /// What other devices are sending of it.
    var incoming: [Incoming]?

    struct Incoming: Encodable {
        var device: String
        var bytes: UInt64
        /// Milliseconds since 1970.
        var since: UInt64?
    }

    init(_ entry: DocumentEntry) {
        path = entry.path
        name = entry.name
        id = entry.id.description
        kind = entry.kind.rawValue
        size = entry.size
        created = entry.created?.milliseconds
        modified = entry.modified?.milliseconds
        version = entry.version?.description
        device = entry.device?.rawValue
        executable = entry.isExecutable ? true : nil
        tags = entry.tags.isEmpty ? nil : entry.tags
        favourite = entry.favouriteRank == 0 ? nil : entry.favouriteRank
        doNotBackUp = entry.isExcludedFromBackup ? true : nil
        renditions = entry.renditionNames.isEmpty ? nil : entry.renditionNames
        trashed = entry.isTrashed ? true : nil
        batch = entry.trashBatch?.description
        conflicts = entry.conflictCount == 0 ? nil : entry.conflictCount
        pending = entry.pending == .none ? nil : entry.pending.rawValue
        state = entry.state.rawValue
        percent = entry.percent == 100 ? nil : entry.percent
        downloadingStatus = entry.download.status.rawValue
        percentDownloaded = entry.download.isRequested ? entry.download.percent : nil
        downloadProblem = entry.download.problem
        pinned = entry.download.isPinned ? true : nil
        paused = entry.isPaused ? true : nil
        pauseProblem = entry.pauseProblem
        if !entry.incoming.isEmpty {
            incoming = entry.incoming.map {
                Incoming(device: $0.device.rawValue, bytes: $0.size, since: $0.since?.milliseconds)
            }
        }
    }
}

extension DocumentEntry {
    /// As a list shows it.
    var label: String { name + marker }

    /// What a person should know of it besides.
    var notes: String {
        var notes: [String] = []
        switch pending {
        case .none: break
        case .waiting: notes.append("waits to be sent")
        case .uploading: notes.append(percent > 0 ? "\(percent) % of the content sent" : "content waits to be sent")
        }
        switch download.status {
        case .current: break
        case _ where download.isRequested: notes.append("\(download.percent) % downloaded")
        case .downloaded: notes.append("an older version is here")
        case .notDownloaded: notes.append("not downloaded")
        }
        if download.isPinned { notes.append("kept downloaded") }
        if isPaused { notes.append("paused") }
        if state == .refused { notes.append("a change was not taken") }
        if String(validating: nameBytes, as: UTF8.self) == nil {
            notes.append("no text: \(id.argument)")
        }
        if !renditionNames.isEmpty { notes.append("with \(listed(renditionNames))") }
        if conflictCount > 0 { notes.append(conflictCount == 1 ? "1 conflict" : "\(conflictCount) conflicts") }
        return notes.joined(separator: ", ")
    }

    /// What other devices are sending of it.
    ///
    /// - Parameter names: What the devices are called, as far as that is known.
    func incomingText(_ names: [DeviceID: String]) -> String {
        incoming.map { "\($0.sizeText) \($0.text(names))" }.joined(separator: ", ")
    }

    var sizeText: String { kind == .folder ? "-" : describe(bytes: size) }
    var modifiedText: String { (modified ?? created).map { describe($0) } ?? "-" }
}

extension IncomingContent {
    var sizeText: String { describe(bytes: size) }

    func text(_ names: [DeviceID: String]) -> String { "on its way from \(inLine(names[device] ?? device.rawValue))" }
}

extension ComingDocument {
    /// - Parameter names: What the devices are called, as far as that is known.
    func text(_ names: [DeviceID: String]) -> String { content.text(names) }
}

extension Session {
    /// What those devices are called that send something.
    ///
    /// - Parameter network: Whether, and how long, the server may be asked.
    func names(ofThoseThatSend contents: [IncomingContent], _ network: ReadOptions) async -> [DeviceID: String] {
        guard !network.offline, !contents.isEmpty else { return [:] }
        let devices = (try? await devices(timeout: network.duration)) ?? []
        return Dictionary(devices.map { ($0.id, $0.name) }) { first, _ in first }
    }
}
