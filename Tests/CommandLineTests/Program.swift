import Foundation
import Testing

/// The real programs, beside the tests, as a person or a script runs them.
struct Program: Sendable {
    struct Outcome: Sendable {
        /// The exit code; 128 and the signal's number where one ended it.
        var status: Int32
        var output: String
        var errors: String
    }

    /// A program that runs.
    struct Running: Sendable {
        let pid: pid_t
        private let files: (output: String, errors: String)

        fileprivate init(pid: pid_t, files: (output: String, errors: String)) {
            self.pid = pid
            self.files = files
        }

        func signal(_ number: Int32) { kill(pid, number) }

        /// Keeps no file of its output.
        func dropOutput() { for file in [files.output, files.errors] { unlink(file) } }

        /// What it has printed so far.
        var output: String { Self.read(files.output) }
        var errors: String { Self.read(files.errors) }

        /// Waits for its end, on a thread of its own.
        func outcome() async -> Outcome {
            let status = await withCheckedContinuation { continuation in
                Thread.detachNewThread {
                    var status: Int32 = 0
                    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
                    continuation.resume(returning: status & 0x7f == 0 ? status >> 8 & 0xff : 128 + status & 0x7f)
                }
            }
            defer { dropOutput() }
            return Outcome(status: status, output: Self.read(files.output), errors: Self.read(files.errors))
        }

        private static func read(_ path: String) -> String {
            FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) } ?? ""
        }
    }

    /// Where the programs and the tests were built.
    static let folder: String = {
        let own = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? ""
        return (own as NSString).deletingLastPathComponent
    }()

    var name: String
    var environment: [String: String] = [:]

    /// Starts it.
    ///
    /// - Parameters:
    ///   - output: Where its output goes (default: it is kept).
    ///   - before: A program, with its arguments, that runs this one.
    func start(
        _ arguments: [String], input: String = "/dev/null", output: String? = nil, before: [String] = []
    ) throws -> Running {
        let files = (NSTemporaryDirectory() + UUID().uuidString, NSTemporaryDirectory() + UUID().uuidString)
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, output ?? files.0, O_WRONLY | O_CREAT, 0o666)
        posix_spawn_file_actions_addopen(&actions, 2, files.1, O_WRONLY | O_CREAT, 0o666)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var noSignals = sigset_t()
        sigemptyset(&noSignals)
        posix_spawnattr_setsigmask(&attributes, &noSignals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
        let all = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("NEPHOS_") }
            .merging(["NEPHOS_IDENTITY_SCRYPT_ROUNDS": "16384"]) { $1 }
            .merging(environment) { $1 }
        var variables = all.map { strdup("\($0.key)=\($0.value)") } + [nil]
        var words = (before + ["\(Self.folder)/\(name)"] + arguments).map { strdup($0) } + [nil]
        defer { for text in variables + words { free(text) } }
        var pid = pid_t()
        let first = before.first ?? "\(Self.folder)/\(name)"
        let status = posix_spawnp(&pid, first, &actions, &attributes, &words, &variables)
        try #require(status == 0, "\(first) could not be started: \(String(cString: strerror(status)))")
        return Running(pid: pid, files: files)
    }

    /// Runs it to its end.
    @discardableResult
    func run(
        _ arguments: String..., input: String = "/dev/null", output: String? = nil, before: [String] = []
    ) async throws -> Outcome {
        try await run(arguments, input: input, output: output, before: before)
    }

    @discardableResult
    func run(
        _ arguments: [String], input: String = "/dev/null", output: String? = nil, before: [String] = []
    ) async throws -> Outcome {
        try await start(arguments, input: input, output: output, before: before).outcome()
    }
}

extension Program {
    /// Runs a line as somebody does who copies it into a shell.
    func run(shell line: String) async throws -> Outcome {
        var program = self
        program.environment["PATH"] = Self.folder + ":" + (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin")
        return try await program.run([], before: ["bash", "-c", line])
    }
}

/// Whether a process runs; one that has ended and waits for somebody to ask how does not.
func isRunning(_ pid: pid_t) -> Bool {
    // The state is the first field after the name, which may have parentheses of its own.
    guard
        let text = FileManager.default.contents(atPath: "/proc/\(pid)/stat").map({ String(decoding: $0, as: UTF8.self) }
        ),
        let end = text.lastIndex(of: ")")
    else { return false }
    return text[end...].split(separator: " ").dropFirst().first != "Z"
}

/// Waits until the condition holds, at most for a minute.
func eventually(_ what: Comment, _ condition: () throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(60)
    while try !condition() {
        try #require(ContinuousClock.now < deadline, what)
        try await Task.sleep(for: .milliseconds(20))
    }
}
