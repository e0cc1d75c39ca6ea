import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// One zone's records inside a local transaction: what the server has, and over it what waits to be sent.
struct RecordTransaction {
    let rows: ScopeTransaction
    /// Its name.
    let zone: String
    /// Whether the zone's records are here; else here is only what waits.
    let hasCopy: Bool
    var items: RecordItems { RecordItems(rows: rows) }

    init(_ rows: ScopeTransaction, zone: String, hasCopy: Bool = true) {
        self.rows = rows
        self.zone = zone
        self.hasCopy = hasCopy
    }

    /// Whether somebody here knows what is in the zone.
    ///
    /// - Parameter isMade: The server has it, as far as this device knows.
    func isKnown(isMade: Bool) throws -> Bool { try !isMade || rows.state().synced }

    // MARK: What waits

    /// A save or deletion that waits to be sent.
    struct Pending {
        var position: Int64
        /// Within its operation.
        var place = 0
        var change: WireRecordChange
        /// The record that it was made from; nil: none.
        var ancestor: WireRecord?
        /// Nil: it is a deletion.
        var save: WireSaveRecord? { if case .save(let save)? = change.kind { save } else { nil } }
    }

    func pending(of name: String) throws -> [Pending] {
        try Row.fetchAll(
            rows.cached(
                "SELECT position, place, change, ancestor FROM record_changes "
                    + "WHERE account = ?1 AND scope = ?2 AND name = ?3 ORDER BY position, place"),
            arguments: [rows.account, rows.scope.name, name]
        ).map(Self.pending)
    }

    /// An operation's, in their order.
    func pending(at position: Int64) throws -> [Pending] {
        try Row.fetchAll(
            rows.cached(
                "SELECT position, place, change, ancestor FROM record_changes WHERE position = ?1 ORDER BY place"),
            arguments: [position]
        ).map(Self.pending)
    }

    private static func pending(_ row: Row) throws -> Pending {
        Pending(
            position: row["position"], place: row["place"],
            change: try WireRecordChange(serializedBytes: row["change"] as Data),
            ancestor: try (row["ancestor"] as Data?).map { try WireRecord(serializedBytes: $0) })
    }

    /// Names of records of which something waits.
    func pendingNames() throws -> [String] {
        try String.fetchAll(
            rows.cached("SELECT DISTINCT name FROM record_changes WHERE account = ?1 AND scope = ?2 ORDER BY name"),
            arguments: [rows.account, rows.scope.name])
    }

