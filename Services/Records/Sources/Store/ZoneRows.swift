internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// The rows of one zone beside its records.
struct ZoneRows {
    let place: [SQLValue]
    let transaction: any HandlerTransaction

    init(_ zone: ScopeName, in transaction: any HandlerTransaction) {
        place = Self.place(of: zone)
        self.transaction = transaction
    }

    static func place(of zone: ScopeName) -> [SQLValue] {
        [.integer(Int64(zone.partition)), .text(zone.owner.rawValue), .text(zone.path.rawValue)]
    }

    static let key = "partition_number = ?1 AND owner = ?2 AND zone = ?3"

    // MARK: References

    enum Reference: Int64 {
        case cascading = 1
        case child = 2
    }

    private static let sources = SQL(
        "SELECT source FROM record_references WHERE \(key) AND target = ?4 AND kind = ?5 ORDER BY source LIMIT ?6")
    private static let selectReference = SQL(
        "SELECT 1 FROM record_references WHERE \(key) AND target = ?4 AND kind = ?5 AND source = ?6")
    private static let countSources = SQL(
        """
        SELECT COUNT(*) FROM (SELECT 1 FROM record_references WHERE \(key) AND target = ?4 AND kind = ?5 LIMIT ?6)
        AS found
        """)
    /// Rows that are counted in the time that one takes which is read.
    private static let countedPerRow = 16
    private static let insertReference = SQL(
        """
        INSERT INTO record_references (partition_number, owner, zone, target, kind, source)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (partition_number, owner, zone, target, kind, source) DO NOTHING
        """)
    private static let deleteReference = SQL(
        "DELETE FROM record_references WHERE \(key) AND target = ?4 AND kind = ?5 AND source = ?6")

    /// Records that refer to the target so.
    func sources(_ kind: Reference, to target: ItemName, limit: Int) throws -> [ItemName] {
        try transaction.all(
            Self.sources, place + [.text(target.rawValue), .integer(kind.rawValue), .integer(Int64(limit))]
        ) { ItemName($0.text(0)) }
    }

    func has(_ kind: Reference, to target: ItemName, of source: ItemName) throws -> Bool {
        try transaction.first(
            Self.selectReference,
            place + [.text(target.rawValue), .integer(kind.rawValue), .text(source.rawValue)]
        ) { _ in true } != nil
    }

    /// How many records are deleted with the target; beyond what is allowed it is not counted.
    func sourceCount(of target: ItemName) throws -> Int {
        let count = try transaction.first(
            Self.countSources,
            place + [
                .text(target.rawValue), .integer(Reference.cascading.rawValue),
                .integer(Int64(RecordLimits.cascadingReferencesMax + RecordLimits.referencesMax)),
            ]
        ) { $0.integer(0) }
        transaction.charge(rows: Int(count ?? 0) / Self.countedPerRow)
        return Int(count ?? 0)
    }

    func add(_ kind: Reference, to target: ItemName, of source: ItemName) throws {
        try transaction.execute(
            Self.insertReference,
            place + [.text(target.rawValue), .integer(kind.rawValue), .text(source.rawValue)])
    }

    func remove(_ kind: Reference, to target: ItemName, of source: ItemName) throws {
        try transaction.execute(
            Self.deleteReference,
            place + [.text(target.rawValue), .integer(kind.rawValue), .text(source.rawValue)])
    }

    // MARK: What devices leave

    private static let selectToken = SQL("SELECT token FROM record_client_tokens WHERE \(key) AND device = ?4")
    private static let upsertToken = SQL(
        """
        INSERT INTO record_client_tokens (partition_number, owner, zone, device, token, noted)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (partition_number, owner, zone, device)
        DO UPDATE SET token = excluded.token, noted = excluded.noted
        """)
    /// Rows that one request removes; there is one too many, unless the bound was higher once.
    private static let oldTokensMax: Int64 = 100
    private static let deleteOldTokens = SQL(
        """
        DELETE FROM record_client_tokens WHERE \(key) AND device IN (
            SELECT device FROM record_client_tokens WHERE \(key) ORDER BY noted DESC, device LIMIT ?5 OFFSET ?4)
        """)

