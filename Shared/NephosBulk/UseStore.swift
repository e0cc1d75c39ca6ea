internal import NephosContent
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The rows of what contents rest on.
///
/// - `content_uses`: how often a container uses a chunk or a manifest node: by the contents whose root it is, and by the
///   nodes that name it. What an owner has in several containers is counted in one of those that count on the same.
/// - `content_nodes`: manifest nodes. They lie here and not among the chunks, so that what a content rests on is
///   counted without a read of content.
/// - `content_endings`: what nothing uses any more, until that is carried out.
struct UseStore {
    static let migration = Migration(
        name: "bulk-003-uses",
        statements: [
            """
            CREATE TABLE content_uses (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                chunk BLOB NOT NULL,
                -- 1: a manifest node; the same bytes may be a chunk too.
                is_node BIGINT NOT NULL,
                container TEXT NOT NULL,
                use_count BIGINT NOT NULL,
                -- Bytes that it counts here; 0: it does in another container.
                counted BIGINT NOT NULL,
                app TEXT NOT NULL,
                device TEXT NOT NULL,
                -- On what it counts (``StorageRoom``). Empty: on the plan.
                room TEXT NOT NULL,
                PRIMARY KEY (partition_number, owner, chunk, is_node, container)) WITHOUT ROWID
            """,
            """
            CREATE TABLE content_nodes (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                container TEXT NOT NULL,
                id BLOB NOT NULL,
                node_level BIGINT NOT NULL,
                length BIGINT NOT NULL,
                node BLOB NOT NULL,
                PRIMARY KEY (partition_number, owner, container, id))
            """,
            """
            CREATE TABLE content_endings (
                partition_number BIGINT NOT NULL,
                owner TEXT NOT NULL,
                container TEXT NOT NULL,
                id BLOB NOT NULL,
                is_node BIGINT NOT NULL,
                PRIMARY KEY (partition_number, owner, container, id, is_node)) WITHOUT ROWID
            """,
        ])

    /// A chunk, or a manifest node.
    struct Part: Hashable {
        var id: ChunkID
        var isNode = false

        var values: [SQLValue] { [.blob(id.bytes), .integer(isNode ? 1 : 0)] }
    }

    struct Use {
        var count: Int64
        var counted: UInt64
        var app: AppID
        var device: DeviceID
        /// On what it counts.
        var room: StorageRoom
    }

    let place: HoldStore.Place
    let container: String
    /// Other containers of the same thing (``ContentPlace/siblings``): chunks that they use are there too. Nodes are not:
    /// each container has its own.
    var siblings: Set<String> = []
    let transaction: any Transaction

    private static let key = "partition_number = ?1 AND owner = ?2"
    private static let select = SQL(
        """
        SELECT use_count, counted, app, device, room FROM content_uses
        WHERE \(key) AND chunk = ?3 AND is_node = ?4 AND container = ?5
        """)
    private static let selectAny = SQL(
        "SELECT container FROM content_uses WHERE \(key) AND chunk = ?3 AND is_node = ?4 ORDER BY container LIMIT 2")
    private static let selectOther = SQL(
        """
        SELECT container FROM content_uses
        WHERE \(key) AND chunk = ?3 AND is_node = ?4 AND container <> ?5 AND room = ?6 ORDER BY container LIMIT 1
        """)
    private static let save = SQL(
        """
        INSERT INTO content_uses (
            partition_number, owner, chunk, is_node, container, use_count, counted, app, device, room)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
        ON CONFLICT (partition_number, owner, chunk, is_node, container) DO UPDATE SET
            use_count = excluded.use_count, counted = excluded.counted, app = excluded.app, device = excluded.device
        """)
    private static let delete = SQL(
        "DELETE FROM content_uses WHERE \(key) AND chunk = ?3 AND is_node = ?4 AND container = ?5")

    func use(of part: Part) throws -> Use? {
        try transaction.first(Self.select, place.values + part.values + [.text(container)]) {
            Use(
                count: $0.integer(0), counted: UInt64(clamping: $0.integer(1)), app: AppID($0.text(2)),
                device: DeviceID($0.text(3)), room: StorageRoom(named: $0.text(4)))
        }
    }

    /// Whether a content of the container, or of one of the same thing, rests on the chunk.
    func isUsed(_ chunk: ChunkID) throws -> Bool {
        if let use = try use(of: Part(id: chunk)), use.count > 0 { return true }
        return try Self.container(of: siblings, using: Part(id: chunk), at: place, in: transaction) != nil
    }

    /// The same of another container of the owner.
    func ofContainer(_ name: String) -> UseStore {
        UseStore(place: place, container: name, transaction: transaction)
    }

