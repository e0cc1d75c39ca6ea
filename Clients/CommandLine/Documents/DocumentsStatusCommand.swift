import ArgumentParser
import NephosCore
import NephosKit

extension DocumentsCommand {
    struct Status: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Show whether the files are in sync, and which are pending, rejected or in conflict.",
            discussion: """
                Exit code 6: a change is pending, was rejected and not dismissed (nephos discard), or is on a \
                paused file; or the copies differ; or the server lost content. With PATH only the items in it \
                count. A conflict does not change the exit code, because it is the same on all devices. Exit \
                code 2: there is no such item.
                """)

        @Argument(help: "An item (default: the whole container).") var path = DocumentArgument("/")
        @OptionGroup var container: ContainerOptions
        @OptionGroup var network: ReadOptions
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await container.withContainer(network) { container, session in
                let asked = try await Asked(container.scope, within: network.limit)
                let status = try await container.status(of: path)
                // What finds no content cannot say which are whole.
                let isAsked = status.damagedChunkCount > 0 && asked.isHeard && !status.scope.isContentMissing
                // Everything else is known without it.
                let damaged = isAsked ? try? await container.damagedItems(of: path, timeout: network.duration) : nil
                let report = ContainerReport(
                    path: path.text, status, Standing(asked.status, failure: asked.failure), damaged: damaged,
                    names: await session.names(
                        ofThoseThatSend: status.incoming.flatMap(\.incoming) + status.coming.map(\.content), network))
                try output.print(report, text: report.text)
                try report.end()
            }
        }
    }
}

/// Where a container or a part of it stands, as it is printed.
private struct ContainerReport: Encodable {
    private struct Waiting: Encodable {
        var path: String
        var item: String
        var bytes: UInt64
        var trashed: Bool?
        var reason: String
        var blocker: String
        var nextAttempt: UInt64?
    }

    /// Of a file that is no item yet.
    private struct Coming: Encodable {
        var path: String
        var id: String
        var device: String
        var bytes: UInt64
        /// Milliseconds since 1970.
        var since: UInt64?

        init(_ document: ComingDocument) {
            path = document.path
            id = document.id.description
            device = document.content.device.rawValue
            bytes = document.content.size
            since = document.content.since?.milliseconds
        }
    }

    private struct Refused: Encodable {
        var path: String
        var at: UInt64
        var error: String
        var reason: String
        var recovery: String?
        var keptFile: String?
    }

    private enum Keys: String, CodingKey {
        case path, state, reason, token, inStep, files, folders, bytes, here, hereBytes, downloading, incoming, coming,
            trashed,
            waiting,
            waitingBytes, refused
        case conflicts, conflictCount, damaged, damagedChunks, contentMissing, leaving, paused
    }

    private static let shownMax = 20

    let path: String
    private let status: ContainerStatus
    private let standing: Standing
    /// Nil: nothing is, or nobody was asked.
    private let damaged: [DocumentEntry]?
    /// What the devices are called that send something.
    private let names: [DeviceID: String]
    /// Where this part stands; it may be in step where something elsewhere in the container is not.
    private let state: Standing.State

    init(
        path: String, _ status: ContainerStatus, _ standing: Standing, damaged: [DocumentEntry]?,
        names: [DeviceID: String]
    ) {
        self.names = names
        self.path = path
        self.status = status
        self.standing = standing
        self.damaged = damaged
        switch standing.state {
        case .pending, .refused:
            // What waits may concern what is nowhere any more: of a part that says nothing, of the whole it does.
            state =
                !status.refused.isEmpty
                ? .refused : !status.waiting.isEmpty ? .pending : path == "/" ? standing.state : .inSync
        case .damaged where path != "/" && damaged?.isEmpty ?? false: state = .inSync
        default: state = standing.state
        }
    }

    /// Something elsewhere keeps the container from being in sync.
    private var isOthersOutOfStep: Bool { state == .inSync && standing.state != .inSync }
    private var isWhole: Bool { path == "/" }
    /// What a pause keeps here.
    private var held: [ContainerStatus.Waiting] { status.waiting.filter(\.isByChoice) }

