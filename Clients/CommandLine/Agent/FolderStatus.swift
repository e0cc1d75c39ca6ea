import Foundation
import NephosAgent
import NephosCore
import NephosKit

/// How far a folder of the agent is, as it is printed.
struct FolderStatus: Encodable {
    struct Blocked: Encodable {
        var path: String
        var reason: String
    }

    var folder: String
    var running: Bool
    var state: String
    /// When a pause ends.
    var pausedUntil: Date?
    /// A command works in it, and the pause ends with that.
    var isLeased = false
    var problem: String?
    /// Whether changes by other devices arrive at once.
    var connected: Bool
    /// When the device's copy of the container last equalled the server's.
    var proved: Date?
    /// Of the device's copy.
    var digest: String?
    var items: Int
    /// Of these, files whose contents are not on this device.
    var placeholders: Int
    var dirtyFolders: Int
    var waiting: Int
    var downloads: Int
    var unsent: Int
    /// Changes that the server rejected, of files that are not on disk any more too.
    var rejected: Int
    /// Files of which another content is kept until one is chosen.
    var conflicts: Int
    var heldDeletions: Int
    /// Some of the items that are gone from the disk, and whose deletion is held.
    var held: [String]
    var watchedFolders: Int
    var unwatchedFolders: Int
    var lastFullScan: Date?
    var blocked: [Blocked]

    /// Whether nothing is left to do.
    var isSettled: Bool { state == "in sync" || state == "no known work" }

    var isWell: Bool { running && state != "stopped" && blocked.isEmpty && rejected + heldDeletions == 0 }

    /// The folders of a home; none if it has no agent. Nothing is made.
    static func all(_ session: Session) async throws -> [FolderStatus] {
        let home = session.home.path
        guard FileManager.default.fileExists(atPath: home + "/" + AgentStore.fileName) else { return [] }
        do { return try await all(AgentStore(home: home), AgentControl(home: home), session) } catch {
            // The rest of a status is shown all the same.
            return [FolderStatus(unreadable: home + "/" + AgentStore.fileName, CloudError(wrapping: error))]
        }
    }

    private init(unreadable path: String, _ error: CloudError) {
        (folder, running, state, problem, connected) = (path, false, "stopped", error.sentence, false)
        (items, placeholders, dirtyFolders, waiting, downloads, unsent, rejected) = (0, 0, 0, 0, 0, 0, 0)
        (conflicts, heldDeletions, held, watchedFolders, unwatchedFolders, blocked) = (0, 0, [], 0, 0, [])
    }

    static func all(_ store: AgentStore, _ control: AgentControl, _ session: Session) async throws -> [FolderStatus] {
        let isRunning = control.isRunning
        var found: [FolderStatus] = []
        for folder in try store.folders() {
            let isLeased = FolderLease.isHeld(folder, control)
            found.append(try await FolderStatus(folder, store, isRunning: isRunning, isLeased: isLeased, session))
        }
        return found
    }

