internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// A zone's records as a model: all of them are here whole.
final class RecordZoneModel: ContentSending {
    static var migrations: [LocalMigration] { RecordItems.migrations }

    let app: AppID
    let service = ServiceName.records
    let container: String
    /// Its name.
    let zone: String
    unowned let engine: DeviceEngine
    var name: String { place.name }
    var isOnlyWhatIsHere: Bool { true }
    let place: RecordPlace
    private(set) lazy var uploads = ContentUploads(self)

    /// - Parameter place: Of a zone.
    init(app: AppID, _ place: RecordPlace, engine: DeviceEngine) {
        self.app = app
        self.place = place
        container = place.container
        zone = place.zone ?? RecordLimits.defaultZone
        self.engine = engine
    }

    func address(in session: SessionRecord) -> ScopeAddress {
        let absence = ScopeAddress.toldByToken(
            CloudError(.missingEntitlement, "The app lists no such container.", details: ["container": container]))
        guard DeviceEngine.lists(container, app, in: session) else { return absence }
        if place.isPublic {
            guard let owner = session.publicOwner(of: container) else { return absence }
            let scope = place.scope(of: session.accountID, owner: owner)
            return isKept(scope) ? .known(scope) : .toldByHome
        }
        guard !session.isPublic else { return .toldByHome }
        let address = try? engine.local.read { database -> ScopeAddress in
            let zones = ZoneTransaction(
                ScopeTransaction(database, RecordPlace.database(container).scope(of: session.accountID)))
            if let id = try zones.id(of: zone) { return .known(place.scope(of: session.accountID, zoneID: id)) }
            guard case .zone = place, zone != RecordZone.defaultName else { return .toldByHome }
            return try zones.rows.state().synced && zones.zone(zone) == nil ? .gone : .toldByHome
        }
        return address ?? .toldByHome
    }

    /// Whether a copy is kept: any process of the home may have dropped it.
    private func isKept(_ scope: LocalScope) -> Bool {
        guard case .publicZone = place else { return true }
        return (try? engine.local.read { try ScopeTransaction($0, scope).hasState() }) ?? false
    }

    func place(in session: SessionRecord?) -> LocalScope {
        place.scope(
            of: session.flatMap { $0.signedIn ? $0.accountID : nil },
            owner: place.isPublic ? session?.publicOwner(of: container) : nil)
    }

    func records(in rows: ScopeTransaction) -> RecordTransaction {
        RecordTransaction(rows, zone: zone, hasCopy: place.hasCopy)
    }

    // MARK: Bringing in

    func forEachDigest(
        in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void
    ) throws { try RecordItems(rows: rows).forEachDigest(key: key, body) }

    func digest(of change: WireChange, key: [UInt8]) -> SetDigest? {
        SetDigest(ofItem: ItemName(change.item), body: change.body, key: key)
    }

    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64 {
        try RecordItems(rows: rows).greatestSequence()
    }

    private static func type(_ body: Data) -> String? { (try? WireRecord(serializedBytes: body))?.type }

    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges? {
        let isFirst = !state.synced
        let records = records(in: rows)
        let offers = StagedOffers(in: rows)
        guard try isStillThis(rows) else { return nil }
        let changed = try records.items.merge(pulled, &state, type: Self.type) {
            try self.stage($0, offers, in: records)
        }
        try records.endRefusals(after: changed)
        try records.offer(offers, by: engine)
        try trimAssets(in: rows)
        if let info = pulled.info, !info.isEmpty { state.info = info }
        return MergedChanges(news: changed.news(isFirst: isFirst))
    }

    /// Has the database's zones looked at anew.
    func pullDatabase() {
        let id = ScopeID(app: app, service: service, name: container)
        engine.loop.schedule(after: .zero) { [weak engine] in
            guard let engine, !engine.stopped else { return }
            _ = (try? engine.scope(id))?.pull()
        }
    }

    /// Whether the zone is still the one that is called so: what comes late of another must not come into this one. And
    /// whether a copy is kept still.
    func isStillThis(_ rows: ScopeTransaction) throws -> Bool {
        if case .publicZone = place { return try rows.hasState() }
        if place.isPublic { return true }
        let database = RecordPlace.database(container).scope(of: rows.scope.account)
        let id = try ZoneTransaction(ScopeTransaction(rows.database, database)).id(of: zone)
        return id.map { place.scope(of: rows.scope.account, zoneID: $0).path.hasSameBytes(as: rows.scope.path) }
            ?? false
    }
}

extension RecordItems {
    /// In the order of their names.
    func forEachDigest(key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void) throws {
        let items = try cursor(ofType: nil)
        while let item = try items.next() {
            if let digest = item.digest(key: key) { try body(item.name, digest) }
        }
    }
}

extension RecordTransaction {
    /// Whether this very save waits to be sent.
    func isWaiting(_ version: Data, of name: String) throws -> Bool {
        try pending(of: name).contains { pending in
            if case .save(let save)? = pending.change.kind { save.version == version } else { false }
        }
    }
}