    func clientToken(of device: DeviceID) throws -> [UInt8] {
        try transaction.first(Self.selectToken, place + [.text(device.rawValue)]) { $0.blob(0) } ?? []
    }

    /// - Parameter now: Those of the devices that have left none for longest go.
    func setClientToken(_ token: [UInt8], of device: DeviceID, at now: Timestamp) throws {
        let isNew = try clientToken(of: device).isEmpty
        try transaction.execute(
            Self.upsertToken,
            place + [.text(device.rawValue), .blob(token), .integer(Int64(clamping: now.milliseconds))])
        guard isNew else { return }
        try transaction.execute(
            Self.deleteOldTokens, place + [.integer(Int64(RecordLimits.clientTokensMax)), .integer(Self.oldTokensMax)])
    }

    // MARK: The end of a zone

    private static let insertRemoval = SQL(
        """
        INSERT INTO record_removals (partition_number, owner, zone) VALUES (?1, ?2, ?3)
        ON CONFLICT (partition_number, owner, zone) DO NOTHING
        """)
    private static let deleteRemoval = SQL("DELETE FROM record_removals WHERE \(key)")
    private static let nextRemoval = SQL(
        """
        SELECT owner, zone FROM record_removals WHERE (partition_number, owner, zone) > (?1, ?2, ?3)
        ORDER BY partition_number, owner, zone LIMIT 1
        """)

    func addRemoval() throws { try transaction.execute(Self.insertRemoval, place) }
    func endRemoval() throws { try transaction.execute(Self.deleteRemoval, place) }

    /// The first zone whose records are to be removed, behind another.
    static func nextRemoval(after zone: ScopeName?, in transaction: any HandlerTransaction) throws -> ScopeName? {
        try transaction.first(nextRemoval, place(after: zone)) {
            ScopeName(Owner(rawValue: $0.text(0)), ItemName($0.text(1)))
        }
    }

    /// Where what comes behind a zone begins; nil: all.
    static func place(after zone: ScopeName?) -> [SQLValue] {
        zone.map { place(of: $0) } ?? [.integer(-1), .text(""), .text("")]
    }

    private static let tables = [
        ("record_references", "target, kind, source"), ("record_history", "number"),
        ("record_history_zones", "zone"), ("record_client_tokens", "device"),
        ("record_assets", "entry, record, root"), ("record_asset_endings", "first_entry"),
    ]
    private static let deleteOfZone = tables.map { table, columns in
        SQL(
            """
            DELETE FROM \(table) WHERE \(key) AND (\(columns)) IN (
                SELECT \(columns) FROM \(table) WHERE \(key) LIMIT ?4)
            """)
    }
    private static let deleteOfOwner = (tables + [("record_removals", "zone")]).map { table, columns in
        let columns = columns == "zone" ? "zone" : "zone, \(columns)"
        return SQL(
            """
            DELETE FROM \(table) WHERE partition_number = ?1 AND owner = ?2 AND (\(columns)) IN (
                SELECT \(columns) FROM \(table) WHERE partition_number = ?1 AND owner = ?2 LIMIT ?3)
            """)
    }

    /// Removes some of the zone's rows.
    ///
    /// - Returns: Whether there may be more.
    func removeSome(limit: Int) throws -> Bool {
        try Self.deleteOfZone.reduce(false) {
            try transaction.execute($1, place + [.integer(Int64(limit))]) == limit || $0
        }
    }

    /// Removes some of what an account leaves.
    ///
    /// - Returns: Whether there may be more.
    static func removeRemains(of account: AccountID, limit: Int, in transaction: any HandlerTransaction) throws -> Bool
    {
        let owner = Owner(account)
        let values: [SQLValue] = [
            .integer(Int64(ScopeName(owner, "").partition)), .text(owner.rawValue), .integer(Int64(limit)),
        ]
        return try deleteOfOwner.reduce(false) { try transaction.execute($1, values) > 0 || $0 }
    }
}
