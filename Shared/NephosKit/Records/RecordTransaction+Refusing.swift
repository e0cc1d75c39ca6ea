import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// What the server did not take: kept until a person, or the app, has decided.
extension RecordTransaction {
    // MARK: Conflicts

    /// Notes that a save or deletion met another. What was saved over one that is noted already, or refused, is one with
    /// it: both go back to its ancestor. Whatever else was saved of the record is a conflict by itself.
    ///
    /// - Parameters:
    ///   - client: What was to be; nil: deleted.
    ///   - base: The change tag that it was made from.
    ///   - server: What there is; nil: it was deleted.
    func noteConflict(
        of name: String, ancestor: WireRecord?, server: WireRecord?, client: WireRecord?, madeFrom base: Data,
        _ error: CloudError, now: Timestamp
    ) throws {
        let former = try conflicts(of: name).first { $0.client?.changeTag == base }
        let noted = try refusals(of: name)
        let refused = noted.first { $0.isBase(base) }
        // What was saved over it may have been refused before it.
        let later = noted.first { $0.isMade(from: client) && $0.body != nil }
        let client = later?.body ?? client
        // What was deleted was there once, whatever became of it since.
        let first =
            try former.map { try $0.ancestor?.base?.serializedData() as Data? }
            ?? refused.flatMap { $0.error.code == .unknownItem ? nil : try $0.ancestor?.serializedData() as Data? }
            ?? ancestor?.serializedData() as Data?
        if let former { _ = try removeConflict(former) }
        for one in [refused, later] { if let one { try remove(one, of: name) } }
        try rows.cached(
            "INSERT INTO record_conflicts (account, scope, name, ancestor, server, client, found, error) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
        ).execute(arguments: [
            rows.account, rows.scope.name, name, first, try server?.serializedData() as Data?,
            try client?.serializedData() as Data?, Int64(bitPattern: now.milliseconds), StoredError.encode(error),
        ])
        for record in [ancestor, server, client] { try need(record?.assets ?? [], of: name) }
    }

    func conflictCount() throws -> Int {
        try Int.fetchOne(
            rows.cached("SELECT COUNT(*) FROM record_conflicts WHERE account = ?1 AND scope = ?2"),
            arguments: [rows.account, rows.scope.name]) ?? 0
    }

    /// In the order of the records' names, the oldest first.
    func conflicts(of name: String? = nil) throws -> [RecordConflict] {
        try Row.fetchAll(
            rows.cached(
                "SELECT * FROM record_conflicts WHERE account = ?1 AND scope = ?2 AND (?3 IS NULL OR name = ?3) "
                    + "ORDER BY name, number"),
            arguments: [rows.account, rows.scope.name, name]
        ).map { row in
            let id = RecordID(row["name"], zone: zone)
            let record = { (body: Data?) in
                try body.map { Record(id, try WireRecord(serializedBytes: $0)) }
            }
            return RecordConflict(
                id: id, ancestor: try record(row["ancestor"]), server: try record(row["server"]),
                client: try record(row["client"]),
                found: Timestamp(milliseconds: UInt64(bitPattern: row["found"] as Int64)),
                error: StoredError.decode(row["error"]) ?? CloudError(.serverRecordChanged, ""), number: row["number"])
        }
    }

    /// - Returns: False: it is not there any more.
    func removeConflict(_ conflict: RecordConflict) throws -> Bool {
        try rows.cached("DELETE FROM record_conflicts WHERE number = ?1 AND account = ?2")
            .execute(arguments: [conflict.number, rows.account])
        guard rows.database.changesCount > 0 else { return false }
        try settleNeeds(of: conflict.id.name)
        return true
    }

    /// What conflicts of a zone take, in bytes of their records, and how many there are, until nothing more of the zone
    /// is sent: none is ever dropped, and each request may add some. Of what was refused as much.
    static let undecidedBytesMax = 32 << 20
    static let undecidedMax = 10_000

    func isFullOfConflicts() throws -> Bool {
        try isFull(
            "record_conflicts",
            "coalesce(length(ancestor), 0) + coalesce(length(server), 0) + coalesce(length(client), 0)")
    }

    /// The same of what was refused.
    func isFullOfRefusals() throws -> Bool {
        try isFull("record_refusals", "coalesce(length(body), 0) + coalesce(length(ancestor), 0)")
    }

    private func isFull(_ table: String, _ bytes: String) throws -> Bool {
        let row = try Row.fetchOne(
            rows.cached(
                "SELECT count(*) AS found, coalesce(sum(\(bytes)), 0) AS bytes FROM \(table) "
                    + "WHERE account = ?1 AND scope = ?2"),
            arguments: [rows.account, rows.scope.name])
        guard let row else { return false }
        return (row["found"] as Int) >= Self.undecidedMax || (row["bytes"] as Int) >= Self.undecidedBytesMax
    }

