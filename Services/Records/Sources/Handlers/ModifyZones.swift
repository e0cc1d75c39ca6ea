internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

extension RecordsService {
    /// Makes and removes zones: all of them or none.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement`, `.invalidArguments`, `.limitExceeded`, `.alreadyExists` (the id was
    ///   another zone's).
    func modifyZones(
        _ request: WireModifyZones, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireModifyZonesReply {
        let caller = try context.requireCaller()
        let database = try openDatabase(request.container, caller, transaction)
        if case .lost(_, isNews: true) = try transaction.judge(
            ChangeToken(request.head), in: database.scope.partition)
        {
            throw CloudError.oldCopy
        }
        try check(request, transaction)
        let ended = try request.delete.compactMap { name in
            try database.zone(ItemName(name)).map { (name: ItemName(name), zone: $0) }
        }
        let made = try madeZones(request.save, in: database, ending: Set(ended.map(\.name)), context, caller)
        var reply = WireModifyZonesReply()
        let changed =
            try ended.map { ChangedItem(name: $0.name, body: nil) }
            + made.compactMap { zone in
                try zone.isNew ? ChangedItem(name: zone.name, body: zone.wire.serializedBytes()) : nil
            }
        let head = try database.head()
        reply.token = WireChangeToken(head.token)
        reply.previousSequence = head.token.sequence
        if !changed.isEmpty {
            let digestKey = try database.madeDigestKey()
            for zone in ended { try end(zone.zone.zoneID, of: database) }
            for zone in made where zone.isNew { _ = try self.zone(zone.wire.zoneID, of: database).madeDigestKey() }
            let change = try transaction.put(
                database.scope,
                ended.map { Self.row(ofEnded: $0.name, $0.zone.zoneID) }
                    + made.filter(\.isNew).map { try Self.row($0, of: database, digestKey) })
            transaction.publish(OutgoingEvent(name, changed, by: change, device: caller.device, context.id))
            reply.token = WireChangeToken(change.token)
            reply.previousSequence = change.previousSequence
        }
        reply.zones = try made.map { zone in
            try ChangedItem(name: zone.name, body: zone.wire.serializedBytes()).wire(at: 0)
        }
        return reply
    }

    private func check(_ request: WireModifyZones, _ transaction: any HandlerTransaction) throws {
        guard request.save.count + request.delete.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "Too many zones at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        guard !transaction.isShortOfRoom || request.save.isEmpty else { throw CloudError.diskFull }
        let names = request.save.map { ItemName($0.name) } + request.delete.map { ItemName($0) }
        guard Set(names).count == names.count else {
            throw CloudError(.invalidArguments, "A zone is there twice. Name it once.", details: ["argument": "zones"])
        }
        for zone in request.save {
            guard RecordLimits.isName(zone.name) else { throw Self.noZoneName }
            guard ZoneID.isID(zone.zoneID) else {
                throw CloudError(
                    .invalidArguments, "A zone's id is 32 lowercase hexadecimal digits.",
                    details: ["argument": "zone_id"])
            }
        }
        for name in request.delete where !RecordLimits.isName(name) { throw Self.noZoneName }
    }

    private static let noZoneName = CloudError(
        .invalidArguments,
        "A zone is called by 1 to 255 printable ASCII characters, the first no underscore. The default zone stays.",
        details: ["argument": "name"])

    private struct MadeZone {
        var name: ItemName
        var wire: WireRecordZone
        var isNew: Bool
    }

    private func madeZones(
        _ zones: [WireNewZone], in database: RecordScope, ending ended: Set<ItemName>, _ context: RequestContext,
        _ caller: Caller
    ) throws -> [MadeZone] {
        var ids: Set<ItemName> = []
        let made = try zones.map { zone in
            if let known = try database.zone(ItemName(zone.name)) {
                return MadeZone(name: ItemName(zone.name), wire: known, isNew: false)
            }
            guard try self.zone(zone.zoneID, of: database).isNew(), ids.insert(ItemName(zone.zoneID)).inserted,
                try database.formerZone(ItemName(zone.name)) != zone.zoneID
            else {
                throw CloudError(
                    .alreadyExists, "The id was another zone's. Choose one at random.", details: ["zone": zone.name])
            }
            var wire = WireRecordZone()
            wire.zoneID = zone.zoneID
            wire.created = context.now.nanoseconds
            wire.deviceID = caller.device.rawValue
            wire.appID = caller.app.rawValue
            return MadeZone(name: ItemName(zone.name), wire: wire, isNew: true)
        }
        let count = try database.head().liveCount - ended.count + made.count { $0.isNew }
        guard count <= RecordLimits.zoneCountMax || !made.contains(where: \.isNew) else {
            throw CloudError(
                .limitExceeded, "The database has too many zones. Delete some.",
                details: ["maximum": "\(RecordLimits.zoneCountMax)"])
        }
        return made
    }

    private static func row(
        _ zone: MadeZone, of database: RecordScope, _ digestKey: [UInt8]
    ) throws -> FeedItem {
        let body: [UInt8] = try zone.wire.serializedBytes()
        return FeedItem(
            name: zone.name, deleted: false, digest: SetDigest(ofItem: zone.name, body: body, key: digestKey),
            size: body.count,
            body: StoredZone.body(id: zone.wire.zoneID, sealed: try database.seal(body, as: .item(zone.name))))
    }

    private static func row(ofEnded name: ItemName, _ id: String) -> FeedItem {
        FeedItem(
            name: name, deleted: true, digest: .empty, size: 0, body: StoredZone.body(id: id, sealed: []))
    }

    /// The zone is gone at once, and its records in steps.
    private func end(_ id: String, of database: RecordScope) throws {
        let zone = try self.zone(id, of: database)
        let head = try zone.head()
        let history = try RecordHistory(rows: zone.rows).bytes()
        let indexed = try IndexRows.bytes(of: zone.scope, in: zone.transaction)
        try count(-(Int64(head.liveBytes) + Int64(clamping: history) + indexed), in: zone.scope, zone.transaction)
        try zone.end()
        try zone.rows.addRemoval()
        zone.transaction.afterCommit { [weak self] in self?.removals.beginSoon() }
    }
}
