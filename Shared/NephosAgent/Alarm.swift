internal import Synchronization

/// Wakes a waiting task, or lets its next wait end at once.
final class Alarm: Sendable {
    private struct State {
        var isRung = false
        var waiter: CheckedContinuation<Void, Never>?
    }

    private let state = Mutex(State())

    func ring() {
        state.withLock { state in
            state.isRung = true
            defer { state.waiter = nil }
            return state.waiter
        }?.resume()
    }

    /// Waits for a ring, or until the time has come, or the task is cancelled.
    ///
    /// - Parameter due: Nil: only for a ring.
    func wait(until due: ContinuousClock.Instant?) async {
        let timer = due.map { due in
            Task {
                try? await Task.sleep(until: due, clock: .continuous)
                if !Task.isCancelled { ring() }
            }
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isRung = state.withLock { state in
                    if !state.isRung { state.waiter = continuation }
                    return state.isRung
                }
                if isRung { continuation.resume() }
            }
        } onCancel: {
            ring()
        }
        timer?.cancel()
        state.withLock { $0.isRung = false }
    }
}
