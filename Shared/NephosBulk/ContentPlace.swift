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
        owner: Owner, partition: Int, container: ItemName, siblings: Set<String> = [], readable: Set<String>,
        room: StorageRoom, app: AppID, device: DeviceID
    ) {
        self.owner = owner
        self.partition = partition
        self.container = container
        self.siblings = siblings
        self.readable = readable
        self.room = room
        self.app = app
        self.device = device
    }

    var place: HoldStore.Place { HoldStore.Place(owner: owner, partition: partition) }

    /// The same of what an upload brings there.
    func of(_ upload: ReservationID?) -> ContentPlace {
        var place = self
        place.container = Self.container(container, of: owner, bringing: upload)
        return place
    }

    /// Under which name it is counted what contents rest on that an upload has brought.
    ///
    /// What accounts store beside one another, in what is no account's, is apart until something has it: so nobody
    /// finds, or takes, what another has not saved yet. And who makes something anew has nothing of what was called so.
    public static func container(_ container: ItemName, of owner: Owner, bringing upload: ReservationID?) -> ItemName {
        guard owner.account == nil, let upload else { return container }
        let digits = [UInt8]("0123456789abcdef".utf8)
        let hex = upload.bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
        return ItemName("\(container)/\(String(decoding: hex, as: UTF8.self))")
    }
}
