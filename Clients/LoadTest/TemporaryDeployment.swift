import Foundation
import NephosCore
import NephosServiceKit
import Synchronization

/// A deployment for one run: in a folder that is removed with it, under a
/// supervisor that ends with this process, however that ends.
///
/// What is left after SIGKILL, a folder, the next run removes.
final class TemporaryDeployment: Sendable {
    private static let prefix = "nephos-load-"

    private struct State {
        var folder: (path: String, lock: Int32)?
        var supervisor: pid_t?
        /// A command that is under way.
        var command: pid_t?
        var isClosed = false
    }

    private let state = Mutex(State())
    // What the supervisor lives by.
    private let lifeline: Lifeline

    init() throws { lifeline = try Lifeline() }

    /// Makes the folder and starts the services; returns it when they answer.
    ///
    /// ``close()`` may come from another thread at any time, and removes what there is by then.
    func start() throws -> String {
        Self.removeLeftOvers()
        let directory = try step { state in
            let folder = try Self.makeFolder()
            state.folder = folder
            return folder.path
        }
        // Those of neighbouring processes, which may look at the same time, are further apart than a deployment's ports.
        guard let port = LocalPorts.firstFree(from: 20_000 + 32 * Int(getpid()) % 10_000) else {
            throw CloudError(.serviceUnavailable, "No free ports were found on this machine.")
        }
        try nephos(["init", "--deployment", directory, "--port", "\(port)", "--web-port", "0"])
        let supervisor = try step { state in
            let pid = try Self.start(
                ["up", "--foreground", "--supervised", "--deployment", directory], input: lifeline.end)
            state.supervisor = pid
            return pid
        }
        let run = RunFolder(deployment: directory)
        while run.holder(of: .supervisor) == nil {
            guard kill(supervisor, 0) == 0, waitpid(supervisor, nil, WNOHANG) == 0 else { throw Self.failure("up") }
            usleep(10_000)
        }
        // It runs; this waits until it answers.
        try nephos(["up", "--deployment", directory])
        return directory
    }

    private func step<Result>(_ body: (inout State) throws -> Result) throws -> Result {
        try state.withLock { state in
            guard !state.isClosed else { throw CloudError(.operationCancelled, "The run was ended.") }
            return try body(&state)
        }
    }

    func close() {
        let (folder, supervisor, command) = state.withLock { state in
            state.isClosed = true
            defer { state.folder = nil }
            return (state.folder, state.supervisor, state.command)
        }
        guard let folder else { return }
        if let command {
            kill(command, SIGTERM)
            // The thread that started it waits for it.
            while kill(command, 0) == 0 { usleep(10_000) }
        }
        if let supervisor, waitpid(supervisor, nil, WNOHANG) == 0 {
            kill(supervisor, SIGTERM)
            waitpid(supervisor, nil, 0)
        }
        try? FileManager.default.removeItem(atPath: folder.path)
        Foundation.close(folder.lock)
    }

    // MARK: Folders

    private static var parent: String { NSTemporaryDirectory() }

    fileprivate static func makeFolder() throws -> (path: String, lock: Int32) {
        for attempt in 1...100 {
            let path = parent + "\(prefix)\(getpid())" + (attempt == 1 ? "" : "-\(attempt)")
            guard mkdir(path, 0o700) == 0 else { continue }
            // Another run may take it for a left-over until it is locked.
            if let descriptor = lock(path) { return (path, descriptor) }
        }
        throw CloudError(
            .serviceUnavailable, "A temporary folder cannot be made. Check the disk.", details: ["folder": parent])
    }

    /// Locks a folder; nil: another process holds it, or it is gone.
    private static func lock(_ path: String) -> Int32? {
        let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        var held = stat()
        var named = stat()
        if flock(descriptor, LOCK_EX | LOCK_NB) == 0, fstat(descriptor, &held) == 0, stat(path, &named) == 0,
            held.st_ino == named.st_ino
        {
            return descriptor
        }
        Foundation.close(descriptor)
        return nil
    }

    /// Removes the folders of runs that were killed.
    ///
    /// - Returns: What was removed.
    @discardableResult
    static func removeLeftOvers() -> [String] {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: parent)) ?? []
        var removed: [String] = []
        for path in names.filter({ $0.hasPrefix(prefix) }).sorted().map({ parent + $0 }) {
            guard let descriptor = lock(path) else { continue }
            defer { Foundation.close(descriptor) }
            let run = RunFolder(deployment: path)
            // Its services end by themselves, within seconds.
            guard RunFolder.Place.all.allSatisfy({ run.holder(of: $0) == nil }) else { continue }
            if (try? FileManager.default.removeItem(atPath: path)) != nil { removed.append(path) }
        }
        return removed
    }

    // MARK: The command line

    private func nephos(_ arguments: [String]) throws {
        let pid = try step { state in
            let pid = try Self.start(arguments, input: nil)
            state.command = pid
            return pid
        }
        var status: Int32 = -1
        let isDone = waitpid(pid, &status, 0) == pid && status == 0
        state.withLock { $0.command = nil }
        guard isDone else { throw Self.failure(arguments[0]) }
    }

    private static func failure(_ command: String) -> CloudError {
        CloudError(
            .serviceUnavailable, "The deployment under load could not be started.",
            details: ["command": "nephos \(command)"])
    }

    /// Starts the command, which gets its signals from this process alone.
    private static func start(_ arguments: [String], input: Int32?) throws -> pid_t {
        let own = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let program = URL(fileURLWithPath: own).deletingLastPathComponent().appendingPathComponent("nephos").path
        // Not Foundation's Process: it waits for all that the command leaves running, too.
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input { posix_spawn_file_actions_adddup2(&actions, input, 0) }
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var noSignals = sigset_t()
        sigemptyset(&noSignals)
        posix_spawnattr_setsigmask(&attributes, &noSignals)
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))
        var words = ([program] + arguments).map { strdup($0) } + [nil]
        defer { words.forEach { free($0) } }
        var pid = pid_t()
        guard posix_spawn(&pid, program, &actions, &attributes, &words, environ) == 0 else {
            throw failure(arguments[0])
        }
        return pid
    }
}

/// A folder for one run, which is removed with it, however it ends.
final class TemporaryFolder: Sendable {
    let path: String
    private let cleanup: Int

    init() throws {
        TemporaryDeployment.removeLeftOvers()
        let (path, lock) = try TemporaryDeployment.makeFolder()
        self.path = path
        cleanup = Cleanup.shared.add {
            try? FileManager.default.removeItem(atPath: path)
            Foundation.close(lock)
        }
    }

    func close() { Cleanup.shared.run(cleanup) }
}
