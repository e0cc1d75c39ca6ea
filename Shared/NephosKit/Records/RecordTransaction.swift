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
    var items: RecordItems { RecordItems(rows: rows) }

    init(_ rows: ScopeTransaction, zone: String) {
        self.rows = rows
        self.zone = zone
    }

    /// Whether somebody here knows what is in the zone.
    ///
    /// - Parameter isMade: The server has it, as far as this device knows.
    func isKnown(isMade: Bool) throws -> Bool { try !isMade || rows.state().synced }

    // MARK: What waits

    /// A save or deletion that waits to be sent.
    struct Pending {
        var position: Int64
        var change: WireRecordChange
        /// The record that it was made from; nil: none.
        var ancestor: WireRecord?
    }

    func pending(of name: String) throws -> [Pending] {
        try Row.fetchAll(
            rows.cached(
                "SELECT position, change, ancestor FROM record_changes "
                    + "WHERE account = ?1 AND scope = ?2 AND name = ?3 ORDER BY position, place"),
            arguments: [rows.account, rows.scope.name, name]
        ).map(Self.pending)
    }

    /// An operation's, in their order.
    func pending(at position: Int64) throws -> [Pending] {
        try Row.fetchAll(
            rows.cached("SELECT position, change, ancestor FROM record_changes WHERE position = ?1 ORDER BY place"),
            arguments: [position]
        ).map(Self.pending)
    }

    private static func pending(_ row: Row) throws -> Pending {
        Pending(
            position: row["position"], change: try WireRecordChange(serializedBytes: row["change"] as Data),
            ancestor: try (row["ancestor"] as Data?).map { try WireRecord(serializedBytes: $0) })
    }

    /// Names of records of which something waits.
    func pendingNames() throws -> [String] {
        try String.fetchAll(
            rows.cached("SELECT DISTINCT name FROM record_changes WHERE account = ?1 AND scope = ?2 ORDER BY name"),
            arguments: [rows.account, rows.scope.name])
    }

    func put(_ pending: Pending, place: Int) throws {
        try rows.cached(
            "INSERT OR REPLACE INTO record_changes (position, place, account, scope, name, change, ancestor) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(arguments: [
            pending.position, place, rows.account, rows.scope.name, pending.change.record,
            try pending.change.serializedData() as Data, try pending.ancestor?.serializedData() as Data?,
        ])
    }

    func removePending(at position: Int64) throws {
        try rows.cached("DELETE FROM record_changes WHERE position = ?1").execute(arguments: [position])
    }

    // MARK: What the app sees

    /// A record as it will be once all that waits is sent, as far as that is known here.
    struct Visible {
        var record: WireRecord?
        var isPending = false
        var isDamaged = false
    }

    func visible(_ name: String) throws -> Visible {
        visible(over: try items.item(ItemName(name)), try pending(of: name))
    }

    func visible(over item: RecordItems.Item?, _ pending: [Pending]) -> Visible {
        var visible = Visible(record: item?.record, isPending: !pending.isEmpty)
        visible.isDamaged = item?.body?.isEmpty == true
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

    /// All records as the app sees them, in the order of their names, one by one: a zone may have two million.
    ///
    /// - Parameters:
    ///   - type: Nil: of all.
    ///   - body: Returns whether to go on.
    func forEach(ofType type: String?, _ body: (String, Visible) throws -> Bool) throws {
        let waiting = Dictionary(grouping: try allPending()) { $0.change.record }
        // Those that the server does not have, or has of another type, come in between.
        var others = try waiting.keys.filter { name in
            let item = try items.item(ItemName(name))
            return item?.body == nil || type != nil && item?.type != type
        }.sorted()[...]
        func tell(_ name: String, over item: RecordItems.Item?) throws -> Bool {
            let visible = visible(over: item, waiting[name] ?? [])
            guard let record = visible.record, type == nil || record.type == type else { return true }
            return try body(name, visible)
        }
        let found = try items.cursor(ofType: type)
        while let item = try found.next() {
            while let next = others.first, next < item.name.rawValue {
                others.removeFirst()
                guard try tell(next, over: items.item(ItemName(next))) else { return }
            }
            guard try tell(item.name.rawValue, over: item) else { return }
        }
        for name in others { guard try tell(name, over: items.item(ItemName(name))) else { return } }
    }

    private func allPending() throws -> [Pending] {
        try Row.fetchAll(
            rows.cached(
                "SELECT position, change, ancestor FROM record_changes "
                    + "WHERE account = ?1 AND scope = ?2 ORDER BY position, place"),
            arguments: [rows.account, rows.scope.name]
        ).map(Self.pending)
    }
}

extension RecordTransaction.Visible {
    func made(_ id: RecordID, _ wire: WireRecord, _ desired: Set<String>?) -> Record {
        var made = Record(id, wire, desired: desired)
        made.isPending = isPending
        made.isDamaged = isDamaged
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
        var record = SaveRule.made(save, from: start, created: start.created, WireRecordStamp())
        if !start.hasCreated { record.clearCreated() }
        // When it is saved, the server says.
        record.clearModified()
        return record
    }
}

extension RecordItems.Item {
    /// Nil: it was deleted, or cannot be read.
    var record: WireRecord? { body.flatMap { $0.isEmpty ? nil : try? WireRecord(serializedBytes: $0) } }
}
