import Foundation
import NephosCore

/// A program started to outlive this one: in a session of its own, with its
/// output appended to a log file.
enum Spawn {
    /// POSIX_SPAWN_SETSID, which glibc hides behind _GNU_SOURCE.
    private static let newSession: Int16 = 0x80

    /// Starts the program and returns its process id.
    ///
    /// - Parameters:
    ///   - log: Where its output goes; nowhere if that file cannot be opened.
    ///   - input: Its standard input; nil: nothing.
    /// - Throws: ``CloudError`` `.serviceUnavailable` when it cannot be started.
    static func detached(_ program: String, _ arguments: [String], log: String, input: Int32? = nil) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input {
            posix_spawn_file_actions_adddup2(&actions, input, 0)
        } else {
            posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        }
        // A full disk may refuse a new file; the program is worth more than its log.
        let output = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        defer { if output >= 0 { close(output) } }
        if output >= 0 {
            posix_spawn_file_actions_adddup2(&actions, output, 1)
        } else {
            posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        }
        posix_spawn_file_actions_adddup2(&actions, 1, 2)

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // A mask of its own: the supervisor blocks the signals that it waits for.
        var noSignals = sigset_t()
        sigemptyset(&noSignals)
        posix_spawnattr_setsigmask(&attributes, &noSignals)
        posix_spawnattr_setflags(&attributes, Self.newSession | Int16(POSIX_SPAWN_SETSIGMASK))

        var words = ([program] + arguments).map { strdup($0) } + [nil]
        defer { words.forEach { free($0) } }
        var pid = pid_t()
        let status = posix_spawn(&pid, program, &actions, &attributes, &words, environ)
        guard status == 0 else {
            throw CloudError(
                .serviceUnavailable, "A program could not be started. Is it installed beside nephos?",
                details: ["program": program, "reason": String(cString: strerror(status))])
        }
        return pid
    }

    /// The path of a program that is installed beside this one.
    static func sibling(_ name: String) -> String {
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            ?? CommandLine.arguments[0]
        return URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent(name).path
    }
}
