import Foundation
import Logging
import NephosBus
import NephosContent
import NephosCore
import NephosServiceKit
import NephosStorage
import NephosZeroMQ
import Testing

@testable import NephosBackup

/// A deployment that nobody runs: files, five databases with the feed's tables, and some content of both services that
/// have any. Of one partition both have segments of the same numbers.
final class BackupHouse {
    /// What a service has that moves content.
    private struct Content {
        let database: SQLiteEngine
        var store: SegmentStore?
        var stored: [(id: ChunkID, place: SegmentPlace)] = []
    }

    let root: String
    let place: DeploymentPlace
    let folder: BackupFolder
    let key = RecoveryKey()
    private var contents: [ServiceName: Content] = [:]

    init(port: Int = 7400) throws {
        root = NSTemporaryDirectory() + "nephos-backup-" + UUID().uuidString
        let deployment = root + "/deployment"
        _ = try Deployment.create(
            directory: deployment, host: "127.0.0.1", basePort: port, transport: ZeroMQTransport())
        place = DeploymentPlace(deployment: deployment, dataFolder: deployment + "/data")
        try place.files.write(key.publicKey)
        folder = BackupFolder(root + "/backups")
        for service in ServiceName.all {
            let data = "\(deployment)/data/\(service)"
            try FileManager.default.createDirectory(
                atPath: data, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let engine = try SQLiteEngine(path: "\(data)/\(service).sqlite")
            let hasContent = Deployment.contentServices.contains(service)
            try engine.migrate(ChangeFeedSchema.migrations + (hasContent ? ContentSchema.migrations : []))
            guard hasContent else {
                engine.close()
                continue
            }
            try FileManager.default.createDirectory(
                atPath: place.contentFolder(of: service), withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700])
            // By one clock, which stands: so both number their segments alike.
            let store = try SegmentStore(folder: place.contentFolder(of: service)) { Self.time(0) }
            contents[service] = Content(database: engine, store: store)
        }
    }

    func close() {
        for service in contents.keys {
            contents[service]?.store = nil
            contents[service]?.database.close()
        }
    }

    func database(of service: ServiceName) throws -> SQLiteEngine { try #require(contents[service]).database }

    /// The file of a segment, as its service has it.
    func file(_ segment: SegmentID, of service: ServiceName = .documents) throws -> String {
        try place.contentFolder(of: service) + "/" + #require(segment.filePath)
    }

    /// A copy of a segment.
    func copy(_ segment: SegmentID, _ number: Int = 1, of service: ServiceName = .documents) throws -> String {
        try #require(folder.path(of: SegmentCopy(ServiceSegment(service, segment), number)))
    }

    deinit {
        close()
        try? FileManager.default.removeItem(atPath: root)
    }

    /// Puts content of a service, with its row.
    @discardableResult
    func put(
        _ text: String, partition: Int = 7, bytes: Int = 5000, of service: ServiceName = .documents
    ) throws -> SegmentPlace {
        let sealed = Array(String(repeating: text, count: max(1, bytes / max(1, text.utf8.count))).utf8)
        var group = ChunkGroup()
        let id = sealed.withUnsafeBytes { ChunkID(hashing: $0) }
        try group.append(id, sealed: sealed)
        let store = try #require(contents[service]?.store)
        let put = try store.put(&group, in: partition)
        let owner = Owner(AccountID("acc_one"))
        let place = try #require(put.chunks.first).place
        try database(of: service).write {
            _ = try ChunkIndex.add(put.chunks, of: owner, in: $0)
        }
        put.release()
        contents[service]?.stored.append((id, place))
        return place
    }

    /// What documents have.
    func stored() -> [(id: ChunkID, place: SegmentPlace)] { contents[.documents]?.stored ?? [] }

    /// Adds rows of content that was put elsewhere.
    func note(_ chunks: [(id: ChunkID, place: SegmentPlace)]) throws {
        let owner = Owner(AccountID("acc_one"))
        _ = try database(of: .documents).write {
            try ChunkIndex.add(chunks.map { StoredChunk(id: $0.id, place: $0.place) }, of: owner, in: $0)
        }
        contents[.documents]?.stored += chunks
    }

    /// No row names any content of a service any more.
    func forgetContent(of service: ServiceName = .documents) throws {
        try database(of: service).write { transaction in
            for table in ["chunks", "segments", "owners"] {
                try transaction.execute(SQL("DELETE FROM content_\(table)"), [])
            }
        }
        contents[service]?.stored = []
    }

    @discardableResult
    func backup(
        at day: Int = 0, keys: Bool = true, keep: Retention? = nil, fault: @escaping (String) throws -> Void = { _ in }
    ) throws -> Backup.Outcome {
        var backup = Backup(of: place, into: folder)
        backup.leavesOutKeys = !keys
        backup.retention = keep
        backup.fault = fault
        return try backup.run(at: Self.time(day)) { _ in }
    }

    static func time(_ day: Int) -> Timestamp {
        Timestamp(milliseconds: 1_767_578_400_000 + UInt64(day) * 86_400_000)
    }

    /// What is wrong, by snapshot.
    func verify() throws -> [[CloudError]] { try Verification(of: folder).run(nil) { _ in }.map(\.failures) }

    /// Copies that differ, by snapshot.
    func differingCopies() throws -> [[[String]]] {
        try Verification(of: folder).run(nil) { _ in }.map(\.differingCopies)
    }

    /// Somewhere else.
    func elsewhere(_ name: String = "elsewhere") -> DeploymentPlace {
        DeploymentPlace(deployment: "\(root)/\(name)", dataFolder: "\(root)/\(name)/data")
    }

    @discardableResult
    func restore(
        to place: DeploymentPlace, _ snapshot: String? = nil, key: RecoveryKey? = nil, inPlace: Bool = false,
        fault: @escaping (String) throws -> Void = { _ in }
    ) throws -> Restore.Outcome {
        var restore = Restore(from: folder, to: place, keys: .sealed(key ?? self.key))
        restore.isInPlace = inPlace
        restore.fault = fault
        let plan = try restore.plan(snapshot) { _ in }
        return try restore.run(plan, at: Self.time(100)) { _ in }
    }

    /// All that is in a folder, by its path, but for what only says who holds it.
    static func contents(of folder: String) -> [String: Data] {
        var contents: [String: Data] = [:]
        for case let name as String in FileManager.default.enumerator(atPath: folder) ?? .init() {
            guard !name.hasSuffix("lock"), let data = FileManager.default.contents(atPath: folder + "/" + name) else {
                continue
            }
            contents[name] = data
        }
        return contents
    }

    /// Each piece of content is where the restored rows say, byte by byte.
    func requireContent(in place: DeploymentPlace) throws {
        for (service, content) in contents {
            for (id, chunk) in content.stored {
                let name = try #require(chunk.segment.filePath)
                let own = try #require(FileManager.default.contents(atPath: file(chunk.segment, of: service)))
                let other = try #require(
                    FileManager.default.contents(atPath: place.contentFolder(of: service) + "/" + name))
                #expect(other.count >= chunk.offset + chunk.recordBytes)
                #expect(own.prefix(other.count) == other, "\(service) \(id)")
            }
        }
    }
}

struct Killed: Error {}
