import Foundation
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosRecords

/// A cloud with an app that has a container, and devices that change its records at the service's real door.
final class RecordHouse {
    static let app = "T.notes"
    static let container = "T.notes"

    let cloud: TestCloud
    private let folder = NSTemporaryDirectory() + "record-tests-\(UUID().uuidString)"

    init(
        seed: UInt64 = 1, engine: SQLiteEngine? = nil, store: (any BlobStore)? = nil,
        budgets: BudgetConfiguration = .unlimited, configuration: Transfers.Configuration = Transfers.Configuration()
    ) throws {
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let store = try store ?? SegmentStore(folder: folder, segmentBytesMax: 1 << 20)
        cloud = try TestCloud(
            seed: seed, budgets: budgets, engines: engine.map { [.records: $0] } ?? [:],
            contentServices: [.records: .init(store: store, configuration: configuration) { RecordsService($0) }])
        try createApp(Self.app, [Self.container, "T.shared"])
        try createApp("T.other", ["T.elsewhere", "T.shared"])
    }

    deinit {
        cloud.close()
        try? FileManager.default.removeItem(atPath: folder)
    }

    private func createApp(_ id: String, _ containers: [String]) throws {
        var app = WireApp()
        app.appID = id
        app.containerIds = containers
        try cloud.createApp(app)
    }

    func device(app: String = RecordHouse.app, account: String = TestCloud.accountName) throws -> RecordDevice {
        RecordDevice(self, try TestBulk(of: cloud, account: account, app: app))
    }

    /// What the ledger says is used of the account's plan.
    func used(of account: AccountID) throws -> Int64 { try used(of: Owner(account)) }

    func used(of account: Owner) throws -> Int64 {
        try cloud.storage(of: .records).write { transaction in
            try transaction.first(
                SQL("SELECT used FROM storage_owners WHERE owner_id = ?1"), [.text(account.rawValue)]
            ) { $0.integer(0) } ?? 0
        }
    }

    /// Rows of one of the service's tables.
    func rows(of table: String) throws -> Int64 {
        try cloud.storage(of: .records).write { transaction in
            try transaction.first(SQL("SELECT COUNT(*) FROM \(table)"), []) { $0.integer(0) } ?? 0
        }
    }
}

/// A device that changes records.
final class RecordDevice {
    /// Who it is signed in as; of one without an account, what it moves content with.
    let mover: TestBulk
    var client: TestClient { mover.client }
    let house: RecordHouse
    var container = RecordHouse.container
    var zone = RecordLimits.defaultZone
    var database = WireRecordDatabaseKind.private
    /// Whose the public database is.
    var owner = ""
    private var head = WireChangeToken()

    init(_ house: RecordHouse, _ mover: TestBulk) {
        self.house = house
        self.mover = mover
    }

    /// One without an account, of a public database.
    init(_ house: RecordHouse, _ client: TestClient, token: String, owner: String) {
        self.house = house
        mover = TestBulk(of: house.cloud, client, accessToken: token)
        (database, self.owner) = (.public, owner)
    }

    var accessToken: String { mover.accessToken }

    /// The same device, of the container's public database.
    func ofPublic(owner: String = RecordHouse.app, container: String = RecordHouse.container) -> RecordDevice {
        let device = RecordDevice(house, mover)
        (device.database, device.owner, device.container) = (.public, owner, container)
        return device
    }

