internal import Foundation
internal import GRDB
internal import NephosCore

/// A lock that a program has taken, until it gives it back or its lease ends.
struct DavLock: Sendable, Equatable {
    var token: String
    var path: DavPath
    /// Whether what is in the folder is locked too.
    var isDeep: Bool
    var isExclusive: Bool
    /// XML by which the program names itself.
    var owner: String
    var lease: Duration
    /// Milliseconds since 1970.
    var expires: UInt64
}

/// The locks of all accounts. They are rows in a database of this program, so that a restart ends none.
///
/// A lock holds for those who come by WebDAV, and is no promise of other devices: what those write meanwhile is another
/// version, and nothing is lost by it.
final class DavLocks: Sendable {
    static let leaseMax: Duration = .seconds(3600)
    static let leaseDefault: Duration = .seconds(600)
    /// Locks of one account.
    static let ofAccountMax = 1000

    private let database: DatabaseQueue

    /// - Throws: ``CloudError`` `.storageFailure`.
    init(path: String) throws(CloudError) {
        do {
            database = try DatabaseQueue(path: path)
            try database.write { database in
                try database.execute(
                    sql: """
                        CREATE TABLE IF NOT EXISTS locks (
                            token TEXT PRIMARY KEY, account TEXT NOT NULL, place TEXT NOT NULL,
                            is_deep INTEGER NOT NULL, is_exclusive INTEGER NOT NULL, owner TEXT NOT NULL,
                            lease INTEGER NOT NULL, expires INTEGER NOT NULL);
                        CREATE INDEX IF NOT EXISTS locks_by_place ON locks (account, place);
                        """)
            }
        } catch {
            throw CloudError(
                .storageFailure, "The database of locks cannot be opened. Check the disk and its permissions.",
                details: ["path": path])
        }
    }

    private static var now: UInt64 { UInt64(Date().timeIntervalSince1970 * 1000) }

    /// A text that begins with that of each folder that it is in.
    private static func place(_ path: DavPath) -> String { path.href(isFolder: true) }

    private func write<Value>(_ body: (Database) throws -> Value) throws(CloudError) -> Value {
        do { return try database.write(body) } catch { throw Self.failure(error) }
    }

    private static func failure(_ error: any Error) -> CloudError {
        (error as? CloudError) ?? CloudError(.storageFailure, "The database of locks cannot be used.")
    }

    /// Locks that hold for a path: of itself, of folders that it is in, and if asked for of what is in it.
    func locks(of account: String, at path: DavPath, withInner: Bool = false) throws(CloudError) -> [DavLock] {
        do {
            return try database.read { try Self.locks(of: account, at: path, withInner: withInner, $0) }
        } catch { throw Self.failure(error) }
    }

    private static func locks(
        of account: String, at path: DavPath, withInner: Bool, _ database: Database
    ) throws -> [DavLock] {
        let outer = (0...path.names.count).map {
            DavPath(container: path.container, names: Array(path.names.prefix($0)))
        }
        var places = outer.map(place)
        if !path.isTop { places.append(place(DavPath(container: nil, names: []))) }
        let own = place(path)
        let marks = places.map { _ in "?" }.joined(separator: ", ")
        let rows = try Row.fetchAll(
            database,
            sql: "SELECT * FROM locks WHERE account = ? AND expires > ? AND (place IN (\(marks)) "
                + "OR (? AND place > ? AND place < ?))",
            arguments: StatementArguments(
                [account, Int64(clamping: now)] as [any DatabaseValueConvertible] + places
                    // The next character after the slash ends what begins with the place.
                    + [withInner, own, own.dropLast() + "0"]))
        return rows.compactMap(lock).filter { $0.isDeep || $0.path == path || withInner && path.contains($0.path) }
    }

    private static func lock(_ row: Row) -> DavLock? {
        guard let path = DavPath(row["place"] as String) else { return nil }
        return DavLock(
            token: row["token"], path: path, isDeep: row["is_deep"], isExclusive: row["is_exclusive"],
            owner: row["owner"], lease: .seconds(row["lease"] as Int64),
            expires: UInt64(clamping: row["expires"] as Int64))
    }

    /// Takes a lock.
    ///
    /// - Returns: Nil: another is in the way.
    /// - Throws: ``CloudError`` `.limitExceeded`, `.storageFailure`.
    func take(
        _ path: DavPath, account: String, isDeep: Bool, isExclusive: Bool, owner: String, lease: Duration
    ) throws(CloudError) -> DavLock? {
        let lock = DavLock(
            token: "urn:uuid:" + UUID().uuidString.lowercased(), path: path, isDeep: isDeep, isExclusive: isExclusive,
            owner: owner, lease: lease, expires: Self.now + UInt64(clamping: lease.components.seconds) * 1000)
        return try write { database in
            try database.execute(sql: "DELETE FROM locks WHERE expires <= ?", arguments: [Int64(clamping: Self.now)])
            let others = try Self.locks(of: account, at: path, withInner: isDeep, database)
            guard others.allSatisfy({ !$0.isExclusive && !isExclusive }) else { return nil }
            let count = try Int.fetchOne(
                database, sql: "SELECT COUNT(*) FROM locks WHERE account = ?", arguments: [account])
            guard count ?? 0 < Self.ofAccountMax else {
                throw CloudError(.limitExceeded, "The account has as many locks as it may. Close some files.")
            }
            try database.execute(
                sql: "INSERT INTO locks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                arguments: [
                    lock.token, account, Self.place(path), isDeep, isExclusive, owner, lease.components.seconds,
                    Int64(clamping: lock.expires),
                ])
            return lock
        }
    }

    /// Lengthens a lock.
    ///
    /// - Returns: Nil: no lock of this token covers the path.
    func refresh(
        _ token: String, of account: String, at path: DavPath, lease: Duration
    ) throws(CloudError) -> DavLock? {
        try write { database in
            guard
                var lock = try Self.locks(of: account, at: path, withInner: false, database).first(where: {
                    $0.token == token
                })
            else { return nil }
            (lock.lease, lock.expires) = (lease, Self.now + UInt64(clamping: lease.components.seconds) * 1000)
            try database.execute(
                sql: "UPDATE locks SET lease = ?, expires = ? WHERE token = ?",
                arguments: [lease.components.seconds, Int64(clamping: lock.expires), token])
            return lock
        }
    }

    /// - Returns: False: no lock of this token covers the path.
    func release(_ token: String, of account: String, at path: DavPath) throws(CloudError) -> Bool {
        try write { database in
            guard
                try Self.locks(of: account, at: path, withInner: false, database).contains(where: {
                    $0.token == token
                })
            else { return false }
            try database.execute(sql: "DELETE FROM locks WHERE token = ?", arguments: [token])
            return true
        }
    }

    /// Ends the locks of a path and everything in it.
    func removeAll(of account: String, in path: DavPath) throws(CloudError) {
        let place = Self.place(path)
        try write { database in
            try database.execute(
                sql: "DELETE FROM locks WHERE account = ? AND (place = ? OR place > ? AND place < ?)",
                arguments: [account, place, place, place.dropLast() + "0"])
        }
    }
}
