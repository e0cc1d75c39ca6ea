import Foundation
import NephosCore
import NephosServiceKit

/// Runs the five services of a local deployment, and the web's program beside them, and starts again what ends.
///
/// A detached process of its own (`nephos up`), so that it survives the
/// terminal. Under docker compose or systemd those do the same work.
///
/// However it ends, the services end with it: each has for standard input a
/// pipe that only the supervisor holds open. Nothing that it cannot write, or
/// cannot start, ends it.
struct Supervisor {
    let directory: DeploymentDirectory
    /// Whether it ends with the process that started it, as services do.
    var isSupervised = false
    /// Whether the web's program runs too.
    var runsWeb = false
    private let log = OwnLog("supervisor")

    init(directory: DeploymentDirectory, isSupervised: Bool = false, runsWeb: Bool = false) {
        self.directory = directory
        self.runsWeb = runsWeb
        self.isSupervised = isSupervised
    }

    /// A service that ends is started again after this long; longer each time it ends soon, up to ``pauseMax``.
    static let pauseMin: Duration = .milliseconds(200)
    static let pauseMax: Duration = .seconds(5)
    /// What lived this long did not end because it cannot start.
    static let steadyAfter: Duration = .seconds(2)
    /// How long a service may take to end when it is told to.
    static let grace: Duration = .seconds(5)

    /// In the log's line of each service that is started again.
    static let restartPhrase = "starts again in"

    private struct Child {
        var service: ServiceName
        /// Nil: it does not run, and is started at ``startAt``.
        var pid: pid_t?
        var started = ContinuousClock.now
        var pause = Supervisor.pauseMin
        var startAt = ContinuousClock.now
        /// Its memory when it was looked at last, as its limit counts it.
        var memory: MemoryUse?
    }

    /// Runs until SIGTERM, or SIGINT or SIGHUP as far as those are not ignored, then stops the services, last first.
    ///
    /// - Throws: ``CloudError`` `.alreadyExists` when another one runs this deployment.
    func run() throws {
        var signals = sigset_t()
        sigemptyset(&signals)
        // What is ignored comes all the same while it is waited for, and is not meant to: nohup.
        // What begins it ends it by SIGTERM, whatever that was to others.
        let ending = [SIGTERM] + [SIGINT, SIGHUP].filter { !Interrupt.ignores($0) }
        for signal in ending + [SIGCHLD] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        // In the foreground, whoever reads what it says may go.
        signal(SIGPIPE, SIG_IGN)

        // What a crash tells goes to the log: where it was, and not what memory held then, which may be anybody's.
        setenv("SWIFT_BACKTRACE", "registers=none,images=none,color=no", 0)
        let place = try HeldPlace(.supervisor, in: directory.runFolder, isExclusive: true)
        let lifeline = try Lifeline()
        var children = (ServiceName.all + (runsWeb ? [.web] : [])).map { Child(service: $0) }
        var keptAt = ContinuousClock.now
        say("begins, as process \(getpid())")
        while true {
            for index in children.indices where children[index].pid == nil && children[index].startAt <= .now {
                start(&children[index], lifeline)
            }
            var timeout = timespec(tv_sec: 0, tv_nsec: 100_000_000)
            let signal = sigtimedwait(&signals, nil, &timeout)
            if ending.contains(signal) {
                say("ends: \(Self.name(of: signal))")
                break
            }
            if isSupervised, Self.inputHasEnded {
                say("ends: the process that started it has ended")
                break
            }
            for index in children.indices { reap(&children[index]) }
            if keptAt.duration(to: .now) > .seconds(1) {
                place.keep()
                keptAt = .now
                for index in children.indices {
                    children[index].memory = children[index].pid.flatMap { MemoryUse(of: $0) }
                }
                for service in ServiceName.programs { LogRotation.keepShort(directory.log(of: service)) }
                LogRotation.keepShort(directory.supervisorLog)
            }
        }
        stop(children)
        say("has ended, and all services before it")
        withExtendedLifetime((place, lifeline)) {}
    }

    private func start(_ child: inout Child, _ lifeline: Lifeline) {
        child.started = .now
        do {
            child.pid = try Spawn.detached(
                Spawn.sibling("nephos-\(child.service)"),
                [
                    "--deployment", directory.path, "--data", directory.data(of: child.service), "--supervised",
                ],
                log: directory.log(of: child.service), input: lifeline.end)
        } catch {
            ended(&child, "could not be started: \(CloudError(wrapping: error))")
        }
    }

