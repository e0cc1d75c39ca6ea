import Foundation
import Synchronization

/// What a run has made and must not leave behind: a deployment, an account. It
/// goes when the run ends, and also at Ctrl-C, SIGTERM or a closed terminal.
final class Cleanup: Sendable {
    static let shared = Cleanup()

    private struct State {
        var next = 0
        var steps: [Int: @Sendable () -> Void] = [:]
        var isEnding = false
    }

    private let state = Mutex(State())

    /// Has the step done in the end; returns its number, for ``run(_:)``.
    func add(_ step: @escaping @Sendable () -> Void) -> Int {
        state.withLock { state in
            state.next += 1
            state.steps[state.next] = step
            return state.next
        }
    }

    /// Does the step now, unless it was done. Once a signal has come it does not
    /// return: the process is about to end, and must not end sooner.
    func run(_ number: Int) {
        let (step, isEnding) = state.withLock {
            ($0.isEnding ? nil : $0.steps.removeValue(forKey: number), $0.isEnding)
        }
        if isEnding { while true { sleep(1) } }
        step?()
    }

    /// From here on signals clean up before they end the process. To be called before any thread is started,
    /// since those inherit that signals wait for the one that is started here.
    func begin() {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in [SIGINT, SIGTERM, SIGHUP] { sigaddset(&signals, signal) }
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        let waited = signals
        let thread = Thread { [self] in
            var signals = waited
            var signal: Int32 = 0
            while sigwait(&signals, &signal) != 0 {}
            Progress.say("\nnephos-load: ends; removing what this run has made\n")
            let steps = state.withLock { state in
                state.isEnding = true
                return state.steps.sorted { $0.key > $1.key }.map(\.value)
            }
            for step in steps { step() }
            _exit(128 + signal)
        }
        thread.name = "cleanup"
        thread.start()
    }
}
