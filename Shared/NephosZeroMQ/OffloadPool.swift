internal import Foundation
internal import NephosBus
internal import Synchronization

/// A few threads for work that would hold the loop up, and a bounded queue before them.
///
/// Threads of their own, which begin when they are needed: they give way to the loop's, and a thread's priority can be
/// lowered, but not raised again, so they cannot be lent by anybody.
final class OffloadPool: Sendable {
    /// Does the work, and returns what to run on the loop.
    typealias Work = @Sendable () -> LoopMailbox.Job

    /// What the threads share with the pool, and outlive it with.
    private final class Queue: Sendable {
        struct State {
            var waiting: [Work] = []
            var running = 0
            var threads = 0
            /// Threads that wait, and that nobody has called yet.
            var idle = 0
            var isClosed = false
        }

        let state = Mutex(State())
        let call = DispatchSemaphore(value: 0)

        /// Waits for work; nil: the pool is gone.
        func next() -> Work? {
            while true {
                let (work, isClosed) = state.withLock { state -> (Work?, Bool) in
                    guard !state.waiting.isEmpty else {
                        state.idle += 1
                        return (nil, state.isClosed)
                    }
                    state.running += 1
                    return (state.waiting.removeFirst(), false)
                }
                if let work { return work }
                if isClosed { return nil }
                call.wait()
            }
        }
    }

    private let threadCount: Int
    private let waitingMax: Int
    private let mailbox: LoopMailbox
    /// Of the loop beside which it works.
    private let loopWork: LoopWork
    private let queue = Queue()

    /// - Parameter waitingMax: Pieces of work that run or wait; with more, there is no room.
    init(threadCount: Int, waitingMax: Int, mailbox: LoopMailbox, besideLoopFor loopWork: LoopWork) {
        self.loopWork = loopWork
        self.threadCount = threadCount
        self.waitingMax = waitingMax
        self.mailbox = mailbox
    }

    /// What waits is still done.
    deinit {
        let threads = queue.state.withLock { state -> Int in
            state.isClosed = true
            return state.threads
        }
        for _ in 0..<threads { queue.call.signal() }
    }

    /// Queues the work; false when the queue is full.
    func run(_ work: @escaping Work) -> Bool {
        enum Step { case refused, called, starts, queued }
        let step = queue.state.withLock { state -> Step in
            guard state.waiting.count + state.running < waitingMax else { return .refused }
            state.waiting.append(work)
            if state.idle > 0 {
                state.idle -= 1
                return .called
            }
            guard state.threads < threadCount else { return .queued }
            state.threads += 1
            return .starts
        }
        switch step {
        case .refused: return false
        case .queued: break
        case .called: queue.call.signal()
        case .starts: startThread()
        }
        return true
    }

    private func startThread() {
        let thread = Thread { [queue, mailbox, loopWork] in
            ThreadTurns.beginBesideLoop(of: loopWork)
            while let work = queue.next() {
                let job = work()
                queue.state.withLock { $0.running -= 1 }
                mailbox.execute(job)
            }
        }
        thread.name = "offload"
        thread.stackSize = 8 << 20
        thread.start()
    }
}
