internal import NephosStorage

/// The service's own tables; the keys themselves are in the feed's.
enum KeyValueMigrations {
    static let all = [
        Migration(
            name: "keyvalue-001",
            statements: [
                """
                CREATE TABLE key_history_stores (
                    id BIGINT NOT NULL PRIMARY KEY,
                    account TEXT NOT NULL,
                    store TEXT NOT NULL,
                    -- Of all its entries; one counts at least 256.
                    bytes BIGINT NOT NULL,
                    -- The number of the next entry.
                    next BIGINT NOT NULL,
                    -- When the first of its entries was recorded, or earlier; with none, never.
                    oldest BIGINT NOT NULL,
                    UNIQUE (account, store))
                """,
                "CREATE INDEX key_history_stores_by_oldest ON key_history_stores (oldest)",
                // A store's entries lie side by side, in the order in which they were recorded: those of writes that
                // the same device replaced by themselves, because they go first. (And `own` first, because SQLite
                // would look for a key's entries among all of its store's.)
                """
                CREATE TABLE key_history (
                    store_id BIGINT NOT NULL,
                    own BIGINT NOT NULL,
                    number BIGINT NOT NULL,
                    item TEXT NOT NULL,
                    written BIGINT NOT NULL,
                    device TEXT NOT NULL,
                    -- Of the content: two copies of a device write under one stamp.
                    mark BIGINT NOT NULL,
                    lost_conflict BIGINT NOT NULL,
                    -- Somebody has looked at the conflict and decided.
                    resolved BIGINT NOT NULL,
                    winner_written BIGINT NOT NULL,
                    winner_device TEXT NOT NULL,
                    recorded_at BIGINT NOT NULL,
                    size BIGINT NOT NULL,
                    sealed BLOB,
                    PRIMARY KEY (own, store_id, number)) WITHOUT ROWID
                """,
                // With the size, so that what is beyond a key's bound is found without looking at the rows before it.
                """
                CREATE UNIQUE INDEX key_history_by_key
                ON key_history (store_id, item, own, lost_conflict, written, mark, size)
                """,
                // One row: how far the service's clock has come, milliseconds since 1970.
                "CREATE TABLE service_clock (number BIGINT NOT NULL PRIMARY KEY, milliseconds BIGINT NOT NULL)",
            ])
    ]
}