    /// Nil: it is in sync, and nothing of it is paused.
    private var reason: String? {
        if state == .inSync, status.paused.isEmpty { return nil }
        return isWhole ? standing.reason ?? headline : headline
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(path, forKey: .path)
        try container.encode(state.rawValue, forKey: .state)
        try container.encodeIfPresent(reason, forKey: .reason)
        try container.encode(status.scope.head.description, forKey: .token)
        try container.encode(status.inStepCount, forKey: .inStep)
        try container.encode(status.fileCount, forKey: .files)
        try container.encode(status.folderCount, forKey: .folders)
        try container.encode(status.fileBytes, forKey: .bytes)
        try container.encode(status.hereCount, forKey: .here)
        try container.encode(status.hereBytes, forKey: .hereBytes)
        try container.encode(status.downloading.map(DocumentRow.init), forKey: .downloading)
        try container.encode(status.incoming.map(DocumentRow.init), forKey: .incoming)
        try container.encode(status.coming.map(Coming.init), forKey: .coming)
        try container.encode(status.trashCount, forKey: .trashed)
        try container.encode(
            status.waiting.map { waiting in
                Waiting(
                    path: waiting.item.path, item: waiting.item.id.description, bytes: waiting.bytes,
                    trashed: waiting.item.isTrashed ? true : nil, reason: waiting.reason,
                    blocker: waiting.blocker.rawValue, nextAttempt: waiting.nextAttempt?.milliseconds)
            }, forKey: .waiting)
        try container.encode(status.waitingBytes, forKey: .waitingBytes)
        try container.encode(
            status.refused.map { refused in
                Refused(
                    path: refused.key.rawValue, at: refused.at.milliseconds, error: refused.error.code.description,
                    reason: refused.error.sentence, recovery: refused.recovery,
                    keptFile: refused.keptFile)
            }, forKey: .refused)
        try container.encode(status.leaving.map(DocumentRow.init), forKey: .leaving)
        try container.encode(status.paused.map(DocumentRow.init), forKey: .paused)
        try container.encode(status.conflicts.map(DocumentRow.init), forKey: .conflicts)
        try container.encode(status.conflictCount, forKey: .conflictCount)
        try container.encodeIfPresent(damaged?.map(DocumentRow.init), forKey: .damaged)
        try container.encode(status.damagedChunkCount, forKey: .damagedChunks)
        try container.encode(status.scope.isContentMissing, forKey: .contentMissing)
    }

    var text: String {
        let trash = status.trashCount > 0 ? "; \(status.trashCount) in the trash" : ""
        var lines = [
            headline,
            "\(Self.count(status.fileCount, "file")) (\(describe(bytes: status.fileBytes))), "
                + "\(Self.count(status.folderCount, "folder"))\(trash)",
            "  in step    \(status.inStepCount)",
            "  waiting    \(status.waiting.count)"
                + (status.waitingBytes > 0 ? " (\(describe(bytes: status.waitingBytes)) to be sent)" : ""),
            "  rejected   \(status.refused.count)",
            "  conflicts  \(status.conflictCount)",
            "  here       \(Self.count(status.hereCount, "file")) (\(describe(bytes: status.hereBytes)))",
        ]
        let held = Dictionary(held.map { ($0.item.id, $0.bytes) }) { first, _ in first }
        let paused = Set(status.paused.map(\.id))
        // What is paused says so in a line of its own.
        lines += Self.shown(status.waiting.filter { held[$0.item.id] == nil || !paused.contains($0.item.id) }) {
            waiting in
            let bytes = waiting.bytes > 0 ? " (\(describe(bytes: waiting.bytes)))" : ""
            let what = waiting.item.isTrashed ? "is to be deleted" : "waits"
            return "\(inLine(waiting.item.path))\(bytes) \(what): \(waiting.reason)"
        }
        lines += Self.shown(status.refused) { write in
            "\(inLine(write.key.rawValue)) was \(write.isDropped ? "dropped" : "rejected"): \(write.error.sentence)"
        }
        lines += Self.shown(status.conflicts) { item in
            "\(inLine(item.path)) has \(Self.count(item.conflictCount, "conflict"))"
        }
        lines += Self.shown(status.paused) { item in
            let bytes = held[item.id].map { $0 > 0 ? " (\(describe(bytes: $0)))" : "" }
            let waits = bytes.map { ", and what was changed of it here waits\($0)" } ?? ""
            let go = "go on with nephos docs resume"
            // It was to be resumed only without a conflict.
            return "\(inLine(item.path)) is paused\(waits): "
                + (item.pauseProblem == nil ? go : "another device has changed it too; \(go), or with its --drop")
        }
        lines += Self.shown(status.leaving) { item in
            "\(inLine(item.path)) goes to the trash once another container has all of it"
        }
        lines += damageLines
        lines += Self.shown(status.downloading) { item in
            "\(inLine(item.path)) is to come: \(item.download.problem ?? "\(item.download.percent) % is here.")"
        }
        lines += Self.shown(status.incoming) { "\(inLine($0.path)): \($0.incomingText(names))" }
        lines += Self.shown(status.coming) { "\(inLine($0.path)): \($0.content.sizeText) \($0.text(names))" }
        if !status.refused.isEmpty { lines.append("See: nephos why. Dismiss with: nephos discard") }
        if !status.conflicts.isEmpty { lines.append("See: nephos conflicts. Decide with: nephos docs resolve") }
        return lines.joined(separator: "\n")
    }

