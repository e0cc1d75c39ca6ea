import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosSync
import NephosWire

/// What a device has of the server's, of a database's zones and of a zone's records alike: the newest body of each item,
/// as it is encoded there.
struct RecordItems {
    let rows: ScopeTransaction

    struct Item: Equatable {
        var name: ItemName
        var sequence: UInt64
        /// Nil: it was deleted, and what tells of that may be behind what was told before.
        var body: Data?
        /// A record's, for queries.
        var type: String?
        /// Of one that was deleted: what the server has told of that.
        var tombstone: Data?

        func digest(key: [UInt8]) -> SetDigest? { body.map { SetDigest(ofItem: name, body: $0, key: key) } }

        var held: ReconcileRule.Mine { body == nil ? .deleted : .live }

        /// In one history the stamps of a record only rise. Of two histories the service judges, by what it has sealed.
        func later(_ theirs: Item, isOwn: Bool) -> ReconcileRule.Later {
            if body == theirs.body { return .same }
            guard isOwn, type != nil, let own = record, let other = theirs.record else { return .unknown }
            return other.modified.time < own.modified.time ? .mine : .unknown
        }
    }

    static let migrations =
        [
            LocalMigration(
                name: "records", sql: [tables, tombstones, RecordTransaction.parts, RecordTransaction.uploads].joined())
        ] + ContentCache.migrations

    private static let tables = """
        CREATE TABLE record_items (
            account TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            type TEXT, sequence INTEGER NOT NULL, body BLOB
        );
        CREATE UNIQUE INDEX record_items_by_name ON record_items (account, scope, name);
        CREATE INDEX record_items_by_type ON record_items (account, scope, type, name);
        CREATE TABLE record_changes (
            position INTEGER NOT NULL, place INTEGER NOT NULL,
            account TEXT NOT NULL, scope TEXT NOT NULL, name TEXT NOT NULL,
            change BLOB NOT NULL, ancestor BLOB,
            PRIMARY KEY (position, place)
        );
        CREATE INDEX record_changes_by_name ON record_changes (account, scope, name, position);

        """

    func item(_ name: ItemName) throws -> Item? {
        try Row.fetchOne(
            rows.cached(
                "SELECT name, type, sequence, body FROM record_items WHERE account = ?1 AND scope = ?2 AND name = ?3"),
            arguments: [rows.account, rows.scope.name, name.rawValue]
        ).map(Self.item)
    }

    static let table = ItemTable(table: "record_items", scope: "scope", name: "name")

    /// In the order of their names. Of a database's zones: of a zone's records there may be too many.
    func all() throws -> [Item] {
        try Row.fetchAll(
            rows.cached(
                "SELECT name, type, sequence, body FROM record_items WHERE account = ?1 AND scope = ?2 ORDER BY name"),
            arguments: [rows.account, rows.scope.name]
        ).map(Self.item)
    }

    /// Those that are there, in the order of their names, one by one.
    ///
    /// - Parameters:
    ///   - type: Nil: of all.
    ///   - name: Only those after it; nil: from the beginning.
    func cursor(ofType type: String?, after name: String? = nil) throws -> some Cursor<Item> {
        // A statement of its own: what is read meanwhile must not begin it anew.
        let statement = try rows.database.makeStatement(
            sql: "SELECT name, type, sequence, body FROM record_items WHERE account = ?1 AND scope = ?2 "
                + "AND body IS NOT NULL AND \(type == nil ? "?3 IS NULL" : "type = ?3") AND name > ?4 ORDER BY name")
        return try Row.fetchCursor(statement, arguments: [rows.account, rows.scope.name, type, name ?? ""])
            .map(Self.item)
    }

    private static func item(_ row: Row) -> Item {
        Item(
            name: ItemName(row["name"]), sequence: UInt64(bitPattern: row["sequence"] as Int64), body: row["body"],
            type: row["type"])
    }

    func liveCount() throws -> Int {
        try Int.fetchOne(
            rows.cached(
                "SELECT count(*) FROM record_items WHERE account = ?1 AND scope = ?2 AND body IS NOT NULL"),
            arguments: [rows.account, rows.scope.name]) ?? 0
    }

    func greatestSequence() throws -> UInt64 {
        // They are kept bit for bit, so that those of 2^63 and more are negative.
        let greatest = try Int64.fetchOne(
            rows.cached(
                "SELECT coalesce(max(CASE WHEN sequence < 0 THEN sequence END), max(sequence)) "
                    + "FROM record_items WHERE account = ?1 AND scope = ?2"),
            arguments: [rows.account, rows.scope.name])
        return UInt64(bitPattern: greatest ?? 0)
    }

    /// Stores the item, and keeps the digest in step.
    func put(_ item: Item, replacing old: Item?, _ state: inout ScopeState) throws {
        if let share = old?.digest(key: state.digestKey) { state.digest.remove(share) }
        if let share = item.digest(key: state.digestKey) { state.digest.add(share) }
        try rows.cached(
            "INSERT INTO record_items (account, scope, name, type, sequence, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                + "ON CONFLICT (account, scope, name) DO UPDATE SET type = ?4, sequence = ?5, body = ?6"
        ).execute(arguments: [
            rows.account, rows.scope.name, item.name.rawValue, item.type, Int64(bitPattern: item.sequence), item.body,
        ])
        try noteEnd(of: item)
        try noteUnnamed(by: old, after: item)
    }

