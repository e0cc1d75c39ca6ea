/// Something that an agent has done, or cannot do.
package struct AgentActivity: Sendable, Hashable {
    package enum Action: String, Sendable {
        /// A new or changed file, folder or link was handed to the container. It is sent when there is a connection.
        case sent
        /// A move was handed to the container.
        case moved
        /// A deletion was handed to the container.
        case deleted
        /// Another device's file, folder, link or move is on disk.
        case received
        /// A file's content has left the disk, and a placeholder has its place.
        case evicted
        /// Everything was compared after the start, and nothing is left to do; the detail has the number of items.
        case ready
        /// Two devices have changed a file at once. The detail says what became of it.
        case conflict
        /// Another device's deletion was made on disk.
        case removed
        /// A file or folder that was deleted here is back; the detail says why.
        case kept
        /// A file or folder is not synced; the detail says why.
        case blocked
        /// A large deletion waits to be allowed; the detail has the number of items.
        case held
        /// The whole folder stands still; the detail says why.
        case stopped
    }

    package var action: Action
    /// From the folder on; empty: the folder itself.
    package var path: String
    package var detail: String?
}
