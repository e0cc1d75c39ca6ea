public import NephosStorage

/// The tables of a ``ChunkIndex``.
///
/// - `content_chunks`: where each chunk lies, how it was sealed, and how long it is by itself, clustered by owner; the
///   index gives a segment's chunks in their order.
/// - `content_segments`: how long each segment is as far as is known here, and how much of it is live. What is dead is
///   the difference, so that the room of a group whose rows were never committed counts by itself.
/// - `content_owners`: what each owner stores.
/// - `content_emptied`: segments that no chunk lies in any more, and since when. Their files are kept for a time: they
///   are all that an older copy of these tables has of its chunks.
/// - `content_damaged`: chunks that were found damaged, each for as long as it is; see ``DamagedChunks``.
/// - `content_scrub`: how far all segments were read through; see ``ScrubPlace``.
public enum ContentSchema {
    public static let migrations = [
        Migration(
            name: "content",
            statements: [
                """
                CREATE TABLE content_chunks (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    id BLOB NOT NULL,
                    segment_number BIGINT NOT NULL,
                    segment_offset BIGINT NOT NULL,
                    length BIGINT NOT NULL,
                    suite BIGINT NOT NULL,
                    -- Bytes of the chunk as it is; `length` is of what lies in the segment.
                    content_length BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, id)) WITHOUT ROWID
                """,
                """
                CREATE INDEX content_chunks_by_place
                ON content_chunks (partition_number, segment_number, segment_offset)
                """,
                """
                CREATE TABLE content_segments (
                    partition_number BIGINT NOT NULL,
                    segment_number BIGINT NOT NULL,
                    length BIGINT NOT NULL,
                    live_bytes BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, segment_number)) WITHOUT ROWID
                """,
                """
                CREATE INDEX content_segments_mostly_dead
                ON content_segments (partition_number, segment_number) WHERE live_bytes * 2 < length
                """,
                """
                CREATE TABLE content_owners (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    byte_count BIGINT NOT NULL,
                    chunk_count BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner)) WITHOUT ROWID
                """,
                """
                CREATE TABLE content_emptied (
                    partition_number BIGINT NOT NULL,
                    segment_number BIGINT NOT NULL,
                    emptied_at BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, segment_number)) WITHOUT ROWID
                """,
                "CREATE INDEX content_emptied_by_time ON content_emptied (emptied_at)",
                """
                CREATE TABLE content_damaged (
                    partition_number BIGINT NOT NULL,
                    owner TEXT NOT NULL,
                    id BLOB NOT NULL,
                    found_at BIGINT NOT NULL,
                    -- DamagedChunk.Damage.
                    damage BIGINT NOT NULL,
                    PRIMARY KEY (partition_number, owner, id)) WITHOUT ROWID
                """,
                """
                CREATE TABLE content_scrub (
                    -- 0: there is one row.
                    number BIGINT NOT NULL PRIMARY KEY,
                    -- The last segment that was read through; -1: none.
                    partition_number BIGINT NOT NULL,
                    segment_number BIGINT NOT NULL,
                    began_at BIGINT NOT NULL,
                    is_done BIGINT NOT NULL)
                """,
            ])
    ]
}

enum ContentStatements {
    static let insertChunk = SQL(
        """
        INSERT INTO content_chunks (
            partition_number, owner, id, segment_number, segment_offset, length, suite, content_length)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (partition_number, owner, id) DO NOTHING
        """)
    static let moveChunk = SQL(
        """
        UPDATE content_chunks SET segment_number = ?6, segment_offset = ?7
        WHERE partition_number = ?1 AND owner = ?2 AND id = ?3 AND segment_number = ?4 AND segment_offset = ?5
        """)
    static let replaceChunk = SQL(
        """
        UPDATE content_chunks SET
            segment_number = ?4, segment_offset = ?5, length = ?6, suite = ?7, content_length = ?8
        WHERE partition_number = ?1 AND owner = ?2 AND id = ?3
        """)
    static let deleteChunk = SQL(
        "DELETE FROM content_chunks WHERE partition_number = ?1 AND owner = ?2 AND id = ?3")
    static let chunk = SQL(
        """
        SELECT owner, id, segment_number, segment_offset, length, suite, content_length FROM content_chunks
        WHERE partition_number = ?1 AND owner = ?2 AND id = ?3
        """)
    /// How many ids ``chunks`` takes at once.
    static let chunksMax = 32
    static let chunks = SQL(
        """
        SELECT owner, id, segment_number, segment_offset, length, suite, content_length FROM content_chunks
        WHERE partition_number = ?1 AND owner = ?2
        AND id IN (\((3..<3 + chunksMax).map { "?\($0)" }.joined(separator: ", ")))
        """)
    static let chunksOfOwner = SQL(
        """
        SELECT owner, id, segment_number, segment_offset, length, suite, content_length FROM content_chunks
        WHERE partition_number = ?1 AND owner = ?2 ORDER BY id LIMIT ?3
        """)
    static let chunksOfSegment = SQL(
        """
        SELECT owner, id, segment_number, segment_offset, length, suite, content_length FROM content_chunks
        WHERE partition_number = ?1 AND segment_number = ?2 AND segment_offset >= ?3
        ORDER BY segment_offset, owner, id LIMIT ?4
        """)

