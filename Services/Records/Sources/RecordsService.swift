internal import Foundation
public import NephosBulk
public import NephosBus
internal import NephosContent
public import NephosCore
public import NephosServiceKit
public import NephosStorage
internal import NephosWire

/// Typed records in zones.
///
/// Of each container that an app lists, an account has a private database: a scope whose items are its zones. Each zone
/// is a scope of its own, whose items are records. And each container has one public database, of the app that owns the
/// container, which has one zone. What is large lies beside the records, as content (``Transfers``).
///
/// On the loop only.
public final class RecordsService: CloudService {
    public let name = ServiceName.records
    public let migrations = Transfers.migrations + RecordsMigrations.all
    public let scopeKind = "zone"

    let transfers: Transfers
    private var keys: OwnerKeys?
    private let digestKeys = DigestKeys()
    let gathered = GatheredNames()
    let deletions = Deletions()
    private(set) weak var runtime: (any ServiceRuntime)?
    private(set) lazy var removals = SteppedWork(
        "Removing a zone's records", every: .seconds(60),
        inTurns: {
            [unowned self] in try removeSome(in: $0, &$1)
        })
    private(set) lazy var indexing = SteppedWork(
        "Making an index of records", every: .seconds(60),
        inTurns: {
            [unowned self] in try indexSome(in: $0, &$1)
        })
    private(set) lazy var mendings = SteppedWork(
        "Making digests of records anew", every: .seconds(60),
        inTurns: {
            [unowned self] in try mendSome(in: $0, &$1)
        })
    private(set) lazy var pruning = SteppedWork(
        "Removing former records", every: .seconds(600),
        inTurns: {
            [unowned self] in try pruneSome(in: $0, &$1)
        })

    private(set) lazy var showing = SteppedWork(
        "Showing records as their roles say", every: .seconds(60),
        inTurns: {
            [unowned self] in try showSome(in: $0, &$1)
        })

    private(set) lazy var assetEndings = SteppedWork(
        "Giving assets of records back", every: .seconds(60),
        inTurns: {
            [unowned self] in try endAssets(in: $0, &$1)
        })

    public init(_ transfers: Transfers) { self.transfers = transfers }

    public func register(on router: inout Router) {
        transfers.register(on: &router, readers: .publicReader)
        router.write(WireModifyZones.self, idsAge: false, makesRoom: true) {
            [unowned self] request, context, transaction in
            try mending(transaction) { try modifyZones(request, context, transaction) }
        }
        router.write(
            WireModifyRecords.self, bytesMax: RecordLimits.requestBytesMax, idsAge: false, makesRoom: true,
            // The smallest save has some 40 bytes.
            rows: { $0.count / 40 }, decoding: { try $0.decode(WireModifyRecords.self) },
            encoding: { [unowned self] request, context, transaction in
                Frame(encoding: try mending(transaction) { try modifyRecords(request, context, transaction) })
            })
        router.bulk(
            WireFetchRecords.self, access: .publicReader, bytesMax: Self.fetchBytesMax, reserves: Self.fetchReserves,
            begin: { [unowned self] in try beginFetch($0, $1, $2) }, read: Self.fetch, finish: finish)
        router.bulk(
            WireQueryRecords.self, access: .publicReader, reserves: Self.queryReserves,
            begin: { [unowned self] in try beginQuery($0, $1, $2) }, read: Self.query, finish: finish)
        router.write(WireModifyRecordIndexes.self, makesRoom: true) { [unowned self] in
            try modifyIndexes($0, $1, $2)
        }
        router.read(WireListRecordIndexes.self) { [unowned self] in try listIndexes($0, $1, $2) }
        router.write(WireModifyRecordRoles.self, makesRoom: true) { [unowned self] in
            try modifyRoles($0, $1, $2)
        }
        router.read(WireListRecordRoles.self) { [unowned self] in try listRoles($0, $1, $2) }
        router.read(WireListRecordHistory.self) { [unowned self] in try listHistory($0, $1, $2) }
    }

    func finish(_ reply: SnapshotReply) -> Frame { runtime?.finish(reply) ?? reply.frame }

    public func start(_ host: any ServiceRuntime) throws {
        keys = host.ownerKeys
        runtime = host
        transfers.placing = { [unowned self] in try place(ofContent: $0, $1, $2, $3) }
        transfers.reading = Self.contentReading
        transfers.onLoss = { [unowned self] in try tellLoss(to: $0, of: $1, $2) }
        try transfers.start(host, as: name)
        removals.start(host)
        assetEndings.start(host)
        indexing.start(host)
        mendings.start(host)
        pruning.start(host)
        showing.start(host)
    }

    public func stop() { transfers.stop() }

    public var impediment: String? { transfers.impediment }

    public func measure(_ done: @escaping @Sendable ([String: Int]) -> Void) { transfers.measure(done) }

    public func learned(_ fact: DirectoryFact) {
        transfers.learned(fact)
        // Its administrators may be others.
        if case .container(let container, _) = fact { endTickets(ofPublic: container) }
    }