    // MARK: Refusals

    /// Keeps what was refused: nobody else has it. What was saved over something that is refused already is one with it, for
    /// the reason that the first was refused for, in whichever order the two were. Whatever else was saved of the record is
    /// listed by itself.
    ///
    /// - Parameters:
    ///   - client: What was to be; nil: deleted.
    ///   - ancestor: What it was made from; nil: it would be a new record.
    ///   - base: The change tag that it was made from; empty: none.
    func noteRefusal(
        of name: String, client: WireRecord?, ancestor: WireRecord?, madeFrom base: Data = Data(), _ error: CloudError,
        now: Timestamp
    ) throws {
        let noted = try refusals(of: name)
        let (former, later) = (noted.first { $0.isBase(base) }, noted.first { $0.isMade(from: client) })
        for one in noted where one.number == former?.number || one.number == later?.number || one.isSame(as: client) {
            try remove(one, of: name)
        }
        let body = if let later { later.body } else { client }
        // Of a first one that was to be a new record there is none.
        let origin = former.map(\.ancestor) ?? ancestor
        // What was to be made, and deleted then, is not there.
        if let later, later.body == nil, origin == nil { return }
        try rows.cached(
            "INSERT INTO record_refusals (account, scope, name, body, ancestor, refused, error) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
        ).execute(arguments: [
            rows.account, rows.scope.name, name, try body?.serializedData() as Data?,
            try origin?.serializedData() as Data?, Int64(bitPattern: now.milliseconds),
            StoredError.encode(former?.error ?? error),
        ])
        try need(body?.assets ?? [], of: name)
    }

    /// A save or deletion that was refused.
    struct Refusal {
        var number: Int64
        /// Nil: a deletion.
        var body: WireRecord?
        var ancestor: WireRecord?
        var error: CloudError

        /// It as a save over what it was made from; nil: it is a deletion.
        var save: WireSaveRecord? {
            guard let body else { return nil }
            let before = Dictionary((ancestor?.fields ?? []).map { ($0.name, $0) }) { $1 }
            let left = Set(body.fields.map(\.name))
            var save = WireSaveRecord()
            (save.version, save.base, save.type) = (body.version, ancestor?.version ?? Data(), body.type)
            save.fields = body.fields.filter { before[$0.name] != $0 }
            for name in before.keys.sorted() where !left.contains(name) {
                var gone = WireRecordField()
                gone.name = name
                save.fields.append(gone)
            }
            if body.parent != ancestor?.parent ?? "" { save.parent = body.parent }
            return save
        }

        /// Whether it is the save with this change tag, over which another was made.
        func isBase(_ version: Data) -> Bool { !version.isEmpty && body?.version == version }
        /// Whether it is this save, which was refused before, or a deletion as this is one.
        func isSame(as other: WireRecord?) -> Bool {
            guard let body, let other else { return body == nil && other == nil }
            return !other.version.isEmpty && body.version == other.version
        }

        /// Whether it was made over this save.
        func isMade(from save: WireRecord?) -> Bool {
            guard let version = save?.version, !version.isEmpty else { return false }
            return version == ancestor?.version
        }
    }

    /// In the order in which they were refused.
    func refusals(of name: String) throws -> [Refusal] {
        try Row.fetchAll(
            rows.cached(
                "SELECT number, body, ancestor, error FROM record_refusals "
                    + "WHERE account = ?1 AND scope = ?2 AND name = ?3 ORDER BY number"),
            arguments: [rows.account, rows.scope.name, name]
        ).compactMap { row in
            guard let error = StoredError.decode(row["error"]) else { return nil }
            return Refusal(
                number: row["number"], body: try (row["body"] as Data?).map { try WireRecord(serializedBytes: $0) },
                ancestor: try (row["ancestor"] as Data?).map { try WireRecord(serializedBytes: $0) }, error: error)
        }
    }

    private func remove(_ refusal: Refusal, of name: String) throws {
        try rows.cached("DELETE FROM record_refusals WHERE number = ?1 AND account = ?2")
            .execute(arguments: [refusal.number, rows.account])
        try settleNeeds(of: name)
    }

