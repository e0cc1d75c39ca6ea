internal import NephosCore
internal import NephosStorage

/// The refresh tokens that descend from one sign-in. Only the newest is valid;
/// a device has one family at most.
struct RefreshFamily: Hashable, Sendable {
    /// 16 random bytes, which each token of the family carries in the open.
    var id: [UInt8]
    var device: DeviceID
    /// Of the newest token.
    var generation: UInt64
    /// ``RefreshSecret/hash`` of the newest token.
    var tokenHash: [UInt8]
    /// The same of the token before it, which was exchanged for the newest.
    var previousHash: [UInt8]?
    /// The request that the newest token was the reply to.
    var issuedBy: OperationID
    /// A request that an earlier token was the reply to.
    struct EarlierRequest: Hashable, Sendable {
        var operation: OperationID
        /// When the next exchange followed.
        var overtaken: Timestamp
    }
    /// The latest last: a copy of one of them may come late.
    var earlierRequests: [EarlierRequest] = []
    var expires: Timestamp
    /// Of a home in which very many apps renew at once.
    private static let earlierRequestsMax = 144

    /// Those of which a copy may come late still.
    static func late(_ requests: [EarlierRequest], at now: Timestamp) -> [EarlierRequest] {
        requests.filter { now.since($0.overtaken) <= RefreshRule.lateMax }.suffix(earlierRequestsMax)
    }
}

struct RefreshFamilyStore {
    let transaction: any Transaction

    private static let columns =
        "family_id, device_id, generation, token_hash, previous_hash, issued_by, earlier_requests, expires_at"
    private static let selectByID = SQL("SELECT \(columns) FROM refresh_families WHERE family_id = ?1")
    private static let selectByDevice = SQL("SELECT \(columns) FROM refresh_families WHERE device_id = ?1")
    private static let insert = SQL(
        "INSERT INTO refresh_families (\(columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")
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
                .blob(family.id), .text(family.device.rawValue), .integer(Int64(bitPattern: family.generation)),
                .blob(family.tokenHash),
                family.previousHash.map(SQLValue.blob) ?? .null, .blob(family.issuedBy.bytes),
                .blob(Self.bytes(of: family.earlierRequests)), family.expires.column,
            ])
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
            id: row.blob(0), device: DeviceID(row.text(1)), generation: UInt64(bitPattern: row.integer(2)),
            tokenHash: row.blob(3),
            previousHash: row.isNull(4) ? nil : row.blob(4), issuedBy: issuedBy,
            earlierRequests: requests(row.blob(6)), expires: Timestamp(column: row.integer(7)))
    }

    /// Of one request, as it lies in the row: its id, and its time in milliseconds, the lowest byte first.
    private static let requestBytes = 24

    private static func bytes(of requests: [RefreshFamily.EarlierRequest]) -> [UInt8] {
        requests.flatMap { request in
            request.operation.bytes
                + (0..<8).map { UInt8(truncatingIfNeeded: request.overtaken.milliseconds >> (8 * $0)) }
        }
    }

    private static func requests(_ bytes: [UInt8]) -> [RefreshFamily.EarlierRequest] {
        stride(from: 0, to: bytes.count, by: requestBytes).compactMap { start in
            let row = Array(bytes[start...].prefix(requestBytes))
            guard row.count == requestBytes, let operation = OperationID(bytes: Array(row[..<16])) else { return nil }
            let milliseconds = row[16...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            return RefreshFamily.EarlierRequest(
                operation: operation, overtaken: Timestamp(milliseconds: milliseconds))
        }
    }
}
