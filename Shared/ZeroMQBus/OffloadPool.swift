internal import Bus
internal import Foundation
internal import Synchronization

/// A few threads for work that would hold the loop up, and a bounded queue before them.
final class OffloadPool: Sendable {
    /// Does the work, and returns what to run on the loop.
    typealias Work = @Sendable () -> LoopMailbox.Job

    private let waitingMax: Int

    private let queue: OperationQueue
    private let mailbox: LoopMailbox
    private let waiting = Atomic(0)

    /// - Parameter waitingMax: Pieces of work that run or wait; with more, there is no room.
    init(threadCount: Int, waitingMax: Int, mailbox: LoopMailbox) {
        self.waitingMax = waitingMax
        self.mailbox = mailbox
        queue = OperationQueue()
        queue.maxConcurrentOperationCount = threadCount
    }

    /// Queues the work; false when the queue is full.
    func run(_ work: @escaping Work) -> Bool {
        guard waiting.wrappingAdd(1, ordering: .relaxed).newValue <= waitingMax else {
            waiting.wrappingSubtract(1, ordering: .relaxed)
            return false
        }
        queue.addOperation { [self] in
            let job = work()
            waiting.wrappingSubtract(1, ordering: .relaxed)
            mailbox.execute(job)
        }
        return true
    }
}
