internal import NephosStorage

/// The service's own tables, all keyed by owner and zone; records and zones themselves lie in the feed. A zone is named by
/// its path there.
///
/// - `record_references`: which records refer to one, as those that are deleted with it (1) or as its children (2).
/// - `record_history`: what saves by force have overwritten, sealed, numbered in the order of that within the zone.
/// - `record_history_zones`: what those of a zone count in bytes, and the next number.
/// - `record_client_tokens`: what devices leave with their changes.
/// - `record_removals`: zones whose records are still to be removed.
enum RecordsMigrations {
    static let all = [
        Migration(
            name: "records-001",
            statements: [
                """
                CREATE TABLE record_references (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    target TEXT NOT NULL,
                    kind BIGINT NOT NULL,
                    source TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, target, kind, source)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_history (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    number BIGINT NOT NULL,
                    record TEXT NOT NULL,
                    -- Milliseconds since 1970.
                    recorded_at BIGINT NOT NULL,
                    counted BIGINT NOT NULL,
                    sealed BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, number))
                """,
                """
                CREATE INDEX record_history_by_record
                ON record_history (partition_number, owner, zone, record, number)
                """,
                "CREATE INDEX record_history_by_time ON record_history (recorded_at)",
                """
                CREATE TABLE record_history_zones (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    bytes BIGINT NOT NULL,
                    next BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_client_tokens (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    device TEXT NOT NULL,
                    token BLOB NOT NULL,
                    -- Milliseconds since 1970.
                    noted BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, device)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_removals (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone)) WITHOUT ROWID
                """,
            ])
    ]
}
