import Foundation
import GRDB
import NephosCore
import NephosWire

/// What was refused, until somebody has dismissed it.
extension DocumentTransaction {
    /// A change that was refused, and what it brought.
    struct RefusedChange {
        var item: ItemName
        var path: String
        /// Of the content that is still here.
        var version: Data?
        /// Of the item.
        var kind = WireItemKind.unspecified
        /// What the content is called, if it is a further one.
        var rendition: Data?
        /// What it brought.
        var content: WireDocumentContent?
        /// Whether it was to make the item.
        var makes = false
    }

    func recordRefusal(
        _ changes: [RefusedChange], of position: Int64, _ error: CloudError, now: Timestamp
    ) throws {
        for (ordinal, change) in changes.enumerated() {
            try cached(
                "INSERT OR REPLACE INTO document_refusals (account, container, position, ordinal, path, version, "
                    + "refused_at, error, item, kind, rendition, brought, root, makes) "
                    + "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
            ).execute(
                arguments: arguments(
                    position, ordinal, change.path, change.version, Int64(bitPattern: now.milliseconds),
                    StoredError.encode(error), change.item.rawValue, change.kind.rawValue, change.rendition,
                    change.content?.version, change.content?.root, change.makes))
            try touch(change.item)
            if change.rendition == nil, let content = change.content, let item = DocumentID(change.item.rawValue) {
                try refuseVersion(ofLocalFilesOf: item, content.version)
            }
        }
    }

    /// A place for what is refused of a request that goes on without it.
    func nextRefusal() throws -> Int64 {
        let least = try Int64.fetchOne(
            cached("SELECT min(position) FROM document_refusals WHERE account = ?1 AND container = ?2"),
            arguments: arguments())
        return min(0, least ?? 0) - 1
    }

    struct Refusal {
        var position: Int64
        /// Among those of the position.
        var ordinal: Int64
        var item: ItemName
        var path: String
        /// Of the content that is still here.
        var version: DocumentID?
        var at: Timestamp
        var error: CloudError
        /// Of the item; nil: nobody knows.
        var kind: WireItemKind?
        /// What the content is called, if it is a further one.
        var rendition: Data?
        /// Which content it brought, and its root; empty: none.
        var brought: Data
        var root: Data
        /// Whether it was to make the item.
        var makes: Bool
    }

    // What was refused, the item's kind, whether the item was to be made with it, and of a further content the name.
    // `brought` and `root` say which content, so that it is known when the server has it after all.
    static let refusals = """
        CREATE TABLE document_refusals (
            account TEXT NOT NULL, container TEXT NOT NULL, position INTEGER NOT NULL, ordinal INTEGER NOT NULL,
            path TEXT NOT NULL, version BLOB, refused_at INTEGER NOT NULL, error BLOB NOT NULL,
            item TEXT NOT NULL, kind INTEGER NOT NULL, rendition BLOB, brought BLOB, root BLOB, makes INTEGER NOT NULL,
            PRIMARY KEY (account, container, position, ordinal)
        ) WITHOUT ROWID;
        CREATE INDEX document_refusals_by_item ON document_refusals (account, container, item);
        CREATE INDEX document_refusals_by_content ON document_refusals (account, container, brought);
        CREATE INDEX document_refusals_by_root ON document_refusals (account, container, root);
        CREATE INDEX document_refusals_by_path ON document_refusals (account, container, path);

        """

    func hasRefusals() throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT EXISTS (SELECT 1 FROM document_refusals WHERE account = ?1 AND container = ?2)"),
            arguments: arguments()) ?? false
    }

    func refusals() throws -> [Refusal] { try refusals("", arguments()) }

    /// Those that may be settled by what was changed: they are of the item, or it has what they brought.
    func refusals(concernedBy changed: SettlingItems) throws -> [Refusal] {
        guard let names = changed.names else { return try refusals() }
        var found: [Refusal] = []
        for name in names {
            found += try refusals("AND item = ?3", arguments(name.rawValue))
            guard let item = try synced(name)?.item, item.hasContent else { continue }
            for content in [item.content] + item.conflicts where !content.version.isEmpty {
                found += try refusals("AND brought = ?3", arguments(content.version))
            }
            guard !item.content.root.isEmpty else { continue }
            found += try refusals("AND root = ?3", arguments(item.content.root))
        }
        var seen: Set<[Int64]> = []
        return found.filter { seen.insert([$0.position, $0.ordinal]).inserted }
    }

    /// Those that brought this content, or are of this path.
    func refusals(of version: Data, at path: String?) throws -> [Refusal] {
        try refusals("AND (brought = ?3 OR path = ?4)", arguments(version, path))
    }

    private func refusals(_ condition: String, _ arguments: StatementArguments) throws -> [Refusal] {
        try Row.fetchAll(
            cached(
                "SELECT position, ordinal, item, path, version, refused_at, error, kind, rendition, brought, root, makes "
                    + "FROM document_refusals "
                    + "WHERE account = ?1 AND container = ?2 \(condition) ORDER BY position, ordinal"),
            arguments: arguments
        ).compactMap { row in
            StoredError.decode(row["error"]).map {
                Refusal(
                    position: row["position"], ordinal: row["ordinal"], item: ItemName(row["item"] as String),
                    path: row["path"],
                    version: (row["version"] as Data?).flatMap { DocumentID(bytes: $0) },
                    at: Timestamp(milliseconds: UInt64(bitPattern: row["refused_at"] as Int64)), error: $0,
                    kind: WireItemKind(rawValue: row["kind"]), rendition: row["rendition"],
                    brought: row["brought"] as Data? ?? Data(), root: row["root"] as Data? ?? Data(),
                    makes: row["makes"])
            }
        }
    }

    /// Whether a change of the item was refused, and nobody has dismissed that.
    func isRefused(_ id: DocumentID) throws -> Bool {
        try Bool.fetchOne(
            cached("SELECT 1 FROM document_refusals WHERE account = ?1 AND container = ?2 AND item = ?3 LIMIT 1"),
            arguments: arguments(id.description)) ?? false
    }

    /// Takes a refusal out, and its bytes with it unless they wait to be sent by something else.
    func removeRefusal(_ refusal: Refusal) throws {
        try cached(
            "DELETE FROM document_refusals WHERE account = ?1 AND container = ?2 AND position = ?3 AND ordinal = ?4"
        ).execute(arguments: arguments(refusal.position, refusal.ordinal))
        try touch(refusal.item)
        guard let version = refusal.version else { return }
        try cached(
            "DELETE FROM document_contents WHERE account = ?1 AND container = ?2 AND version = ?3 AND position = ?4"
        ).execute(arguments: arguments(version.wire, refusal.position))
    }
}
