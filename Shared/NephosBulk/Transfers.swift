public import NephosBus
internal import NephosChunks
public import NephosContent
public import NephosCore
public import NephosServiceKit
public import NephosStorage
internal import NephosWire

public import struct Foundation.Data

/// Moves content between devices and a service: lets devices in, keeps room for what they send, and commits the rows of
/// what has come. The bytes go another way (``BulkDoor``), on a loop and threads of their own.
///
/// On the service's loop only.
public final class Transfers {
    /// What a service chooses.
    public struct Configuration: Sendable {
        /// Bytes that an account may write to disk within a day: so often its whole plan, and so many on the smallest.
        public var writtenADayPlans: UInt64 = 4
        public var writtenADayLeast: UInt64 = 256 << 20
        /// Bytes that devices have sent and that are not stored yet, of all together.
        public var roomBytes = 64 << 20
        /// How long an upload is kept after its last chunk: a device that was shut goes on with it the next day.
        public var retention: Duration = .seconds(24 * 3600)
        /// How long the room is kept that nothing has come into.
        public var roomRetention: Duration = .seconds(3600)
        /// How often uploads that have ended are looked for.
        public var sweepInterval: Duration = .seconds(60)
        /// How often segments that are mostly dead are looked for.
        public var upkeepInterval: Duration = .seconds(600)
        /// How long segments are kept that nothing is left in: so long an older database may be brought back, and finds
        /// its chunks. Less long when the disk's room is low.
        public var emptiedRetention: Duration = .seconds(24 * 3600)

        /// How often it is looked whether the disk's room is low.
        public var roomInterval: Duration = .seconds(10)
        /// Low is less than this part of the disk, but no more than so many bytes, and less than twice what is kept.
        public var lowRoomPart = 0.1
        public var lowRoomBytesMax = 16 << 30
        /// Bytes of the disk that content leaves free: for the rows, and for what makes room.
        public var roomKeptBytes = 64 << 20

        /// How often all content is read through, to find what the disk has lost. It may take longer for so much that
        /// ``scrubBytesASecondMax`` does not do.
        public var scrubInterval: Duration = .seconds(7 * 24 * 3600)
        /// Bytes that are read for it in a second: as many as the interval asks for, within these.
        public var scrubBytesASecondLeast = 256 << 10
        public var scrubBytesASecondMax = 16 << 20

        public init() {}

        func isLow(_ room: DiskRoom) -> Bool {
            room.free < max(min(Int(Double(room.total) * lowRoomPart), lowRoomBytesMax), 2 * roomKeptBytes)
        }
    }

    /// The tables, for the service's ``CloudService/migrations``.
    public static let migrations =
        ContentSchema.migrations + [
            HoldStore.migration, WrittenStore.migration, UseStore.migration, SumStore.migration,
        ]

    let store: any BlobStore
    let configuration: Configuration
    /// Says where the contents of a request's container lie, if the caller may do this with them. Set before the start.
    public typealias Placing = (
        _ container: String, _ purpose: ContentPlace.Purpose, _ caller: Caller, any HandlerTransaction
    ) throws -> ContentPlace
    public var placing: Placing?
    /// Says, of what a ticket is for, in which containers it lies now: asked at each chunk, on a thread of the pool.
    public typealias Reading =
        @Sendable (
            _ readable: String, Owner, _ partition: Int, any ReadTransaction
        ) throws -> Set<String>
    /// Set before the start.
    public var reading: Reading = asOneContainer
    static let asOneContainer: Reading = { readable, _, _, _ in [readable] }
    /// Tells devices that chunks were found damaged on which contents of these containers of an owner rest: of a chunk
    /// that many have, two of them. In the transaction that notes it. Set before the start.
    public var onLoss: ((Owner, Set<String>, any HandlerTransaction) throws -> Void)?
    private let transport: any Transport
    private var generator: any RandomNumberGenerator
    private(set) weak var host: (any ServiceRuntime)?
    private(set) var bulk: BulkLoop?
    lazy var removal = UploadRemoval(self)
    private var upkeep: SegmentUpkeep?
    private(set) lazy var damage = DamageNotes(self)
    private(set) lazy var watch = ContentWatch(self)
    private var scrubbing: Scrubbing?
    private lazy var contentFigures = ContentFigures(self)
    private lazy var endings = SteppedWork(
        "Removing content that nothing uses", every: configuration.sweepInterval,
        inTurns: {
            [unowned self] in try endSome(in: $0, &$1)
        })

