internal import Foundation
internal import GRDB
package import NephosCore
package import NephosFiles

/// Which contents of a folder are on this device.
package struct RoomPolicy: Hashable, Sendable {
    /// Other devices' new files come as placeholders.
    package var isOnDemand = false
    /// If the disk has fewer free bytes, the files that were not opened for longest become placeholders; 0: none do.
    package var keptFreeBytes: Int64 = 0

    package init(isOnDemand: Bool = false, keptFreeBytes: Int64 = 0) {
        (self.isOnDemand, self.keptFreeBytes) = (isOnDemand, keptFreeBytes)
    }
}

/// A request to the agent to evict or download the contents of some files.
package struct ContentRequest: Sendable, Identifiable {
    package var id: Int64
    /// Names from the folder on; none: the whole folder.
    package var path: [FileName]
    /// The contents leave the disk. Otherwise they are downloaded.
    package var evicts: Bool

    /// The result of a request.
    package struct Outcome: Codable, Hashable, Sendable {
        /// Files that were downloaded or evicted, also before.
        package var files = 0
        /// Bytes of contents that have left the disk.
        package var bytes: Int64 = 0
        /// Files that could not be, by their path from the folder on, with a sentence each. At most
        /// ``failuresMax``.
        package var failures: [String: String] = [:]
        /// Of these.
        package var failureCount = 0

        package static let failuresMax = 20

        package init() {}
    }
}

extension AgentStore {
    // MARK: Policy

    package func setPolicy(_ policy: RoomPolicy, of folder: AgentFolder) throws(CloudError) {
        try write {
            try $0.execute(
                sql: "UPDATE folders SET is_on_demand = ?, keep_free = ? WHERE id = ?",
                arguments: [policy.isOnDemand, policy.keptFreeBytes, folder.id])
        }
    }

    package func policy(of folder: AgentFolder) throws(CloudError) -> RoomPolicy {
        try read {
            let row = try Row.fetchOne(
                $0, sql: "SELECT is_on_demand, keep_free FROM folders WHERE id = ?", arguments: [folder.id])
            return row.map { RoomPolicy(isOnDemand: $0[0], keptFreeBytes: $0[1]) } ?? RoomPolicy()
        }
    }

    /// Files of a folder whose contents are not on this device.
    package func placeholderCount(in folder: AgentFolder) throws(CloudError) -> Int {
        try read { try SyncedTree(database: $0, folder: folder.id, root: .documents).evictedCount() }
    }

    // MARK: Requests

    /// Asks the agent for something. Wake it then.
    package func request(
        _ path: [FileName], evicts: Bool, in folder: AgentFolder
    ) throws(CloudError) -> ContentRequest {
        try write {
            try $0.execute(
                sql: "INSERT INTO requests (folder, path, evicts) VALUES (?, ?, ?)",
                arguments: [folder.id, Self.data(path), evicts])
            return ContentRequest(id: $0.lastInsertedRowID, path: path, evicts: evicts)
        }
    }

    /// Ends a request, also one that was not carried out yet.
    ///
    /// - Returns: The outcome; nil: it was not carried out.
    @discardableResult
    package func end(_ request: ContentRequest) throws(CloudError) -> ContentRequest.Outcome? {
        try write { database in
            let data = try Data.fetchOne(
                database, sql: "SELECT outcome FROM requests WHERE id = ?", arguments: [request.id])
            try database.execute(sql: "DELETE FROM requests WHERE id = ?", arguments: [request.id])
            return try data.map { try JSONDecoder().decode(ContentRequest.Outcome.self, from: $0) }
        }
    }

    /// Whether the agent has carried it out.
    package func isDone(_ request: ContentRequest) throws(CloudError) -> Bool {
        try read {
            try Bool.fetchOne(
                $0, sql: "SELECT outcome IS NOT NULL FROM requests WHERE id = ?", arguments: [request.id]) ?? true
        }
    }

    /// Evicted files among those of a request, and all of them.
    package func progress(
        of request: ContentRequest, in folder: AgentFolder, root: DocumentID = .documents
    ) throws(CloudError) -> (evicted: Int, all: Int) {
        try read {
            let files = try SyncedTree(database: $0, folder: folder.id, root: root).files(at: request.path) ?? []
            return (files.count(where: \.isEvicted), files.count)
        }
    }

    /// Requests that are not carried out.
    func requests(of folder: Int64) throws(CloudError) -> [ContentRequest] {
        try read {
            try Row.fetchAll(
                $0, sql: "SELECT id, path, evicts FROM requests WHERE folder = ? AND outcome IS NULL ORDER BY id",
                arguments: [folder]
            ).map { ContentRequest(id: $0[0], path: Self.path($0[1]), evicts: $0[2]) }
        }
    }

    func set(_ outcome: ContentRequest.Outcome, of request: ContentRequest) throws(CloudError) {
        try write {
            try $0.execute(
                sql: "UPDATE requests SET outcome = ? WHERE id = ?",
                arguments: [try JSONEncoder().encode(outcome), request.id])
        }
    }

    private static func data(_ path: [FileName]) -> Data { Data(path.joined(separator: [UInt8(ascii: "/")])) }
    private static func path(_ data: Data) -> [FileName] { data.split(separator: UInt8(ascii: "/")).map { Array($0) } }
}
