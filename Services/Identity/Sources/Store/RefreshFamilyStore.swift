internal import Core
internal import Storage

/// The refresh tokens that descend from one sign-in. Only the newest is valid;
/// a device has one family at most.
struct RefreshFamily: Hashable, Sendable {
    /// 16 random bytes, which each token of the family carries in the open.
    var id: [UInt8]
    var device: DeviceID
    /// What the newest token's secret is derived from, with a key that is not in the database.
    var salt: [UInt8]
    /// SHA-256 of the newest token's secret.
    var tokenHash: [UInt8]
    /// The same of the token before it, which was exchanged for the newest.
    var previousHash: [UInt8]?
    /// The request that the newest token was the reply to.
    var issuedBy: OperationID
    var expires: Timestamp
}

struct RefreshFamilyStore {
    let transaction: any Transaction

    private static let columns = "family_id, device_id, salt, token_hash, previous_hash, issued_by, expires_at"
    private static let selectByID = SQL("SELECT \(columns) FROM refresh_families WHERE family_id = ?1")
    private static let selectByDevice = SQL("SELECT \(columns) FROM refresh_families WHERE device_id = ?1")
    private static let insert = SQL(
        "INSERT INTO refresh_families (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
    private static let deleteByID = SQL("DELETE FROM refresh_families WHERE family_id = ?1")
    private static let deleteByDevice = SQL("DELETE FROM refresh_families WHERE device_id = ?1")

    func family(_ id: [UInt8]) throws -> RefreshFamily? {
        try transaction.first(Self.selectByID, [.blob(id)], Self.record)
    }

    func family(of device: DeviceID) throws -> RefreshFamily? {
        try transaction.first(Self.selectByDevice, [.text(device.rawValue)], Self.record)
    }

    /// Makes this the device's family, in place of the one that it had.
    func replace(with family: RefreshFamily) throws {
        try remove(of: family.device)
        try transaction.execute(
            Self.insert,
            [
                .blob(family.id), .text(family.device.rawValue), .blob(family.salt), .blob(family.tokenHash),
                family.previousHash.map(SQLValue.blob) ?? .null, .blob(family.issuedBy.bytes), family.expires.column,
            ])
    }

    func remove(_ id: [UInt8]) throws {
        try transaction.execute(Self.deleteByID, [.blob(id)])
    }

    func remove(of device: DeviceID) throws {
        try transaction.execute(Self.deleteByDevice, [.text(device.rawValue)])
    }

    private static func record(_ row: any SQLRow) throws -> RefreshFamily {
        guard let issuedBy = OperationID(bytes: row.blob(5)) else {
            throw CloudError(
                .internalError, "A stored refresh family has an unreadable operation id.",
                details: ["device": row.text(1)])
        }
        return RefreshFamily(
            id: row.blob(0), device: DeviceID(row.text(1)), salt: row.blob(2), tokenHash: row.blob(3),
            previousHash: row.isNull(4) ? nil : row.blob(4), issuedBy: issuedBy,
            expires: Timestamp(column: row.integer(6)))
    }
}
