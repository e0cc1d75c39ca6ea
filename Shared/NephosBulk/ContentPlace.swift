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
    /// Which content is meant, where each is by itself (``container(_:bringing:by:)``).
    public var root: ChunkID?
    /// Containers of the same thing, of which the caller may read: chunks that they use are not missing, and their nodes
    /// can be read.
    public var siblings: Set<String>
    /// Of what of this owner and partition the caller may fetch chunks. Asked again at each of them
    /// (``Transfers/reading``).
    public var readable: Set<String>
    /// On what it counts.
    public var room: StorageRoom
    /// For whom in the ledger counts what is added, and of which device.
    public var app: AppID
    public var device: DeviceID

    public init(
        owner: Owner, partition: Int, container: ItemName, root: ChunkID? = nil, siblings: Set<String> = [],
        readable: Set<String>, room: StorageRoom, app: AppID, device: DeviceID
    ) {
        self.owner = owner
        self.partition = partition
        self.container = container
        self.root = root
        self.siblings = siblings
        self.readable = readable
        self.room = room
        self.app = app
        self.device = device
    }

    var place: HoldStore.Place { HoldStore.Place(owner: owner, partition: partition) }

    /// The same of what an upload brings there.
    func of(_ upload: ReservationID?) -> ContentPlace {
        guard owner.account == nil else { return self }
        var place = self
        // Without its upload or its root it is none.
        if let upload, let root {
            place.container = Self.container(container, bringing: root, by: upload)
        } else {
            place.container = ""
        }
        return place
    }

    /// Of such a name.
    private static let digitCount = 32

    /// Under which name it is counted what a content rests on that an upload has brought to what is no account's.
    ///
    /// What accounts store there beside one another is apart, each content by itself: so nobody finds, or takes, what
    /// another has not saved yet; whoever may read the content has what it rests on and nothing besides; and who makes
    /// something anew has nothing of what was called so. Nobody chooses these names, and none is near another.
    public static func container(_ container: ItemName, bringing root: ChunkID, by upload: ReservationID) -> ItemName {
        let said = [UInt8](container.rawValue.utf8) + [0] + upload.bytes + root.bytes
        let hash = said.withUnsafeBytes { ChunkID(hashing: $0) }.hex.prefix(Self.digitCount)
        return ItemName("\(container.rawValue.prefix { $0 != "/" })#\(hash)")
    }
}
