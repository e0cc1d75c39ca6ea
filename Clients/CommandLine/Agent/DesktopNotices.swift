import Foundation
import NephosAgent
import NephosCore
import Synchronization

/// Shows conflicts and held deletions on the desktop, if `notify-send` is installed.
final class DesktopNotices: Sendable {
    /// Notices of one kind do not come more often.
    private static let pause = Duration.seconds(60)
    private let last = Mutex<[AgentActivity.Action: ContinuousClock.Instant]>([:])
    private let program: String?

    init(environment: [String: String] = ProcessInfo.processInfo.environment) {
        // Without a session bus there is no desktop.
        let folders =
            environment["DBUS_SESSION_BUS_ADDRESS"] == nil ? [] : (environment["PATH"] ?? "").split(separator: ":")
        program = folders.map { "\($0)/notify-send" }.first { FileManager.default.isExecutableFile(atPath: $0) }
    }

    func show(_ activity: AgentActivity, _ folder: AgentFolder) {
        guard let program, let text = Self.text(activity, folder) else { return }
        let isDue = last.withLock { last in
            if let time = last[activity.action], .now - time < Self.pause { return false }
            last[activity.action] = .now
            return true
        }
        guard isDue else { return }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: program)
        process.arguments = ["--app-name=Nephos", "--", "Nephos", text]
        (process.standardInput, process.standardOutput, process.standardError) = (nil, nil, nil)
        // If it fails, the line of `nephos agent run` still says it.
        try? process.run()
    }

    private static func text(_ activity: AgentActivity, _ folder: AgentFolder) -> String? {
        switch activity.action {
        case .held:
            "The deletion of \(activity.detail ?? "many") files in \(inLine(folder.path)) waits for you. "
                + "Use nephos agent allow, or nephos agent restore."
        case .conflict:
            "Two devices have changed \(inLine(activity.path)). Both contents are kept: nephos conflicts."
        default: nil
        }
    }
}
