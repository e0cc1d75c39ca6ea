internal import Foundation
internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

// What records have beside them: content, which devices store before they save, and fetch when they want it.
//
// The private database of a container is one container of content. In a public one each asset is a container by itself,
// as an upload has brought it to a record, and the record's rows say which are its. So whoever may read the record
// fetches its assets, at each moment those that it has; what somebody has stored and not saved nobody else can find or
// take; and a record made anew has nothing of the one before.
extension RecordsService {
    /// Of which container the contents of a record are; in a public database: what those of its assets are made from
    /// (``ContentPlace/container(_:bringing:by:)``), and none itself.
    static func contentContainer(of zone: ScopeName, _ record: ItemName) -> ItemName {
        guard !zone.owner.isApp else { return ItemName("\(zone.path)/\(record)") }
        return ItemName(String(zone.path.rawValue.prefix { $0 != "/" }))
    }

    /// What contents of a zone's records rest on that are used in one container. They count as the records do.
    ///
    /// - Parameter siblings: Other containers of the same record.
    func assetUses(
        in container: ItemName, besides siblings: Set<String> = [], of zone: ScopeName,
        _ transaction: any HandlerTransaction
    ) throws -> ContentUses {
        try transfers.uses(
            at: contentPlace(
                container, besides: siblings, owner: zone.owner, partition: zone.partition, readable: []),
            in: transaction)
    }

    private func contentPlace(
        _ container: ItemName, _ root: ChunkID? = nil, besides siblings: Set<String> = [], owner: Owner, partition: Int,
        readable: Set<String>
    ) -> ContentPlace {
        // Each begins with the id of the database's container.
        let app = container.rawValue.prefix { $0 != "/" && $0 != "#" }
        return ContentPlace(
            owner: owner, partition: partition, container: container, root: root, siblings: siblings,
            readable: readable, room: .plan, app: AppID(String(app)), device: DeviceID(""))
    }

    /// In which containers that lies for which a ticket was given.
    static let contentReading: Transfers.Reading = { readable, owner, partition, transaction in
        guard owner.isApp else { return [readable] }
        guard let assets = ReadableAssets(readable, of: owner), assets.zone.partition == partition else { return [] }
        return try AssetRows.containers(
            of: assets.record, in: assets.zone, readBy: assets.readers.rawValue, transaction)
    }

    /// Who may read records of a container's public database may have changed.
    func endTickets(ofPublic container: ItemName) {
        let prefix = "\(container)/\(RecordLimits.defaultZone)/".utf8
        transfers.endTickets { $0.isApp && $1.utf8.starts(with: prefix) }
    }

    /// Where the contents lie that a request names.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, as for the database; `.unknownItem`: the caller may read no such
    ///   record; `.permissionFailure`: it may not save it; `.invalidArguments`.
    func place(
        ofContent name: String, _ purpose: ContentPlace.Purpose, _ caller: Caller,
        _ transaction: any HandlerTransaction
    ) throws -> ContentPlace {
        guard purpose != .borrowing else {
            throw CloudError(
                .invalidArguments, "Assets are not taken from another container. Store them.",
                details: ["argument": "source_container"])
        }
        let parts = name.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
        guard parts.count > 1 else {
            let database = try openDatabase(name, .private, caller, transaction).scope.scope
            return contentPlace(
                database.path, owner: database.owner, partition: database.partition,
                readable: Set(caller.entitlements.containers.map(\.rawValue)))
        }
        guard parts.count == 3, RecordLimits.isName(parts[2]) else { throw Self.noPlace }
        let root = try Self.root(named: parts[1])
        let (zone, access) = try openDatabase(parts[0], .public, caller, transaction)
        let record = ItemName(parts[2])
        var (siblings, readable): (Set<String>, Set<String>) = ([], [])
        if purpose != .ending {
            let isHidden = try access.circles(in: zone).map { try zone.isHidden(record, from: $0) } ?? false
            let state = isHidden ? nil : try zone.record(record, within: RequestRoom()).state
            try checkMay(purpose, state, access, caller)
            if let found = state?.record, access.mayRead(found) {
                siblings = try AssetRows(rows: zone.rows).containers(of: record)
                readable = [ReadableAssets(zone: zone.scope, record: record, readers: RecordReaders(found)).name]
            }
        }
        return contentPlace(
            Self.contentContainer(of: zone.scope, record), root, besides: siblings, owner: zone.scope.owner,
            partition: zone.scope.partition, readable: readable)
    }

    private static let noPlace = CloudError(
        .invalidArguments,
        "Of a public database the content is named by its container, zone and record, and nodes by their root.",
        details: ["argument": "container"])

