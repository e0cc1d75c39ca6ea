internal import NephosStorage

/// The service's own tables, all keyed by owner and zone; records and zones themselves lie in the feed. A zone is named by
/// its path there.
///
/// - `record_references`: which records refer to one, as those that are deleted with it (1) or as its children (2).
/// - `record_history`: what saves by force have overwritten, sealed, numbered in the order of that within the zone.
/// - `record_history_zones`: what those of a zone count in bytes, and the next number.
/// - `record_client_tokens`: what devices leave with their changes.
/// - `record_removals`: zones whose records are still to be removed.
/// - `record_indexes`: which fields of which types are indexed, and how far those are that are being made or removed.
/// - `record_index_zones`: zones with rows in indexes, numbered within the partition, and what those count.
/// - `record_roles`: who may do what in public databases, by types; of none: of all of which nothing is said.
/// - `record_role_changes`: where those that are being brought in line with their roles have got to: a record's name.
/// - `record_index`: those rows, of all indexes: under which keys a record is found.
/// - `record_assets`: which assets a record has (entry 0), or what is kept of it under that number in `record_history`.
/// - `record_asset_endings`: entries of the history that are not kept any more, and whose assets are to be given back.
/// - `record_mendings`: databases and zones whose digest key was damaged, and up to which item its digests are made anew.
enum RecordsMigrations {
    static let all = [
        Migration(
            name: "records",
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
                    -- In a public database: whose the overwritten save was.
                    account TEXT NOT NULL,
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
                """
                CREATE TABLE record_indexes (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    -- The container's id.
                    records_of TEXT NOT NULL,
                    number BIGINT NOT NULL,
                    -- An encoded RecordIndex.
                    definition BLOB NOT NULL,
                    state BIGINT NOT NULL,
                    -- Where making it has got to: a zone's name, empty for the default zone, and a record's.
                    zone_name TEXT NOT NULL,
                    record TEXT NOT NULL,
                    -- Rises with each step: they take turns.
                    turn BIGINT NOT NULL,
                    -- By which version texts of the rows are folded.
                    folding_version BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, records_of, number)) WITHOUT ROWID
                """,
                "CREATE INDEX record_indexes_by_turn ON record_indexes (state, turn)",
                "CREATE UNIQUE INDEX record_indexes_by_number ON record_indexes (partition_number, number)",
                """
                CREATE TABLE record_index_zones (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    number BIGINT NOT NULL,
                    -- What the rows count.
                    bytes BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone)) WITHOUT ROWID
                """,
                "CREATE UNIQUE INDEX record_index_zones_by_number ON record_index_zones (partition_number, number)",
                """
                CREATE TABLE record_index (
                    partition_number BIGINT NOT NULL,
                    zone_number BIGINT NOT NULL,
                    index_number BIGINT NOT NULL,
                    entry BLOB NOT NULL,
                    record TEXT NOT NULL,
                    PRIMARY KEY (partition_number, zone_number, index_number, entry, record)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_mendings (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    scope TEXT NOT NULL,
                    item TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, scope)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_roles (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    type TEXT NOT NULL,
                    -- RecordRights.
                    rights BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, type)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_role_changes (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    record TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_assets (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    entry BIGINT NOT NULL,
                    record TEXT NOT NULL,
                    root BLOB NOT NULL,
                    depth BIGINT NOT NULL,
                    length BIGINT NOT NULL,
                    -- Where what it rests on is used; empty: in the private database's container.
                    container TEXT NOT NULL,
                    -- In a public database: what decides who may read the record (RecordReaders).
                    readers TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, entry, record, root)) WITHOUT ROWID
                """,
                """
                CREATE TABLE record_asset_endings (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    zone TEXT NOT NULL,
                    first_entry BIGINT NOT NULL,
                    last_entry BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, zone, first_entry)) WITHOUT ROWID
                """,
                "CREATE INDEX record_indexes_by_folding ON record_indexes (folding_version)",
                """
                CREATE INDEX record_history_by_account
                ON record_history (partition_number, owner, zone, account, number) WHERE account <> ''
                """,
            ])
    ]
}