    /// - Parameters:
    ///   - store: For this service alone.
    ///   - transport: Where the loop of content is started.
    ///   - generator: Where tickets come from.
    public init(
        store: any BlobStore, transport: any Transport, configuration: Configuration = Configuration(),
        generator: any RandomNumberGenerator = SystemRandomNumberGenerator()
    ) {
        self.store = store
        self.transport = transport
        self.configuration = configuration
        self.generator = generator
    }

    // MARK: With the service

    /// Opens the socket. Without an address on the roster nothing can be moved, and `OpenTransfer` says so.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for an address that cannot be bound.
    public func start(_ host: any ServiceRuntime, as service: ServiceName) throws {
        self.host = host
        let entry = try host.roster.entry(of: service)
        guard let endpoint = entry.bulk else {
            host.report("The roster has no address for content. Make another deployment", details: [:])
            return
        }
        let work = ChunkWork(
            store: store, snapshots: host.snapshots, reading: reading, presence: watch.presence,
            roomKeptBytes: configuration.roomKeptBytes)
        let own = LoopBound(Own(transfers: self), to: host.loop)
        let main = host.loop.handle
        bulk = try BulkLoop(
            on: transport, named: "\(service) bulk", endpoint: endpoint, keys: host.keys,
            work: work, roomBytes: configuration.roomBytes
        ) { batch, done in
            main.execute { loop in own.withValue(on: loop) { $0.transfers?.commit(batch, done) } }
        } found: { findings in
            main.execute { loop in own.withValue(on: loop) { $0.transfers?.damage.note(findings) } }
        }
        removal.start()
        endings.start(host)
        let upkeep = SegmentUpkeep(self, work)
        self.upkeep = upkeep
        upkeep.start()
        let scrubbing = Scrubbing(self)
        self.scrubbing = scrubbing
        // Before anybody is told that it is ready.
        watch.start()
        // A service that starts has more important work.
        host.loop.schedule(after: configuration.roomInterval) { [weak self] in
            self?.damage.recount()
            self?.contentFigures.start()
            self?.scrubbing?.start()
        }
    }

    /// As its loop of content knows it, which it keeps itself.
    private struct Own {
        weak var transfers: Transfers?
    }