    func set(_ use: Use?, of part: Part) throws {
        let key = place.values + part.values + [.text(container)]
        guard let use else { return _ = try transaction.execute(Self.delete, key) }
        try transaction.execute(
            Self.save,
            key + [
                .integer(use.count), .integer(Int64(clamping: use.counted)), .text(use.app.rawValue),
                .text(use.device.rawValue), .text(use.room.name),
            ])
    }

    /// Containers that one statement looks for, and the statement.
    private static let lookedForAtOnce = 16
    private static let selectOne = SQL(
        """
        SELECT container FROM content_uses
        WHERE \(key) AND chunk = ?3 AND is_node = ?4 AND use_count > 0
            AND container IN (\((0..<lookedForAtOnce).map { "?\($0 + 5)" }.joined(separator: ", ")))
        ORDER BY container LIMIT 1
        """)

    /// What it may cost to look for one of these that uses a chunk.
    static func rows(lookingIn containers: Set<String>) -> Int {
        (containers.count + lookedForAtOnce - 1) / lookedForAtOnce
    }

    /// One of these containers that uses it.
    static func container(
        of containers: Set<String>, using part: Part, at place: HoldStore.Place, in transaction: any ReadTransaction
    ) throws -> String? {
        let all = containers.sorted()
        for start in stride(from: 0, to: all.count, by: lookedForAtOnce) {
            var some = all[start..<min(start + lookedForAtOnce, all.count)].map { SQLValue.text($0) }
            // The statement has so many places.
            some += Array(repeating: some[0], count: lookedForAtOnce - some.count)
            let found = try transaction.first(selectOne, place.values + part.values + some) { $0.text(0) }
            if let found { return found }
        }
        return nil
    }

    private static let countLost = SQL(
        """
        SELECT COUNT(content_uses.chunk), COUNT(*) FROM (
            SELECT id FROM content_damaged WHERE \(key) ORDER BY id LIMIT ?4) AS damaged
        LEFT JOIN content_uses ON content_uses.partition_number = ?1 AND content_uses.owner = ?2
            AND content_uses.chunk = damaged.id AND content_uses.is_node = 0 AND content_uses.container = ?3
            AND content_uses.use_count > 0
        """)
    /// Of an owner's damaged chunks so many are looked at: some milliseconds.
    private static let countedMax: Int64 = 8192

    /// How many chunks the container uses that were found damaged. Where not all were looked at it is one more: whoever
    /// hears that there are none would have nothing to do.
    static func lostCount(
        in container: String, at place: HoldStore.Place, in transaction: any ReadTransaction
    ) throws -> Int {
        let values = place.values + [.text(container), .integer(countedMax)]
        return try transaction.first(countLost, values) {
            Int(clamping: $0.integer(0)) + ($0.integer(1) == countedMax ? 1 : 0)
        } ?? 0
    }

    /// Containers that use it, two of them.
    static func containers(
        using part: Part, at place: HoldStore.Place, in transaction: any ReadTransaction
    ) throws -> [String] {
        try transaction.all(selectAny, place.values + part.values) { $0.text(0) }
    }

    /// Another container that uses it, and counts on the same.
    func other(using part: Part, on room: StorageRoom) throws -> UseStore? {
        let values = place.values + part.values + [.text(container), .text(room.name)]
        return try transaction.first(Self.selectOther, values) { $0.text(0) }.map(ofContainer)
    }

    // MARK: Nodes

    private static let selectNode = SQL(
        "SELECT node_level, length FROM content_nodes WHERE \(key) AND container = ?3 AND id = ?4")
    private static let selectNodeBytes = SQL(
        "SELECT node FROM content_nodes WHERE \(key) AND container = ?3 AND id = ?4")
    private static let insertNode = SQL(
        """
        INSERT INTO content_nodes (partition_number, owner, container, id, node_level, length, node)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        """)
    private static let updateNode = SQL(
        """
        UPDATE content_nodes SET node_level = ?5, length = ?6, node = ?7
        WHERE \(key) AND container = ?3 AND id = ?4
        """)
    private static let deleteNode = SQL("DELETE FROM content_nodes WHERE \(key) AND container = ?3 AND id = ?4")

    private func nodeKey(_ id: ChunkID) -> [SQLValue] { place.values + [.text(container), .blob(id.bytes)] }

    func node(_ id: ChunkID) throws -> (level: Int, length: UInt64)? {
        try transaction.first(Self.selectNode, nodeKey(id)) {
            (level: Int($0.integer(0)), length: UInt64(clamping: $0.integer(1)))
        }
    }