    private init(
        _ folder: AgentFolder, _ store: AgentStore, isRunning: Bool, isLeased: Bool, _ session: Session
    ) async throws {
        let report = try store.report(of: folder) ?? FolderReport()
        let container = try? await session.container(folder.container, app: folder.app)
        let status = try? await container?.scope.status()
        self.isLeased = isLeased
        (self.folder, running, unsent) = (folder.path, isRunning, status?.pending.count ?? 0)
        rejected = status?.refused.count ?? 0
        connected = isRunning && report.isConnected
        if let status, let fetched = status.fetched {
            proved = Date(timeIntervalSince1970: Double(fetched.milliseconds) / 1000)
            digest = status.digest.description
        }
        let pauseEnd = try store.pauseEnd(of: folder)
        pausedUntil = pauseEnd
        state =
            switch report.state {
            case _ where !isRunning: "not running"
            case _ where pauseEnd != nil || isLeased: "paused"
            case .stopped: "stopped"
            case _ where report.heldDeletionCount > 0: "held"
            case .idle where unsent > 0: "sending"
            case .idle where report.blockedCount + rejected > 0: "blocked"
            // A server that does not answer may have other devices' changes.
            case .idle: report.isProved && connected ? "in sync" : "no known work"
            case .syncing: "syncing"
            case .scanning: "scanning"
            }
        problem =
            isLeased
            ? "A command of nephos agent coordinate works in it."
            : report.problem
                ?? (report.state == .idle && isRunning && !connected && unsent > 0
                    ? "The server does not answer, so what is to be sent waits on this device."
                    : status?.pending.first?.reason)
        conflicts = report.conflictCount
        (items, placeholders, dirtyFolders) = (report.itemCount, report.evictedCount, report.dirtyFolderCount)
        (waiting, downloads) = (report.waitingCount, report.downloadCount)
        (heldDeletions, held) = (report.heldDeletionCount, report.held)
        (watchedFolders, unwatchedFolders) = (report.watchedFolderCount, report.unwatchedFolderCount)
        lastFullScan = report.lastFullScan
        blocked = try store.blocked(in: folder).map { Blocked(path: $0.text, reason: $0.reason) }
    }

    var headline: String {
        "\(inLine(folder)): \(state), \(counted(items, "item"))"
            + (placeholders > 0 ? ", of these \(counted(placeholders, "placeholder"))" : "")
    }

    var text: String {
        var lines = [headline]
        if let problem { lines.append("  \(inLine(problem))") }
        if state == "no known work", !connected {
            lines.append("  no connection to the server, so other devices' changes are not known")
        }
        if let proved, let digest {
            let time = Timestamp(proved)
            lines.append("  last equal to the server's copy at \(describe(time, on: .now)), digest \(digest.prefix(8))")
        }
        if state == "paused", !isLeased {
            let end = pausedUntil.flatMap { $0 < .distantFuture ? Timestamp($0) : nil }
            lines.append(
                "  \(end.map { "until \(describe($0, on: .now)), or go on" } ?? "Go on") with: nephos agent resume")
        }
        if !running { lines.append("  Start the agent: nephos agent run") }
        if dirtyFolders > 0 { lines.append("  to look at: \(counted(dirtyFolders, "folder"))") }
        if unsent > 0 { lines.append("  to send: \(counted(unsent, "request"))") }
        if rejected > 0 {
            lines.append("  rejected by the server: \(counted(rejected, "change")). See: nephos why")
        }
        if waiting + downloads > 0 { lines.append("  to receive: \(counted(waiting + downloads, "item"))") }
        if conflicts > 0 {
            lines.append("  in conflict, both contents are kept: \(counted(conflicts, "file")). See: nephos conflicts")
        }
        if heldDeletions > 0 {
            lines.append(
                "  held: the deletion of \(counted(heldDeletions, "file")). Use: nephos agent allow, or nephos agent restore"
            )
            lines += held.prefix(FolderReport.heldMax).map { "    \(inLine($0))" }
            if held.count > FolderReport.heldMax { lines.append("    ...") }
        }
        if unwatchedFolders > 0 {
            lines.append(
                "  \(counted(unwatchedFolders, "folder")) without a watch, scanned every 5 minutes: raise fs.inotify.max_user_watches"
            )
        }
        lines += blocked.map { "  blocked: \(inLine($0.path)): \(inLine($0.reason))" }
        return lines.joined(separator: "\n")
    }

    /// As `nephos why` has the items of a scope.
    var whyJSON: PropertyValue {
        [
            "folder": .string(folder), "state": .string(state),
            "items": .array(
                blocked.map { ["keys": [.string($0.path)], "state": "blocked", "reason": .string($0.reason)] }),
        ]
    }
}

extension Timestamp {
    /// No date before 1970, and none that no calendar has.
    init(_ date: Date) { self.init(milliseconds: UInt64(min(max(0, date.timeIntervalSince1970), 1e11) * 1000)) }
}
