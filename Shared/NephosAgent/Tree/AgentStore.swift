package import Foundation
internal import GRDB
package import NephosCore
internal import NephosFiles

/// A folder that an agent keeps in sync.
package struct AgentFolder: Hashable, Sendable, Identifiable {
    package var id: Int64
    /// Absolute.
    package var path: String
    package var app: AppID
    package var container: String
    package var account: AccountID
    /// Random; the folder has it in its mark, so that another folder at the path is never taken for it.
    package var mark: String
}

/// The agent's database in the home: folders, their merge bases and what is blocked.
package final class AgentStore: Sendable {
    private let queue: DatabaseQueue

    private static let schema = """
        CREATE TABLE folders (
            id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, app TEXT NOT NULL, container TEXT NOT NULL,
            account TEXT NOT NULL, mark TEXT NOT NULL, inode INTEGER, born INTEGER,
            allowed_deletions INTEGER NOT NULL DEFAULT 0, restores_held INTEGER NOT NULL DEFAULT 0,
            paused_until INTEGER, is_on_demand INTEGER NOT NULL DEFAULT 0, keep_free INTEGER NOT NULL DEFAULT 0,
            report BLOB
        );
        CREATE TABLE blocked (
            folder INTEGER NOT NULL REFERENCES folders (id) ON DELETE CASCADE,
            path BLOB NOT NULL, reason TEXT NOT NULL,
            PRIMARY KEY (folder, path)
        ) WITHOUT ROWID;
        CREATE TABLE requests (
            id INTEGER PRIMARY KEY AUTOINCREMENT, folder INTEGER NOT NULL REFERENCES folders (id) ON DELETE CASCADE,
            path BLOB NOT NULL, evicts INTEGER NOT NULL, outcome BLOB
        );

        """

    /// The database's name in the home.
    package static let fileName = "agent.sqlite"

    /// - Throws: ``CloudError`` `.storageFailure`.
    package init(home: String) throws(CloudError) {
        do {
            var configuration = Configuration()
            configuration.busyMode = .timeout(10)
            configuration.prepareDatabase { database in
                // A row that is lost with the power is found again by a scan; one ahead of its data would lose the data.
                try database.execute(sql: "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
            }
            queue = try DatabaseQueue(path: home + "/" + Self.fileName, configuration: configuration)
            var migrator = DatabaseMigrator()
            migrator.registerMigration("agent") { try $0.execute(sql: Self.schema + SyncedTree.schema) }
            try migrator.migrate(queue)
        } catch { throw Self.failure(error) }
    }

    // MARK: Folders

    package func folders() throws(CloudError) -> [AgentFolder] {
        try read { try Row.fetchAll($0, sql: "SELECT * FROM folders ORDER BY path").map(Self.folder) }
    }

    /// - Throws: ``CloudError`` `.alreadyExists` when the path is added already.
    package func add(
        path: String, app: AppID, container: String, account: AccountID, mark: String, pausedUntil: Date? = nil
    ) throws(CloudError) -> AgentFolder {
        try write { database in
            try database.execute(
                sql:
                    "INSERT INTO folders (path, app, container, account, mark, paused_until) VALUES (?, ?, ?, ?, ?, ?)",
                arguments: [path, app.rawValue, container, account.rawValue, mark, Self.seconds(pausedUntil)])
            let row = try Row.fetchOne(
                database, sql: "SELECT * FROM folders WHERE id = ?", arguments: [database.lastInsertedRowID])
            guard let folder = row.map(Self.folder) else {
                throw CloudError(.internalError, "An added folder cannot be read.")
            }
            return folder
        }
    }

    package func remove(_ folder: AgentFolder) throws(CloudError) {
        try write { try $0.execute(sql: "DELETE FROM folders WHERE id = ?", arguments: [folder.id]) }
    }

    private static func folder(_ row: Row) -> AgentFolder {
        AgentFolder(
            id: row["id"], path: row["path"], app: AppID(rawValue: row["app"]), container: row["container"],
            account: AccountID(rawValue: row["account"]), mark: row["mark"])
    }

    // MARK: Deletions

    /// Lets one held deletion pass.
    ///
    /// - Parameter count: The number of items that the user was shown. A deletion of more stays held.
    package func allowDeletions(_ count: Int, in folder: AgentFolder) throws(CloudError) {
        try write {
            try $0.execute(sql: "UPDATE folders SET allowed_deletions = ? WHERE id = ?", arguments: [count, folder.id])
        }
    }

    /// The user's answers to a held deletion.
    func answers(of folder: Int64) throws(CloudError) -> (allowed: Int, restores: Bool) {
        try read { database in
            let row = try Row.fetchOne(
                database, sql: "SELECT allowed_deletions, restores_held FROM folders WHERE id = ?", arguments: [folder])
            return (row?[0] ?? 0, row?[1] ?? false)
        }
    }

    /// Forgets the answers.
    func clearAnswers(of folder: Int64) throws(CloudError) {
        try write {
            try $0.execute(
                sql: "UPDATE folders SET allowed_deletions = 0, restores_held = 0 WHERE id = ?", arguments: [folder])
        }
    }

    // MARK: Pause

    /// Lets the folder be until a time.
    ///
    /// - Parameter end: Nil: it goes on at once.
    package func pause(_ folder: AgentFolder, until end: Date?) throws(CloudError) {
        try write {
            try $0.execute(
                sql: "UPDATE folders SET paused_until = ? WHERE id = ?", arguments: [Self.seconds(end), folder.id])
        }
    }

    /// No date that no calendar has.
    private static func seconds(_ date: Date?) -> Int64? { date.map { Int64(min($0.timeIntervalSince1970, 1e11)) } }

    /// When the folder's pause ends; nil: it is not paused.
    package func pauseEnd(of folder: AgentFolder) throws(CloudError) -> Date? {
        let seconds = try read {
            try Int64.fetchOne($0, sql: "SELECT paused_until FROM folders WHERE id = ?", arguments: [folder.id])
        }
        guard let end = seconds.map({ Date(timeIntervalSince1970: TimeInterval($0)) }), end > Date() else { return nil }
        return end
    }

    // MARK: Identity

    /// Notes which folder on disk this is. If it is another than before, such as a copy on a new disk, the merge base is
    /// forgotten: then both sides are united, and nothing is deleted.
    func noteRoot(_ facts: FileFacts, of folder: Int64) throws(CloudError) {
        try write { database in
            let inode = Int64(bitPattern: facts.inode)
            let row = try Row.fetchOne(
                database, sql: "SELECT inode, born FROM folders WHERE id = ?", arguments: [folder])
            guard row?["inode"] as Int64? != inode || row?["born"] as Int64? != facts.born else { return }
            try database.execute(sql: "DELETE FROM items WHERE folder = ?", arguments: [folder])
            try database.execute(
                sql: "UPDATE folders SET inode = ?, born = ? WHERE id = ?", arguments: [inode, facts.born, folder])
        }
    }

    /// Asks the agent to put held deletions back.
    package func requestRestore(in folder: AgentFolder) throws(CloudError) {
        try write { try $0.execute(sql: "UPDATE folders SET restores_held = 1 WHERE id = ?", arguments: [folder.id]) }
    }

    // MARK: Status

    func setReport(_ report: FolderReport, of folder: Int64) throws(CloudError) {
        try write { database in
            try database.execute(
                sql: "UPDATE folders SET report = ? WHERE id = ?",
                arguments: [try JSONEncoder().encode(report), folder])
        }
    }

    /// The agent's last report; nil: it has not looked at the folder yet.
    package func report(of folder: AgentFolder) throws(CloudError) -> FolderReport? {
        try read { database in
            try Data.fetchOne(database, sql: "SELECT report FROM folders WHERE id = ?", arguments: [folder.id])
                .flatMap { try? JSONDecoder().decode(FolderReport.self, from: $0) }
        }
    }

    /// Blocked files and folders, by path.
    package func blocked(in folder: AgentFolder) throws(CloudError) -> [BlockedPath] {
        try read { database in
            try Row.fetchAll(
                database, sql: "SELECT path, reason FROM blocked WHERE folder = ? ORDER BY path", arguments: [folder.id]
            ).map { BlockedPath(path: $0["path"], reason: $0["reason"]) }
        }
    }

    /// Replaces what is blocked.
    func setBlocked(_ blocked: [BlockedPath], of folder: Int64) throws(CloudError) {
        try write { database in
            try database.execute(sql: "DELETE FROM blocked WHERE folder = ?", arguments: [folder])
            for one in blocked {
                try database.execute(
                    sql: "INSERT OR REPLACE INTO blocked (folder, path, reason) VALUES (?, ?, ?)",
                    arguments: [folder, one.path, one.reason])
            }
        }
    }

    // MARK: Transactions

    func read<Value>(_ body: (Database) throws -> Value) throws(CloudError) -> Value {
        do { return try queue.unsafeRead(body) } catch { throw Self.failure(error) }
    }

    func write<Value>(_ body: (Database) throws -> Value) throws(CloudError) -> Value {
        do {
            return try queue.inDatabase { database in
                var value: Value?
                try database.inTransaction(.immediate) {
                    value = try body(database)
                    return .commit
                }
                guard let value else { throw CloudError(.internalError, "A transaction has a value.") }
                return value
            }
        } catch { throw Self.failure(error) }
    }

    private static func failure(_ error: any Error) -> CloudError {
        if let error = error as? CloudError { return error }
        guard let error = error as? DatabaseError else {
            return CloudError(.storageFailure, "The agent's database failed.", details: ["reason": "\(error)"])
        }
        if error.extendedResultCode == .SQLITE_CONSTRAINT_UNIQUE {
            return CloudError(.alreadyExists, "This folder is added already. See: nephos agent list")
        }
        return CloudError(
            .storageFailure, "The agent's database cannot be used. Check the home's disk.",
            details: ["reason": error.message ?? "\(error.resultCode)"])
    }
}

/// A file or folder that cannot be synced.
package struct BlockedPath: Hashable, Sendable {
    /// Bytes, from the folder on.
    package var path: Data
    /// A sentence.
    package var reason: String

    package var text: String { String(decoding: path, as: UTF8.self) }
}
