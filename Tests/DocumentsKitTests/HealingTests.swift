import Foundation
import NephosBulk
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// What the server's disk has lost comes back from a device that has it, without anybody's doing.
@Suite struct HealingTests {
    /// A device that keeps what it puts and gets, and one that keeps nothing.
    private func devices(
        of cloud: ContainerCloud
    ) async throws -> (keeper: ContainerCloud.Device, reader: ContainerCloud.Device) {
        let (keeper, reader) = (try await cloud.open(), try await cloud.open())
        try reader.session.setContentCache(maxBytes: 0)
        for device in [keeper, reader] { try await device.settle() }
        return (keeper, reader)
    }

    /// Puts the content, damages the last chunk of each segment, and has it found.
    private func lose(
        _ content: Data, of keeper: ContainerCloud.Device, _ reader: ContainerCloud.Device, _ cloud: ContainerCloud
    ) async throws {
        try await keeper.container.put(content, at: "f")
        try await keeper.settle()
        try await reader.settle()
        try SegmentDamage.damageAll(in: cloud.root)
        await #expect(throws: CloudError.self) { try await reader.container.read("f") }
    }

    /// How many chunks devices have sent so far.
    private func receivedChunks(_ cloud: ContainerCloud) throws -> UInt64 {
        try cloud.simulation.use { cloud in
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters["content.received.chunks"] ?? 0
        }
    }

    private func damagedCount(_ device: ContainerCloud.Device) async throws -> Int {
        let verification = try await device.container.scope.verify()
        let status = try await device.container.status()
        #expect(status.damagedChunkCount == verification.damagedChunkCount)
        return status.damagedChunkCount
    }

