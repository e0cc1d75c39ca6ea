internal import Storage

/// The service's own tables; the keys themselves are in the feed's.
enum KeyValueMigrations {
    static let all = [
        Migration(
            name: "keyvalue-001",
            statements: [
                """
                CREATE TABLE key_history (
                    account TEXT NOT NULL,
                    store TEXT NOT NULL,
                    item TEXT NOT NULL,
                    written BIGINT NOT NULL,
                    device TEXT NOT NULL,
                    -- Of the content: two copies of a device write under one stamp.
                    mark BIGINT NOT NULL,
                    lost_conflict BIGINT NOT NULL,
                    winner_written BIGINT NOT NULL,
                    winner_device TEXT NOT NULL,
                    recorded_at BIGINT NOT NULL,
                    own BIGINT NOT NULL,
                    size BIGINT NOT NULL,
                    sealed BLOB,
                    PRIMARY KEY (account, store, item, written, device, mark))
                """,
                "CREATE INDEX key_history_by_store ON key_history (account, store, recorded_at)",
                "CREATE INDEX key_history_own ON key_history (account, store, recorded_at) WHERE own = 1",
                "CREATE INDEX key_history_by_time ON key_history (recorded_at)",
                """
                CREATE TABLE key_history_totals (
                    account TEXT NOT NULL,
                    store TEXT NOT NULL,
                    bytes BIGINT NOT NULL,
                    PRIMARY KEY (account, store))
                """,
                // One row: how far the service's clock has come, milliseconds since 1970.
                "CREATE TABLE service_clock (number BIGINT NOT NULL PRIMARY KEY, milliseconds BIGINT NOT NULL)",
            ])
    ]
}
