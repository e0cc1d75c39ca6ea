internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// A database's zones as a model. It tells the models of the zones when they begin and end, and sees to it that what the
/// server has lost of their records' assets comes back.
final class RecordDatabaseModel: ContentKeeping {
    static var migrations: [LocalMigration] { RecordItems.migrations }

    let app: AppID
    let service = ServiceName.records
    /// The container's id.
    let name: String
    unowned let engine: DeviceEngine
    private(set) lazy var uploads = ContentUploads(self)

    init(app: AppID, container: String, engine: DeviceEngine) {
        self.app = app
        name = container
        self.engine = engine
    }

    func address(in session: SessionRecord) -> ScopeAddress {
        !session.isPublic && DeviceEngine.lists(name, app, in: session)
            ? .known(RecordPlace.database(name).scope(of: session.accountID))
            : .toldByToken(
                CloudError(.missingEntitlement, "The app lists no such container.", details: ["container": name]))
    }

    func place(in session: SessionRecord?) -> LocalScope {
        RecordPlace.database(name).scope(of: session.flatMap { $0.signedIn ? $0.accountID : nil })
    }

    func ended() { uploads.end() }

    // MARK: What the service has lost

    func keptContents(after file: Data, in rows: ScopeTransaction) throws -> RowCursor {
        try rows.assets.files(after: file)
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

    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges? {
        let isFirst = !state.synced
        let before = try ids(in: rows)
        // A zone that the server has lost is made again, as it was, with what is here of it. One whose end it has lost
        // ends again, if nobody has used it since. Where another was made under its name since, what is here goes into
        // that one. A database has few of them.
        var (lost, ended, moved): ([WireNewZone], [WireEndedZone], [String]) = ([], [], [])
        let changed = try RecordItems(rows: rows).merge(pulled, &state) { found in
            switch found {
            case .lost(let zone) where zone.theirs != nil: moved.append(zone.mine.name.rawValue)
            case .lost(let zone): lost += [WireNewZone(zone.mine)].compactMap { $0 }
            case .undeleted(let tombstone, let theirs):
                ended += [WireEndedZone(theirs, tombstone: tombstone)].compactMap { $0 }
            }
        }
        if !lost.isEmpty || !ended.isEmpty { try queue(saving: lost, ended: ended, in: rows) }
        for name in moved { try move(ZoneTransaction(rows).records(of: name)) }
        if isFirst {
            try ZoneTransaction(rows).nameDeletions()
            try refuseUnknown(in: rows)
        }
        try settle(before, keeping: Set(lost.map(\.name) + moved), in: rows)
        if let info = pulled.info {
            state.info = info
            if let info = try? WireDatabaseInfo(serializedBytes: info) {
                try uploads.note(ContentLoss(info), in: rows)
            }
        }
        return MergedChanges(news: changed.news(isFirst: isFirst))
    }

    /// What the server calls the zones that it has.
    private func ids(in rows: ScopeTransaction) throws -> [String: String] {
        let zones = try RecordItems(rows: rows).all().compactMap { item -> (String, String)? in
            guard let body = item.body, let wire = try? WireRecordZone(serializedBytes: body) else { return nil }
            return (item.name.rawValue, wire.zoneID)
        }
        return Dictionary(zones) { $1 }
    }

    /// Zones that are gone, or are others under their names, are forgotten with what was in them. What waited for them
    /// was meant for that: it is listed as refused.
    ///
    /// - Parameters:
    ///   - kept: Zones that the server has lost without anybody's having deleted them.
    ///   - done: What has just deleted some.
    private func settle(
        _ before: [String: String], keeping kept: Set<String> = [], deleting done: WireModifyZones? = nil,
        in rows: ScopeTransaction
    ) throws {
        let after = try ids(in: rows)
        guard before != after else { return }
        let zones = ZoneTransaction(rows)
        let deletions = try zones.pending() + [done].compactMap { $0 }
        for (name, id) in before.sorted(by: { $0.key < $1.key }) where after[name] != id && !kept.contains(name) {
            // What it had was forgotten when it was deleted here, and what waits is for the next of its name; but one that
            // was made only after that has begun to be kept.
            if deletions.contains(where: { $0.deletes(name, id) }) {
                if after[name] == nil { try zones.records(of: name).items.forgetAll() }
                continue
            }
            try forget(zones.records(of: name), Self.gone)
        }
        engine.reconsiderZones(of: self.name)
    }

    static let gone = CloudError(
        .zoneNotFound, "The zone was deleted by another device. Make it anew, and save this again, or dismiss it.")

    /// The first download has told which zones there are: what was saved before into another waits for nothing.
    private func refuseUnknown(in rows: ScopeTransaction) throws {
        let zones = ZoneTransaction(rows)
        let scopes = try String.fetchAll(
            rows.cached("SELECT DISTINCT scope FROM outbox WHERE account = ?1 AND service = ?2"),
            arguments: [rows.account, rows.service])
        for case .zone(name, let zone) in scopes.map({ RecordPlace($0) }) where try zones.zone(zone) == nil {
            try forget(zones.records(of: zone), RecordNames.noZone(zone))
        }
    }

    /// What is here of a zone that is lost for good is saved in the one that is called so now, before what waits.
    private func move(_ records: RecordTransaction) throws {
        let offers = StagedOffers(in: records.rows)
        let items = try records.items.cursor(ofType: nil)
        while let item = try items.next() {
            guard let content = item.record else { continue }
            try offers.add(RecordTransaction.Pending(offering: content, of: item.name.rawValue, over: nil))
        }
        try records.items.forgetAll()
        try records.offer(offers, by: engine)
    }

    /// - Parameter error: Why what waits is refused; nil: it is dropped.
    func forget(_ records: RecordTransaction, _ error: CloudError?) throws {
        var names: [ItemName] = []
        for operation in try records.rows.operations() {
            for pending in try records.pending(at: operation.position) {
                let name = pending.change.record
                names.append(ItemName(name))
                guard let error else { continue }
                // In the next zone of the name it is a new record.
                try records.noteRefusal(
                    of: name, client: records.client(of: pending), ancestor: nil, madeFrom: pending.change.base, error,
                    now: engine.now)
            }
            try closeUpload(records.begunUpload(of: operation), of: name)
            try records.removePending(at: operation.position)
            try records.rows.removeOperation(at: operation.position)
        }
        try records.items.forgetAll()
        guard let error, !names.isEmpty else { return }
        try records.rows.tell(
            ChangeNotification(reason: .quotaViolationChange, changedKeys: names, error: error))
    }

    // MARK: Sending

    /// What a restore has lost; before whatever waits.
    func queue(saving zones: [WireNewZone], ended: [WireEndedZone] = [], in rows: ScopeTransaction) throws {
        let waiting = try ZoneTransaction(rows).pending().flatMap(\.save)
        var parts: [WireModifyZones] = []
        let zones = zones.filter { !waiting.contains($0) }
        for start in stride(from: 0, to: zones.count, by: RecordLimits.itemsMax) {
            parts.append(WireModifyZones())
            parts[parts.count - 1].save = Array(zones[start..<min(start + RecordLimits.itemsMax, zones.count)])
        }
        for start in stride(from: 0, to: ended.count, by: RecordLimits.itemsMax) {
            parts.append(WireModifyZones())
            parts[parts.count - 1].ended = Array(ended[start..<min(start + RecordLimits.itemsMax, ended.count)])
        }
        for request in parts.reversed() {
            _ = try rows.prepend(
                request.serializedData(), id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
    }

    /// Operations keep their order: a zone is deleted before another of its name is made.
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws {
        let makingRoom = try isFull ? makingRoom(among: operations, in: rows) : []
        for index in operations.indices {
            operations[index].goesAlone = true
            operations[index].makesRoom = makingRoom.contains(operations[index].position)
        }
    }

    private func makingRoom(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> {
        var before: Set<String> = []
        var found: Set<Int64> = []
        for operation in operations {
            let request = try WireModifyZones(serializedBytes: rows.payload(at: operation.position))
            let named = (request.save.map(\.name) + request.delete.map(\.name) + request.ended.map(\.name))
            if request.save.isEmpty, before.isDisjoint(with: named) {
                found.insert(operation.position)
            } else {
                before.formUnion(named)
            }
        }
        return found
    }

    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message {
        var request = try WireModifyZones(serializedBytes: operation.payload)
        request.container = name
        if operation.head.sequence > 0 { request.head = WireChangeToken(operation.head) }
        return request
    }

    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] {
        let request = try WireModifyZones(serializedBytes: operation.payload)
        return request.save.map { ItemName($0.name) } + request.delete.map { ItemName($0.name) }
    }

    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt? {
        let request = try WireModifyZones(serializedBytes: operation.payload)
        guard let reply = try? reply.decode(WireModifyZonesReply.self), reply.zones.count == request.save.count,
            zip(reply.zones, request.save).allSatisfy({ $0.item.hasSameBytes(as: $1.name) && !$0.body.isEmpty })
        else { return nil }
        let token = reply.hasToken ? ChangeToken(reply.token) : try rows.state().head
        let isWritten = token.sequence > reply.previousSequence
        let items = RecordItems(rows: rows)
        // A zone that was there already is told of by the feed.
        let isKnown = try zip(reply.zones, request.save).allSatisfy { change, zone in
            let wire = try? WireRecordZone(serializedBytes: change.body)
            return try wire?.zoneID == zone.zoneID || items.item(ItemName(zone.name))?.body == change.body
        }
        // Which zones have ended, and how, the feed tells.
        let isWhole = isKnown && request.ended.isEmpty
        // And whether a zone that was to be deleted was there still, what came before does.
        let others = request.delete.isEmpty ? 0 : reply.previousSequence
        return PushReceipt(
            token: token, previousSequence: reply.previousSequence, winner: isWhole ? others : token.sequence
        ) { isCurrent, state in
            let before = try self.ids(in: rows)
            if isCurrent, isWritten, token.sequence > state.head.sequence {
                let gone = request.delete.filter { before[$0.name] == $0.zoneID }
                    .map { RecordItems.Item(name: ItemName($0.name), sequence: token.sequence) }
                let made = reply.zones.map {
                    RecordItems.Item(name: ItemName($0.item), sequence: token.sequence, body: $0.body)
                }
                try self.begin(zip(request.save, made).filter { $1.zone?.id == $0.zoneID }.map(\.0.name), in: rows)
                for item in gone + made {
                    let mine = try items.item(item.name)
                    // What was there before stays as it came.
                    if mine?.body == item.body { continue }
                    guard mine.map({ $0.sequence <= item.sequence }) ?? true else { continue }
                    try items.put(item, replacing: mine, &state)
                }
            } else if !isCurrent {
                let lost = try request.save.filter { try items.item(ItemName($0.name))?.body == nil }
                try self.queue(saving: lost, in: rows)
            }
            let lost = isCurrent ? [] : request.save.map(\.name)
            try self.settle(before, keeping: Set(lost), deleting: request, in: rows)
            self.engine.reconsiderZones(of: self.name)
            return nil
        }
    }

    /// What this device has made, and used before, it need not download first.
    private func begin(_ names: [String], in rows: ScopeTransaction) throws {
        for name in names {
            let zone = ZoneTransaction(rows).records(of: name).rows
            var state = try zone.state()
            guard !state.synced else { continue }
            state.synced = true
            try zone.save(state)
        }
    }

    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        var request = try WireModifyZones(serializedBytes: operation.payload)
        if error.code == .alreadyExists, !request.save.isEmpty {
            // The id was another zone's, as of one that was deleted: what waits is called by the name.
            let ids = Dictionary(request.save.map { ($0.zoneID, engine.makeZoneID()) }) { $1 }
            request.save = request.save.map { WireNewZone($0.name, ids[$0.zoneID] ?? $0.zoneID) }
            try ZoneTransaction(rows).rename(ids)
            var rest = operation
            rest.id = engine.makeOperationID()
            rest.state = .unsent
            rest.error = nil
            rest.payload = try request.serializedData()
            return RefusedPush(rest: rest)
        }
        let zones = ZoneTransaction(rows)
        for zone in request.save where try zones.id(of: zone.name) == nil {
            try forget(zones.records(of: zone.name), error)
        }
        for name in request.save.map(\.name) + request.delete.map(\.name) {
            try RecordTransaction(rows, zone: "").noteRefusal(
                of: name, client: nil, ancestor: nil, error, now: engine.now)
        }
        engine.reconsiderZones(of: name)
        return RefusedPush(
            news: ChangeNotification(
                reason: .quotaViolationChange, changedKeys: try items(of: operation, in: rows), error: error))
    }

    /// They are its zones'; of none here anybody can say that there are none in zones of which nobody here has heard.
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) {
        completion(
            Result { () throws(CloudError) in
                try engine.local.read { database in
                    guard try ScopeTransaction(database, place(in: engine.session)).state().synced else {
                        throw RecordDatabase.zonesNotDownloaded(self.name)
                    }
                    return []
                }
            })
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        try RecordTransaction(rows, zone: "").refusals().map {
            RefusedWrite(key: ItemName($0.id.name), at: $0.refused, error: $0.error)
        }
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        let refusals = RecordTransaction(rows, zone: "")
        let dismissed = try refusals.refusals().map { ItemName($0.id.name) }.filter { names?.contains($0) ?? true }
        for name in dismissed { try refusals.dismissRefusals(of: name.rawValue) }
        return dismissed
    }
}

extension WireNewZone {
    init(_ name: String, _ id: String) {
        self.init()
        self.name = name
        zoneID = id
    }