    /// Devices that are open hear of it at once, and the one that has the chunk sends that alone.
    @Test(arguments: [60_000, 3_000_000]) func whatIsLostComesBackFromADeviceThatIsOpen(count: Int) async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(count, seed: 5)
            try await lose(content, of: keeper, reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent < 8)
            // One that was damaged and that nobody had read may be among the others.
            for _ in 0..<8 where await !reader.container.reads(content) {
                cloud.simulation.advance(by: .seconds(30))
            }
            #expect(try await reader.container.read("f") == content)
            for device in [keeper, reader] { #expect(try await damagedCount(device) == 0) }
            #expect(try await keeper.container.status().conflicts.isEmpty)
            #expect(try await keeper.container.versions(of: "f").count == 1)
        }
    }

    @Test func aDeviceThatHasItHealsWhenItComesBack() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            keeper.setOffline(true)
            try await reader.settle()
            try SegmentDamage.damageAll(in: cloud.root)
            await #expect(throws: CloudError.self) { try await reader.container.read("f") }
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(120))
            // Who has nothing of it does nothing.
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await damagedCount(reader) == 1)
            #expect(try await reader.container.damagedItems().damagedHere.isEmpty)
            keeper.setOffline(false)
            try await keeper.settle()
            await keeper.container.scope.waitUntilHealed(within: .seconds(60))
            #expect(try await damagedCount(keeper) == 0)
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
            #expect(try await damagedCount(reader) == 0)
        }
    }

    @Test func aCopyThatIsDamagedTooIsNotSentAndThatIsSaid() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            let files = cloud.root + "/" + keeper.name + "/content"
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            for file in try FileManager.default.contentsOfDirectory(atPath: files) where file.count > 20 {
                try Data(count: content.count).write(to: URL(fileURLWithPath: files + "/" + file))
            }
            try await reader.settle()
            try SegmentDamage.damageAll(in: cloud.root)
            await #expect(throws: CloudError.self) { try await reader.container.read("f") }
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(600))
            await keeper.container.scope.waitUntilHealed(within: .seconds(60))
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await damagedCount(keeper) == 1)
            let damaged = try await keeper.container.damagedItems()
            #expect(damaged.items.map(\.path) == ["/Documents/f"])
            #expect(damaged.damagedHere == Set(damaged.items.map(\.id)))
            #expect(try await reader.container.damagedItems().damagedHere.isEmpty)
            // Whoever has it puts it again.
            try await reader.container.put(content, at: "f")
            try await reader.settle()
            #expect(try await damagedCount(keeper) == 0)
        }
    }

    /// More is lost than the service names by itself, and than a page has: none of it is here but the last.
    @Test func whatNoDeviceHasHidesNothingFromHealing() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            keeper.setOffline(true)
            try await reader.settle()
            try SegmentDamage.damageAll(in: cloud.root)
            await #expect(throws: CloudError.self) { try await reader.container.read("f") }
            try loseMore(cloud)
            // Nor does it hide what is damaged.
            reader.container.scope.synchronize()
            try await reader.container.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await reader.container.status().hasMoreDamage)
            #expect(try await reader.container.damagedItems().items.map(\.path) == ["/Documents/f"])
            let sent = try receivedChunks(cloud)
            keeper.setOffline(false)
            try await keeper.settle()
            await keeper.container.scope.waitUntilHealed(within: .seconds(60))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    /// None of what is lost is here: what is here is dropped as ever.
    @Test func whatNoDeviceHasKeepsNothingElseHere() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try keeper.session.setContentCache(maxBytes: 0)
            try await lose(SplitMix64.bytes(60_000, seed: 5), of: keeper, reader, cloud)
            try loseMore(cloud)
            try keeper.session.setContentCache(maxBytes: nil)
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 6), at: "g")
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 7), at: "h")
            try await keeper.settle()
            keeper.container.scope.synchronize()
            try await keeper.container.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await keeper.container.status().hasMoreDamage)
            // The service is asked.
            #expect(try await keeper.container.evict("g").itemCount == 1)
            await keeper.container.scope.waitUntilHealed(within: .seconds(60))
            cloud.simulation.advance(by: .seconds(60))
            try keeper.session.setContentCache(maxBytes: 0)
            keeper.setOffline(true)
            await #expect(throws: CloudError.self) { try await keeper.container.read("h") }
            #expect(try await keeper.container.status().hasMoreDamage)
        }
    }

    /// More than the service names by itself.
    private func loseMore(_ cloud: ContainerCloud) throws {
        try cloud.simulation.use { cloud in
            try cloud.storage(of: .documents).write { transaction in
                let lost = try #require(
                    transaction.first(SQL("SELECT id FROM content_damaged"), []) { $0.blob(0) })
                for number in 0..<1500 {
                    let id = [0, 0, UInt8(number >> 8), UInt8(number & 255)] + [UInt8](repeating: 0, count: 28)
                    for statement in Self.alike {
                        _ = try transaction.execute(SQL(statement), [.blob(id), .blob(lost)])
                    }
                }
            }
        }
    }

    /// Chunks that are used and lost as another is.
    private static let alike = [
        """
        INSERT INTO content_damaged (partition_number, owner, id, found_at, damage)
        SELECT partition_number, owner, ?1, found_at, damage FROM content_damaged WHERE id = ?2
        """,
        """
        INSERT INTO content_uses (
            partition_number, owner, chunk, is_node, container, use_count, counted, app, device, room)
        SELECT partition_number, owner, ?1, is_node, container, use_count, counted, app, device, room
        FROM content_uses WHERE chunk = ?2
        """,
    ]

    /// A file that cannot be opened, whyever, keeps no other from going.
    @Test func aFileThatCannotBeOpenedHoldsUpNoOther() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let files = cloud.root + "/" + keeper.name + "/content"
            let contents = (1...4).map { SplitMix64.bytes(60_000, seed: UInt64($0)) }
            for (number, content) in contents.enumerated() {
                try await keeper.container.put(content, at: "\(number)")
                try await keeper.settle()
                // The last chunk of the segment.
                try SegmentDamage.damageAll(in: cloud.root)
            }
            try await reader.settle()
            keeper.setOffline(true)
            // Nobody opens what is a link there.
            let all = try FileManager.default.contentsOfDirectory(atPath: files).filter { $0.count > 20 }
            let closed = all.filter { file in
                FileManager.default.contents(atPath: files + "/" + file).map(contents[..<2].contains) ?? false
            }
            #expect(closed.count == 2)
            for file in closed {
                try FileManager.default.removeItem(atPath: files + "/" + file)
                try FileManager.default.createSymbolicLink(atPath: files + "/" + file, withDestinationPath: "elsewhere")
            }
            for number in 0..<4 {
                await #expect(throws: CloudError.self) { try await reader.container.read("\(number)") }
            }
            #expect(try await damagedCount(reader) == 4)
            keeper.setOffline(false)
            try await keeper.settle()
            await keeper.container.scope.waitUntilHealed(within: .seconds(120))
            for number in 2..<4 { #expect(try await reader.container.read("\(number)") == contents[number]) }
            #expect(try await damagedCount(keeper) == 2)
            #expect(try await keeper.container.damagedItems().damagedHere.isEmpty)
        }
    }

    /// What waits to be sent is as good as a copy.
    @Test func whatWaitsOnADeviceHeals() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try keeper.session.setContentCache(maxBytes: 0)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(Data("short".utf8), at: "g")
            try await keeper.settle()
            try await keeper.container.pauseSync("g")
            try await keeper.container.put(content, at: "g")
            try await lose(content, of: reader, reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
            #expect(try await keeper.container.item(at: "g")?.isPaused == true)
        }
    }

    /// Two that have it hear of it in the same moment.
    @Test(arguments: 1...4 as ClosedRange<UInt64>) func ofTwoDevicesThatHaveItOneSendsIt(seed: UInt64) async throws {
        try await withContainers(seed: seed) { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let second = try await cloud.open()
            try await second.settle()
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            try await second.settle()
            #expect(try await second.container.read("f") == content)
            try await lose(content, of: keeper, reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    /// A disk that loses the same again at once is not sent it again at once, by whichever process.
    @Test func whatIsLostAgainIsSentAgainAfterAPause() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await lose(content, of: keeper, reader, cloud)
            cloud.simulation.advance(by: .seconds(25))
            #expect(try await reader.container.read("f") == content)
            let sent = try receivedChunks(cloud)
            try SegmentDamage.damageAll(in: cloud.root)
            await #expect(throws: CloudError.self) { try await reader.container.read("f") }
            cloud.simulation.advance(by: .seconds(18))
            keeper.session.close()
            let again = try await cloud.open(cloud.root + "/" + keeper.name)
            try await again.settle()
            await again.container.scope.waitUntilHealed(within: .seconds(10))
            #expect(try receivedChunks(cloud) == sent)
            cloud.simulation.advance(by: .seconds(900))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }
}

extension UbiquityContainer {
    fileprivate func reads(_ content: Data) async -> Bool { (try? await read("f")) == content }
}
