/// The feed's tables, and the one place where the engines' dialects differ.
///
/// - `feed_epoch`: one row.
/// - `feed_runs`: where each partition's sequence was when each run of the
///   service began, 1024 times 8 bytes, in which epoch, and from which lost run
///   that epoch parted (see ``FeedHistory``).
/// - `feed_restored`: a row for each time that this database was brought back from a copy, until the service has begun
///   another epoch (``DatabaseCopy/noteRestored(_:at:)``).
/// - `feed_partitions`: where each partition's sequence was when the epoch
///   began, and how many scopes it has had. The sequence itself is the greatest
///   of its scopes' heads; the row has it only for the time after they are gone.
/// - `feed_scopes`: each scope's head, digest and counts.
/// - `feed_items`: each item's live row or tombstone, clustered by scope and
///   name; the index gives a scope's changes in order. What its sequence and its
///   time of deletion say besides is ``StoredShowing``'s.
/// - `feed_bodies`: items' large bodies (``FeedBodies``), each in a row of its
///   own that its item names. A B-tree that is clustered by a key reads an
///   entry as a whole to compare it, with all the pages that it overflows to.
/// - `feed_operations`: replies, clustered by operation id: ids of one time lie
///   side by side, so that inserting appends and pruning cuts off the front.
/// - `feed_operation_packs`: the same of groups that had several of one time, a
///   row for them together (``OperationPacks``).
public enum ChangeFeedSchema {
    /// For ``SQLiteEngine``. They come before the service's own.
    public static let migrations = migrations(in: .sqlite)

    struct Dialect {
        var bytes: String
        /// A text compared byte by byte.
        var text: String
        var integerKey: String
        /// Ends a table whose rows lie in the order of its primary key.
        var clustered: String

        static let sqlite = Dialect(
            bytes: "BLOB", text: "TEXT", integerKey: "INTEGER PRIMARY KEY", clustered: " WITHOUT ROWID")
    }

    static func migrations(in dialect: Dialect) -> [Migration] {
        [
            Migration(
                name: "feed",
                statements: [
                    // Old copy found at: milliseconds since 1970, 0 if never.
                    "CREATE TABLE feed_epoch (epoch BIGINT NOT NULL, old_copy_found_at BIGINT NOT NULL)",
                    "INSERT INTO feed_epoch (epoch, old_copy_found_at) VALUES (1, 0)",
                    """
                    CREATE TABLE feed_runs (
                        id \(dialect.integerKey),
                        starts \(dialect.bytes) NOT NULL,
                        epoch BIGINT NOT NULL,
                        lost_run BIGINT NOT NULL)
                    """,
                    """
                    CREATE TABLE feed_partitions (
                        number \(dialect.integerKey),
                        sequence BIGINT NOT NULL,
                        epoch_start BIGINT NOT NULL,
                        scope_count BIGINT NOT NULL)
                    """,
                    """
                    CREATE TABLE feed_scopes (
                        id \(dialect.integerKey),
                        owner \(dialect.text) NOT NULL,
                        path \(dialect.text) NOT NULL,
                        partition_number BIGINT NOT NULL,
                        sequence BIGINT NOT NULL,
                        floor BIGINT NOT NULL,
                        digest \(dialect.bytes) NOT NULL,
                        live_count BIGINT NOT NULL,
                        live_bytes BIGINT NOT NULL,
                        metadata \(dialect.bytes) NOT NULL,
                        tombstones BIGINT NOT NULL,
                        UNIQUE (owner, path))
                    """,
                    "CREATE INDEX feed_scopes_by_head ON feed_scopes (partition_number, sequence)",
                    """
                    CREATE TABLE feed_items (
                        scope_id BIGINT NOT NULL,
                        name \(dialect.text) NOT NULL,
                        sequence BIGINT NOT NULL,
                        deleted_at BIGINT NOT NULL,
                        size BIGINT NOT NULL,
                        digest \(dialect.bytes) NOT NULL,
                        body \(dialect.bytes) NOT NULL,
                        -- 0: the body is in this row.
                        body_id BIGINT NOT NULL DEFAULT 0,
                        PRIMARY KEY (scope_id, name))\(dialect.clustered)
                    """,
                    "CREATE INDEX feed_items_by_sequence ON feed_items (scope_id, sequence, name)",
                    "CREATE INDEX feed_tombstones ON feed_items (deleted_at, scope_id, name) WHERE deleted_at > 0",
                    "CREATE INDEX feed_tombstones_of_scope ON feed_items (scope_id, sequence) WHERE deleted_at > 0",
                    """
                    CREATE TABLE feed_operations (
                        id \(dialect.bytes) NOT NULL,
                        principal BIGINT NOT NULL,
                        request BIGINT NOT NULL,
                        reply \(dialect.bytes) NOT NULL,
                        PRIMARY KEY (id, principal))\(dialect.clustered)
                    """,
                    """
                    CREATE TABLE feed_bodies (
                        id \(dialect.integerKey),
                        body \(dialect.bytes) NOT NULL)
                    """,
                    """
                    CREATE TABLE feed_operation_packs (
                        id \(dialect.integerKey),
                        operations \(dialect.bytes) NOT NULL)
                    """,
                    "CREATE TABLE feed_restored (restored_at BIGINT NOT NULL)",
                ])
        ]
    }
}