    /// As the server once told of it; nil: it was deleted, or cannot be read.
    init?(_ item: RecordItems.Item) {
        guard let body = item.body, let zone = try? WireRecordZone(serializedBytes: body), !zone.zoneID.isEmpty else {
            return nil
        }
        self.init(item.name.rawValue, zone.zoneID)
        created = zone.created
        deviceID = zone.deviceID
        appID = zone.appID
        seal = zone.seal
    }
}

extension WireEndedZone {
    /// - Returns: Nil: another zone is called so by now, or what was told of the end cannot be repeated.
    init?(_ theirs: RecordItems.Item, tombstone: Data) {
        guard let zone = try? WireRecordZone(serializedBytes: tombstone), zone.seal != 0, let body = theirs.body,
            let known = try? WireRecordZone(serializedBytes: body), known.zoneID.hasSameBytes(as: zone.zoneID)
        else { return nil }
        self.init()
        name = theirs.name.rawValue
        self.zone = zone
    }
}

extension DeviceEngine {
    func makeZoneID() -> String { RecordPlace.zoneID(makeDocumentID()) }
}

extension RecordPlace {
    /// 32 lowercase hexadecimal digits.
    static func zoneID(_ random: DocumentID) -> String {
        random.wire.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }
}

/// A database's requests bring no contents: those that are here are offered again alone.
extension RecordDatabaseModel {
    func unstored(in rows: ScopeTransaction) throws -> [UnstoredRequest] { [] }
    func unstoredBytes(at position: Int64, in rows: ScopeTransaction) throws -> UInt64 { 0 }
    func waitingContents(at position: Int64, in rows: ScopeTransaction) throws -> [WaitingContent] { [] }
    func contentRequest(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> ContentRequest {
        ContentRequest(container: name)
    }
    func keep(_ request: ContentRequest, with operation: inout OutboxOperation, in rows: ScopeTransaction) throws {}
    func setPercent(_ percent: Int, at position: Int64, in rows: ScopeTransaction) throws {}
    func markStored(at position: Int64, in rows: ScopeTransaction) throws {}
    func forgetContent(_ version: DocumentID, in rows: ScopeTransaction) throws {}
    func blame(_ version: DocumentID, of operation: OutboxOperation, for error: inout CloudError) {}
    func storeAhead(_ request: ContentRequest, _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        completion(.success(()))
    }
}
