internal import NephosBulk
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// What each item counts besides its contents, and for whom; and until when it is kept. It lies beside the item, so that
/// what is given back is what was charged, also when the item itself does not open.
struct CountedItem: Hashable {
    var bytes: UInt64
    var maker: CountChanges.Maker
    /// When it is removed by itself; nil: it is kept.
    var ends: Timestamp?
    /// Of the batches that have changed the item last, the newest first: by these a batch is known that comes again when
    /// nobody has its reply any more.
    private(set) var operations: [OperationID] = []

    /// How many of them are kept.
    static let operationsMax = 8

    init(bytes: UInt64, maker: CountChanges.Maker) { (self.bytes, self.maker) = (bytes, maker) }

    mutating func note(_ operation: OperationID) {
        operations = Array(([operation] + operations).prefix(Self.operationsMax))
    }
}

extension CountedItem {
    /// As ``ContainerRows`` reads it.
    fileprivate init(_ row: any SQLRow) {
        self.init(
            bytes: UInt64(clamping: row.integer(0)),
            maker: CountChanges.Maker(app: AppID(row.text(1)), device: DeviceID(row.text(2))))
        if row.integer(3) > 0 { ends = Timestamp(milliseconds: UInt64(row.integer(3))) }
        let bytes = row.blob(4)
        operations = stride(from: 0, to: bytes.count, by: OperationID.byteCount).compactMap {
            OperationID(bytes: bytes[$0..<min($0 + OperationID.byteCount, bytes.count)])
        }
    }
}

extension ContainerRows {
    private static let columns = "counted, app, device, ends, operations"
    private static let select = SQL("SELECT \(columns) FROM document_items WHERE \(key) AND item = ?4")
    private static let upsert = SQL(
        """
        INSERT INTO document_items (partition_number, owner, container, item, \(columns))
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
        ON CONFLICT (partition_number, owner, container, item) DO UPDATE SET
            counted = excluded.counted, app = excluded.app, device = excluded.device, ends = excluded.ends,
            operations = excluded.operations
        """)
    private static let delete = SQL("DELETE FROM document_items WHERE \(key) AND item = ?4")
    private static let selectNewest = SQL(
        """
        SELECT ends, item FROM document_items WHERE \(key) AND ends > 0
        ORDER BY ends DESC, item DESC LIMIT 1 OFFSET ?4
        """)
    private static let endOlder = SQL(
        """
        UPDATE document_items SET ends = 1
        WHERE \(key) AND ends > 1 AND (ends < ?4 OR ends = ?4 AND item < ?5)
        """)

    /// - Returns: Nil: it counts nothing, since it was made before items did.
    func counted(_ item: DocumentID) throws -> CountedItem? {
        try transaction.first(Self.select, place + [.blob(item.bytes)]) { CountedItem($0) }
    }

    /// - Parameter counted: Nil: it counts no more.
    func set(_ counted: CountedItem?, for item: DocumentID) throws {
        let values = place + [.blob(item.bytes)]
        guard let counted else { return _ = try transaction.execute(Self.delete, values) }
        try transaction.execute(
            Self.upsert,
            values + [
                .integer(Int64(clamping: counted.bytes)), .text(counted.maker.app.rawValue),
                .text(counted.maker.device.rawValue), .integer(Int64(clamping: counted.ends?.milliseconds ?? 0)),
                .blob(counted.operations.flatMap(\.bytes)),
            ])
    }

    /// Ends all that are kept for a while but the newest. They are removed in steps.
    ///
    /// - Returns: Whether there were any.
    func endItems(beyond newest: Int) throws -> Bool {
        let last = try transaction.first(Self.selectNewest, place + [.integer(Int64(newest) - 1)]) {
            [.integer($0.integer(0)), .blob($0.blob(1))] as [SQLValue]
        }
        return try last.map { try transaction.execute(Self.endOlder, place + $0) > 0 } ?? false
    }
}