    func refusals() throws -> [RefusedRecord] {
        try Row.fetchAll(
            rows.cached("SELECT * FROM record_refusals WHERE account = ?1 AND scope = ?2 ORDER BY name, number"),
            arguments: [rows.account, rows.scope.name]
        ).compactMap { row in
            guard let error = StoredError.decode(row["error"]) else { return nil }
            let id = RecordID(row["name"], zone: zone)
            let ancestor = try (row["ancestor"] as Data?).map { try WireRecord(serializedBytes: $0) }
            return RefusedRecord(
                id: id,
                record: try (row["body"] as Data?).map { body in
                    Record(
                        id, try WireRecord(serializedBytes: body), madeFrom: ancestor, refusedAs: row["number"])
                },
                refused: Timestamp(milliseconds: UInt64(bitPattern: row["refused"] as Int64)), error: error,
                number: row["number"])
        }
    }

    /// Which they are and why, without what they have: that is asked for with each status.
    ///
    /// - Parameter recovery: How a person saves what was refused again; a deletion is not saved.
    func refusedWrites(recovery: String? = nil) throws -> [RefusedWrite] {
        try Row.fetchAll(
            rows.cached(
                "SELECT name, refused, error, body IS NOT NULL AS is_save FROM record_refusals WHERE account = ?1 AND scope = ?2 ORDER BY name, number"
            ),
            arguments: [rows.account, rows.scope.name]
        ).compactMap { row in
            StoredError.decode(row["error"]).map { error in
                RefusedWrite(
                    key: ItemName(row["name"]),
                    at: Timestamp(milliseconds: UInt64(bitPattern: row["refused"] as Int64)), error: error,
                    recovery: row["is_save"] ? recovery : nil)
            }
        }
    }

    /// - Returns: False: it is not there any more.
    func dismiss(_ refused: RefusedRecord) throws -> Bool {
        try rows.cached("DELETE FROM record_refusals WHERE number = ?1 AND account = ?2")
            .execute(arguments: [refused.number, rows.account])
        guard rows.database.changesCount > 0 else { return false }
        try settleNeeds(of: refused.id.name)
        return true
    }

    /// Ends what was refused and is done again by this change: it has the same content, or is known to. What else was
    /// refused of the record stays.
    ///
    /// - Parameter isSavedAgain: Whether the one of this number is part of the change.
    func endRefusals(by change: Pending, _ isSavedAgain: (Int64) -> Bool) throws {
        let name = change.change.record
        let noted = try refusals(of: name)
        guard !noted.isEmpty else { return }
        let result = try client(of: change)
        for one in noted where isSavedAgain(one.number) || one.body.hasSameContent(as: result) {
            try remove(one, of: name)
        }
    }

    /// The same of a save by its change tag.
    func endRefusal(of name: String, as version: Data) throws {
        for one in try refusals(of: name) where one.isBase(version) { try remove(one, of: name) }
    }

    /// Ends what was refused and is so at the server by now, whoever has done it.
    ///
    /// - Parameter changed: What this device was just told of.
    func endRefusals(after changed: ToldNames) throws {
        let refused = try String.fetchAll(
            rows.cached("SELECT DISTINCT name FROM record_refusals WHERE account = ?1 AND scope = ?2"),
            arguments: [rows.account, rows.scope.name])
        guard !refused.isEmpty else { return }
        let names = changed.hasMore ? nil : Set(changed.names.map(\.rawValue))
        for name in refused where names?.contains(name) ?? true {
            // A record that is not here may be in quarantine there: that is no deletion.
            guard let server = try items.item(ItemName(name))?.record else { continue }
            for one in try refusals(of: name) where one.body.hasSameContent(as: server) { try remove(one, of: name) }
        }
    }

    /// Of all that was refused of the record by now.
    func dismissRefusals(of name: String) throws {
        try rows.cached("DELETE FROM record_refusals WHERE account = ?1 AND scope = ?2 AND name = ?3")
            .execute(arguments: [rows.account, rows.scope.name, name])
        try settleNeeds(of: name)
    }

    // MARK: What a person has to decide

    /// Scopes of an account in which there is something; also those of zones that are gone.
    static let undecidedScopes =
        "SELECT scope FROM record_refusals WHERE account = ?1 UNION SELECT scope FROM record_conflicts WHERE account = ?1"

    /// Whether somebody has opened a database in this home.
    static func isPrepared(_ database: Database) throws -> Bool { try database.tableExists("record_conflicts") }

    /// Of an account: records whose save was refused, and conflicts that nobody has resolved, those of deletions too:
    /// they are nowhere but here.
    static func undecidedCount(of account: AccountID, _ database: Database) throws -> Int {
        guard try isPrepared(database) else { return 0 }
        return try Int.fetchOne(
            database,
            sql: """
                SELECT (SELECT COUNT(*) FROM record_refusals WHERE account = ?1 AND body IS NOT NULL)
                    + (SELECT COUNT(*) FROM record_conflicts WHERE account = ?1)
                """,
            arguments: [account.rawValue]) ?? 0
    }
}
