internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// Where it has changed who may read records of a type, the zone's feed is brought in line in steps: what everyone may
/// read comes into it, and what fewer may read is told to its readers as gone. So are the rows of ``CircleRows``.
extension RecordsService {
    /// What one step looks at: records, and bytes of them.
    private static let shownRecordsMax = 100
    private static let shownBytesMax = 512 << 10

    func showSome(in transaction: any HandlerTransaction, _ turn: inout SteppedTurn) throws -> Bool {
        guard let change = try RoleRows.firstChange(passingOver: turn.failed, in: transaction) else { return false }
        turn.scope = change.zone
        let zone = try scope(change.zone, transaction)
        let roles = try RoleRows.roles(of: change.zone, in: transaction)
        var items: [FeedItem] = []
        var (last, rows, bytes) = (change.record, 0, 0)
        var isDone = true
        try transaction.rows(change.zone, afterName: change.record) { row in
            guard rows < Self.shownRecordsMax, bytes < Self.shownBytesMax else {
                isDone = false
                return false
            }
            rows += 1
            last = row.name
            guard !row.deleted else { return true }
            bytes += row.bodyBytes
            items.append(try row.item)
            return true
        }
        let opener = try zone.opener()
        let epochStart = try zone.head().epochStart
        var told: [ChangedItem] = []
        var written: [FeedItem] = []
        for item in items {
            guard let parts = StoredRecord.parts(of: item.body),
                let body = try? opener.open(parts.sealed, as: .item(item.name)),
                let record = try? WireRecord(serializedBytes: body)
            else { continue }
            try CircleRows.set(
                roles.circle(of: record), of: item.name, madeBy: [AccountID(record.created.accountID)],
                in: change.zone, transaction)
            let showing = item.showing.after(isInFeed: roles.areInFeed(record.type))
            guard showing != item.showing else { continue }
            let isShown = showing == .item
            var changed = item
            changed.showing = showing
            changed.digest =
                isShown ? SetDigest(ofItem: item.name, body: body, key: try zone.madeDigestKey()) : .empty
            // It is as it was, and no change since the service was restored.
            if item.sequence <= epochStart { StoredRecord.noteOffered(&changed.body) }
            written.append(changed)
            told.append(ChangedItem(name: item.name, body: isShown ? body : nil))
        }
        if !written.isEmpty {
            let change = try transaction.put(zone.scope, written)
            transaction.publish(OutgoingEvent(name, told, by: change, device: nil, nil))
        }
        try RoleRows.setChange(isDone ? nil : last, of: change.zone, in: transaction)
        return true
    }
}
