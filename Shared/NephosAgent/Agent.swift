internal import Foundation
package import NephosCore
internal import NephosFiles
package import NephosKit

/// Keeps all added folders of a home in sync, until its task is cancelled.
package struct Agent: Sendable {
    let session: Session
    let store: AgentStore
    let options: @Sendable (AgentFolder) -> AgentOptions

    /// - Parameter options: The options of a folder.
    package init(
        _ session: Session, _ store: AgentStore, options: @escaping @Sendable (AgentFolder) -> AgentOptions
    ) {
        (self.session, self.store, self.options) = (session, store, options)
    }

    /// Pauses after events, so that a program may finish: an atomic save is two or three events.
    private static let settling = Duration.milliseconds(20)
    /// How often the status is brought up to date while nothing happens.
    private static let statusPause = Duration.seconds(15)
    private static let retryMin = Duration.seconds(1)
    private static let retryMax = Duration.seconds(60)

    /// - Throws: ``CloudError`` `.constraintViolation` when another agent of this home runs; `.storageFailure`.
    package func run() async throws(CloudError) {
        let control = try AgentControl(home: session.home.path)
        let lock = try control.lock()
        defer { withExtendedLifetime(lock) {} }
        // The last status is of an agent that has ended.
        for folder in (try? store.folders()) ?? [] {
            report(folder) { ($0.state, $0.problem, $0.isProved, $0.isConnected) = (.scanning, nil, false, false) }
        }
        let changed = Alarm()
        let watch = control.watch { changed.ring() }
        defer { withExtendedLifetime(watch) {} }
        var running: [AgentFolder: Task<Void, Never>] = [:]
        while !Task.isCancelled {
            let folders = (try? store.folders()) ?? Array(running.keys)
            for (folder, task) in running where !folders.contains(folder) {
                task.cancel()
                running[folder] = nil
            }
            for folder in folders where running[folder] == nil {
                running[folder] = Task { await follow(folder, control) }
            }
            await changed.wait(until: nil)
        }
        for task in running.values { task.cancel() }
        for task in running.values { await task.value }
    }

    /// Keeps one folder in sync; an error stops it for a while.
    private func follow(_ folder: AgentFolder, _ control: AgentControl) async {
        var pause = Self.retryMin
        var problem: String?
        while !Task.isCancelled {
            do throws(CloudError) {
                try await sync(folder, control) { (pause, problem) = (Self.retryMin, nil) }
            } catch {
                guard !Task.isCancelled else { return }
                if problem != error.message {
                    options(folder).onActivity?(AgentActivity(action: .stopped, path: "", detail: error.message))
                }
                problem = error.message
                report(folder) { ($0.state, $0.problem) = (.stopped, error.message) }
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, Self.retryMax)
            }
        }
    }

    private func report(_ folder: AgentFolder, _ change: (inout FolderReport) -> Void) {
        var report = (try? store.report(of: folder)).flatMap { $0 } ?? FolderReport()
        change(&report)
        report.date = Date()
        try? store.setReport(report, of: folder.id)
    }

    /// Sends and receives what there is, and ends once there is no known work.
    ///
    /// - Parameter timeout: How long the server may let this wait.
    /// - Throws: ``CloudError`` `.deadlineExceeded`; `.constraintViolation` when an agent of this home runs; else what
    ///   stops the folder.
    package func runOnce(_ folder: AgentFolder, timeout: Duration) async throws(CloudError) {
        let control = try AgentControl(home: session.home.path)
        let lock = try control.lock()
        defer { withExtendedLifetime(lock) {} }
        guard FolderLease.active(folder, control).isEmpty else {
            throw CloudError(
                .constraintViolation, "A command of nephos agent coordinate works in the folder.",
                details: ["folder": folder.path])
        }
        let container = try await container(of: folder, timeout)
        let alarm = Alarm()
        let sync = try FolderSync(folder, container.tree(), store, options(folder)) { alarm.ring() }
        try await container.waitUntilCurrent(timeout: timeout)
        // Once for what is here, and once for what the server makes of it.
        for _ in 0..<2 {
            var end = ContinuousClock.now + timeout
            var last: FolderReport?
            while true {
                let due = try await sync.pass()
                guard await !sync.isDone else { break }
                let report = await sync.progress
                if report != last { (last, end) = (report, .now + timeout) }
                guard ContinuousClock.now < end else {
                    throw CloudError(
                        .deadlineExceeded, "The folder is not in sync yet. See: nephos agent status",
                        details: ["folder": folder.path])
                }
                await alarm.wait(until: min(due ?? end, end))
            }
            try await container.waitUntilSent(timeout: timeout)
            try await container.waitUntilCurrent(timeout: timeout)
        }
    }

    private func container(
        of folder: AgentFolder, _ timeout: Duration
    ) async throws(CloudError) -> UbiquityContainer {
        guard let account = try session.account, account.accountID == folder.account else {
            throw CloudError(
                .notSignedIn,
                "The folder belongs to an account that is not signed in here. Sign in, or remove the folder.",
                details: ["folder": folder.path])
        }
        let container = try await session.container(folder.container, app: folder.app)
        try await container.ready(timeout: timeout)
        return container
    }

    private func sync(
        _ folder: AgentFolder, _ control: AgentControl, _ onSuccess: () -> Void
    ) async throws(CloudError) {
        let container = try await container(of: folder, .seconds(3600))
        let alarm = Alarm()
        let requests = control.watch { alarm.ring() }
        defer { withExtendedLifetime(requests) {} }
        let changes = Task {
            for await _ in container.tree().changes() { alarm.ring() }
            alarm.ring()
        }
        defer { changes.cancel() }
        var running: FolderSync?
        while !Task.isCancelled {
            if running == nil, try store.report(of: folder)?.state == .stopped {
                // Before the leases are looked at: whoever has one begins at once while the folder is stopped.
                report(folder) { ($0.state, $0.problem) = (.scanning, nil) }
            }
            let pauseEnd = try store.pauseEnd(of: folder)
            let leases = FolderLease.active(folder, control)
            guard pauseEnd == nil, leases.isEmpty else {
                // The folder is let go meanwhile, so that its disk can be unmounted.
                running = nil
                FolderLease.confirm(leases)
                // The clock may be set, and a program may be killed, so both are looked at from time to time.
                let pauseLeft = Duration.seconds(pauseEnd?.timeIntervalSinceNow ?? 0)
                let pause = leases.isEmpty ? min(pauseLeft, Duration.seconds(60)) : .seconds(1)
                await alarm.wait(until: .now + pause)
                try? await Task.sleep(for: Self.settling)
                continue
            }
            if running == nil {
                running = try FolderSync(folder, container.tree(), store, options(folder)) { alarm.ring() }
            }
            let due = try await running?.pass()
            onSuccess()
            // Nothing tells that the server has gone.
            let look = ContinuousClock.now + Self.statusPause
            await alarm.wait(until: min(due ?? look, look))
            try? await Task.sleep(for: Self.settling)
        }
    }
}

