internal import Foundation
internal import NephosBus
internal import NephosCore
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
        var names: [ItemName] = []
        /// Empty: all.
        var fields: Set<ItemName>

        /// - Throws: ``CloudError`` `.limitExceeded`.
        init(in zone: RecordScope, fields: [String]) throws {
            guard fields.count <= RecordLimits.fieldsMax else {
                throw CloudError(
                    .limitExceeded, "Too many fields at once.", details: ["maximum": "\(RecordLimits.fieldsMax)"])
            }
            opener = try zone.opener()
            self.fields = Set(fields.map { ItemName($0) })
        }
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`, `.limitExceeded`.
    func beginFetch(
        _ request: WireFetchRecords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedRecords> {
        let zone = try openZone(request.zoneID, of: request.container, context.requireCaller(), transaction)
        guard request.records.count <= RecordLimits.itemsMax else {
            throw CloudError(
                .limitExceeded, "Too many records at once. Divide them.",
                details: ["maximum": "\(RecordLimits.itemsMax)"])
        }
        var asked = try AskedRecords(in: zone, fields: request.desiredFields)
        asked.names = request.records.map { ItemName($0) }
        transaction.charge(rows: asked.names.count)
        return .read(asked)
    }

    @Sendable static func fetch(_ asked: AskedRecords, _ feed: any FeedReader) throws -> Frame {
        var reply = WireFetchRecordsReply()
        reply.token = WireChangeToken(try feed.head(asked.opener.scope).token)
        var bytesLeft = RecordLimits.replyBytesMax
        // Also what is read and not sent, since only some fields were asked for.
        var readLeft = RecordLimits.touchedBytesMax
        for name in asked.names {
            let item = try feed.item(asked.opener.scope, name)
            readLeft -= item?.body.count ?? 0
            // One is always sent, or whoever asks again would ask for ever.
            guard readLeft >= 0 || reply.records.isEmpty else { break }
            let change =
                try item.flatMap { $0.deleted ? nil : try asked.change(of: $0) } ?? asked.absence(of: name)
            guard change.body.count <= bytesLeft || reply.records.isEmpty else { break }
            bytesLeft -= change.body.count
            reply.records.append(change)
        }
        return Frame(encoding: reply)
    }

    // MARK: What was overwritten

    private static let historyMax = 400
    private static let historyDefault = 100

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`.
    func listHistory(
        _ request: WireListRecordHistory, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> WireListRecordHistoryReply {
        let zone = try openZone(request.zoneID, of: request.container, context.requireCaller(), transaction)
        let limit = request.limit == 0 ? Self.historyDefault : min(Int(request.limit), Self.historyMax)
        let (entries, hasMore) = try RecordHistory(rows: zone.rows).entries(
            of: request.record.isEmpty ? nil : ItemName(request.record), limit: limit, skip: Int(request.skip))
        var reply = WireListRecordHistoryReply()
        let opener = try zone.opener()
        for entry in entries {
            zone.charge(bytes: entry.sealed.count)
            var wire = WireRecordHistoryEntry()
            if let opened = try? opener.open(entry.sealed[...], as: .history(entry.number)),
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
    /// A record of the zone as it is sent. One that is damaged is told of, since nobody knows what it had.
    ///
    /// - Parameter isMeant: Whether it is sent.
    /// - Returns: Nil: it is not.
    func change(of item: FeedItem, where isMeant: (WireRecord) -> Bool = { _ in true }) throws -> WireChange? {
        var change = WireChange()
        change.item = item.name.rawValue
        change.sequence = item.sequence
        guard let parts = StoredRecord.parts(of: item.body),
            let body = try? opener.open(parts.sealed, as: .item(item.name)),
            var record = try? WireRecord(serializedBytes: body)
        else {
            change.damaged = true
            return change
        }
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