    func remove(_ item: Item, _ state: inout ScopeState) throws {
        if let share = item.digest(key: state.digestKey) { state.digest.remove(share) }
        try rows.cached("DELETE FROM record_items WHERE account = ?1 AND scope = ?2 AND name = ?3")
            .execute(arguments: [rows.account, rows.scope.name, item.name.rawValue])
        try noteUnnamed(by: item, after: nil)
    }

    /// Assets that the item named, and names no more.
    private func noteUnnamed(by old: Item?, after item: Item?) throws {
        // What is no record has no type.
        guard let old, old.type != nil, old.body != item?.body else { return }
        let assets = rows.assets
        guard try assets.isAnyHere(), let former = old.record?.assets, !former.isEmpty else { return }
        for asset in former.subtracting(item?.record?.assets ?? []) { try assets.noteReplaced(asset.root) }
    }

    /// Forgets all of the scope's, and where it stands.
    func forgetAll() throws {
        try rows.cached("DELETE FROM record_items WHERE account = ?1 AND scope = ?2")
            .execute(arguments: [rows.account, rows.scope.name])
        try rows.cached("DELETE FROM record_tombstones WHERE account = ?1 AND scope = ?2")
            .execute(arguments: [rows.account, rows.scope.name])
        try rows.cached("DELETE FROM scopes WHERE account = ?1 AND service = ?2 AND scope = ?3")
            .execute(arguments: [rows.account, rows.service, rows.scope.name])
    }

    // MARK: Bringing in

    /// What the server has lost by a restore.
    enum Finding {
        /// What this device has.
        case lost(Lost)
        /// That an item was deleted, as this device knows: the item as it is there.
        case undeleted(tombstone: Data, theirs: Item)
    }

    struct Lost {
        var mine: Item
        /// What is there instead; nil: nothing.
        var theirs: Item?
        /// What is there instead is from before: what is here has come after it. Else both have come after what both
        /// know, and nobody knows which is the later one.
        var isLater = true
    }

    /// Merges what was pulled.
    ///
    /// - Parameters:
    ///   - type: A record's, by its body.
    ///   - found: Told, one by one, what the server has lost: that may be all that there is. It changes no items.
    /// - Returns: What has changed here.
    func merge(
        _ pulled: PulledChanges, _ state: inout ScopeState, type: (Data) -> String? = { _ in nil },
        _ found: (Finding) throws -> Void
    ) throws -> ToldNames {
        let history = pulled.history
        // What a restore has lost of deletions is told again.
        let ends = pulled.isListing && !history.isOwn ? try tombstones(after: history.common) : [:]
        var changed = ToldNames()
        var hasDeletions = pulled.isListing
        try pulled.changes.forEach { change in
            hasDeletions = hasDeletions || change.deleted
            let theirs = Item(change, sequence: min(change.sequence, pulled.token.sequence), type: type)
            let mine = try item(theirs.name)
            let end = mine?.body == nil ? ends[theirs.name] : nil
            switch decide(theirs, over: end.map { Item(name: theirs.name, sequence: $0.sequence) } ?? mine, history) {
            case .keep: return
            case .takeAndOffer(let isLater):
                if let end {
                    try found(.undeleted(tombstone: end.body, theirs: theirs))
                } else if let mine, mine.body != nil {
                    try found(.lost(Lost(mine: mine, theirs: theirs.body == nil ? nil : theirs, isLater: isLater)))
                }
            default: break
            }
            guard mine?.body != theirs.body || mine?.sequence != theirs.sequence else { return }
            if mine?.body != theirs.body { changed.add(theirs.name) }
            guard theirs.body == nil else { return try put(theirs, replacing: mine, &state) }
            if let mine { try remove(mine, &state) }
            try noteEnd(of: theirs)
        }
        if pulled.isListing {
            try pulled.changes.forEachUnlisted(of: Self.table) { name, isQuarantined in
                guard let mine = try item(name) else { return }
                let decision = history.decideUnlisted(mine.held, at: mine.sequence, isQuarantined: isQuarantined)
                if decision == .keep { return }
                if mine.body != nil { changed.add(mine.name) }
                if decision == .offer { try found(.lost(Lost(mine: mine))) }
                try remove(mine, &state)
            }
        }
        try forgetDeletions(upTo: pulled.token.sequence)
        if hasDeletions { try forgetOldestTombstones() }
        return changed
    }

    private func decide(_ theirs: Item, over mine: Item?, _ history: HistoryRelation) -> ReconcileRule.Decision {
        history.decide(
            mine?.held ?? .absent, at: mine?.sequence ?? 0, isLive: theirs.body != nil, at: theirs.sequence,
            mine?.later(theirs, isOwn: history.isOwn) ?? .theirs)
    }

    /// Deletions that the head has passed: nothing that was told before them comes after it.
    private func forgetDeletions(upTo sequence: UInt64) throws {
        try rows.cached(
            "DELETE FROM record_items WHERE account = ?1 AND scope = ?2 AND body IS NULL AND sequence BETWEEN 0 AND ?3"
        ).execute(arguments: [rows.account, rows.scope.name, Int64(clamping: sequence)])
    }
}

extension RecordItems.Item {
    /// - Parameter type: A record's, by its body.
    init(_ change: WireChange, sequence: UInt64, type: (Data) -> String?) {
        self.init(name: ItemName(change.item), sequence: sequence, body: change.deleted ? nil : change.body)
        self.type = body.flatMap(type)
        if change.deleted { tombstone = change.body }
    }
}
