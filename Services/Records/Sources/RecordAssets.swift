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
// The private database of a container is one container of content. Of a public one each record is: so whoever may read
// the record may fetch its assets, who may not learns nothing of them, and it is asked when it is done, whatever the
// roles were before.
extension RecordsService {
    /// Of which container the contents of a record are.
    static func contentContainer(of zone: ScopeName, _ record: ItemName) -> ItemName {
        guard !zone.owner.isApp else { return ItemName("\(zone.path)/\(record)") }
        return ItemName(String(zone.path.rawValue.prefix { $0 != "/" }))
    }

    /// What the contents of a record rest on. They count as the record does.
    func assetUses(
        of record: ItemName, in zone: ScopeName, at now: Timestamp, _ transaction: any HandlerTransaction
    ) throws -> ContentUses {
        try transfers.uses(
            at: contentPlace(
                Self.contentContainer(of: zone, record), owner: zone.owner, partition: zone.partition, readable: []),
            now: now, in: transaction)
    }

    private func contentPlace(
        _ container: ItemName, owner: Owner, partition: Int, readable: Set<String>
    ) -> ContentPlace {
        ContentPlace(
            owner: owner, partition: partition, container: container, readable: readable, room: .plan,
            app: AppID(String(container.rawValue.prefix { $0 != "/" })), device: DeviceID(""))
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
        guard parts.count == 3, parts[1].hasSameBytes(as: RecordLimits.defaultZone), RecordLimits.isName(parts[2])
        else {
            throw CloudError(
                .invalidArguments, "Of a public database the content is named by its container, zone and record.",
                details: ["argument": "container"])
        }
        let (zone, access) = try openDatabase(parts[0], .public, caller, transaction)
        let record = ItemName(parts[2])
        var isReadable = false
        if purpose != .ending {
            let state = try zone.record(record, within: RequestRoom()).state
            isReadable = state.record.map(access.mayRead) ?? false
            try checkMay(purpose, state.record, isDamaged: state.isDamaged, access, caller)
        }
        let container = Self.contentContainer(of: zone.scope, record)
        return contentPlace(
            container, owner: zone.scope.owner, partition: zone.scope.partition,
            readable: isReadable ? [container.rawValue] : [])
    }

    /// - Parameter record: As it is; nil: it is not there, or cannot be read any more.
    private func checkMay(
        _ purpose: ContentPlace.Purpose, _ record: WireRecord?, isDamaged: Bool, _ access: RecordAccess,
        _ caller: Caller
    ) throws {
        switch purpose {
        case .fetching, .reading: guard let record, access.mayRead(record) else { throw Self.noRecord }
        case .storing, .finding, .borrowing, .ending:
            guard !caller.isPublic else { throw Self.needsAccount }
            // Of one that the caller may not see it learns that the name is taken, as when it saves one of that name.
            let may =
                isDamaged ? access.mayWriteWhatIsDamaged : record.map(access.mayWrite) ?? access.mayCreateSome
            guard may else {
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
    func endAssets(in transaction: any HandlerTransaction) throws -> Bool {
        guard let ending = try AssetRows.nextEnding(in: transaction) else { return false }
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
        guard let now = runtime?.loop.wallClock.now else { return false }
        let rows = AssetRows(rows: ZoneRows(zone, in: transaction))
        let (entries, hasMore) = try rows.assets(from: first, to: last, limit: Self.endingsStep)
        guard !entries.isEmpty else { return false }
        for entry in entries {
            try assetUses(of: entry.record, in: zone, at: now, transaction).giveBack([entry.asset.content])
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
    private let now: Timestamp
    /// By which record of the request a chunk was taken from the upload that is an asset as a whole: others of the same
    /// request may have it, too.
    private var takers: [ChunkID: ItemName] = [:]
    /// What was found to be there: a zone may be decided several times.
    private var checked: Set<Checked> = []
    /// How many were looked at, also of records that then lacked one.
    private var lookedCount = 0
    /// What records have no more: given back when all of the request have what they are to have, since one may have from
    /// now on what another gives up.
    private var removed: [(assets: Set<StoredAsset>, record: ItemName, zone: ScopeName)] = []

    private struct Checked: Hashable {
        var asset: StoredAsset
        var container: ItemName
    }

    init(service: RecordsService, upload: Data, caller: Caller, now: Timestamp) {
        self.service = service
        self.upload = upload
        self.caller = caller
        self.now = now
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
            try service.assetUses(of: record, in: zone, at: now, transaction).check(
                assets.sorted().map(\.content), from: reservation(in: zone))
            let container = RecordsService.contentContainer(of: zone, record)
            checked.formUnion(assets.map { Checked(asset: $0, container: container) })
        } catch let error as CloudError where error.code == .unknownItem {
            throw CloudError(
                .assetNotAvailable, "What an asset of the record rests on was not stored. Store it, and save again.",
                details: error.details)
        }
    }

    /// Begins to use what a record has from now on. What it has no more is given back in the end (``finish(_:)``).
    func take(
        _ added: Set<StoredAsset>, givingBack removed: Set<StoredAsset>, of record: ItemName, in zone: ScopeName,
        _ transaction: any HandlerTransaction
    ) throws {
        if !removed.isEmpty { self.removed.append((removed, record, zone)) }
        guard !added.isEmpty else { return }
        let uses = try service.assetUses(of: record, in: zone, at: now, transaction)
        for asset in added.sorted() {
            let taker = asset.depth == 0 ? takers.updateValue(record, forKey: asset.root) : nil
            try uses.take(
                [asset.content], nodes: [], from: reservation(in: zone),
                besides: taker.map { RecordsService.contentContainer(of: zone, $0) })
        }
    }

    /// Gives back what records have no more.
    func finish(_ transaction: any HandlerTransaction) throws {
        guard !removed.isEmpty else { return }
        for (assets, record, zone) in removed {
            try service.assetUses(of: record, in: zone, at: now, transaction).giveBack(assets.sorted().map(\.content))
        }
        removed = []
        transaction.afterCommit { [transfers = service.transfers] in transfers.removeSoon() }
    }

    /// What is kept of a record that was overwritten has its assets too.
    func keep(
        _ assets: Set<StoredAsset>, of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        try service.assetUses(of: record, in: zone, at: now, transaction).keep(assets.sorted().map(\.content))
    }
}

extension StoredAsset: Comparable {
    static func < (left: StoredAsset, right: StoredAsset) -> Bool {
        left.root.bytes.lexicographicallyPrecedes(right.root.bytes)
    }
}
