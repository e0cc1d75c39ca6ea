import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// Chunks that the server's disk has lost of records' assets come back from a device that has the asset.
@Suite struct OfferedAssetTests {
    typealias Device = RecordCloud.Device

    private func save(_ content: Data, _ database: RecordDatabase) async throws {
        var record = (try? await database.record(RecordID("a"))) ?? NephosKit.Record("a", [:])
        record["photo"] = try RecordAsset(content)
        try await database.save(record)
    }

    private func data(_ database: RecordDatabase) async throws -> Data {
        let record = try #require(try await database.record(RecordID("a")))
        return try await database.assets.data(of: #require(record["photo"] as RecordAsset?), in: record.id)
    }

    /// Damages the last chunk of each segment, and has it found.
    private func lose(_ database: RecordDatabase, _ cloud: RecordCloud) async throws {
        try SegmentDamage.damageAll(in: cloud.root + "-assets")
        let error = await #expect(throws: CloudError.self) { try await data(database) }
        #expect(error?.code == .storageFailure)
    }

    /// How many chunks devices have sent so far.
    private func receivedChunks(_ cloud: RecordCloud) throws -> UInt64 {
        try cloud.simulation.use { cloud in
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.records))
            return health.counters["content.received.chunks"] ?? 0
        }
    }

    /// A device that keeps what it saves, and one that keeps nothing.
    private func devices(of cloud: RecordCloud) async throws -> (keeper: Device, reader: Device) {
        let (keeper, reader) = (try await cloud.open(), try await cloud.open())
        try reader.session.setContentCache(maxBytes: 0)
        return (keeper, reader)
    }

    @Test func aLostAssetComesBackFromADeviceThatHasIt() async throws {
        try await withRecords { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await save(content, keeper.database)
            try await keeper.settle()
            try await reader.settle()
            let sent = try receivedChunks(cloud)
            try await lose(reader.database, cloud)
            try await reader.database.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await reader.database.scope.verify().damagedChunkCount == 1)
            let damaged = try await reader.database.assets.damaged()
            #expect(damaged.places.map(\.field) == ["photo"] && !damaged.hasMore)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await data(reader.database) == content)
            for device in [keeper, reader] {
                #expect(try await device.database.scope.verify().damagedChunkCount == 0)
                #expect(try await device.database.assets.damaged().places.isEmpty)
            }
        }
    }

    /// With the next process at once, on a plan that has no room for anything.
    @Test func aRestartedDeviceSendsWhatIsLostAlsoOverItsPlan() async throws {
        try await withRecords { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await save(content, keeper.database)
            try await keeper.settle()
            try await reader.settle()
            try cloud.setPlan(bytes: 1000)
            keeper.session.close()
            try await lose(reader.database, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(60))
            #expect(try receivedChunks(cloud) == sent)
            let again = try await cloud.open(home: cloud.root + "/" + keeper.name)
            cloud.simulation.advance(by: .seconds(2))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await data(reader.database) == content)
            #expect(try await again.database.scope.verify().damagedChunkCount == 0)
        }
    }

    @Test func anAssetThatSomebodySavesIsSentFirst() async throws {
        try await withRecords { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await save(content, keeper.database)
            try await keeper.settle()
            try await reader.settle()
            keeper.session.setTransferLimits(TransferLimits(upload: 100_000))
            var film = NephosKit.Record("film", [:])
            film["photo"] = try RecordAsset(SplitMix64.bytes(3_000_000, seed: 6))
            try SegmentDamage.damageAll(in: cloud.root + "-assets")
            try await keeper.database.save(film)
            await #expect(throws: CloudError.self) { try await data(reader.database) }
            cloud.simulation.advance(by: .seconds(20))
            await #expect(throws: CloudError.self) { try await data(reader.database) }
            try await keeper.database.waitUntilSent(timeout: .seconds(60))
            cloud.simulation.advance(by: .seconds(70))
            #expect(try await data(reader.database) == content)
        }
    }

    /// No device has it: what is here is asked about once, and the server names what it lacks.
    @Test func anAssetThatNoDeviceHasStaysLost() async throws {
        try await withRecords { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try keeper.session.setContentCache(maxBytes: 0)
            try await save(SplitMix64.bytes(60_000, seed: 5), keeper.database)
            try await keeper.settle()
            try await reader.settle()
            // What may not stay goes in a while.
            cloud.simulation.advance(by: .seconds(60))
            try await lose(reader.database, cloud)
            let sent = try receivedChunks(cloud)
            func requests(during time: Duration) -> UInt64 {
                cloud.simulation.use { cloud in
                    let before = cloud.requestCount(.records)
                    cloud.network.run(for: time)
                    return cloud.requestCount(.records) - before
                }
            }
            cloud.simulation.advance(by: .seconds(60))
            let idle = requests(during: .seconds(600))
            #expect(requests(during: .seconds(7200)) <= 12 * idle + 2)
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await keeper.database.scope.verify().damagedChunkCount == 1)
            #expect(try await keeper.database.assets.damaged().places.count == 1)
        }
    }

    /// What the server has lost goes from nowhere else, however little may stay, until it was offered.
    @Test func aLostAssetStaysHereUntilItWasOffered() async throws {
        try await withRecords { cloud in
            let here = try await cloud.open()
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await save(content, here.database)
            try await here.settle()
            here.setOffline(true)
            func tell(_ lostChunks: UInt32) throws {
                let local = here.session.local
                let place = RecordPlace.database(RecordCloud.container).scope(of: here.database.account)
                try local.write { database in
                    let rows = ScopeTransaction(database, place)
                    var (state, info) = (try rows.state(), WireDatabaseInfo())
                    info.lostChunks = lostChunks
                    state.info = try info.serializedData()
                    try rows.save(state)
                }
            }
            try tell(1)
            try here.session.setContentCache(maxBytes: 0)
            #expect(try here.session.contentCache().bytes == 60_000)
            try tell(0)
            try here.session.setContentCache(maxBytes: 0)
            #expect(try here.session.contentCache().bytes == 0)
        }
    }

    /// Where no device has kept it, whoever has the bytes saves them again.
    @Test(arguments: [false, true]) func savingTheSameBytesHeals(isPublic: Bool) async throws {
        try await withRecords { cloud in
            let (one, two) = try await devices(of: cloud)
            try one.session.setContentCache(maxBytes: 0)
            var databases = [one.database, two.database]
            if isPublic {
                databases = []
                for device in [one, two] {
                    databases.append(try await device.session.recordContainer(app: RecordCloud.app).publicDatabase)
                }
            }
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await save(content, databases[0])
            try await databases[0].waitUntilSent(timeout: .seconds(60))
            cloud.simulation.pass(.seconds(5))
            if !isPublic { try await databases[1].waitUntilCurrent(timeout: .seconds(60)) }
            try await lose(databases[1], cloud)
            cloud.simulation.advance(by: .seconds(30))
            await #expect(throws: CloudError.self) { try await data(databases[1]) }
            try await save(content, databases[0])
            try await databases[0].waitUntilSent(timeout: .seconds(60))
            cloud.simulation.advance(by: .seconds(30))
            #expect(try await data(databases[1]) == content)
        }
    }
}