    static let growSegment = SQL(
        """
        INSERT INTO content_segments (partition_number, segment_number, length, live_bytes) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, segment_number) DO UPDATE SET
            length = CASE WHEN excluded.length > content_segments.length
                THEN excluded.length ELSE content_segments.length END,
            live_bytes = content_segments.live_bytes + excluded.live_bytes
        """)
    static let lengthenSegment = SQL(
        """
        UPDATE content_segments SET length = ?3 WHERE partition_number = ?1 AND segment_number = ?2 AND length < ?3
        """)
    static let shrinkSegment = SQL(
        """
        UPDATE content_segments SET live_bytes = live_bytes - ?3
        WHERE partition_number = ?1 AND segment_number = ?2
        """)
    static let forgetSegment = SQL(
        """
        DELETE FROM content_segments WHERE partition_number = ?1 AND segment_number = ?2 AND NOT EXISTS (
            SELECT 1 FROM content_chunks
            WHERE content_chunks.partition_number = ?1 AND content_chunks.segment_number = ?2)
        """)
    static let addEmptied = SQL(
        """
        INSERT INTO content_emptied (partition_number, segment_number, emptied_at) VALUES (?1, ?2, ?3)
        ON CONFLICT (partition_number, segment_number) DO UPDATE SET emptied_at = excluded.emptied_at
        """)
    static let isEmptied = SQL("SELECT 1 FROM content_emptied WHERE partition_number = ?1 AND segment_number = ?2")
    static let emptied = SQL(
        """
        SELECT partition_number, segment_number FROM content_emptied WHERE emptied_at < ?1
        ORDER BY emptied_at LIMIT ?2
        """)
    static let shiftEmptied = SQL("UPDATE content_emptied SET emptied_at = emptied_at + ?1")
    static let forgetEmptied = SQL("DELETE FROM content_emptied WHERE partition_number = ?1 AND segment_number = ?2")
    static let segment = SQL(
        """
        SELECT partition_number, segment_number, length, live_bytes FROM content_segments
        WHERE partition_number = ?1 AND segment_number = ?2
        """)
    static let segments = SQL(
        """
        SELECT partition_number, segment_number, length, live_bytes FROM content_segments
        WHERE (partition_number, segment_number) > (?1, ?2) ORDER BY partition_number, segment_number LIMIT ?3
        """)
    static let mostlyDeadSegments = SQL(
        """
        SELECT partition_number, segment_number, length, live_bytes FROM content_segments
        WHERE live_bytes * 2 < length AND (partition_number, segment_number) > (?1, ?2)
        ORDER BY partition_number, segment_number LIMIT ?3
        """)

    static let growOwner = SQL(
        """
        INSERT INTO content_owners (partition_number, owner, byte_count, chunk_count) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, owner) DO UPDATE SET
            byte_count = content_owners.byte_count + excluded.byte_count,
            chunk_count = content_owners.chunk_count + excluded.chunk_count
        """)
    static let forgetOwner = SQL(
        "DELETE FROM content_owners WHERE partition_number = ?1 AND owner = ?2 AND chunk_count = 0")
    static let owner = SQL(
        "SELECT byte_count, chunk_count FROM content_owners WHERE partition_number = ?1 AND owner = ?2")

    static let noteDamaged = SQL(
        """
        INSERT INTO content_damaged (partition_number, owner, id, found_at, damage) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, id) DO NOTHING
        """)
    static let forgetDamaged = SQL(
        "DELETE FROM content_damaged WHERE partition_number = ?1 AND owner = ?2 AND id = ?3")
    static let forgetDamagedBytes = SQL(
        "DELETE FROM content_damaged WHERE partition_number = ?1 AND owner = ?2 AND id = ?3 AND damage <> ?4")
    static let isAnyDamagedBytes = SQL(
        "SELECT 1 FROM content_damaged WHERE partition_number = ?1 AND damage <> ?2 LIMIT 1")
    static let isDamagedBytes = SQL(
        "SELECT 1 FROM content_damaged WHERE partition_number = ?1 AND owner = ?2 AND id = ?3 AND damage <> ?4")
    static let isDamaged = SQL("SELECT 1 FROM content_damaged WHERE partition_number = ?1 AND owner = ?2 AND id = ?3")
    static let damagedOfOwner = SQL(
        """
        SELECT id FROM content_damaged WHERE partition_number = ?1 AND owner = ?2 AND id > ?3 ORDER BY id LIMIT ?4
        """)
    static let damagedCount = SQL("SELECT COUNT(*) FROM content_damaged")

    static let scrubPlace = SQL(
        "SELECT partition_number, segment_number, began_at, is_done FROM content_scrub WHERE number = 0")
    static let setScrubPlace = SQL(
        """
        INSERT INTO content_scrub (number, partition_number, segment_number, began_at, is_done)
        VALUES (0, ?1, ?2, ?3, ?4)
        ON CONFLICT (number) DO UPDATE SET
            partition_number = excluded.partition_number, segment_number = excluded.segment_number,
            began_at = excluded.began_at, is_done = excluded.is_done
        """)
    static let totalLength = SQL("SELECT CAST(COALESCE(SUM(length), 0) AS BIGINT) FROM content_segments")
    static let total = SQL(
        """
        SELECT COUNT(*), CAST(COALESCE(SUM(length), 0) AS BIGINT), CAST(COALESCE(SUM(live_bytes), 0) AS BIGINT)
        FROM content_segments
        """)
}
