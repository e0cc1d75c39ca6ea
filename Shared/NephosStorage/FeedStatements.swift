/// The feed's statements.
enum FeedStatements {
    static let epoch = SQL("SELECT epoch FROM feed_epoch")
    static let setEpoch = SQL("UPDATE feed_epoch SET epoch = ?1")
    static let oldCopyFound = SQL("SELECT old_copy_found_at FROM feed_epoch")
    static let setOldCopyFound = SQL("UPDATE feed_epoch SET old_copy_found_at = ?1")
    static let isRestored = SQL("SELECT 1 FROM feed_restored LIMIT 1")
    static let forgetRestored = SQL("DELETE FROM feed_restored")

    static let runs = SQL("SELECT id, epoch, starts, lost_run FROM feed_runs ORDER BY id")
    static let insertRun = SQL("INSERT INTO feed_runs (id, epoch, starts, lost_run) VALUES (?1, ?2, ?3, ?4)")
    static let removeRun = SQL("DELETE FROM feed_runs WHERE id = ?1")

    static let partition = SQL(
        """
        SELECT sequence, epoch_start, scope_count,
            (SELECT MAX(sequence) FROM feed_scopes WHERE partition_number = ?1)
        FROM feed_partitions WHERE number = ?1
        """)
    static let partitions = SQL(
        """
        SELECT sequence, epoch_start, scope_count,
            (SELECT MAX(sequence) FROM feed_scopes WHERE partition_number = feed_partitions.number), number
        FROM feed_partitions ORDER BY number
        """)
    static let storePartition = SQL(
        """
        INSERT INTO feed_partitions (number, sequence, epoch_start, scope_count) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (number) DO UPDATE SET sequence = ?2, epoch_start = ?3, scope_count = ?4
        """)

    private static let scopeColumns =
        "id, sequence, floor, digest, live_count, live_bytes, metadata, owner, path, tombstones"
    static let scope = SQL("SELECT \(scopeColumns) FROM feed_scopes WHERE owner = ?1 AND path = ?2")
    static let scopeByID = SQL("SELECT \(scopeColumns) FROM feed_scopes WHERE id = ?1")
    static let scopesAfter = SQL(
        """
        SELECT \(scopeColumns) FROM feed_scopes WHERE partition_number = ?1 AND sequence > ?2
        ORDER BY sequence LIMIT ?3
        """)
    static let sizes = SQL("SELECT path, live_bytes FROM feed_scopes WHERE owner = ?1 ORDER BY path")
    static let insertScope = SQL(
        """
        INSERT INTO feed_scopes (id, sequence, floor, digest, live_count, live_bytes, metadata, owner, path,
            partition_number, tombstones)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?9, ?10, ?11, ?8)
        """)
    static let updateScope = SQL(
        """
        UPDATE feed_scopes SET sequence = ?2, floor = ?3, digest = ?4, live_count = ?5, live_bytes = ?6, metadata = ?7,
            tombstones = ?8
        WHERE id = ?1
        """)

    static let item = SQL(
        "SELECT name, sequence, deleted_at, size, digest, body_id, body FROM feed_items WHERE scope_id = ?1 AND name = ?2"
    )
    static let itemShare = SQL(
        "SELECT deleted_at, size, digest, body_id FROM feed_items WHERE scope_id = ?1 AND name = ?2")
    static let insertItem = SQL(
        """
        INSERT INTO feed_items (scope_id, name, sequence, deleted_at, size, digest, body, body_id)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        """)
    static let updateItem = SQL(
        """
        UPDATE feed_items SET sequence = ?3, deleted_at = ?4, size = ?5, digest = ?6, body = ?7, body_id = ?8
        WHERE scope_id = ?1 AND name = ?2
        """)
    static let setShare = SQL("UPDATE feed_items SET digest = ?3 WHERE scope_id = ?1 AND name = ?2")
    /// The length is known without reading the body.
    private static let rowColumns =
        """
        name, sequence, deleted_at, size, digest, body_id, body,
            CASE WHEN body_id = 0 THEN LENGTH(body)
            ELSE (SELECT LENGTH(feed_bodies.body) FROM feed_bodies WHERE feed_bodies.id = body_id) END
        """
    static let itemsAfter = SQL(
        """
        SELECT \(rowColumns) FROM feed_items
        WHERE scope_id = ?1 AND sequence > ?2 ORDER BY sequence, name
        """)
    static let itemsAfterItem = SQL(
        """
        SELECT \(rowColumns) FROM feed_items
        WHERE scope_id = ?1 AND (sequence, name) > (?2, ?3) ORDER BY sequence, name
        """)
    static let itemsByName = SQL(
        "SELECT \(rowColumns) FROM feed_items WHERE scope_id = ?1 AND name > ?2 ORDER BY name")
    static let liveShares = SQL("SELECT size, digest FROM feed_items WHERE scope_id = ?1 AND deleted_at <= 0")

