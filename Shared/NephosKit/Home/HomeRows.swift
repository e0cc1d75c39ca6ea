import Foundation
import GRDB
import NephosBus
import NephosCore

/// Something that a process of a home wants of its leader, until it takes it back or ends.
struct Want {
    struct ID: Hashable, Comparable {
        var process: String
        /// Of the driver that wants it.
        var reader: Int
        /// Who waits, by the driver's number. 0: the scope is to be kept in step.
        var waiter: Int

        static func < (left: ID, right: ID) -> Bool {
            (left.process, left.reader, left.waiter) < (right.process, right.reader, right.waiter)
        }
    }

    enum Goal: String {
        /// The scope is kept in step, and its standing written down.
        case open
        /// A pull that begins now, or later, has been applied.
        case current
        case downloaded
        case sent
    }

    var id: ID
    var scope: ScopeID
    /// Names the sign-in under which it is wanted; a leader that has another one waits until it knows.
    var session: String?
    var goal: Goal
    var timeout: Duration = .zero
    var isImpatient = false
}

/// What the processes of a home leave for each other in its database.
struct HomeRows {
    let database: Database

    init(_ database: Database) { self.database = database }

    private func cached(_ sql: String) throws -> Statement { try database.cachedStatement(sql: sql) }

    // MARK: Wants

    /// All that have no answer yet.
    func wants() throws -> [Want] {
        try Row.fetchAll(cached("SELECT * FROM wanted WHERE answer IS NULL ORDER BY process, reader, waiter"))
            .map { row in
                Want(
                    id: Want.ID(process: row["process"], reader: row["reader"], waiter: row["waiter"]),
                    scope: Self.scope(row), session: row["session"], goal: Want.Goal(rawValue: row["goal"]) ?? .open,
                    timeout: .milliseconds(row["timeout"] as Int64), isImpatient: row["impatient"])
            }
    }

    func add(_ want: Want) throws {
        try cached("INSERT OR REPLACE INTO wanted VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL)")
            .execute(arguments: [
                want.id.process, want.id.reader, want.id.waiter, want.scope.app.rawValue, want.scope.service.rawValue,
                want.scope.name, want.session, want.goal.rawValue, want.timeout.milliseconds, want.isImpatient,
            ])
    }

    func remove(_ id: Want.ID) throws {
        try cached("DELETE FROM wanted WHERE process = ?1 AND reader = ?2 AND waiter = ?3")
            .execute(arguments: [id.process, id.reader, id.waiter])
    }

    /// Forgets everything that a process wanted.
    func remove(process: String) throws {
        try cached("DELETE FROM wanted WHERE process = ?1").execute(arguments: [process])
    }

    /// Says what came of waiting, unless it is another sign-in by now of which that is to be known.
    ///
    /// - Parameter error: Nil: it got there.
    func answer(_ id: Want.ID, _ error: CloudError?, session: String?) throws {
        try cached(
            "UPDATE wanted SET answer = ?4 WHERE process = ?1 AND reader = ?2 AND waiter = ?3 AND session IS ?5"
        ).execute(arguments: [id.process, id.reader, id.waiter, error.map(StoredError.encode) ?? Data(), session])
    }

    func answers(to process: String, session: String?) throws -> [(id: Want.ID, result: Result<Void, CloudError>)] {
        try Row.fetchAll(
            cached(
                "SELECT reader, waiter, answer FROM wanted WHERE process = ?1 AND session IS ?2 "
                    + "AND answer IS NOT NULL ORDER BY reader, waiter"),
            arguments: [process, session]
        ).map { row in
            let answer: Data = row["answer"]
            return (
                Want.ID(process: process, reader: row["reader"], waiter: row["waiter"]),
                answer.isEmpty ? .success(()) : .failure(StoredError.decode(answer) ?? Self.unreadable)
            )
        }
    }

    private static let unreadable = CloudError(.internalError, "Another process of this home failed.")

    // MARK: Standings

    /// Empty: the leader cannot keep such a scope in step.
    func standings() throws -> [ScopeID: Data] {
        let rows = try Row.fetchAll(cached("SELECT * FROM standings"))
        return Dictionary(rows.map { (Self.scope($0), $0["standing"]) }) { $1 }
    }

    /// - Parameter standing: Nil: there is none any more.
    func set(_ standing: Data?, of scope: ScopeID) throws {
        let key = [scope.app.rawValue, scope.service.rawValue, scope.name]
        guard let standing else {
            try cached("DELETE FROM standings WHERE app = ?1 AND service = ?2 AND name = ?3")
                .execute(arguments: StatementArguments(key))
            return
        }
        try cached("INSERT OR REPLACE INTO standings VALUES (?1, ?2, ?3, ?4)")
            .execute(arguments: StatementArguments(key) + [standing])
    }

    private static func scope(_ row: Row) -> ScopeID {
        ScopeID(app: AppID(row["app"]), service: ServiceName(row["service"]), name: row["name"])
    }
}
