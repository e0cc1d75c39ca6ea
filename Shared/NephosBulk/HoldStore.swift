internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Which uploads have stored a chunk: a chunk is kept as long as one of them names it. So what two uploads send is
/// stored once, and the end of one does not take it from the other.
enum HoldStore {
    static let migration = Migration(
        name: "bulk-001-holds",
        statements: [
            """
            CREATE TABLE content_holds (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                chunk BLOB NOT NULL,
                upload BLOB NOT NULL,
                -- What it counts in the upload's room.
                counted BIGINT NOT NULL,
                PRIMARY KEY (partition_number, owner, chunk, upload)) WITHOUT ROWID
            """,
            "CREATE INDEX content_holds_by_upload ON content_holds (partition_number, owner, upload)",
        ])

    private static let insert = SQL(
        """
        INSERT INTO content_holds (partition_number, owner, chunk, upload, counted) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, chunk, upload) DO NOTHING
        """)
    private static let select = SQL(
        """
        SELECT 1 FROM content_holds WHERE partition_number = ?1 AND owner = ?2 AND chunk = ?3 AND upload = ?4
        """)
    private static let selectCounted = SQL(
        """
        SELECT counted FROM content_holds WHERE partition_number = ?1 AND owner = ?2 AND chunk = ?3 AND upload = ?4
        """)
    private static let selectUploads = SQL(
        "SELECT upload FROM content_holds WHERE partition_number = ?1 AND owner = ?2 AND chunk = ?3 LIMIT 64")
    private static let selectAny = SQL(
        "SELECT 1 FROM content_holds WHERE partition_number = ?1 AND owner = ?2 AND chunk = ?3 LIMIT 1")
    private static let selectUpload = SQL(
        """
        SELECT chunk, counted FROM content_holds
        WHERE partition_number = ?1 AND owner = ?2 AND upload = ?3 LIMIT ?4
        """)
    private static let delete = SQL(
        "DELETE FROM content_holds WHERE partition_number = ?1 AND owner = ?2 AND chunk = ?3 AND upload = ?4")
    private static let selectOwner = SQL(
        "SELECT chunk, upload FROM content_holds WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3")

    /// Where the rows are: an owner's, in its partition.
    struct Place {
        var owner: Owner
        var partition: Int

        var values: [SQLValue] { [.integer(Int64(partition)), .text(owner.rawValue)] }

        init(owner: Owner, partition: Int) {
            self.owner = owner
            self.partition = partition
        }

        /// - Parameter turn: Whose ``turn`` it is; nil: nobody's here.
        init?(turn: ScopeName) {
            guard let partition = Int(turn.path.rawValue) else { return nil }
            self.init(owner: turn.owner, partition: partition)
        }

        /// As stepped work names it.
        var turn: ScopeName { ScopeName(owner, ItemName("\(partition)")) }
    }

    static func has(
        _ chunk: ChunkID, for upload: ReservationID, at place: Place, in transaction: any ReadTransaction
    ) throws -> Bool {
        try transaction.first(select, place.values + [.blob(chunk.bytes), .blob(upload.bytes)]) { _ in true } != nil
    }