/// How commands reach the agent of a home: they write rows, and touch a file that the agent watches.
package struct AgentControl: Sendable {
    /// A folder of its own, since the database's files change all the time.
    package static let folderName = "agent"
    private static let wakeName = "wake"
    private static let lockName = "lock"
    let folder: String

    /// - Throws: ``CloudError`` `.storageFailure`.
    package init(home: String) throws(CloudError) {
        folder = home + "/" + Self.folderName
        guard mkdir(folder, 0o700) == 0 || errno == EEXIST else {
            throw CloudError(
                .storageFailure, "The agent's folder in the home cannot be made.", details: ["folder": folder])
        }
    }

    /// Tells the agent that rows have changed.
    package func wake() {
        let descriptor = open(folder + "/" + Self.wakeName, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        if descriptor >= 0 { close(descriptor) }
    }

    /// Whether an agent runs.
    package var isRunning: Bool {
        do { _ = try FileLock(folder + "/" + Self.lockName) } catch {
            if case .held = error { return true }
        }
        return false
    }

    func lock() throws(CloudError) -> FileLock {
        do throws(FileLock.Failure) { return try FileLock(folder + "/" + Self.lockName) } catch {
            throw CloudError(
                .constraintViolation, "An agent of this home runs already. See: nephos agent status",
                details: ["home": (folder as NSString).deletingLastPathComponent])
        }
    }

    func watch(_ onWake: @escaping @Sendable () -> Void) -> FolderWatch {
        let watch = FolderWatch(onEvent: onWake)
        if let held = try? HeldFolder(path: folder) { watch.watch(held, as: .top) }
        return watch
    }
}
