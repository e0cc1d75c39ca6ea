import Foundation
import NephosCore

/// Starts programs.
enum Spawn {
    /// POSIX_SPAWN_SETSID, which glibc hides behind _GNU_SOURCE.
    private static let newSession: Int16 = 0x80

    /// Starts a program that outlives this one, in a session of its own, and returns its process id.
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

        do throws(Failure) {
            return try spawn([program] + arguments, flags: newSession) {
                posix_spawn(&$0, program, &actions, $1, $2, environ)
            }
        } catch {
            throw CloudError(
                .serviceUnavailable, "A program could not be started. Is it installed beside nephos?",
                details: ["program": program, "reason": error.reason])
        }
    }

    /// The error of a start, as a number of `errno`.
    struct Failure: Error {
        var number: Int32
        var reason: String { String(cString: strerror(number)) }
    }

    /// Starts a command with this program's input and output, and returns its process id.
    ///
    /// - Parameter command: A program, looked for in `$PATH`, and its arguments.
    static func attached(_ command: [String]) throws(Failure) -> pid_t {
        try spawn(command, flags: 0) { posix_spawnp(&$0, command[0], nil, $1, $2, environ) }
    }

    private static func spawn(
        _ command: [String], flags: Int16,
        _ start: (
            inout pid_t, UnsafePointer<posix_spawnattr_t>, UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
        ) -> Int32
    ) throws(Failure) -> pid_t {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // This thread may block signals, which the program is not to inherit.
        var noSignals = sigset_t()
        sigemptyset(&noSignals)
        posix_spawnattr_setsigmask(&attributes, &noSignals)
        posix_spawnattr_setflags(&attributes, flags | Int16(POSIX_SPAWN_SETSIGMASK))
        var words = command.map { strdup($0) } + [nil]
        defer { words.forEach { free($0) } }
        var pid = pid_t()
        let status = start(&pid, &attributes, &words)
        guard status == 0 else { throw Failure(number: status) }
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