    static func add(
        _ chunk: ChunkID, counted: Int, for upload: ReservationID, at place: Place, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            insert, place.values + [.blob(chunk.bytes), .blob(upload.bytes), .integer(Int64(counted))])
    }

    static func isHeld(_ chunk: ChunkID, at place: Place, in transaction: any ReadTransaction) throws -> Bool {
        try transaction.first(selectAny, place.values + [.blob(chunk.bytes)]) { _ in true } ?? false
    }

    /// Uploads that have stored a chunk, some of them.
    static func uploads(
        of chunk: ChunkID, at place: Place, in transaction: any ReadTransaction
    ) throws -> [ReservationID] {
        try transaction.all(selectUploads, place.values + [.blob(chunk.bytes)]) { ReservationID(bytes: $0.blob(0)) }
            .compactMap { $0 }
    }

    /// Takes a chunk from an upload: something else keeps it from now on.
    ///
    /// - Returns: What it counted in the upload's room.
    static func take(
        _ chunk: ChunkID, from upload: ReservationID, at place: Place, in transaction: any Transaction
    ) throws -> UInt64 {
        let key = place.values + [.blob(chunk.bytes), .blob(upload.bytes)]
        let counted = try transaction.first(selectCounted, key) {
            UInt64(clamping: min($0.integer(0), Int64(BulkLimits.chunkBytesMax)))
        }
        try transaction.execute(delete, key)
        return counted ?? 0
    }

    /// Whether an upload has brought the node to the container.
    static func isHeld(
        node: ChunkID, in container: String, at place: Place, in transaction: any ReadTransaction
    ) throws -> Bool {
        let name = node.bytes + [UInt8](container.utf8)
        return try transaction.first(selectAny, place.values + [.blob(name)]) { _ in true } ?? false
    }

    /// Notes that an upload has brought a manifest node to a container, which no content rests on yet.
    static func add(
        node: ChunkID, to container: String, for upload: ReservationID, at place: Place, in transaction: any Transaction
    ) throws {
        let name = node.bytes + [UInt8](container.utf8)
        try transaction.execute(insert, place.values + [.blob(name), .blob(upload.bytes), .integer(0)])
    }

    /// Manifest nodes that an upload holds, and their containers; nil: it holds chunks too.
    static func nodes(
        of upload: ReservationID, at place: Place, limit: Int, in transaction: any Transaction
    ) throws -> [(id: ChunkID, container: String)]? {
        let names = try transaction.all(selectUpload, place.values + [.blob(upload.bytes), .integer(Int64(limit))]) {
            $0.blob(0)
        }
        guard names.allSatisfy({ $0.count > ChunkID.byteCount }) else { return nil }
        return names.compactMap(node)
    }

    private static func node(_ name: [UInt8]) -> (id: ChunkID, container: String)? {
        ChunkID(bytes: Array(name.prefix(ChunkID.byteCount))).map {
            ($0, String(decoding: name[ChunkID.byteCount...], as: UTF8.self))
        }
    }

    /// Removes some of what an upload holds.
    ///
    /// - Returns: What was removed.
    static func remove(
        of upload: ReservationID, at place: Place, limit: Int, in transaction: any Transaction
    ) throws -> Removed {
        let holds = try transaction.all(selectUpload, place.values + [.blob(upload.bytes), .integer(Int64(limit))]) {
            // A damaged number frees no more than a chunk has.
            (chunk: $0.blob(0), counted: UInt64(clamping: min($0.integer(1), Int64(BulkLimits.chunkBytesMax))))
        }
        var removed = Removed(counted: holds.reduce(0) { $0 + $1.counted }, hasMore: holds.count == limit)
        for hold in holds {
            try transaction.execute(delete, place.values + [.blob(hold.chunk), .blob(upload.bytes)])
            let isHeld = try transaction.first(selectAny, place.values + [.blob(hold.chunk)]) { _ in true } != nil
            guard !isHeld else { continue }
            if hold.chunk.count == ChunkID.byteCount {
                if let id = ChunkID(bytes: hold.chunk) { removed.chunks.append(id) }
            } else if let node = node(hold.chunk) {
                removed.nodes.append(node)
            }
        }
        return removed
    }

    /// What an upload held.
    struct Removed {
        /// Bytes that counted in its room.
        var counted: UInt64
        /// Whether it may hold more.
        var hasMore: Bool
        /// Chunks that nothing holds any more.
        var chunks: [ChunkID] = []
        /// Nodes that nothing holds any more, and their containers.
        var nodes: [(id: ChunkID, container: String)] = []
    }

    /// Removes some of an owner's.
    ///
    /// - Returns: Whether there may be more.
    static func removeAll(at place: Place, limit: Int, in transaction: any Transaction) throws -> Bool {
        let holds = try transaction.all(selectOwner, place.values + [.integer(Int64(limit))]) {
            (chunk: $0.blob(0), upload: $0.blob(1))
        }
        for hold in holds { try transaction.execute(delete, place.values + [.blob(hold.chunk), .blob(hold.upload)]) }
        return holds.count == limit
    }
}