    public func removeRemains(of account: AccountID, in transaction: any HandlerTransaction) throws -> Bool {
        let hasIndexes = try IndexRows.removeRemains(of: Owner(account), limit: 500, in: transaction)
        let hasRows = try ZoneRows.removeRemains(of: account, limit: 500, in: transaction)
        let hasContent = try transfers.removeRemains(of: account, in: transaction)
        return hasIndexes || hasRows || hasContent
    }

    // MARK: Scopes

    /// A database of a container, and what the caller may do there. A public one is its only zone.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, alike for a container that is not the app's and one that does not
    ///   exist; `.permissionFailure`: without an account there is no private one; `.serviceBusy`.
    func openDatabase(
        _ container: String, _ kind: WireRecordDatabaseKind, _ caller: Caller, _ transaction: any HandlerTransaction
    ) throws -> (scope: RecordScope, access: RecordAccess) {
        let container = ItemName(container)
        guard caller.entitlements.include(container, of: name) else { throw Self.noContainer }
        switch kind {
        case .private:
            guard !caller.isPublic else { throw Self.needsAccount }
            return (try scope(ScopeName(caller.account, container), transaction), .ownDatabase)
        case .public:
            guard let owner = runtime?.definition(of: container).owner else { throw Self.ownerIsUnknown }
            let zone = try scope(Self.publicZone(of: container, owner), transaction)
            return (zone, try access(to: zone, of: container, caller))
        case .UNRECOGNIZED:
            throw CloudError(
                .invalidArguments, "A container has a private and a public database.", details: ["argument": "database"]
            )
        }
    }

    private func access(
        to zone: RecordScope, of container: ItemName, _ caller: Caller
    ) throws -> RecordAccess {
        let administrators = runtime?.definition(of: container).administrators ?? []
        return RecordAccess(
            roles: try RoleRows.roles(of: zone.scope, in: zone.transaction),
            account: caller.isPublic ? nil : caller.account,
            isAdministrator: !caller.isPublic && administrators.contains(caller.account))
    }

    static func publicZone(of container: ItemName, _ owner: AppID) -> ScopeName {
        ScopeName(Owner(owner), ItemName("\(container)/\(RecordLimits.defaultZone)"))
    }

    /// A zone of it.
    ///
    /// - Throws: ``CloudError`` as ``openDatabase(_:_:_:_:)`` does; `.zoneNotFound`.
    func openZone(
        _ id: String, of container: String, _ kind: WireRecordDatabaseKind, _ caller: Caller,
        _ transaction: any HandlerTransaction
    ) throws -> (scope: RecordScope, access: RecordAccess) {
        let (database, access) = try openDatabase(container, kind, caller, transaction)
        let isDefault = id.hasSameBytes(as: RecordLimits.defaultZone)
        guard kind != .public else {
            guard isDefault else { throw Self.noZone }
            return (database, access)
        }
        guard isDefault || ZoneID.isID(id) else { throw Self.noZone }
        let zone = try self.zone(id, of: database)
        guard try zone.isAlive() || isDefault else { throw Self.noZone }
        return (zone, access)
    }

    /// The zone of that id, whether there is one or not.
    func zone(_ id: String, of database: RecordScope) throws -> RecordScope {
        let path = ItemName("\(database.scope.path)/\(id)")
        return try scope(ScopeName(database.scope.owner, path), database.transaction)
    }

    func scope(_ scope: ScopeName, _ transaction: any HandlerTransaction) throws -> RecordScope {
        guard let keys else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        return RecordScope(scope: scope, transaction: transaction, keys: keys, digestKeys: digestKeys) {
            [unowned self] in
            try quarantine($0, of: $1, in: $2)
        }
    }

    private static let noContainer = CloudError(
        .missingEntitlement, "The app has no such container. Ask for one that the app lists.")
    static let needsAccount = CloudError(
        .permissionFailure, "Without an account there is the public database alone. Sign in.")
    private static let ownerIsUnknown = CloudError(
        .serviceBusy, "Which app owns the container is not known yet. Try again.", retryAfter: .milliseconds(200))
    static let noZone = CloudError(
        .zoneNotFound, "The database has no such zone, or it was deleted. Fetch the database's changes.")

    /// - Returns: The zone's id; nil: it is a database. Containers have no slash in their names.
    private static func parts(of scope: ScopeName) -> (container: String, zone: String?) {
        let parts = scope.path.rawValue.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        return (String(parts.first ?? ""), parts.count == 2 ? String(parts[1]) : nil)
    }

    public func presenter(
        of scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        try mending(transaction) { try present(scope, for: caller, in: transaction) }
    }

