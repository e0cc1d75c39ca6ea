package import NephosCore

/// How far a ``BulkClient`` is, and why it waits if it does.
package struct BulkProgress: Hashable, Sendable {
    /// Chunks that were stored or fetched, and their bytes.
    package var chunksDone = 0
    package var bytesDone = 0
    /// Bytes that went over the line for them: fewer, where chunks were compressed.
    package var bytesMoved = 0
    /// Chunks that have no answer yet.
    package var chunksLeft = 0
    /// Nil: it goes on.
    package var waiting: Wait?

    /// Why nothing moves, and until when.
    package struct Wait: Hashable, Sendable {
        /// What the service said, or that it says nothing.
        package var reason: CloudError
        /// Attempts that have failed one after the other.
        package var attempts: Int
        /// When it is tried again, by the loop's `monotonicNow`.
        package var until: Duration
    }

    package init() {}
}
