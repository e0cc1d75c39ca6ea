import Foundation
import NephosCore
import Synchronization

/// Ctrl-C, a terminal that was closed, and SIGTERM, for commands that must not
/// end in the middle. All others end at once, which is safe at any instant:
/// every change is one transaction on disk.
enum Interrupt {
    // Set by the handler, which may do nothing else.
    private static let signal = Atomic<Int32>(0)

    /// From here on a signal only sets ``isPending``; system calls that wait end with it.
    static func hold() {
        // What is made at its first use is made now: a handler that came in the middle of that would wait for it, and
        // with it for itself.
        _ = isPending
        for number in [SIGINT, SIGTERM, SIGHUP] {
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { Interrupt.signal.store($0, ordering: .relaxed) }
            sigaction(number, &action, nil)
        }
    }

    /// Back to what signals do by themselves.
    static func release() {
        for number in [SIGINT, SIGTERM, SIGHUP] { Foundation.signal(number, SIG_DFL) }
    }

    static var isPending: Bool { signal.load(ordering: .relaxed) != 0 }

    /// - Throws: ``CloudError`` `.operationCancelled` once a signal has come.
    static func check() throws(CloudError) {
        if isPending { throw CloudError(.operationCancelled, "Interrupted.") }
    }
}
