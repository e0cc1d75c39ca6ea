internal import NephosStorage

/// The service's own tables, all keyed by owner and container; items themselves lie in the feed.
///
/// - `document_places`: which item a name of a folder is, by a keyed hash of the name as the container compares it.
///   Items in the trash have none.
/// - `document_folders`: how many items a folder has, those in the trash not counted.
/// - `document_heights`: how many levels of folders a folder has had below it, at most: what is moved or removed lowers
///   nothing, until it would keep a folder from a place (`Batch.checkFolder`). A folder without any has none.
/// - `document_trees`: each folder's digest, and where the folder lies (empty: nowhere).
/// - `document_children`: which items a folder has, those in the trash too: what is removed with it.
/// - `document_versions`: contents that were committed, sealed. They never change.
/// - `document_renditions`: further contents of items, sealed, as versions are; which of them has which name is in the
///   item.
/// - `document_trash`: since when an item lies in the trash, and until when.
/// - `document_removals`: folders whose items are still to be removed.
/// - `document_announcements`: until when a content of an item is said to be on its way: the first of them that expires.
/// - `document_ended`: items that were removed for good, numbered in the order of that.
/// - `document_items`: what an item counts besides its contents, for whom, and until when it is kept.
/// - `document_links`: links to contents: the hash of each one's secret, and until when. What it is of is sealed.
enum DocumentsMigrations {
    static let all = [
        Migration(
            name: "documents",
            statements: [
                """
                CREATE TABLE document_places (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    name_key BLOB NOT NULL,
                    item BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder, name_key)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_folders (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    item_count BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_children (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    item BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder, item)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_versions (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    version BLOB NOT NULL,
                    -- Rises with each version of an item.
                    number BIGINT NOT NULL,
                    sealed BLOB NOT NULL,
                    -- In nanoseconds since 1970, as in the content.
                    committed BIGINT NOT NULL,
                    -- Bytes.
                    counted BIGINT NOT NULL,
                    -- For whom the row counts.
                    app TEXT NOT NULL,
                    device TEXT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, item, version))
                """,
                """
                CREATE TABLE document_trash (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    trashed BIGINT NOT NULL,
                    -- Milliseconds since 1970.
                    ends BIGINT NOT NULL,
                    -- With what an item lies in the trash, as the item says it: so that it is known of one that is damaged too.
                    note BLOB,
                    PRIMARY KEY (partition_number, owner, container, item)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_removals (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_heights (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    height BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder)) WITHOUT ROWID
                """,
                """
                CREATE TABLE document_links (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    link BLOB NOT NULL,
                    secret_hash BLOB NOT NULL,
                    app TEXT NOT NULL,
                    -- Milliseconds since 1970; 0: it has ended, and is about to be removed.
                    expires BIGINT NOT NULL,
                    sealed BLOB NOT NULL,
                    counted BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, link))
                """,
                "CREATE UNIQUE INDEX document_links_by_secret ON document_links (secret_hash)",
                "CREATE INDEX document_links_by_end ON document_links (expires)",
                """
                CREATE TABLE document_renditions (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    version BLOB NOT NULL,
                    sealed BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, item, version))
                """,
                """
                CREATE TABLE document_ended (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    number BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, item)) WITHOUT ROWID
                """,
                """
                CREATE INDEX document_ended_by_number
                ON document_ended (partition_number, owner, container, number)
                """,
                // All that says which versions stay: their contents are not read for that.
                """
                CREATE INDEX document_versions_by_age
                ON document_versions (partition_number, owner, container, item, number, committed, version)
                """,
                """
                CREATE TABLE document_announcements (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    -- Milliseconds since 1970.
                    expires BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, item)) WITHOUT ROWID
                """,
                "CREATE INDEX document_announcements_by_end ON document_announcements (expires)",
                """
                CREATE TABLE document_items (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    item BLOB NOT NULL,
                    -- Bytes.
                    counted BIGINT NOT NULL,
                    app TEXT NOT NULL,
                    device TEXT NOT NULL,
                    -- Milliseconds since 1970; 0: it is kept.
                    ends BIGINT NOT NULL,
                    -- The ids of the batches that have changed the item last, the newest first, 16 bytes each.
                    operations BLOB,
                    PRIMARY KEY (partition_number, owner, container, item)) WITHOUT ROWID
                """,
                """
                CREATE INDEX document_items_by_age ON document_items (partition_number, owner, container, ends)
                WHERE ends > 0
                """,
                "CREATE INDEX document_items_by_end ON document_items (ends) WHERE ends > 0",
                "CREATE INDEX document_trash_by_end ON document_trash (ends)",
                """
                CREATE TABLE document_trees (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    container TEXT NOT NULL,
                    folder BLOB NOT NULL,
                    parent BLOB NOT NULL,
                    digest BLOB NOT NULL,
                    PRIMARY KEY (partition_number, owner, container, folder)) WITHOUT ROWID
                """,
            ])
    ]
}
