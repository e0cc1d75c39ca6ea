internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// Records by their names: off the loop, since four hundred of them may be much.
extension RecordsService {
    static let fetchBytesMax = 256 << 10
    /// What a question may cost, in calls.
    static let fetchReserves = 50

    struct AskedRecords: Sendable {
        var opener: RecordOpener
        /// What the caller may read.
        var access: RecordAccess
        /// Circles that the caller is in, by which records are found; nil: all may be looked at.
        var circles: [ReadingCircle]?
        var names: [ItemName] = []
        /// Empty: all.
        var fields: Set<ItemName>

        /// - Throws: ``CloudError`` `.limitExceeded`.
        init(in zone: RecordScope, _ access: RecordAccess, fields: [String]) throws {
            self.access = access
            guard fields.count <= RecordLimits.fieldsMax else {
                throw CloudError(
                    .limitExceeded, "Too many fields at once.", details: ["maximum": "\(RecordLimits.fieldsMax)"])
            }
            opener = try zone.opener()
            circles = try access.circles(in: zone)
            self.fields = Set(fields.map { ItemName($0) })
        }

        /// By circles nothing is missed only while the roles are those that they were worked out by.
        ///
        /// - Throws: ``CloudError`` `.serviceBusy`.
        func requireSameRoles(in reader: any ReadTransaction) throws {
            guard circles != nil, let roles = access.roles else { return }
            guard try RoleRows.roles(of: opener.scope, in: reader).byType == roles.byType else {
                throw CloudError(
                    .serviceBusy, "Who may read what has just changed. Ask again.", retryAfter: .milliseconds(100))
            }
        }
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`, `.limitExceeded`.
    func beginFetch(
        _ request: WireFetchRecords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedRecords> {
        let (zone, access) = try openZone(
            request.zoneID, of: request.container, request.database, context.requireCaller(), transaction)
        guard request.records.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "Too many records at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        var asked = try AskedRecords(in: zone, access, fields: request.desiredFields)
        asked.names = request.records.map { ItemName($0) }
        transaction.charge(rows: asked.names.count)
        // The way to a snapshot and back takes longer than a few small ones do.
        if try asked.isSmall(in: transaction) { return .done(finish(try Self.fetch(asked, transaction))) }
        return .read(asked)
    }

    @Sendable static func fetch(_ asked: AskedRecords, _ feed: any FeedReader) throws -> SnapshotReply {
        try asked.requireSameRoles(in: feed)
        var reply = WireFetchRecordsReply()
        reply.token = WireChangeToken(try feed.head(asked.opener.scope).token)
        var bytesLeft = RecordLimits.replyBytesMax
        var unreadable: [FeedItem] = []
        // Also what is read and not sent, since only some fields were asked for.
        var readLeft = RecordLimits.touchedBytesMax
        for name in asked.names {
            let item = try asked.item(name, in: feed)
            readLeft -= item?.body.count ?? 0
            // One is always sent, or whoever asks again would ask for ever.
            guard readLeft >= 0 || reply.records.isEmpty else { break }
            let change =
                try item.flatMap { $0.deleted ? nil : try asked.change(of: $0, asking: .type, &unreadable) }
                ?? asked.absence(of: name)
            guard change.body.count <= bytesLeft || reply.records.isEmpty else { break }
            bytesLeft -= change.body.count
            reply.records.append(change)
        }
        return SnapshotReply(Frame(encoding: reply), of: asked.opener.scope, unreadable: unreadable)
    }

    // MARK: What was overwritten

    private static let historyMax = 400
    private static let historyDefault = 100

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`.
    func listHistory(
        _ request: WireListRecordHistory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListRecordHistoryReply {
        let (zone, access) = try openZone(
            request.zoneID, of: request.container, request.database, context.requireCaller(), transaction)
        let limit = request.limit == 0 ? Self.historyDefault : min(Int(request.limit), Self.historyMax)
        var reply = WireListRecordHistoryReply()
        let opener = try zone.opener()
        let (entries, hasMore) = try RecordHistory(rows: zone.rows).entries(
            of: request.record.isEmpty ? nil : ItemName(request.record),
            by: access.isRestricted ? access.account ?? AccountID("") : nil, limit: limit, skip: Int(request.skip))
        for entry in entries {
            zone.charge(bytes: entry.sealed.count)
            var wire = WireRecordHistoryEntry()
            if let opened = try? opener.open(entry.sealed[...], as: .history(of: entry.record, entry.number)),
                let stored = try? WireRecordHistoryEntry(serializedBytes: opened)
            {
                wire = stored
            } else {
                wire.damaged = true
            }
            wire.name = entry.record.rawValue
            reply.entries.append(wire)
        }
        reply.more = hasMore
        return reply
    }
}

extension RecordsService.AskedRecords {
    /// Records that are read within a group, and bytes of them.
    private static let smallCount = 4
    private static let smallBytes = 64 << 10

    /// Whether the records are opened in about the time that the way to a snapshot takes.
    fileprivate func isSmall(in reader: any FeedReader) throws -> Bool {
        guard names.count <= Self.smallCount else { return false }
        var bytes = 0
        for name in names {
            bytes += try item(name, in: reader)?.body.count ?? 0
            guard bytes <= Self.smallBytes else { return false }
        }
        return true
    }

    /// Nil: there never was a record of the name, or none can be called so, or it is not for the caller: then it is not even
    /// read.
    fileprivate func item(_ name: ItemName, in reader: any FeedReader) throws -> FeedItem? {
        guard RecordLimits.isName(name.rawValue) else { return nil }
        if let circles, try !CircleRows.hold(name, circles, in: opener.scope, reader) { return nil }
        return try reader.item(opener.scope, name)
    }

    /// A record of the zone as it is sent.
    ///
    /// - Parameters:
    ///   - asked: What is asked of it.
    ///   - unreadable: Gets the item if it does not open.
    ///   - isMeant: Whether it is sent.
    /// - Returns: Nil: it is not.
    func change(
        of item: FeedItem, asking asked: RecordParts = .all, _ unreadable: inout [FeedItem],
        where isMeant: (WireRecord) -> Bool = { _ in true }
    ) throws -> WireChange? {
        var change = WireChange()
        change.item = item.name.rawValue
        change.sequence = item.sequence
        guard let body = try StoredRecord.parts(of: item.body).flatMap({ try opener.body(of: item.name, $0.sealed) }),
            // Who may read it is said by more of it; and of what is sent in part all of that is.
            var record = try? (access.isRestricted || !fields.isEmpty ? RecordParts.all : asked).decode(body)
        else {
            unreadable.append(item)
            return nil
        }
        guard access.mayRead(record) else { return nil }
        guard isMeant(record) else { return nil }
        guard !fields.isEmpty else {
            change.body = Data(body)
            return change
        }
        record.fields.removeAll { !fields.contains(ItemName($0.name)) }
        change.body = try record.serializedData()
        return change
    }

    /// What is sent of a name that no record has.
    func absence(of name: ItemName) -> WireChange {
        var change = WireChange()
        change.item = name.rawValue
        change.deleted = true
        return change
    }
}
