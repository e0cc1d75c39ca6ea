internal import Foundation
internal import Synchronization

/// Ties this process to the one that started it: when standard input, a pipe
/// that only the other holds open, ends, so does this process; in good order,
/// or without it after ``grace``.
///
/// The kernel closes the pipe however the other ended.
final class SupervisedLife {
    /// How long an orderly end may take.
    static let grace: Duration = .seconds(5)
    private static let ended = Atomic(false)
    /// Whether the other process is gone.
    static var hasEnded: Bool { ended.load(ordering: .relaxed) }

    /// - Parameter place: Held as long as the process lives.
    static func begin(holding place: HeldPlace) {
        // Unchecked: handed over to the thread, which alone uses it from then on.
        nonisolated(unsafe) let place = place
        let thread = Thread {
            while !inputHasEnded(within: .seconds(1)) { place.keep() }
            ended.store(true, ordering: .relaxed)
            kill(getpid(), SIGTERM)
            Thread.sleep(forTimeInterval: Double(grace.components.seconds))
            _exit(EXIT_FAILURE)
        }
        thread.name = "supervised"
        thread.start()
    }

    private static func inputHasEnded(within limit: Duration) -> Bool {
        var input = pollfd(fd: 0, events: Int16(POLLIN), revents: 0)
        guard poll(&input, 1, Int32(limit.components.seconds * 1000)) > 0 else { return false }
        var byte: UInt8 = 0
        // Anything but more bytes, which nobody sends, is the end.
        return read(0, &byte, 1) <= 0 && errno != EINTR
    }
}