    private func present(
        _ scope: ScopeName, for caller: Caller, in transaction: any HandlerTransaction
    ) throws -> any ScopePresenter {
        let (container, zoneID) = Self.parts(of: scope)
        if let app = scope.owner.app {
            guard caller.entitlements.include(ItemName(container), of: name),
                runtime?.definition(of: ItemName(container)).owner == app,
                zoneID.map({ $0.hasSameBytes(as: RecordLimits.defaultZone) }) ?? true
            else { throw Self.noContainer }
            let zone = try self.scope(scope, transaction)
            guard zoneID != nil else {
                // Nothing is ever written to it.
                return DatabasePresenter(opener: try zone.opener(), digestKey: [], isPublic: true)
            }
            return ZonePresenter(
                opener: try zone.opener(), digestKey: try zone.digestKey() ?? [],
                clientToken: caller.isPublic ? [] : try zone.rows.clientToken(of: caller.device), isPublic: true)
        }
        guard !caller.isPublic, scope.owner == Owner(caller.account) else { throw Self.noContainer }
        guard let zoneID else {
            let database = try openDatabase(container, .private, caller, transaction).scope
            return DatabasePresenter(
                opener: try database.opener(), digestKey: try database.digestKey() ?? [],
                lostChunks: try transfers.lostChunks(of: database.scope, in: transaction),
                isContentMissing: transfers.isContentMissing)
        }
        let zone = try openZone(zoneID, of: container, .private, caller, transaction).scope
        return ZonePresenter(
            opener: try zone.opener(), digestKey: try zone.digestKey() ?? [],
            clientToken: try zone.rows.clientToken(of: caller.device))
    }

    public func quarantine(_ item: FeedItem, of name: ScopeName, in transaction: any HandlerTransaction) throws {
        try transaction.lasting {
            try transaction.quarantine(item, of: name)
            guard !item.deleted, Self.parts(of: name).zone != nil else { return }
            // It counts no more. Its assets stay for a while; not in a public database, where the row said who may read them.
            try count(-Int64(item.size), in: name, transaction)
            guard name.owner.isApp else { return }
            try retireAssets(of: item.name, in: name, transaction)
        }
    }

    public func removeRemains(
        ofItem name: ItemName, in scope: ScopeName, _ transaction: any HandlerTransaction
    ) throws -> Bool {
        if Self.parts(of: scope).zone != nil { try retireAssets(of: name, in: scope, transaction) }
        return false
    }

    private func retireAssets(
        of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        let rows = AssetRows(rows: ZoneRows(zone, in: transaction))
        guard try !rows.assets(of: record).isEmpty else { return }
        try rows.retire(record, at: transaction.head(zone).token.sequence)
        transaction.afterCommit { [weak self] in self?.assetEndings.beginSoon() }
    }

    // MARK: What is counted

    /// Records count on the plan, for their container: a zone may be several apps'.
    func count(
        _ bytes: Int64, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        guard let storage = runtime?.storage else { throw CloudError(.serviceUnavailable, "The service is starting.") }
        let container = Self.parts(of: zone).container
        if bytes > 0 {
            try storage.charge(
                UInt64(bytes), to: zone.owner, app: AppID(container), device: DeviceID(""), in: transaction)
        } else {
            try storage.release(
                bytes.magnitude, of: zone.owner, app: AppID(container), device: DeviceID(""), in: transaction)
        }
    }

    // MARK: By itself

    /// Rows that one step removes.
    private static let removeMax = 500

    private func removeSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let zone = try turn.next({ try ZoneRows.nextRemoval(after: $0, in: transaction) }) else { return false }
        let rows = ZoneRows(zone, in: transaction)
        // Before the rows that say what they rest on.
        if try giveBackAssets(of: zone, from: .min, to: .max, in: transaction) { return true }
        // The scope goes last: as long as it is there nobody can make a zone of that id, whose rows these would be.
        guard try !rows.removeSome(limit: Self.removeMax),
            try !IndexRows.removeSome(of: zone, limit: Self.removeMax, in: transaction)
        else { return true }
        guard try !transaction.removeAll(of: zone, limit: Self.removeMax) else { return true }
        try rows.endRemoval()
        return true
    }

    private func pruneSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let now = runtime?.purgeTime else { return false }
        let time = now.advanced(by: .zero - RecordLimits.historyRetention)
        guard let zone = try RecordHistory.zone(agedBefore: time, passingOver: turn.failed, in: transaction) else {
            return false
        }
        turn.scope = zone
        let bytes = try RecordHistory(rows: ZoneRows(zone, in: transaction)).prune(before: time)
        // What a deleted zone counted was given back with it.
        if try scope(zone, transaction).isAlive() { try count(-Int64(clamping: bytes), in: zone, transaction) }
        return true
    }

    /// The service as it runs by itself: with segment files in the folder `content` of its data.
    ///
    /// - Throws: ``CloudError`` as ``Transfers/make(in:on:)`` does.
    public static func make(_ config: ServiceRuntimeConfig, on transport: any Transport) throws -> RecordsService {
        RecordsService(try Transfers.make(in: config.dataDirectory, on: transport))
    }
}

/// What names a zone for ever.
enum ZoneID {
    static let byteCount = 32

    /// 32 lowercase hexadecimal digits.
    static func isID(_ id: String) -> Bool {
        id.utf8.count == byteCount
            && id.utf8.allSatisfy { (0x30...0x39).contains($0) || (0x61...0x66).contains($0) }
    }
}
