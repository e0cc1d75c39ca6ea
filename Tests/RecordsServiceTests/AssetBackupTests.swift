import Foundation
import NephosBackup
import NephosBus
import NephosContent
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

@testable import NephosRecords

/// Records with assets after a fire, from a backup that was made while the service ran on its own files.
@Suite struct AssetBackupTests {
    /// The disk that contents lie on. It can be lost, and another be put in its place.
    private final class Disk: BlobStore {
        private let store = Mutex<SegmentStore?>(nil)

        func insert(_ folder: String) throws {
            let made = try SegmentStore(folder: folder)
            store.withLock { $0 = made }
        }
        func remove() { store.withLock { $0 = nil } }

        private func inserted() throws -> SegmentStore {
            guard let store = store.withLock({ $0 }) else { throw CloudError(.storageFailure, "There is no disk.") }
            return store
        }

        func put(_ group: inout ChunkGroup, in partition: Int) throws -> StoredGroup {
            try inserted().put(&group, in: partition)
        }
        func read(_ place: SegmentPlace, of id: ChunkID, into bytes: UnsafeMutableRawBufferPointer) throws {
            try inserted().read(place, of: id, into: bytes)
        }
        func readRaw(_ segment: SegmentID, at offset: Int, into bytes: UnsafeMutableRawBufferPointer) throws -> Int {
            try inserted().readRaw(segment, at: offset, into: bytes)
        }
        func remove(_ segment: SegmentID) throws { try inserted().remove(segment) }
        func segments(in partition: Int) throws -> [SegmentState] { try inserted().segments(in: partition) }
        var room: DiskRoom? { store.withLock { $0?.room } }
    }

    private let root = NSTemporaryDirectory() + "asset-backup-\(UUID().uuidString)"
    private var place: DeploymentPlace { DeploymentPlace(deployment: root + "/one", dataFolder: root + "/one/data") }
    private func data(_ service: ServiceName) -> String { "\(root)/one/data/\(service)" }
    private func database(_ service: ServiceName) -> String { "\(data(service))/\(service).sqlite" }

    /// A deployment's files, with a database of each service in which nothing is but what records puts there.
    private func make(_ key: RecoveryKey) throws {
        _ = try Deployment.create(
            directory: root + "/one", host: "127.0.0.1", basePort: 7400,
            transport: InProcessTransport(SimulatedNetwork(seed: 1)))
        try place.files.write(key.publicKey)
        for service in ServiceName.all {
            let hasContent = Deployment.contentServices.contains(service)
            try FileManager.default.createDirectory(
                atPath: data(service) + (hasContent ? "/content" : ""), withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700])
            guard service != .records else { continue }
            let engine = try SQLiteEngine(path: database(service))
            defer { engine.close() }
            try engine.migrate(ChangeFeedSchema.migrations + (hasContent ? ContentSchema.migrations : []))
        }
    }

    @Test func anAssetComesBackAfterAFire() throws {
        defer { try? FileManager.default.removeItem(atPath: root) }
        let (key, disk) = (RecoveryKey(), Disk())
        try make(key)
        try disk.insert(data(.records) + "/content")
        let house = try RecordHouse(engine: try SQLiteEngine(path: database(.records)), store: disk)
        let device = try house.device()
        // Of few bytes: they lie compressed.
        let photos = [0...255, 48...57, 48...57].enumerated().map {
            TestContent(seed: UInt64($0), chunks: [100_000, 70_000], of: $1)
        }
        try device.save("before", ["photo": .asset(photos[0].asset)], upload: try device.store(photos[0]))
        let everyone = device.ofPublic()
        try everyone.save(
            "poster", ["photo": .asset(photos[1].asset)], upload: try everyone.store(photos[1], for: "poster"))

        let folder = BackupFolder(root + "/backups")
        let made = try Backup(of: place, into: folder).run(at: Timestamp(milliseconds: 1)) { _ in }
        #expect(Set(made.manifest.segments.map(\.service)) == ["records"])
        #expect(made.manifest.segments.reduce(0) { $0 + $1.bytes } < 280_000)
        try device.save("after", ["photo": .asset(photos[2].asset)], upload: try device.store(photos[2]))

        house.cloud.crash(.records)
        disk.remove()
        try FileManager.default.removeItem(atPath: root + "/one")
        let restore = Restore(from: folder, to: place, keys: .sealed(key))
        _ = try restore.run(try restore.plan(nil) { _ in }, at: Timestamp(milliseconds: 2)) { _ in }
        try disk.insert(data(.records) + "/content")
        try house.cloud.restore(try StorageCopy(of: database(.records)), of: .records)

        let fresh = try house.device()
        let records = try fresh.list()
        #expect(records.keys.sorted() == ["before"])
        #expect(records["before"]?.fields.first?.asset == photos[0].asset)
        let freshOfAll = fresh.ofPublic()
        #expect(try freshOfAll.list()["poster"]?.fields.first?.asset == photos[1].asset)
        for (reader, photo, record) in [(fresh, photos[0], ""), (freshOfAll, photos[1], "poster")] {
            #expect(try reader.readNodes(photo, of: record) == photo.nodes)
            for (id, chunk) in zip(photo.ids, photo.chunks) { #expect(try reader.fetch(id, of: record) == chunk) }
        }
        // What came after it is sent again, as any asset is.
        #expect(try fresh.missing(photos[2].ids).count == 2)
        try fresh.save("after", ["photo": .asset(photos[2].asset)], upload: try fresh.store(photos[2]))
        #expect(try fresh.fetch(photos[2].ids[1]) == photos[2].chunks[1])
    }
}
