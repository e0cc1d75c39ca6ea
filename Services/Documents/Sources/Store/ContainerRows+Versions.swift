internal import NephosBulk
internal import NephosCore
internal import NephosStorage

/// Contents that were committed. They never change.
extension ContainerRows {
    private static let selectVersion = SQL(
        "SELECT 1 FROM document_versions WHERE \(key) AND item = ?4 AND version = ?5")
    private static let insertVersion = SQL(
        """
        INSERT INTO document_versions (
            partition_number, owner, container, item, version, number, sealed, committed, counted, app, device)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
        """)
    private static let selectVersions = SQL(
        """
        SELECT version, number, counted, app, device, sealed FROM document_versions WHERE \(key) AND item = ?4
        ORDER BY number DESC, committed DESC LIMIT ?5
        """)
    private static let selectOneVersion = SQL(
        "SELECT version, number, counted, app, device, sealed FROM document_versions WHERE \(key) AND item = ?4 AND version = ?5"
    )
    private static let countVersions = SQL("SELECT COUNT(*) FROM document_versions WHERE \(key) AND item = ?4")
    private static let selectOldest = SQL(
        """
        SELECT version, number, counted, app, device, sealed FROM document_versions WHERE \(key) AND item = ?4
        ORDER BY number, committed LIMIT ?5
        """)
    private static let selectLatest = SQL(
        """
        SELECT number, committed FROM document_versions WHERE \(key) AND item = ?4
        ORDER BY number DESC, committed DESC LIMIT 1
        """)
    private static let selectTimes = SQL(
        "SELECT version, committed FROM document_versions WHERE \(key) AND item = ?4 ORDER BY number, committed")
    private static let selectLastUntil = SQL(
        """
        SELECT number FROM document_versions WHERE \(key) AND item = ?4 AND committed <= ?5
        ORDER BY number DESC LIMIT 1
        """)
    private static let deleteVersion = SQL("DELETE FROM document_versions WHERE \(key) AND item = ?4 AND version = ?5")

    struct Version {
        var id: [UInt8]
        /// Rises with each version of an item; one that was lost and is offered again has that of the one before it.
        var number: Int64
        /// Bytes that the row counts on the plan.
        var counted: UInt64
        /// For whom that counts. It lies beside the content, so that it is given back
        /// also when that is damaged.
        var maker: CountChanges.Maker
        var sealed: [UInt8]

        init(id: [UInt8], number: Int64, counted: UInt64, maker: CountChanges.Maker, sealed: [UInt8]) {
            (self.id, self.number, self.counted, self.maker, self.sealed) = (id, number, counted, maker, sealed)
        }

        fileprivate init(_ row: any SQLRow) {
            self.init(
                id: row.blob(0), number: row.integer(1), counted: UInt64(clamping: row.integer(2)),
                maker: CountChanges.Maker(app: AppID(row.text(3)), device: DeviceID(row.text(4))), sealed: row.blob(5))
        }
    }

    func hasVersion(_ version: [UInt8], of item: DocumentID) throws -> Bool {
        try transaction.first(Self.selectVersion, place + [.blob(item.bytes), .blob(version)]) { _ in true } ?? false
    }

    /// - Parameter committed: In nanoseconds since 1970.
    func add(_ version: Version, committed: Int64, of item: DocumentID) throws {
        try transaction.execute(
            Self.insertVersion,
            place + [
                .blob(item.bytes), .blob(version.id), .integer(version.number), .blob(version.sealed),
                .integer(committed), .integer(Int64(clamping: version.counted)),
                .text(version.maker.app.rawValue), .text(version.maker.device.rawValue),
            ])
    }

    /// Of the newest. Committed: in nanoseconds since 1970.
    func latestVersion(of item: DocumentID) throws -> (number: Int64, committed: Int64)? {
        try transaction.first(Self.selectLatest, place + [.blob(item.bytes)]) { ($0.integer(0), $0.integer(1)) }
    }

    /// Of the newest that was committed by then; nil: all were later.
    func lastNumber(of item: DocumentID, until committed: Int64) throws -> Int64? {
        try transaction.first(
            Self.selectLastUntil, place + [.blob(item.bytes), .integer(committed)]
        ) { $0.integer(0) }
    }

    /// When each was committed, as in ``latestVersion(of:)``; the oldest first.
    func versionTimes(of item: DocumentID) throws -> [VersionRule.Version] {
        try transaction.all(Self.selectTimes, place + [.blob(item.bytes)]) {
            VersionRule.Version(id: $0.blob(0), committed: $0.integer(1))
        }
    }

    /// The newest first.
    func versions(of item: DocumentID, limit: Int = .max) throws -> [Version] {
        try transaction.all(Self.selectVersions, place + [.blob(item.bytes), .integer(Int64(limit))]) { Version($0) }
    }

    func version(_ version: [UInt8], of item: DocumentID) throws -> Version? {
        try transaction.first(Self.selectOneVersion, place + [.blob(item.bytes), .blob(version)]) { Version($0) }
    }

    func versionCount(of item: DocumentID) throws -> Int {
        try transaction.first(Self.countVersions, place + [.blob(item.bytes)]) { Int($0.integer(0)) } ?? 0
    }

    func oldestVersions(of item: DocumentID, limit: Int) throws -> [Version] {
        try transaction.all(Self.selectOldest, place + [.blob(item.bytes), .integer(Int64(limit))]) { Version($0) }
    }

    func removeVersion(_ version: [UInt8], of item: DocumentID) throws {
        try transaction.execute(Self.deleteVersion, place + [.blob(item.bytes), .blob(version)])
    }
}