    static let liveSharesAfter = SQL(
        """
        SELECT size, digest, name FROM feed_items WHERE scope_id = ?1 AND deleted_at <= 0 AND name > ?2
        ORDER BY name LIMIT ?3
        """)

    static let tombstones = SQL(
        """
        SELECT scope_id, name, sequence FROM feed_items WHERE deleted_at > 0 AND deleted_at < ?1
        ORDER BY deleted_at, scope_id, name LIMIT ?2
        """)
    static let tombstonesOfScope = SQL(
        """
        SELECT name, sequence FROM feed_items WHERE scope_id = ?1 AND deleted_at > 0 AND sequence > 0
        ORDER BY sequence LIMIT ?2
        """)
    /// Of which readers see nothing: see ``StoredShowing``.
    static let hiddenTombstonesOfScope = SQL(
        """
        SELECT name, sequence FROM feed_items WHERE scope_id = ?1 AND deleted_at > 0 AND sequence < 0
        ORDER BY sequence DESC LIMIT ?2
        """)
    static let newestBody = SQL("SELECT id FROM feed_bodies ORDER BY id DESC LIMIT 1")
    static let body = SQL("SELECT body FROM feed_bodies WHERE id = ?1")
    static let insertBody = SQL("INSERT INTO feed_bodies (id, body) VALUES (?1, ?2)")
    static let removeBody = SQL("DELETE FROM feed_bodies WHERE id = ?1")
    static let removeBodyOfItem = SQL(
        """
        DELETE FROM feed_bodies WHERE id IN (SELECT body_id FROM feed_items WHERE scope_id = ?1 AND name = ?2)
        """)
    static let removeBodies = SQL(
        """
        DELETE FROM feed_bodies WHERE id IN
            (SELECT body_id FROM feed_items WHERE scope_id = ?1 ORDER BY name LIMIT ?2)
        """)
    /// Of those that lie apart; the length is known without reading the body.
    static let bodyLengths = SQL(
        """
        SELECT CASE WHEN body_id = 0 THEN 0
            ELSE (SELECT LENGTH(feed_bodies.body) FROM feed_bodies WHERE feed_bodies.id = body_id) END, name
        FROM feed_items WHERE scope_id = ?1 ORDER BY name LIMIT ?2
        """)
    static let removeItem = SQL("DELETE FROM feed_items WHERE scope_id = ?1 AND name = ?2")

    static let scopeOfOwner = SQL("SELECT id FROM feed_scopes WHERE owner = ?1 ORDER BY id LIMIT 1")
    static let removeItems = SQL(
        """
        DELETE FROM feed_items WHERE scope_id = ?1
            AND name IN (SELECT name FROM feed_items WHERE scope_id = ?1 ORDER BY name LIMIT ?2)
        """)
    static let removeScope = SQL("DELETE FROM feed_scopes WHERE id = ?1")

    static let reply = SQL("SELECT reply, request FROM feed_operations WHERE id = ?1 AND principal = ?2")
    static let newestOperation = SQL("SELECT id FROM feed_operations ORDER BY id DESC LIMIT 1")
    static let remember = SQL("INSERT INTO feed_operations (id, principal, request, reply) VALUES (?1, ?2, ?3, ?4)")
    static let pruneOperations = SQL(
        """
        DELETE FROM feed_operations WHERE (id, principal) IN
            (SELECT id, principal FROM feed_operations WHERE id < ?1 ORDER BY id, principal LIMIT ?2)
        """)

    static let insertPack = SQL("INSERT INTO feed_operation_packs (id, operations) VALUES (?1, ?2)")
    static let packs = SQL("SELECT operations FROM feed_operation_packs WHERE id >= ?1 AND id < ?2 ORDER BY id")
    static let newestPack = SQL("SELECT id FROM feed_operation_packs ORDER BY id DESC LIMIT 1")
    static let newestPackBelow = SQL(
        "SELECT id FROM feed_operation_packs WHERE id >= ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")
    static let prunePacks = SQL(
        """
        DELETE FROM feed_operation_packs WHERE id IN
            (SELECT id FROM feed_operation_packs WHERE id < ?1 ORDER BY id LIMIT ?2)
        """)
}