    /// Which asset is meant by a zone's name and its root: `_defaultZone#…`; nil, of the zone alone: none.
    private static func root(named name: String) throws(CloudError) -> ChunkID? {
        let parts = name.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
        guard parts[0].hasSameBytes(as: RecordLimits.defaultZone) else { throw noPlace }
        guard parts.count == 2 else { return nil }
        guard let root = ChunkID(hex: parts[1]) else { throw noPlace }
        return root
    }

    /// - Parameter state: Of the record; nil: there is one that the caller may not know of.
    private func checkMay(
        _ purpose: ContentPlace.Purpose, _ state: SaveRule.State?, _ access: RecordAccess, _ caller: Caller
    ) throws {
        switch purpose {
        case .fetching, .reading: guard let record = state?.record, access.mayRead(record) else { throw Self.noRecord }
        case .storing, .finding, .borrowing, .ending:
            guard !caller.isPublic else { throw Self.needsAccount }
            // Of one that the caller may not see it learns that the name is taken, as when it saves one of that name.
            let may = state.map { $0.record.map(access.mayWrite) ?? access.mayCreateSome }
            guard may ?? false else {
                throw CloudError(
                    .permissionFailure, "The caller may not save the record, and stores nothing for it.")
            }
        }
    }

    private static let noRecord = CloudError(
        .unknownItem, "There is no such record, or the caller may not read it.", details: ["argument": "container"])

    /// The devices that follow the account's databases hear of it at once: one of them may have what was lost. Of public
    /// databases nobody is told: they have what whoever saved it has.
    func tellLoss(to owner: Owner, of containers: Set<String>, _ transaction: any HandlerTransaction) throws {
        guard owner.account != nil else { return }
        for container in containers.sorted() {
            let scope = ScopeName(owner, ItemName(container))
            let position = try transaction.position(ofPartition: scope.partition)
            let notification = WireNotification(infoOf: scope, name, at: try transaction.head(scope))
            transaction.publish(OutgoingEvent(in: scope, at: position, notification: Frame(encoding: notification)))
        }
    }

    // MARK: Ends

    /// Assets that one step gives back.
    private static let endingsStep = 128

    /// Gives back what entries had that are not kept any more.
    func endAssets(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let zone = try turn.next({ try AssetRows.nextZone(after: $0, in: transaction) }),
            let ending = try AssetRows.ending(of: zone, in: transaction)
        else { return false }
        let rows = AssetRows(rows: ZoneRows(ending.zone, in: transaction))
        if try !giveBackAssets(of: ending.zone, from: ending.first, to: ending.last, in: transaction) {
            try rows.finish(ending)
        }
        return true
    }

    /// Gives back some of what a zone's entries have.
    ///
    /// - Returns: Whether there may be more.
    func giveBackAssets(
        of zone: ScopeName, from first: Int64, to last: Int64, in transaction: any HandlerTransaction
    ) throws -> Bool {
        let rows = AssetRows(rows: ZoneRows(zone, in: transaction))
        let (entries, hasMore) = try rows.assets(from: first, to: last, limit: Self.endingsStep)
        guard !entries.isEmpty else { return false }
        for entry in entries {
            let container =
                entry.container.rawValue.isEmpty ? Self.contentContainer(of: zone, entry.record) : entry.container
            try assetUses(in: container, of: zone, transaction).giveBack([entry.asset.content])
            try rows.remove([entry.asset], of: entry.record, entry: entry.entry)
        }
        transaction.afterCommit { [transfers] in transfers.removeSoon() }
        return hasMore
    }
}

/// What a request's assets rest on: content that is there, and what an upload has stored.
final class BroughtContents {
    private let service: RecordsService
    private let upload: Data
    private let caller: Caller
    /// For which container a chunk was taken from the upload that is an asset as a whole: other records of the same
    /// request may have it, too.
    private var takers: [ChunkID: ItemName] = [:]
    /// Of what names no upload.
    private var own: ReservationID?
    /// What was found to be there: a zone may be decided several times.
    private var checked: Set<Checked> = []
    /// How many were looked at, also of records that then lacked one.
    private var lookedCount = 0
    /// What records have no more: given back when all of the request have what they are to have, since one may have from
    /// now on what another gives up.
    private var removed: [(asset: StoredAsset, container: ItemName, zone: ScopeName)] = []

    private struct Checked: Hashable {
        var asset: StoredAsset
        var container: ItemName
    }

    init(service: RecordsService, upload: Data, caller: Caller) {
        self.service = service
        self.upload = upload
        self.caller = caller
    }

    private func reservation(in zone: ScopeName) throws(CloudError) -> ReservationID? {
        try Transfers.reservation(upload, of: zone.owner, by: caller.account)
    }

    /// How many assets a request may have looked at, also of zones of which nothing is done in the end.
    private static let checkedMax = 2 * RecordLimits.assetsOfRequestMax

