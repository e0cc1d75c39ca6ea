private import Foundation
public import NephosCore

/// A pipe that nobody writes to: what has its end for standard input learns there
/// when the process that made it is gone.
public final class Lifeline: Sendable {
    /// For the other process.
    public let end: Int32
    private let own: Int32

    /// - Throws: ``CloudError`` `.serviceUnavailable` without a free descriptor.
    public init() throws(CloudError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else {
            throw CloudError(.serviceUnavailable, "The process has no file descriptor left.")
        }
        // Before anything is started, so that no child has the other end.
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        end = ends[0]
        own = ends[1]
    }

    deinit {
        close(end)
        close(own)
    }
}
