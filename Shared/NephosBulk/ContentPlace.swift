public import NephosCore
public import NephosServiceKit

/// Where the contents lie that a request names by a container, and on what they count: as the service that has them says.
public struct ContentPlace: Sendable {
    /// What the caller is about to do there.
    public enum Purpose: Sendable {
        /// Gets a ticket to fetch chunks.
        case fetching
        /// Stores chunks and nodes.
        case storing
        /// Ends an upload of its own, whatever it may do there by now.
        case ending
        /// Asks which chunks and nodes are missing.
        case finding
        /// Reads manifest nodes.
        case reading
        /// Takes chunks from there for another container.
        case borrowing
    }

    public var owner: Owner
    /// Of the transaction that everything of the container is done in.
    public var partition: Int
    /// Under which name it is counted what its contents rest on. Empty: none is meant, and nothing is asked about it.
    public var container: ItemName
    /// Containers of this owner and partition of which the caller may fetch chunks.
    public var readable: Set<String>
    /// On what it counts.
    public var room: StorageRoom
    /// For whom in the ledger counts what is added, and of which device.
    public var app: AppID
    public var device: DeviceID

    public init(
        owner: Owner, partition: Int, container: ItemName, readable: Set<String>, room: StorageRoom, app: AppID,
        device: DeviceID
    ) {
        self.owner = owner
        self.partition = partition
        self.container = container
        self.readable = readable
        self.room = room
        self.app = app
        self.device = device
    }

    var place: HoldStore.Place { HoldStore.Place(owner: owner, partition: partition) }
}