    /// - Returns: Those that were not found yet.
    /// - Throws: ``CloudError`` `.limitExceeded`: they are too many.
    func unchecked(
        _ assets: Set<StoredAsset>, of record: ItemName, in zone: ScopeName
    ) throws(CloudError) -> Set<StoredAsset> {
        let container = RecordsService.contentContainer(of: zone, record)
        let new = assets.filter { !checked.contains(Checked(asset: $0, container: container)) }
        lookedCount += new.count
        guard lookedCount <= Self.checkedMax else { throw RequestRoom.tooManyAssets }
        return new
    }

    /// - Throws: ``CloudError`` `.assetNotAvailable`: something that they rest on is not there.
    func check(
        _ assets: Set<StoredAsset>, of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        do {
            let siblings = try siblings(of: record, in: zone, transaction)
            for asset in assets.sorted() {
                let container = try self.container(for: asset, of: record, in: zone)
                try service.assetUses(in: container, besides: siblings, of: zone, transaction).check(
                    [asset.content], from: reservation(in: zone))
            }
            let container = RecordsService.contentContainer(of: zone, record)
            checked.formUnion(assets.map { Checked(asset: $0, container: container) })
        } catch let error as CloudError where error.code == .unknownItem {
            throw CloudError(
                .assetNotAvailable, "What an asset of the record rests on was not stored. Store it, and save again.",
                details: error.details)
        }
    }

    /// In which containers what the record has is used. Of a private database that is one.
    private func siblings(
        of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws -> Set<String> {
        guard zone.owner.isApp else { return [] }
        return try AssetRows(rows: ZoneRows(zone, in: transaction)).containers(of: record)
    }

    /// In which container an asset is used from now on.
    private func container(for asset: StoredAsset, of record: ItemName, in zone: ScopeName) throws -> ItemName {
        let container = RecordsService.contentContainer(of: zone, record)
        guard zone.owner.isApp else { return container }
        return ContentPlace.container(
            container, bringing: asset.root, by: try reservation(in: zone) ?? unnamed(in: zone))
    }

    /// In place of an upload where none is named: what is a chunk of an asset that the record has needs none.
    private func unnamed(in zone: ScopeName) throws -> ReservationID {
        if let known = own { return known }
        let made = Data((0..<ReservationID.byteCount).map { _ in UInt8.random(in: .min ... .max) })
        guard let id = try Transfers.reservation(made, of: zone.owner, by: caller.account) else {
            throw CloudError(.internalError, "An upload's id has 16 bytes.")
        }
        own = id
        return id
    }

    /// Begins to use what a record has from now on. What it has no more is given back in the end (``finish(_:)``).
    ///
    /// - Returns: In which container each of those is used that it has from now on.
    func take(
        _ added: Set<StoredAsset>, givingBack removed: Set<StoredAsset>, of record: ItemName, in zone: ScopeName,
        _ transaction: any HandlerTransaction
    ) throws -> [StoredAsset: ItemName] {
        if !removed.isEmpty {
            let known = try AssetRows(rows: ZoneRows(zone, in: transaction)).assets(of: record)
            for asset in removed.sorted() {
                let container = known[asset].flatMap { $0.rawValue.isEmpty ? nil : $0 }
                self.removed.append(
                    (asset, container ?? RecordsService.contentContainer(of: zone, record), zone))
            }
        }
        guard !added.isEmpty else { return [:] }
        let siblings = try siblings(of: record, in: zone, transaction)
        var taken: [StoredAsset: ItemName] = [:]
        for asset in added.sorted() {
            let container = try self.container(for: asset, of: record, in: zone)
            let taker = asset.depth == 0 ? takers.updateValue(container, forKey: asset.root) : nil
            try service.assetUses(in: container, besides: siblings, of: zone, transaction).take(
                [asset.content], nodes: [], from: reservation(in: zone), besides: taker)
            taken[asset] = zone.owner.isApp ? container : ""
        }
        return taken
    }

    /// Gives back what records have no more.
    func finish(_ transaction: any HandlerTransaction) throws {
        guard !removed.isEmpty else { return }
        for (asset, container, zone) in removed {
            try service.assetUses(in: container, of: zone, transaction).giveBack([asset.content])
        }
        removed = []
        transaction.afterCommit { [transfers = service.transfers] in transfers.removeSoon() }
    }

    /// What is kept of a record of a private database that was overwritten has its assets too.
    func keep(
        _ assets: Set<StoredAsset>, of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        let container = RecordsService.contentContainer(of: zone, record)
        try service.assetUses(in: container, of: zone, transaction).keep(assets.sorted().map(\.content))
    }
}

extension StoredAsset: Comparable {
    static func < (left: StoredAsset, right: StoredAsset) -> Bool {
        left.root.bytes.lexicographicallyPrecedes(right.root.bytes)
    }
}
