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
        let state = try zone.record(record, within: RequestRoom()).state
        switch purpose {
        case .fetching, .reading:
            guard let known = state.record, access.mayRead(known) else { throw Self.noRecord }
        case .storing, .finding, .borrowing:
            guard !caller.isPublic else { throw Self.needsAccount }
            // One that the caller may not see is refused when it is saved over: until then nothing is said of it.
            guard state.record.map({ access.mayWrite($0) || !access.mayRead($0) }) ?? access.mayCreateSome else {
                throw CloudError(
                    .permissionFailure, "The caller may not save the record, and stores nothing for it.")
            }
        }
        let container = Self.contentContainer(of: zone.scope, record)
        return contentPlace(
            container, owner: zone.scope.owner, partition: zone.scope.partition, readable: [container.rawValue])
    }

    private static let noRecord = CloudError(
        .unknownItem, "There is no such record, or the caller may not read it.", details: ["argument": "container"])

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

    init(service: RecordsService, upload: Data, caller: Caller, now: Timestamp) {
        self.service = service
        self.upload = upload
        self.caller = caller
        self.now = now
    }

    private func reservation(in zone: ScopeName) throws(CloudError) -> ReservationID? {
        try Transfers.reservation(upload, of: zone.owner, by: caller.account)
    }

    /// - Throws: ``CloudError`` `.assetNotAvailable`: something that they rest on is not there.
    func check(
        _ assets: Set<StoredAsset>, of record: ItemName, in zone: ScopeName, _ transaction: any HandlerTransaction
    ) throws {
        do {
            try service.assetUses(of: record, in: zone, at: now, transaction).check(
                assets.sorted().map(\.content), from: reservation(in: zone))
        } catch let error as CloudError where error.code == .unknownItem {
            throw CloudError(
                .assetNotAvailable, "What an asset of the record rests on was not stored. Store it, and save again.",
                details: error.details)
        }
    }

    /// Begins to use what a record has from now on, and gives back what it has no more.
    func take(
        _ added: Set<StoredAsset>, givingBack removed: Set<StoredAsset>, of record: ItemName, in zone: ScopeName,
        _ transaction: any HandlerTransaction
    ) throws {
        let uses = try service.assetUses(of: record, in: zone, at: now, transaction)
        for asset in added.sorted() {
            let taker = asset.depth == 0 ? takers.updateValue(record, forKey: asset.root) : nil
            try uses.take(
                [asset.content], nodes: [], from: reservation(in: zone),
                besides: taker.map { RecordsService.contentContainer(of: zone, $0) })
        }
        guard !removed.isEmpty else { return }
        try uses.giveBack(removed.sorted().map(\.content))
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
