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
        let database = try openDatabase(request.container, request.database, caller, transaction).scope
        guard request.database == .private else {
            throw CloudError(
                .invalidArguments, "A public database has the default zone alone. Make zones in a private one.",
                details: ["argument": "database"])
        }
        if case .lost(_, isNews: true) = try transaction.judge(
            ChangeToken(request.head), in: database.scope.partition)
        {
            throw CloudError.oldCopy
        }
        try check(request, transaction)
        let time = max(context.now.nanoseconds, try transaction.epochBegan(ofPartition: database.scope.partition))
        let stamp = WireRecordStamp(caller, at: time)
        let ended =
            try request.delete.compactMap { zone in
                // Another that was made under its name since is not what was meant.
                guard let known = try database.zone(ItemName(zone.name)) else {
                    let isThere = try self.zone(zone.zoneID, of: database).isAlive()
                    if isThere, try database.transaction.isQuarantined(ItemName(zone.name), of: database.scope) {
                        throw Self.isInQuarantine(zone.name)
                    }
                    return nil
                }
                guard known.zoneID.hasSameBytes(as: zone.zoneID) else { return nil }
                return try EndedZone(ItemName(zone.name), known, by: stamp, of: database)
            } + formerEnds(request.ended, in: database, at: context.now)
        let made = try madeZones(request.save, in: database, ending: Set(ended.map(\.name)), stamp, at: context.now)
        var reply = WireModifyZonesReply()
        let changed =
            try ended.map { ChangedItem(name: $0.name, body: nil, deletion: try $0.told.serializedBytes()) }
            + made.compactMap { zone in
                try zone.isNew ? ChangedItem(name: zone.name, body: zone.wire.serializedBytes()) : nil
            }
        let head = try database.head()
        reply.token = WireChangeToken(head.token)
        reply.previousSequence = head.token.sequence
        if !changed.isEmpty {
            let digestKey = try database.madeDigestKey()
            for zone in ended { try end(zone.told.zoneID, of: database) }
            for zone in made where zone.isNew { _ = try self.zone(zone.wire.zoneID, of: database).madeDigestKey() }
            let change = try transaction.put(
                database.scope,
                ended.map { try Self.row(ofEnded: $0, of: database) }
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
        guard request.save.count + request.delete.count + request.ended.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "Too many zones at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        guard !transaction.isShortOfRoom || request.save.isEmpty else { throw CloudError.diskFull }
        let names =
            request.save.map { ItemName($0.name) } + request.delete.map { ItemName($0.name) }
            + request.ended.map { ItemName($0.name) }
        guard Set(names).count == names.count else {
            throw CloudError(.invalidArguments, "A zone is there twice. Name it once.", details: ["argument": "zones"])
        }
        for zone in request.save {
            guard RecordLimits.isName(zone.name) else { throw Self.noZoneName }
            guard ZoneID.isID(zone.zoneID) else { throw Self.noZoneID }
        }
        for zone in request.delete {
            guard RecordLimits.isName(zone.name) else { throw Self.noZoneName }
            guard ZoneID.isID(zone.zoneID) else { throw Self.noZoneID }
        }
    }

    private static func isInQuarantine(_ name: String) -> CloudError {
        CloudError(
            .constraintViolation,
            "The server cannot read the zone that has this name. A device that has it may bring it back. Use another name.",
            details: ["zone": name, "reason": "quarantined"])
    }

    private static let noZoneName = CloudError(
        .invalidArguments,
        "A zone is called by 1 to 255 printable ASCII characters, the first no underscore. The default zone stays.",
        details: ["argument": "name"])
    private static let noZoneID = CloudError(
        .invalidArguments, "A zone's id is 32 lowercase hexadecimal digits.", details: ["argument": "zone_id"])

    private struct MadeZone {
        var name: ItemName
        var wire: WireRecordZone
        var isNew: Bool
    }

    private func madeZones(
        _ zones: [WireNewZone], in database: RecordScope, ending ended: Set<ItemName>, _ stamp: WireRecordStamp,
        at now: Timestamp
    ) throws -> [MadeZone] {
        var ids: Set<ItemName> = []
        let made = try zones.map { zone in
            if let known = try database.zone(ItemName(zone.name)) {
                return MadeZone(name: ItemName(zone.name), wire: known, isNew: false)
            }
            let name = ItemName(zone.name)
            let isReturning = try database.transaction.isQuarantined(name, of: database.scope)
            let former = try Self.former(zone, isReturning: isReturning, of: database, at: now)
            // Another would leave what lies in the former one without a name.
            guard !isReturning || former != nil else { throw Self.isInQuarantine(zone.name) }
            // What lies in a zone that comes back from the quarantine is there still. One that was deleted does not come back.
            let place = try self.zone(zone.zoneID, of: database)
            let isFree = try isReturning ? place.isAlive() : place.isNew()
            guard isFree, ids.insert(ItemName(zone.zoneID)).inserted,
                try database.formerZone(name) != zone.zoneID
            else {
                throw CloudError(
                    .alreadyExists, "The id was another zone's. Choose one at random.", details: ["zone": zone.name])
            }
            return MadeZone(name: name, wire: try former ?? Self.new(zone, of: database, stamp), isNew: true)
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

    private static func row(ofEnded zone: EndedZone, of database: RecordScope) throws -> FeedItem {
        let sealed = try database.seal(zone.told.serializedBytes(), as: .item(zone.name))
        return FeedItem(
            name: zone.name, deleted: true, digest: .empty, size: 0,
            body: StoredZone.body(id: zone.told.zoneID, sealed: sealed))
    }

    private static func new(
        _ zone: WireNewZone, of database: RecordScope, _ stamp: WireRecordStamp
    ) throws -> WireRecordZone {
        var wire = WireRecordZone()
        wire.zoneID = zone.zoneID
        wire.created = stamp.time
        wire.deviceID = stamp.deviceID
        wire.appID = stamp.appID
        wire.seal = try OwnWords(wire, named: ItemName(zone.name), in: database.scope).seal(in: database.transaction)
        return wire
    }

    // MARK: After a restore

    /// A zone that is to be deleted, and what is told of that.
    private struct EndedZone {
        var name: ItemName
        var told: WireRecordZone

        init(_ name: ItemName, told: WireRecordZone) {
            self.name = name
            self.told = told
        }

        init(_ name: ItemName, _ zone: WireRecordZone, by stamp: WireRecordStamp, of database: RecordScope) throws {
            self.name = name
            told = WireRecordZone()
            told.zoneID = zone.zoneID
            told.created = max(stamp.time, zone.created &+ 1)
            told.deviceID = stamp.deviceID
            told.appID = stamp.appID
            told.seal = try OwnWords(told, named: name, isEnded: true, in: database.scope)
                .seal(in: database.transaction)
        }
    }

    /// The zone as the service had it before it was restored, or before it went to the quarantine; nil: it is one like any
    /// other.
    private static func former(
        _ zone: WireNewZone, isReturning: Bool, of database: RecordScope, at now: Timestamp
    ) throws -> WireRecordZone? {
        var wire = WireRecordZone()
        wire.zoneID = zone.zoneID
        wire.created = zone.created
        wire.deviceID = zone.deviceID
        wire.appID = zone.appID
        wire.seal = zone.seal
        let words = OwnWords(wire, named: ItemName(zone.name), in: database.scope)
        let isOwn = try words.areOwn(
            zone.seal, at: zone.created, ofPartition: database.scope.partition, in: database.transaction, now: now)
        return try isOwn || isReturning && words.areOwn(zone.seal, in: database.transaction) ? wire : nil
    }

    /// Ends of zones that a restore has lost: of those that are there by that id, and that nobody has used since.
    private func formerEnds(
        _ ends: [WireEndedZone], in database: RecordScope, at now: Timestamp
    ) throws -> [EndedZone] {
        try ends.compactMap { end in
            let name = ItemName(end.name)
            guard RecordLimits.isName(end.name), let known = try database.zone(name),
                known.zoneID.hasSameBytes(as: end.zone.zoneID)
            else { return nil }
            let isOwn = try OwnWords(end.zone, named: name, isEnded: true, in: database.scope).areOwn(
                end.zone.seal, at: end.zone.created, ofPartition: database.scope.partition,
                in: database.transaction, now: now)
            guard isOwn, try zone(known.zoneID, of: database).isAsRestored() else { return nil }
            return EndedZone(name, told: end.zone)
        }
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
