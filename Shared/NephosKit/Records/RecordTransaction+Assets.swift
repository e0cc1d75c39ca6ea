import Foundation
import GRDB
import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// Assets that are in this home for what is unsettled, and the operations that bring them.
extension RecordTransaction {
    // Operations that have to wait until their assets are stored.
    static let uploads = """
        CREATE TABLE record_uploads (
            position INTEGER PRIMARY KEY, account TEXT NOT NULL, scope TEXT NOT NULL,
            transfer BLOB NOT NULL, container TEXT,
            is_stored INTEGER NOT NULL DEFAULT 0, percent INTEGER NOT NULL DEFAULT 0,
            sendings INTEGER NOT NULL DEFAULT 0
        );

        """

    var assets: ContentCache { rows.assets }

    // MARK: What has to stay

    /// Something unsettled of the record names these.
    func need(_ assets: some Sequence<WireRecordAsset>, of name: String) throws {
        for asset in assets { try self.assets.hold(asset.root, by: name, of: rows.scope.name) }
    }

    /// Something of the record is settled: what nothing of it names any more need not stay.
    func settleNeeds(of name: String) throws {
        guard try !assets.roots(heldBy: name, of: rows.scope.name).isEmpty else { return }
        try assets.release(name, of: rows.scope.name)
        for pending in try pending(of: name) { try need(pending.change.assets, of: name) }
        for change in try rows.undecided.all(of: ItemName(name)) {
            // What a rejected one was made from the server has.
            let states = change.kind == .conflict ? [change.mine, change.ancestor, change.theirs] : [change.mine]
            for state in states {
                if let state { try need(WireRecord(serializedBytes: state).assets, of: name) }
            }
        }
    }

    /// Names of records of an operation of which something names assets.
    func needing(at position: Int64) throws -> [String] {
        try String.fetchAll(
            rows.cached(
                "SELECT DISTINCT c.name FROM record_changes AS c JOIN content_holders AS n ON n.account = c.account "
                    + "AND n.service = 'records' AND n.container = ?2 AND n.scope = c.scope AND n.name = c.name "
                    + "WHERE c.position = ?1"),
            arguments: [position, assets.rows.scope.name])
    }

    /// The same under another scope: what is listed has come there.
    func moveNeeds(from other: RecordTransaction) throws {
        for name in try assets.holders(of: other.rows.scope.name) {
            for root in try assets.roots(heldBy: name, of: other.rows.scope.name) {
                try assets.hold(root, by: name, of: rows.scope.name)
            }
            try settleNeeds(of: name)
            try other.settleNeeds(of: name)
        }
    }

    // MARK: What has to be stored

    /// What an operation has for its assets.
    struct Upload {
        /// The upload that has stored what was missing; empty: there is none yet, or none is needed.
        var transfer = Data()
        /// Under which container of contents that is; nil: there is none.
        var container: String?
        var isStored = false
        /// How often the server has lacked what it was said to have.
        var sendings = 0
    }

    func upload(at position: Int64) throws -> Upload? {
        try Row.fetchOne(
            rows.cached("SELECT transfer, container, is_stored, sendings FROM record_uploads WHERE position = ?1"),
            arguments: [position]
        ).map { row in
            Upload(
                transfer: row["transfer"], container: row["container"], isStored: row["is_stored"],
                sendings: row["sendings"])
        }
    }

    func put(_ upload: Upload, at position: Int64) throws {
        try rows.cached(
            "INSERT INTO record_uploads (position, account, scope, transfer, container, is_stored, sendings) "
                + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (position) DO UPDATE SET "
                + "transfer = ?4, container = ?5, is_stored = ?6, percent = iif(?6, 100, 0), sendings = ?7"
        ).execute(arguments: [
            position, rows.account, rows.scope.name, upload.transfer, upload.container, upload.isStored,
            upload.sendings,
        ])
    }

    /// The operation waits until its assets are stored, if some of them are here that its records have not had before.
    ///
    /// - Parameter areAllNew: Also what they have had is looked at.
    func awaitAssets(at position: Int64, areAllNew: Bool = false) throws {
        guard try assets.isAnyHere() else { return }
        let isNew = try pending(at: position).contains { pending in
            try (areAllNew ? pending.change.assets : pending.newAssets).contains { try assets.copy(of: $0) != nil }
        }
        guard isNew else { return }
        var upload = try upload(at: position) ?? Upload()
        upload.isStored = false
        try put(upload, at: position)
    }

    /// The upload that may have been begun for the operation, by whichever process; empty: none was.
    func begunUpload(of operation: OutboxOperation) throws -> Data {
        guard let upload = try upload(at: operation.position) else { return Data() }
        return upload.transfer.isEmpty && !upload.isStored ? Data(operation.id.bytes) : upload.transfer
    }

    func removeUpload(at position: Int64) throws {
        try rows.cached("DELETE FROM record_uploads WHERE position = ?1").execute(arguments: [position])
    }

    /// Operations that were never sent and have to wait for their assets, the oldest first.
    func unstored() throws -> [UnstoredRequest] {
        try Row.fetchAll(
            rows.cached(
                "SELECT o.position, o.attempts, o.next_attempt FROM record_uploads AS u "
                    + "JOIN outbox AS o ON o.position = u.position "
                    + "WHERE u.account = ?1 AND u.scope = ?2 AND u.is_stored = 0 AND o.state = 'unsent' "
                    + "ORDER BY o.position"),
            arguments: [rows.account, rows.scope.name]
        ).map { row in
            UnstoredRequest(
                position: row["position"], attempts: row["attempts"],
                nextAttempt: Timestamp(milliseconds: UInt64(bitPattern: row["next_attempt"] as Int64)))
        }
    }

    /// The assets of an operation's saves that are here, with the records that name them.
    func assetsHere(at position: Int64) throws -> [(name: String, asset: WireRecordAsset, copy: LocalCopy)] {
        try pending(at: position).flatMap { pending in
            try pending.change.assets.sorted { $0.root.lexicographicallyPrecedes($1.root) }.compactMap { asset in
                try assets.copy(of: asset).map { (pending.change.record, asset, $0) }
            }
        }
    }

    func setPercent(_ percent: Int, at position: Int64) throws {
        try rows.cached("UPDATE record_uploads SET percent = ?2 WHERE position = ?1")
            .execute(arguments: [position, percent])
    }

    /// Of all operations that wait, the percents that were sent of each.
    func sentPercent() throws -> Int {
        try Int.fetchOne(
            rows.cached(
                "SELECT coalesce(sum(percent), 0) FROM record_uploads WHERE account = ?1 AND scope = ?2"),
            arguments: [rows.account, rows.scope.name]) ?? 0
    }
}

extension RecordTransaction.Pending {
    /// The assets that it makes its record have, and that it did not have as far as is known here.
    var newAssets: Set<WireRecordAsset> { change.assets.subtracting(ancestor?.assets ?? []) }
}
