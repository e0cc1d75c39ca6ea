package import Foundation

/// The agent's status of a folder.
package struct FolderReport: Codable, Hashable, Sendable {
    package enum State: String, Codable, Sendable {
        /// All files are looked at, after a start or after events were lost.
        case scanning
        /// Changes are sent or fetched.
        case syncing
        /// There is no known work. It is no proof that both sides are equal.
        case idle
        /// Nothing is done, because of ``problem``.
        case stopped
    }

    package var state = State.scanning
    /// A sentence; nil: none.
    package var problem: String?
    /// There is no known work, and digests have proved that the device and the server are equal.
    package var isProved = false
    /// Other devices' changes arrive at once.
    package var isConnected = false
    /// Synced files and folders.
    package var itemCount = 0
    /// Of these, files whose contents are not on this device.
    package var evictedCount = 0
    /// Folders that changed on disk and were not looked at yet.
    package var dirtyFolderCount = 0
    /// Items that changed in the container and are not on disk yet.
    package var waitingCount = 0
    package var downloadCount = 0
    /// Files that are gone from the disk. Their deletion is held until it is allowed.
    package var heldDeletionCount = 0
    /// Paths of some of these. One more than ``heldMax`` says that there are others.
    package var held: [String] = []
    package static let heldMax = 10
    package var blockedCount = 0
    /// Files of which another content is kept until one is chosen.
    package var conflictCount = 0
    package var watchedFolderCount = 0
    /// Folders without a watch, since the system's limit is reached; they are scanned every few minutes.
    package var unwatchedFolderCount = 0
    package var lastFullScan: Date?
    /// When the report was made.
    package var date = Date()

    package init() {}
}