    private func reap(_ child: inout Child) {
        guard let pid = child.pid else { return }
        var status: Int32 = 0
        let reaped = waitpid(pid, &status, WNOHANG)
        guard reaped != 0 else { return }
        let signal = status & 0x7f
        let lived = child.started.duration(to: .now)
        let code = status >> 8 & 0xff
        let cause =
            reaped < 0
            ? "is gone"
            : signal != 0
                ? "ended: \(Self.name(of: signal))\(Self.suspicion(signal, child.memory))"
                : code != 0 && lived < Self.steadyAfter
                    ? "could not start: exit code \(code); its log says why" : "ended with exit code \(code)"
        ended(&child, "(process \(pid)) \(cause), after \(describe(lived))", isFailure: signal != 0 || code != 0)
    }

    /// What the signal may have come from.
    private static func suspicion(_ signal: Int32, _ memory: MemoryUse?) -> String {
        switch signal {
        case SIGKILL: return " from outside, or by a system that has no memory left"
        case SIGTERM, SIGINT, SIGHUP: return " from outside"
        default:
            guard let memory, memory.isNearLimit else { return "; its log may say more" }
            return
                ", likely for want of memory: it had \(describe(bytes: memory.bytes)) of \(describe(bytes: memory.limit))"
        }
    }

    private func ended(_ child: inout Child, _ cause: String, isFailure: Bool = true) {
        let lived = child.started.duration(to: .now)
        child.pid = nil
        child.pause = lived > Self.steadyAfter ? Self.pauseMin : min(child.pause * 2, Self.pauseMax)
        child.startAt = .now + child.pause
        child.memory = nil
        say("\(child.service) \(cause); \(Self.restartPhrase) \(describe(child.pause))", isError: isFailure)
    }

    private func stop(_ children: [Child]) {
        for case (let service, let pid?) in children.reversed().map({ ($0.service, $0.pid) }) {
            kill(pid, SIGTERM)
            kill(pid, SIGCONT)
            guard !Self.ended(pid, within: Self.grace) else { continue }
            say("\(service) (process \(pid)) did not end within \(describe(Self.grace)) and is killed", isError: true)
            kill(pid, SIGKILL)
            _ = Self.ended(pid, within: Self.grace)
        }
    }

    private static func ended(_ pid: pid_t, within limit: Duration) -> Bool {
        let deadline = ContinuousClock.now + limit
        while ContinuousClock.now < deadline {
            if waitpid(pid, nil, WNOHANG) != 0 { return true }
            usleep(10_000)
        }
        return false
    }

    private static var inputHasEnded: Bool {
        var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
        guard poll(&input, 1, 0) > 0 else { return false }
        var byte: UInt8 = 0
        return read(0, &byte, 1) <= 0 && errno != EINTR
    }

    private static func name(of signal: Int32) -> String {
        strsignal(signal).map { "\(String(cString: $0)) (signal \(signal))" } ?? "signal \(signal)"
    }

    /// A line of its log; lost if the disk is full, and that is all.
    private func say(_ text: String, isError: Bool = false) { log.write(text, isError: isError) }
}

/// What a process has of memory that is its own, and may have.
struct MemoryUse {
    var bytes: UInt64
    var limit: UInt64
    /// So near that the next thing it asked for may have been too much.
    var isNearLimit: Bool { Double(bytes) > 0.85 * Double(limit) }

    /// Nil: there is no such process, or no limit.
    init?(of pid: pid_t) {
        func number(_ file: String, _ name: String) -> UInt64? {
            guard let data = FileManager.default.contents(atPath: "/proc/\(pid)/\(file)") else { return nil }
            let line = String(decoding: data, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix(name) }
            return line?.dropFirst(name.count).split(whereSeparator: { $0 == " " || $0 == "\t" }).first.flatMap {
                UInt64($0)
            }
        }
        guard let kilobytes = number("status", "VmData:"), let limit = number("limits", "Max data size") else {
            return nil
        }
        bytes = kilobytes * 1024
        self.limit = limit
    }
}
