import Foundation
import NephosBackup
import NephosCore
import NephosServiceKit
import NephosWire
import NephosZeroMQ

/// The first sentences of `nephos status`, about the deployment as a whole.
struct DeploymentFigures: Encodable {
    struct LastBackup: Encodable {
        var folder: String
        /// Milliseconds since 1970.
        var madeAt: UInt64
        var verifiedAt: UInt64?
    }

    /// The version of the services; nil when none answers.
    var version: String?
    /// For how long all services that answer have run.
    var uptimeMilliseconds: UInt64?
    var devicesConnected: UInt64?
    /// Free bytes on the disk of the services' data, as far as this machine sees it.
    var diskFreeBytes: UInt64?
    /// Services that failed and were started again since midnight, UTC; nil when `nephos up` does not run them.
    var restartsToday: Int?
    var lastBackup: LastBackup?

    /// - Parameter replies: The health replies of the services that answer.
    init(_ directory: DeploymentDirectory, _ replies: [WireCheckHealthReply], isSupervised: Bool) {
        version = replies.first?.version
        uptimeMilliseconds = replies.map(\.uptimeMilliseconds).min()
        devicesConnected = replies.lazy.compactMap { $0.counters["devices.connected"] }.first
        diskFreeBytes = Self.freeBytes(of: directory)
        restartsToday = isSupervised ? Self.restartsToday(directory) : nil
        lastBackup = BackupNote(of: directory.path).map {
            LastBackup(folder: $0.folder, madeAt: $0.madeAt, verifiedAt: $0.verifiedAt)
        }
    }

    private static func freeBytes(of directory: DeploymentDirectory) -> UInt64? {
        let root = ProcessInfo.processInfo.environment["NEPHOS_DATA_ROOT"].flatMap { $0.isEmpty ? nil : $0 }
        let folders = [root.map { $0 + "/documents" }, root, directory.path + "/data", directory.path]
        for folder in folders.compactMap({ $0 }) {
            var figures = statvfs()
            if statvfs(folder, &figures) == 0 {
                return UInt64(figures.f_bavail).multipliedReportingOverflow(by: UInt64(figures.f_frsize)).partialValue
            }
        }
        return nil
    }

    private static func restartsToday(_ directory: DeploymentDirectory) -> Int {
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = TimeZone(identifier: "UTC")
        formatter.dateFormat = "yyyy-MM-dd"
        let today = formatter.string(from: Date())
        return LogTail(whole: directory.supervisorLog).logged.count {
            $0.level == "error" && $0.time.hasPrefix(today) && $0.message.contains(Supervisor.restartPhrase)
        }
    }

    /// The figures as two lines, since a terminal has 80 columns.
    ///
    /// - Parameter trouble: Why the deployment is not healthy; empty: it is.
    func sentence(_ trouble: [String]) -> String {
        let now = SystemClock().now
        var parts: [String] = []
        var first = "Nephos \(version ?? "")"
        if let uptimeMilliseconds {
            first += ", up for \(describe(.milliseconds(Int64(clamping: uptimeMilliseconds))))"
        }
        if let count = devicesConnected.map({ Int(clamping: $0) }) {
            first += ", \(counted(count, "device")) connected"
        }
        if let diskFreeBytes { parts.append("\(describe(bytes: diskFreeBytes)) free") }
        if let restartsToday {
            parts.append(restartsToday == 0 ? "no restarts today" : "\(counted(restartsToday, "restart")) today")
        }
        if let lastBackup {
            let verified = lastBackup.verifiedAt.map {
                "verified \(describe(Timestamp(milliseconds: $0), before: now))"
            }
            parts.append(
                "last backup \(describe(Timestamp(milliseconds: lastBackup.madeAt), before: now)), \(verified ?? "never verified")"
            )
        } else {
            parts.append("no backup yet")
        }
        let health = trouble.isEmpty ? "Healthy." : "Not healthy: \(trouble.joined(separator: "; "))."
        let second = parts.joined(separator: ", ")
        return "\(health)\(trouble.isEmpty ? " " : "\n")\(first).\n"
            + "\(second.prefix(1).uppercased() + second.dropFirst())."
    }
}
