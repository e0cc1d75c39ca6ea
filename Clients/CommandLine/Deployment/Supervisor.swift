import Core
import Foundation

/// Runs the five services of a local deployment and starts again what ends.
///
/// A detached process of its own (`nephos up`), so that it survives the
/// terminal. Under docker compose or systemd those do the same work.
struct Supervisor {
    let directory: DeploymentDirectory

    /// A service that ends is started again after this long; longer each time it ends soon, up to ``pauseMax``.
    static let pauseMin: Duration = .milliseconds(200)
    static let pauseMax: Duration = .seconds(5)
    /// What lived this long did not end because it cannot start.
    static let steadyAfter: Duration = .seconds(2)

    private struct Child {
        var service: ServiceName
        var pid: pid_t
        var started: ContinuousClock.Instant
        var pause = Supervisor.pauseMin
        var startAt: ContinuousClock.Instant?
    }

    /// Runs until SIGTERM or SIGINT, then stops the services, last first.
    func run() throws {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGTERM, SIGINT, SIGCHLD] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)

        try directory.write(pid: getpid())
        defer { directory.removePid() }
        var children = try ServiceName.all.map { Child(service: $0, pid: try start($0), started: .now) }

        while true {
            var timeout = timespec(tv_sec: 0, tv_nsec: 100_000_000)
            let signal = sigtimedwait(&signals, nil, &timeout)
            if signal == SIGTERM || signal == SIGINT { break }
            reap(&children)
            for index in children.indices {
                guard let startAt = children[index].startAt, startAt <= .now else { continue }
                children[index].pid = try start(children[index].service)
                children[index].started = .now
                children[index].startAt = nil
            }
        }
        stop(children)
    }

    private func start(_ service: ServiceName) throws -> pid_t {
        let pid = try Spawn.detached(
            Spawn.sibling("nephos-\(service)"),
            ["--deployment", directory.path, "--data", directory.data(of: service)],
            log: directory.log(of: service))
        try directory.write(pid: pid, of: service)
        return pid
    }

    private func reap(_ children: inout [Child]) {
        for index in children.indices where children[index].startAt == nil {
            var status: Int32 = 0
            guard waitpid(children[index].pid, &status, WNOHANG) == children[index].pid else { continue }
            let lived = children[index].started.duration(to: .now)
            children[index].pause =
                lived > Self.steadyAfter ? Self.pauseMin : min(children[index].pause * 2, Self.pauseMax)
            children[index].startAt = .now + children[index].pause
            print("\(children[index].service) ended (status \(status)); starting again in \(children[index].pause)")
            fflush(nil)
        }
    }

    private func stop(_ children: [Child]) {
        for child in children.reversed() where child.startAt == nil {
            kill(child.pid, SIGTERM)
            if !ended(child.pid, within: .seconds(5)) {
                kill(child.pid, SIGKILL)
                _ = ended(child.pid, within: .seconds(5))
            }
        }
    }

    private func ended(_ pid: pid_t, within limit: Duration) -> Bool {
        let deadline = ContinuousClock.now + limit
        while ContinuousClock.now < deadline {
            if waitpid(pid, nil, WNOHANG) != 0 { return true }
            usleep(10_000)
        }
        return false
    }
}