    func put(_ pending: Pending) throws {
        try rows.cached(
            "INSERT OR REPLACE INTO record_changes (position, place, account, scope, name, change, ancestor) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(arguments: [
            pending.position, pending.place, rows.account, rows.scope.name, pending.change.record,
            try pending.change.serializedData() as Data, try pending.ancestor?.serializedData() as Data?,
        ])
        try need(pending.change.assets, of: pending.change.record)
    }

    /// All of an operation, which is over.
    func removePending(at position: Int64) throws {
        try removeChanges(at: position)
        try rows.cached("DELETE FROM record_parts WHERE position = ?1").execute(arguments: [position])
        try removeUpload(at: position)
    }

    func removeChanges(at position: Int64) throws {
        let needing = try needing(at: position)
        try rows.cached("DELETE FROM record_changes WHERE position = ?1").execute(arguments: [position])
        for name in needing { try settleNeeds(of: name) }
    }

    func remove(_ pending: Pending) throws {
        try rows.cached("DELETE FROM record_changes WHERE position = ?1 AND place = ?2")
            .execute(arguments: [pending.position, pending.place])
        try settleNeeds(of: pending.change.record)
    }

    // MARK: What the app sees

    /// A record as it will be once all that waits is sent, as far as that is known here.
    struct Visible {
        var record: WireRecord?
        var isPending = false
    }

    func visible(_ name: String) throws -> Visible {
        visible(over: try items.item(ItemName(name)), try pending(of: name))
    }

    func visible(over item: RecordItems.Item?, _ pending: [Pending]) -> Visible {
        var visible = Visible(record: item?.record, isPending: !pending.isEmpty)
        for change in pending { visible.record = change.result(over: visible.record) }
        return visible
    }

    /// - Parameter desired: Only these fields; nil: all.
    func record(_ id: RecordID, desired: Set<String>? = nil) throws -> Record? {
        let visible = try visible(id.name)
        return visible.record.map { visible.made(id, $0, desired) }
    }

    func visibleCount() throws -> Int {
        try pendingNames().reduce(items.liveCount()) { count, name in
            let isThere = try items.item(ItemName(name))?.body != nil
            return try count + (visible(name).record != nil ? 1 : 0) - (isThere ? 1 : 0)
        }
    }

    /// All records as the app sees them, in the order of their names, one by one: a zone may have two million, and as many
    /// changes may wait.
    ///
    /// - Parameters:
    ///   - type: Nil: of all.
    ///   - name: Only what comes after it; nil: from the beginning.
    ///   - body: Returns whether to go on.
    func forEach(
        ofType type: String?, after name: String? = nil, _ body: (String, Visible) throws -> Bool
    ) throws {
        // Those that the server does not have, or has of another type, come in between.
        let waiting = try pendingCursor(after: name)
        var next = try waiting.next()
        func tell(_ name: String, over item: RecordItems.Item?, _ pending: [Pending]) throws -> Bool {
            let visible = visible(over: item, pending)
            guard let record = visible.record, type == nil || record.type == type else { return true }
            return try body(name, visible)
        }
        func tellWaiting(_ name: String) throws -> Bool {
            try tell(name, over: items.item(ItemName(name)), pending(of: name))
        }
        let found = try items.cursor(ofType: type, after: name)
        while let item = try found.next() {
            while let name = next, name < item.name.rawValue {
                guard try tellWaiting(name) else { return }
                next = try waiting.next()
            }
            let isWaiting = next == item.name.rawValue
            if isWaiting { next = try waiting.next() }
            guard try tell(item.name.rawValue, over: item, isWaiting ? pending(of: item.name.rawValue) : []) else {
                return
            }
        }
        while let name = next {
            guard try tellWaiting(name) else { return }
            next = try waiting.next()
        }
    }

    /// Names of records of which something waits, in order.
    private func pendingCursor(after name: String?) throws -> some Cursor<String> {
        let statement = try rows.database.makeStatement(
            sql:
                "SELECT DISTINCT name FROM record_changes WHERE account = ?1 AND scope = ?2 AND name > ?3 ORDER BY name"
        )
        return try String.fetchCursor(statement, arguments: [rows.account, rows.scope.name, name ?? ""])
    }
}

extension RecordTransaction.Visible {
    func made(_ id: RecordID, _ wire: WireRecord, _ desired: Set<String>?) -> Record {
        var made = Record(id, wire, desired: desired)
        made.isPending = isPending
        return made
    }
}

extension RecordTransaction.Pending {
    /// What becomes of the record; nil: it goes.
    ///
    /// A save by force is over whatever there is. Another is what the app has saved, also where the server has something
    /// newer that it will be refused for.
    func result(over current: WireRecord?) -> WireRecord? {
        guard case .save(let save) = change.kind else { return nil }
        let isByForce = save.policy != .ifServerRecordUnchanged
        let start = isByForce || current?.version == save.base ? current : ancestor
        return Self.made(save, from: start)
    }

    static func made(_ save: WireSaveRecord, from start: WireRecord?) -> WireRecord {
        let start = start ?? WireRecord()
        // Of one that a restore has lost the server has said so once. Else it says so when it is saved.
        let isFormer = save.seal != 0
        var record = SaveRule.made(
            save, from: start, created: isFormer ? save.created : start.created,
            isFormer ? save.modified : WireRecordStamp())
        if !isFormer, !start.hasCreated { record.clearCreated() }
        if !isFormer { record.clearModified() }
        return record
    }
}

extension RecordItems.Item {
    /// Nil: it was deleted, or cannot be read.
    var record: WireRecord? { body.flatMap { try? WireRecord(serializedBytes: $0) } }
}