    @discardableResult
    func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ method: String, _ request: Request, as reply: Reply.Type
    ) throws -> Reply {
        try client.call(method, request, at: .requests(.records), accessToken: accessToken, as: reply)
    }

    // MARK: Zones

    @discardableResult
    func makeZone(_ name: String, id: String = RecordDevice.zoneID()) throws -> String {
        var request = WireModifyZones()
        request.container = container
        request.database = database
        var zone = WireNewZone()
        zone.name = name
        zone.zoneID = id
        request.save = [zone]
        let reply = try call("ModifyZones", request, as: WireModifyZonesReply.self)
        return try WireRecordZone(serializedBytes: #require(reply.zones.first).body).zoneID
    }

    /// As a device does that has what the service has not.
    func offerZone(_ name: String, _ zone: WireRecordZone) throws {
        var request = WireModifyZones()
        request.container = container
        var new = WireNewZone()
        (new.name, new.zoneID, new.created) = (name, zone.zoneID, zone.created)
        (new.deviceID, new.appID, new.seal) = (zone.deviceID, zone.appID, zone.seal)
        request.save = [new]
        try call("ModifyZones", request, as: WireModifyZonesReply.self)
    }

    /// - Parameter id: Nil: of the zone that has the name now.
    func deleteZone(_ name: String, id: String? = nil) throws {
        var request = WireModifyZones()
        request.container = container
        request.database = database
        var zone = WireDeletedZone()
        zone.name = name
        zone.zoneID = try id ?? zones()[name]?.zoneID ?? Self.zoneID()
        request.delete = [zone]
        try call("ModifyZones", request, as: WireModifyZonesReply.self)
    }

    static func zoneID() -> String { UUID().uuidString.lowercased().replacing("-", with: "") }
    static func version() -> Data { withUnsafeBytes(of: UUID().uuid) { Data($0) } }

    // MARK: Records

    @discardableResult
    func modify(
        _ changes: [WireRecordChange], atomic: Bool = true, if conditions: [WireRecordCondition] = [],
        leaving token: String = "", upload: [UInt8] = []
    ) throws -> WireZoneOutcome {
        var request = WireModifyRecords()
        request.container = container
        request.database = database
        var zone = WireZoneChanges()
        zone.zoneID = self.zone
        zone.changes = changes
        zone.notAtomic = !atomic
        zone.conditions = conditions
        zone.head = head
        zone.clientToken = Data(token.utf8)
        request.zones = [zone]
        request.transferID = Data(upload)
        let outcome = try #require(
            try call("ModifyRecords", request, as: WireModifyRecordsReply.self).zones.first)
        if !outcome.hasFailure { head = outcome.token }
        return outcome
    }

    /// Saves one record, and says under which change tag; throws why it was not saved.
    @discardableResult
    func save(
        _ name: String, _ fields: [String: WireRecordField.OneOf_Value] = [:], base: Data = Data(),
        policy: WireSavePolicy = .ifServerRecordUnchanged
    ) throws -> Data {
        let change = WireRecordChange.save(name, fields, base: base, policy: policy)
        let outcome = try modify([change])
        let record = try #require(outcome.records.first)
        if record.hasFailure { throw CloudError(record.failure) }
        return change.save.version
    }

    func delete(_ name: String, base: Data = Data()) throws {
        let outcome = try modify([.delete(name, base: base)])
        if let failure = outcome.records.first?.failure, outcome.records[0].hasFailure { throw CloudError(failure) }
    }

    /// Everything in the zone, by name; checked against its digest.
    func list() throws -> [String: WireRecord] {
        var request = WireReadChanges()
        request.scope = "\(container)/\(zone)"
        request.owner = database == .public ? Owner(AppID(owner)).rawValue : ""
        let reply = try call("ReadChanges", request, as: WireReadChangesReply.self)
        var records: [String: WireRecord] = [:]
        var digest = SetDigest.empty
        for change in reply.changes where !change.deleted {
            records[change.item] = try WireRecord(serializedBytes: change.body)
            digest.add(
                SetDigest(ofItem: [UInt8](reply.digestKey) + [UInt8](change.item.utf8) + [0] + [UInt8](change.body)))
        }
        #expect(reply.digest.isEmpty && records.isEmpty || Data(digest.bytes) == reply.digest)
        return records
    }

    func zones() throws -> [String: WireRecordZone] {
        var request = WireReadChanges()
        request.scope = container
        let reply = try call("ReadChanges", request, as: WireReadChangesReply.self)
        return try Dictionary(
            uniqueKeysWithValues: reply.changes.filter { !$0.deleted }.map {
                ($0.item, try WireRecordZone(serializedBytes: $0.body))
            })
    }

    func fetch(_ names: [String], fields: [String] = []) throws -> [String: WireRecord] {
        var request = WireFetchRecords()
        request.container = container
        request.database = database
        request.zoneID = zone
        request.records = names
        request.desiredFields = fields
        let reply = try call("FetchRecords", request, as: WireFetchRecordsReply.self)
        return try Dictionary(
            uniqueKeysWithValues: reply.records.filter { !$0.deleted }.map {
                ($0.item, try WireRecord(serializedBytes: $0.body))
            })
    }

    func history(of record: String = "") throws -> [WireRecordHistoryEntry] {
        var request = WireListRecordHistory()
        request.container = container
        request.database = database
        request.zoneID = zone
        request.record = record
        return try call("ListRecordHistory", request, as: WireListRecordHistoryReply.self).entries
    }
}

extension WireRecordChange {
    static func save(
        _ name: String, _ fields: [String: WireRecordField.OneOf_Value] = [:], type: String = "Note",
        base: Data = Data(), version: Data = RecordDevice.version(),
        policy: WireSavePolicy = .ifServerRecordUnchanged, parent: String? = nil
    ) -> WireRecordChange {
        var change = WireRecordChange()
        change.record = name
        change.save.version = version
        change.save.base = base
        change.save.type = type
        change.save.policy = policy
        if let parent { change.save.parent = parent }
        change.save.fields = fields.map { name, value in
            var field = WireRecordField()
            field.name = name
            field.value = value
            return field
        }
        return change
    }

    static func delete(_ name: String, base: Data = Data()) -> WireRecordChange {
        var change = WireRecordChange()
        change.record = name
        change.delete.base = base
        return change
    }
}

extension WireRecordField.OneOf_Value {
    /// A reference that deletes its record with its target.
    static func with(_ target: String) -> Self {
        var reference = WireRecordReference()
        reference.record = target
        reference.deletesSelf = true
        return .reference(reference)
    }
}

extension WireRecord {
    subscript(name: String) -> WireRecordField.OneOf_Value? { fields.first { $0.name == name }?.value }
}

extension WireZoneOutcome {
    /// Of each change; nil: it was made.
    var codes: [CloudError.Code?] {
        records.map { $0.hasFailure ? CloudError.Code(number: $0.failure.code) : nil }
    }
}
