internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

/// Who may do what in public databases, and which of them are being gone through since that has changed.
enum RoleRows {
    private static let select = SQL("SELECT type, rights FROM record_roles WHERE \(ZoneRows.key) ORDER BY type")
    private static let upsert = SQL(
        """
        INSERT INTO record_roles (partition_number, owner, zone, type, rights) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (partition_number, owner, zone, type) DO UPDATE SET rights = excluded.rights
        """)
    private static let delete = SQL("DELETE FROM record_roles WHERE \(ZoneRows.key) AND type = ?4")

    static func roles(of zone: ScopeName, in reader: any ReadTransaction) throws -> RecordRoles {
        RecordRoles(
            byType: Dictionary(
                try reader.all(select, ZoneRows.place(of: zone)) {
                    (ItemName($0.text(0)), RecordRights(rawValue: $0.integer(1)))
                }
            ) { $1 })
    }

    /// - Parameter rights: Nil: nothing is said of the type by itself.
    static func set(
        _ rights: RecordRights?, of type: ItemName, in zone: ScopeName, _ transaction: any Transaction
    ) throws {
        let place = ZoneRows.place(of: zone) + [.text(type.rawValue)]
        if let rights {
            try transaction.execute(upsert, place + [.integer(rights.rawValue)])
        } else {
            try transaction.execute(delete, place)
        }
    }

    // MARK: What is under way

    private static let upsertChange = SQL(
        """
        INSERT INTO record_role_changes (partition_number, owner, zone, record) VALUES (?1, ?2, ?3, ?4)
        ON CONFLICT (partition_number, owner, zone) DO UPDATE SET record = excluded.record
        """)
    private static let deleteChange = SQL("DELETE FROM record_role_changes WHERE \(ZoneRows.key)")
    private static let selectChange = SQL("SELECT record FROM record_role_changes WHERE \(ZoneRows.key)")
    private static let firstChange = SQL(
        "SELECT owner, zone, record FROM record_role_changes ORDER BY partition_number, owner, zone")

    static func isChanging(_ zone: ScopeName, in reader: any ReadTransaction) throws -> Bool {
        try reader.first(selectChange, ZoneRows.place(of: zone)) { _ in true } ?? false
    }

    /// A zone whose records are gone through, and the last that was.
    ///
    /// - Parameter failed: Zones that could not be gone through just now.
    static func firstChange(
        passingOver failed: Set<ScopeName>, in reader: any ReadTransaction
    ) throws -> (zone: ScopeName, record: ItemName)? {
        var found: (zone: ScopeName, record: ItemName)?
        try reader.query(firstChange, []) { row in
            let zone = ScopeName(Owner(rawValue: row.text(0)), ItemName(row.text(1)))
            guard !failed.contains(zone) else { return true }
            found = (zone, ItemName(row.text(2)))
            return false
        }
        return found
    }

    /// - Parameter record: The last that was gone through; empty: from the beginning; nil: all were.
    static func setChange(_ record: ItemName?, of zone: ScopeName, in transaction: any Transaction) throws {
        if let record {
            try transaction.execute(upsertChange, ZoneRows.place(of: zone) + [.text(record.rawValue)])
        } else {
            try transaction.execute(deleteChange, ZoneRows.place(of: zone))
        }
    }
}