    func nodeBytes(_ id: ChunkID) throws -> [UInt8]? {
        try Self.nodeBytes(id, of: container, at: place, in: transaction)
    }

    /// The same, also of another container of the same thing.
    func nodeBytesOfAny(_ id: ChunkID) throws -> [UInt8]? {
        if let bytes = try nodeBytes(id) { return bytes }
        return try Self.container(of: siblings, using: Part(id: id, isNode: true), at: place, in: transaction)
            .flatMap { try Self.nodeBytes(id, of: $0, at: place, in: transaction) }
    }

    static func nodeBytes(
        _ id: ChunkID, of container: String, at place: HoldStore.Place, in transaction: any ReadTransaction
    ) throws -> [UInt8]? {
        try transaction.first(selectNodeBytes, place.values + [.text(container), .blob(id.bytes)]) { $0.blob(0) }
    }

    func add(_ bytes: [UInt8], as id: ChunkID, level: Int, length: UInt64) throws {
        try transaction.execute(
            Self.insertNode,
            nodeKey(id) + [.integer(Int64(level)), .integer(Int64(clamping: length)), .blob(bytes)])
    }

    /// Puts the bytes of a node in the place of damaged ones.
    func heal(_ bytes: [UInt8], as id: ChunkID, level: Int, length: UInt64) throws {
        try transaction.execute(
            Self.updateNode,
            nodeKey(id) + [.integer(Int64(level)), .integer(Int64(clamping: length)), .blob(bytes)])
    }

    func removeNode(_ id: ChunkID) throws { try transaction.execute(Self.deleteNode, nodeKey(id)) }

    // MARK: Endings

    private static let insertEnding = SQL(
        """
        INSERT INTO content_endings (partition_number, owner, container, id, is_node) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, container, id, is_node) DO NOTHING
        """)
    private static let deleteEnding = SQL(
        "DELETE FROM content_endings WHERE \(key) AND container = ?3 AND id = ?4 AND is_node = ?5")
    private static let selectOwner = SQL(
        """
        SELECT partition_number, owner FROM content_endings WHERE (partition_number, owner) > (?1, ?2)
        ORDER BY partition_number, owner LIMIT 1
        """)
    private static let selectEndings = SQL(
        """
        SELECT owner, container, id, is_node FROM content_endings WHERE partition_number = ?1 AND owner = ?2
        ORDER BY container, id, is_node LIMIT ?3
        """)

    func addEnding(of part: Part) throws {
        try transaction.execute(Self.insertEnding, place.values + [.text(container)] + part.values)
    }

    func endEnding(of part: Part) throws {
        try transaction.execute(Self.deleteEnding, place.values + [.text(container)] + part.values)
    }

    /// The first owner in its partition, behind this one, of whom there is what nothing uses any more; nil: none.
    static func nextEnding(
        after last: HoldStore.Place?, in transaction: any ReadTransaction
    ) throws -> HoldStore.Place? {
        try transaction.first(selectOwner, last?.values ?? [.integer(-1), .text("")]) { row in
            HoldStore.Place(owner: Owner(rawValue: row.text(1)), partition: Int(row.integer(0)))
        }
    }

    /// What nothing uses any more, of one owner in its partition.
    static func endings(
        at place: HoldStore.Place, limit: Int, in transaction: any ReadTransaction
    ) throws -> [(container: String, id: [UInt8], isNode: Bool)] {
        try transaction.all(selectEndings, place.values + [.integer(Int64(limit))]) { row in
            (container: row.text(1), id: row.blob(2), isNode: row.integer(3) != 0)
        }
    }

    /// Removes a row that is damaged: no chunk and no node has such an id.
    static func removeEnding(
        of id: [UInt8], isNode: Bool, in container: String, at place: HoldStore.Place, in transaction: any Transaction
    ) throws {
        try transaction.execute(
            deleteEnding, place.values + [.text(container), .blob(id), .integer(isNode ? 1 : 0)])
    }

    // MARK: The end of an account

    private static let remains = [
        ("uses", "chunk, is_node, container"), ("nodes", "container, id"), ("endings", "container, id, is_node"),
        ("sums", "container"),
    ].map { table, columns in
        SQL(
            """
            DELETE FROM content_\(table) WHERE partition_number = ?1 AND owner = ?2 AND (\(columns)) IN (
                SELECT \(columns) FROM content_\(table) WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
            """)
    }

    /// Removes some of an owner's.
    ///
    /// - Returns: Whether there may be more.
    static func removeAll(at place: HoldStore.Place, limit: Int, in transaction: any Transaction) throws -> Bool {
        try remains.reduce(false) {
            try transaction.execute($1, place.values + [.integer(Int64(limit))]) > 0 || $0
        }
    }
}