    /// Adds to what the service tells in numbers.
    ///
    /// - Parameter done: Called on the loop of content, where there is one.
    public func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) {
        let own = contentFigures.figures
        guard let bulk else { return done(own) }
        bulk.measure { figures in done(own.merging(figures) { $1 }) }
    }

    public func stop() {
        bulk?.stop()
        bulk = nil
        host = nil
        upkeep = nil
        scrubbing = nil
    }

    /// Reads all segments through from the first, without the pauses of other rounds; the counters of `CheckHealth` that begin
    /// with `content.scrub.` say how far it is. What such a round has not read when the service ends the next start reads in
    /// its own time.
    func scrubNow() { scrubbing?.hurry() }

    /// - Parameter readers: Who may fetch.
    public func register(on router: inout Router, readers: Access = .device) {
        // What is stored can be fetched while the disk is full; uploads are refused by themselves.
        router.write(
            WireOpenTransfer.self, access: readers, remembersReply: false, idsAge: false, makesRoom: true
        ) { [unowned self] in
            try open($0, $1, in: $2)
        }
        // An id has 34 bytes, and is looked for in up to four rows.
        router.read(WireFindMissing.self, rows: { $0.count / 8 }) { [unowned self] in try findMissing($0, $1, $2) }
        router.write(
            WireStoreNodes.self, bytesMax: 2 * DocumentLimits.nodesBytesMax, remembersReply: false, idsAge: false,
            rows: { $0.count / ManifestNode.childBytes }, decoding: { try $0.decode(WireStoreNodes.self) },
            encoding: { [unowned self] in Frame(encoding: try storeNodes($0, $1, $2)) })
        router.read(WireReadNodes.self, access: readers, reserves: Self.nodesReserve) { [unowned self] in
            try readNodes($0, $1, $2)
        }
        router.write(WireCloseTransfer.self, remembersReply: false, idsAge: false, makesRoom: true) { [unowned self] in
            try close($0, $1, in: $2)
        }
    }

    /// Ends the tickets of whoever may not go on.
    public func learned(_ fact: DirectoryFact) {
        switch fact {
        case .ended(let device, let ending): bulk?.endTickets(because: ending.error) { $0.device == device }
        case .account(let account, .locked, _): bulk?.endTickets(because: .accountLocked) { $0.account == account }
        case .account(let account, .closed, _): bulk?.endTickets(because: .accountClosed) { $0.account == account }
        // What it may do has changed: it asks again.
        case .app(let app, _): bulk?.endTickets(because: Self.appChanged) { $0.app == app }
        case .appTokenEnded(let token): bulk?.endTickets(because: .appTokenRevoked) { $0.appToken == token }
        // No ticket outlives the key that its token was signed with. Of tokens that identity has signed none does.
        case .tokenKey(let key):
            guard let end = key.retires else { break }
            bulk?.endTickets(because: Self.keyRetired) { $0.keyID == key.id && $0.expires > end }
        case .account(_, .active, _), .forgotten, .container, .recall: break
        }
    }

    /// Ends tickets whose readers may be others now: who may still read asks for another.
    ///
    /// - Parameter isConcerned: Gets what a ticket is for (``ContentPlace/readable``), and whose that is.
    public func endTickets(where isConcerned: @escaping @Sendable (Owner, String) -> Bool) {
        bulk?.endTickets(because: Self.rightsChanged) { ticket in
            ticket.readable.contains { isConcerned(ticket.owner, $0) }
        }
    }

    private static let keyRetired = CloudError(
        .tokenExpired, "The key that the access token was signed with ends before it. Refresh the token.")
    private static let rightsChanged = CloudError(
        .tokenExpired, "Who may read the content has changed. Open the transfer again.")
    private static let appChanged = CloudError(
        .tokenExpired, "What the app may do has changed. Open the transfer again.")

    /// Removes some of what a closed account has stored.
    ///
    /// - Returns: Whether there may be more.
    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        try removal.removeRemains(of: account, in: transaction)
    }

    // MARK: What contents rest on

    /// What a container's contents rest on.
    ///
    /// - Parameters:
    ///   - room: On what the container counts.
    ///   - app: For whom in the ledger counts what is added; and of which device.
    public func uses(
        of scope: ScopeName, on room: StorageRoom = .plan, app: AppID, device: DeviceID,
        in transaction: any HandlerTransaction
    ) throws -> ContentUses {
        guard let host else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return ContentUses(
            scope.path, at: HoldStore.Place(owner: scope.owner, partition: scope.partition), ledger: host.storage,
            on: room, app: app, device: device, in: transaction, onEnd: { [removal] in removal.beginSoon() })
    }

    /// The same of a place.
    public func uses(
        at place: ContentPlace, in transaction: any HandlerTransaction
    ) throws -> ContentUses {
        guard let host else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return ContentUses(
            place.container, besides: place.siblings, at: place.place, ledger: host.storage, on: place.room,
            app: place.app, device: place.device, in: transaction, onEnd: { [removal] in removal.beginSoon() })
    }

    func place(
        of container: String, _ purpose: ContentPlace.Purpose, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> ContentPlace {
        guard let placing else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return try placing(container, purpose, caller, transaction)
    }

    /// What the container counts, in bytes.
    public func countedBytes(of scope: ScopeName, in transaction: any HandlerTransaction) throws -> UInt64 {
        let place = HoldStore.Place(owner: scope.owner, partition: scope.partition)
        return try SumStore.sum(of: scope.path.rawValue, at: place, in: transaction)
    }

    /// How many of the chunks were found damaged that the container's contents rest on. Of this container alone: its
    /// readers learn nothing of what they may not read.
    public func lostChunks(of scope: ScopeName, in transaction: any HandlerTransaction) throws -> Int {
        let place = HoldStore.Place(owner: scope.owner, partition: scope.partition)
        return try UseStore.lostCount(in: scope.path.rawValue, at: place, in: transaction)
    }

    /// Contents were given back: what nothing uses any more is removed from now on.
    public func removeSoon() { endings.beginSoon() }

    /// Chunks of one step, and uses that the nodes of a step may end besides.
    private static let endingsStep = 128

    private func endSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        let owner = try turn.next { last in
            try UseStore.nextEnding(after: last.flatMap { HoldStore.Place(turn: $0) }, in: transaction)?.turn
        }
        guard let place = owner.flatMap({ HoldStore.Place(turn: $0) }), let host else { return false }
        transaction.afterCommit { [damage] in damage.recountIfAny() }
        var work = 0
        for (container, id, isNode) in try UseStore.endings(at: place, limit: Self.endingsStep, in: transaction)
        where work < Self.endingsStep {
            guard let chunk = ChunkID(bytes: id) else {
                try UseStore.removeEnding(of: id, isNode: isNode, in: container, at: place, in: transaction)
                continue
            }
            // It says itself on what it counts.
            let uses = ContentUses(
                ItemName(container), at: place, ledger: host.storage, on: .plan, app: AppID(""), device: DeviceID(""),
                in: transaction)
            work += try uses.end(UseStore.Part(id: chunk, isNode: isNode))
        }
        // What has ended may have been all that used others.
        return true
    }

    // MARK: Letting in

    private func open(
        _ request: WireOpenTransfer, _ context: RequestContext, in transaction: any HandlerTransaction
    ) throws -> WireOpenTransferReply {
        let caller = try context.requireCaller()
        guard let host, let bulk else {
            throw CloudError(.serviceUnavailable, "The service moves no content: it has no address for it.")
        }
        // Whom it concerns has been told by now, and would not be told of this ticket.
        if let refusal = host.refusal(of: caller) { throw refusal }
        let place = try place(
            of: request.container, request.transferID.isEmpty ? .fetching : .storing, caller, transaction)
        let upload = try Self.upload(request.transferID, at: place, of: caller.account)
        let lifetime = min(.seconds(3600), caller.expires.since(context.now))
        // Before anything is written: one that is damaged is refused alone.
        let key = try host.ownerKeys.key(of: place.owner, in: transaction)
        var reply = WireOpenTransferReply()
        var standing: Upload.Standing?
        var writing: Writing?
        if let upload {
            guard !transaction.isShortOfRoom else { throw CloudError.diskFull }
            let former = try host.storage.reservation(upload.id, of: place.owner, in: transaction)?.bytes ?? 0
            let reservation = try host.storage.reserve(
                request.uploadBytes, under: upload.id, for: place.owner, at: place.partition, on: place.room,
                app: place.app, device: caller.device, account: caller.account,
                until: expiry(host), in: transaction)
            standing = Upload.Standing(reserved: reservation.bytes, filled: reservation.filled)
            writing = try self.writing(
                of: caller.account, to: place.owner, in: place.partition, at: context.now, host, in: transaction)
            // Reserved and stored bytes count together on the account's part of the app's plan. An upload that asks for no
            // more than before goes on. A request that fails reserves nothing.
            if place.owner.isApp, reservation.bytes > former,
                let refusal = writing?.refusal(
                    of: try host.storage.unfilledBytes(of: caller.account, for: place.owner, in: transaction))
            {
                throw refusal
            }
            reply.reservedBytes = reservation.bytes
            reply.storedBytes = reservation.filled
            reply.keptMilliseconds = UInt64(clamping: reservation.expires.since(host.purgeTime).milliseconds)
        } else if request.uploadBytes > 0 {
            throw CloudError(.invalidArguments, "An upload has an id.", details: ["argument": "transfer_id"])
        }
        let ticket = Ticket(
            id: BulkTicket(using: &generator), key: context.peer.publicKey, caller: caller, at: place,
            sealer: try ChunkSealer(key: key.derived(for: "nephos content"), owner: place.owner), upload: upload,
            lifetime: lifetime)
        reply.ticket = Data(ticket.id.bytes)
        reply.lifetimeMilliseconds = UInt64(clamping: lifetime.milliseconds)
        reply.creditBytes = UInt64(BulkLimits.creditBytes)
        reply.chunkBytesMax = UInt32(BulkLimits.chunkBytesMax)
        transaction.afterCommit { [standing, writing] in bulk.add(ticket, standing, writing) }
        return reply
    }

    /// When an upload ends that is used now.
    ///
    /// While the purge clock catches up with the wall clock it runs twice as fast: an upload then ends earlier, and never later.
    func expiry(_ host: any ServiceRuntime) -> Timestamp { host.purgeTime.advanced(by: configuration.retention) }

    private func close(
        _ request: WireCloseTransfer, _ context: RequestContext, in transaction: any HandlerTransaction
    ) throws -> WireCloseTransferReply {
        let caller = try context.requireCaller()
        let place = try place(of: request.container, .ending, caller, transaction)
        guard let host, let upload = try Self.upload(request.transferID, at: place, of: caller.account) else {
            throw CloudError(.invalidArguments, "An upload has an id.", details: ["argument": "transfer_id"])
        }
        guard let reservation = try host.storage.reservation(upload.id, of: place.owner, in: transaction) else {
            return WireCloseTransferReply()
        }
        try host.storage.end(reservation, in: transaction)
        transaction.afterCommit { [weak self] in
            self?.bulk?.endTickets(because: .uploadHasEnded) { $0.upload == upload }
            self?.removal.beginSoon()
        }
        return WireCloseTransferReply()
    }

    /// The upload has no room any more that nothing has come into.
    func endTickets(ofUpload id: ReservationID, of owner: Owner) {
        bulk?.endTickets(because: Self.roomGivenBack) { $0.upload?.id == id && $0.owner == owner }
    }

    private static let roomGivenBack = CloudError(
        .tokenExpired, "The upload stood still, and its room was given back. Open the transfer again.")

    /// Nil: none is meant.
    static func upload(_ id: Data, at place: ContentPlace, of account: AccountID) throws(CloudError) -> Upload? {
        try reservation(id, of: place.owner, by: account).map { Upload(account: account, owner: place.owner, id: $0) }
    }

    /// Under which reservation an account's upload is kept; nil: none is meant.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`: no upload has such an id.
    public static func reservation(
        _ id: Data, of owner: Owner, by account: AccountID
    ) throws(CloudError) -> ReservationID? {
        guard !id.isEmpty else { return nil }
        guard let id = ReservationID(bytes: id) else {
            throw CloudError(
                .invalidArguments, "A transfer's id has 16 bytes.", details: ["argument": "transfer_id"])
        }
        guard owner.account == nil else { return id }
        // Of what is no account's, accounts choose ids beside one another, and none meets another's.
        let name = Array(account.rawValue.utf8) + [0] + id.bytes
        let own = name.withUnsafeBytes { ChunkID(hashing: $0) }.bytes
        return ReservationID(bytes: own.prefix(ReservationID.byteCount))
    }
}

extension HoldStore.Place {
    init(_ account: AccountID) {
        self.init(
            owner: Owner(account),
            partition: ScopeName(account, "").partition)
    }
}

extension CloudError {
    static let uploadHasEnded = CloudError(
        .unknownItem, "The upload has ended: it was closed, or nobody went on with it in time. Begin another.",
        details: CloudError.reservationHasEnded)
}