    private var headline: String {
        let other = status.waiting.count - held.count
        switch state {
        case .inSync where !status.paused.isEmpty: return "In step, but for what is paused."
        case .inSync where isOthersOutOfStep:
            return "In sync: pending, rejected or damaged items are elsewhere in the container."
        case .pending where other == 0 && !held.isEmpty:
            return "In step, but for what is paused: changes of it wait here."
        case .pending where standing.cause == nil && !isWhole:
            return "Incomplete: " + (other == 1 ? "one change waits to be sent." : "\(other) changes wait to be sent.")
        case .refused where !isWhole:
            return "Incomplete: "
                + (status.refused.allSatisfy(\.isDropped)
                    ? "dropped changes are kept until you dismiss them." : "the server rejected changes.")
        default: return standing.headline
        }
    }

    private var damageLines: [String] {
        if status.scope.isContentMissing {
            return ["The server does not find its files of contents. " + Standing.cureOfMissingContent]
        }
        guard status.damagedChunkCount > 0 else { return [] }
        guard let damaged else {
            return [
                "The server cannot read some of the content any more, and did not say in time of which files. Ask about a "
                    + "folder, or give it more time: nephos docs status FOLDER --timeout 300"
            ]
        }
        guard !damaged.isEmpty else {
            return [
                path == "/"
                    ? "The server cannot read some of the content of former versions any more; no file's as it is now."
                    : "The server cannot read some of the container's content any more: no file's here as it is now, but "
                        + "maybe a former version's. See: nephos docs status"
            ]
        }
        return Self.shown(damaged) { "\(inLine($0.path)) is damaged on the server" } + [
            "A device that has such a file sends it again once it synchronises. Else put it again with nephos docs put, "
                + "restore it from a backup, or put another content."
        ]
    }

    private static func count(_ count: Int, _ name: String) -> String { "\(count) \(name)\(count == 1 ? "" : "s")" }

    private static func shown<Element>(_ elements: [Element], _ line: (Element) -> String) -> [String] {
        elements.prefix(shownMax).map(line)
            + (elements.count > shownMax ? ["and \(elements.count - shownMax) more: nephos docs status --json"] : [])
    }

    /// - Throws: ``ExitStatus`` unless all of this part is in sync, and the server has its contents.
    func end() throws(ExitStatus) {
        if !isOthersOutOfStep { try standing.end() }
        if !status.paused.isEmpty { throw ExitStatus.outOfStep }
        if let damaged, !damaged.isEmpty { throw ExitStatus.outOfStep }
    }
}
