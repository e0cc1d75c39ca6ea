import Foundation
import NephosBulk
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// Chunks that the server's disk has lost come back from a device that has the content, by ordinary uploads.
@Suite struct OfferedContentTests {
    /// A device that keeps what it puts and gets, and one that keeps nothing.
    private func devices(
        of cloud: ContainerCloud
    ) async throws -> (keeper: ContainerCloud.Device, reader: ContainerCloud.Device) {
        let (keeper, reader) = (try await cloud.open(), try await cloud.open())
        try reader.session.setContentCache(maxBytes: 0)
        for device in [keeper, reader] { try await device.settle() }
        return (keeper, reader)
    }

    /// Damages the last chunk of each segment, and has the reader find it.
    private func damage(_ path: String, _ reader: ContainerCloud.Device, _ cloud: ContainerCloud) async throws {
        try SegmentDamage.damageAll(in: cloud.root)
        try await find(path, reader)
    }

    /// Has the reader find the damaged chunks.
    private func find(_ path: String, _ reader: ContainerCloud.Device) async throws {
        await #expect(throws: CloudError.self) { try await reader.container.read(path) }
        // A reader stops at the first: the others are found part by part.
        let size = try #require(try await reader.container.item(at: path)).size
        for start in stride(from: 0, to: size, by: 100_000) {
            _ = try? await reader.container.read(path, range: start..<start + 1)
        }
    }

    /// Puts the content, and has the server lose chunks of it.
    private func lose(
        _ content: Data, of keeper: ContainerCloud.Device, _ reader: ContainerCloud.Device, _ cloud: ContainerCloud
    ) async throws {
        try await keeper.container.put(content, at: "f")
        try await keeper.settle()
        try await reader.settle()
        try await damage("f", reader, cloud)
    }

    /// How many chunks devices have sent so far.
    private func receivedChunks(_ cloud: ContainerCloud) throws -> UInt64 {
        try cloud.receivedChunks()
    }

    private func damagedCount(_ device: ContainerCloud.Device) async throws -> Int {
        let verification = try await device.container.scope.verify()
        let status = try await device.container.status()
        #expect(status.damagedChunkCount == verification.damagedChunkCount)
        return status.damagedChunkCount
    }

    /// Devices that are open hear of it at once, and the one that has the content sends what is lost of it alone.
    @Test(arguments: [60_000, 3_000_000]) func anOpenDeviceSendsWhatIsLost(count: Int) async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(count, seed: 5)
            try await lose(content, of: keeper, reader, cloud)
            let (sent, lost) = (try receivedChunks(cloud), try await damagedCount(reader))
            #expect(count > 1 << 20 ? lost > 1 : lost == 1)
            #expect(try await reader.container.damagedItems().map(\.path) == ["/Documents/f"])
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == UInt64(lost))
            #expect(try await reader.container.read("f") == content)
            for device in [keeper, reader] {
                #expect(try await damagedCount(device) == 0)
                #expect(try await device.container.damagedItems().isEmpty)
            }
            #expect(try await keeper.container.status().conflicts.isEmpty)
            #expect(try await keeper.container.versions.list(of: "f").count == 1)
        }
    }

    @Test func aDeviceSendsItWhenItComesBack() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            keeper.setOffline(true)
            try await reader.settle()
            try await damage("f", reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(120))
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await damagedCount(reader) == 1)
            keeper.setOffline(false)
            try await keeper.settle()
            cloud.simulation.advance(by: .seconds(30))
            #expect(try await damagedCount(keeper) == 0)
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
            #expect(try await damagedCount(reader) == 0)
        }
    }

    /// A pass that was broken off begins again with the next process, without a pause.
    @Test func aRestartedDeviceBeginsAgainAtOnce() async throws {
        try await withContainers { cloud in
            let reader = try await cloud.open()
            try reader.session.setContentCache(maxBytes: 0)
            let isFailing = Mutex(false)
            let keeper = try await cloud.open { step in
                if step == "content.read", isFailing.withLock({ $0 }) {
                    throw CloudError(.storageFailure, "No.")
                }
            }
            for device in [keeper, reader] { try await device.settle() }
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            for device in [keeper, reader] { try await device.settle() }
            isFailing.withLock { $0 = true }
            try await damage("f", reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(60))
            #expect(try receivedChunks(cloud) == sent)
            keeper.session.close()
            let again = try await cloud.open(cloud.root + "/" + keeper.name)
            try await again.settle()
            cloud.simulation.advance(by: .seconds(2))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    @Test func aFailingOfferIsTriedAgainAfterGrowingPauses() async throws {
        try await withContainers { cloud in
            let reader = try await cloud.open()
            try reader.session.setContentCache(maxBytes: 0)
            let failures = Mutex<Int?>(nil)
            let keeper = try await cloud.open { step in
                let isFailing = failures.withLock { count in
                    if step == "content.read", let counted = count { count = counted + 1 }
                    return step == "content.read" && count != nil
                }
                if isFailing { throw CloudError(.storageFailure, "No.") }
            }
            for device in [keeper, reader] { try await device.settle() }
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            for device in [keeper, reader] { try await device.settle() }
            failures.withLock { $0 = 0 }
            try await damage("f", reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(900))
            #expect((3...7).contains(failures.withLock { $0 } ?? 0))
            failures.withLock { $0 = nil }
            cloud.simulation.advance(by: .seconds(1000))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    @Test func aDamagedCopyIsNotSent() async throws {
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
            try await damage("f", reader, cloud)
            let sent = try receivedChunks(cloud)
            cloud.simulation.advance(by: .seconds(600))
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await damagedCount(keeper) == 1)
            #expect(try await keeper.container.damagedItems().map(\.path) == ["/Documents/f"])
            // Whoever has it puts it again.
            try await reader.container.put(content, at: "f")
            try await reader.settle()
            #expect(try await damagedCount(keeper) == 0)
        }
    }

    @Test func aDeviceWithAPartSendsNothing() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(3_000_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            try await reader.settle()
            keeper.setOffline(true)
            // Some of it has come, and stays, when it is stopped.
            try reader.session.setContentCache(maxBytes: nil)
            reader.session.setTransferLimits(TransferLimits(download: 200_000))
            _ = try await reader.container.downloads.start("f")
            cloud.simulation.advance(by: .seconds(8))
            let percent = try await reader.container.item(at: "f")?.download.percent ?? 0
            #expect(percent > 0 && percent < 100)
            try await damage("f", reader, cloud)
            let (sent, lost) = (try receivedChunks(cloud), try await damagedCount(reader))
            #expect(lost >= 1)
            cloud.simulation.advance(by: .seconds(300))
            #expect(try receivedChunks(cloud) == sent)
            #expect(try await damagedCount(reader) == lost)
            keeper.setOffline(false)
            try await keeper.settle()
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == UInt64(lost))
            #expect(try await damagedCount(reader) == 0)
        }
    }

    /// Other devices hear of it, have nothing, and leave the server alone: until the next day.
    @Test func nobodyAsksAgainForWhatNoDeviceHas() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 7), at: "other")
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 5), at: "f")
            try await keeper.settle()
            #expect(try await keeper.container.downloads.evict("f").itemCount == 1)
            try await reader.settle()
            func requests(during time: Duration) -> UInt64 {
                cloud.simulation.use { cloud in
                    let before = cloud.requestCount(.documents)
                    cloud.network.run(for: time)
                    return cloud.requestCount(.documents) - before
                }
            }
            let idle = requests(during: .seconds(7200))
            try await damage("f", reader, cloud)
            cloud.simulation.advance(by: .seconds(60))
            let pass = try #require(try lastPass(keeper))
            #expect(pass.lost == 1)
            #expect(requests(during: .seconds(7200)) <= idle + 5)
            #expect(try lastPass(keeper) == pass)
            #expect(try await damagedCount(keeper) == 1)
        }
    }

    private func lastPass(_ device: ContainerCloud.Device) throws -> ContentOffers.Pass? {
        try device.container.handle.read { try ContentOffers($0.rows).last() }
    }

    /// Much more is lost than one question names: none of it is here but one chunk.
    @Test func whatNoDeviceHasHidesNothing() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            try await keeper.settle()
            keeper.setOffline(true)
            try await reader.settle()
            try await damage("f", reader, cloud)
            try loseMore(cloud)
            #expect(try await damagedCount(reader) == 1501)
            #expect(try await reader.container.damagedItems().map(\.path) == ["/Documents/f"])
            let sent = try receivedChunks(cloud)
            keeper.setOffline(false)
            try await keeper.settle()
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    /// None of what is lost is here: once that is known, copies are dropped as ever.
    @Test func whatNoDeviceHasKeepsNothingElseHere() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try keeper.session.setContentCache(maxBytes: 0)
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 5), at: "f")
            for device in [keeper, reader] { try await device.settle() }
            try keeper.session.setContentCache(maxBytes: nil)
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 6), at: "g")
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 7), at: "h")
            try await keeper.settle()
            try await reader.settle()
            try loseChunk(of: "f", keeper, cloud)
            _ = try await keeper.container.scope.verify()
            // Until it was offered any copy may be the last one.
            await #expect(throws: CloudError.self) { try await keeper.container.downloads.evict("g") }
            cloud.simulation.advance(by: .seconds(30))
            #expect(try await keeper.container.downloads.evict("g").itemCount == 1)
            try keeper.session.setContentCache(maxBytes: 0)
            keeper.setOffline(true)
            await #expect(throws: CloudError.self) { try await keeper.container.read("h") }
            #expect(try await keeper.container.status().damagedChunkCount == 1)
        }
    }

    /// Notes the only chunk of a content as lost.
    private func loseChunk(of path: String, _ device: ContainerCloud.Device, _ cloud: ContainerCloud) throws {
        let root = try device.container.handle.read { documents -> Data in
            guard case .item(let item)? = try documents.place(DocumentPath(path)) else { throw CancellationError() }
            return item.wire.content.root
        }
        try cloud.simulation.use { cloud in
            try cloud.storage(of: .documents).write { transaction in
                _ = try transaction.execute(
                    SQL(
                        """
                        INSERT INTO content_damaged (partition_number, owner, id, found_at, damage)
                        SELECT partition_number, owner, chunk, 1, 1 FROM content_uses WHERE chunk = ?1
                        """), [.blob([UInt8](root))])
            }
        }
    }

    /// More than one question names.
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
            cloud.simulation.advance(by: .seconds(30))
            for number in 2..<4 { #expect(try await reader.container.read("\(number)") == contents[number]) }
            #expect(try await damagedCount(keeper) == 2)
        }
    }

    /// What waits to be sent is as good as a copy.
    @Test func aContentThatWaitsIsOffered() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            try keeper.session.setContentCache(maxBytes: 0)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(Data("short".utf8), at: "g")
            try await keeper.settle()
            try await keeper.container.pauses.pause("g")
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
    @Test func whatIsLostAgainIsSentAgainAnHourLater() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await lose(content, of: keeper, reader, cloud)
            cloud.simulation.advance(by: .seconds(25))
            #expect(try await reader.container.read("f") == content)
            let sent = try receivedChunks(cloud)
            try await damage("f", reader, cloud)
            cloud.simulation.advance(by: .seconds(60))
            keeper.session.close()
            let again = try await cloud.open(cloud.root + "/" + keeper.name)
            try await again.settle()
            cloud.simulation.advance(by: .seconds(1800))
            #expect(try receivedChunks(cloud) == sent)
            cloud.simulation.advance(by: .seconds(2000))
            #expect(try receivedChunks(cloud) - sent == 1)
            #expect(try await reader.container.read("f") == content)
        }
    }

    // MARK: Behind what somebody puts

    @Test func whatSomebodyPutsIsSentFirst() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            for device in [keeper, reader] { try await device.settle() }
            keeper.session.setTransferLimits(TransferLimits(upload: 100_000))
            try SegmentDamage.damageAll(in: cloud.root)
            // In the other container, for 30 seconds and more.
            let other = try await keeper.openOther()
            try await other.put(SplitMix64.bytes(3_000_000, seed: 6), at: "film")
            try await find("f", reader)
            cloud.simulation.advance(by: .seconds(20))
            #expect(try await other.status().waiting.count == 1)
            await #expect(throws: CloudError.self) { try await reader.container.read("f") }
            try await other.scope.waitUntilSent(timeout: .seconds(60))
            cloud.simulation.advance(by: .seconds(70))
            #expect(try await reader.container.read("f") == content)
        }
    }

    @Test func anOfferGivesWayToWhatSomebodyPuts() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(6_000_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            for device in [keeper, reader] { try await device.settle() }
            keeper.session.setTransferLimits(TransferLimits(upload: 40_000))
            try await damage("f", reader, cloud)
            let (sent, lost) = (try receivedChunks(cloud), try await damagedCount(reader))
            #expect(lost >= 4)
            for _ in 0..<60 where try receivedChunks(cloud) == sent { cloud.simulation.advance(by: .seconds(1)) }
            #expect(try receivedChunks(cloud) > sent)
            let other = try await keeper.openOther()
            try await other.put(SplitMix64.bytes(60_000, seed: 6), at: "letter")
            try await other.scope.waitUntilSent(timeout: .seconds(20))
            let between = try receivedChunks(cloud)
            #expect(between - sent <= 3)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try receivedChunks(cloud) == between)
            cloud.simulation.advance(by: .seconds(120))
            #expect(try await reader.container.read("f") == content)
        }
    }

    /// What takes the place of something lost needs no room.
    @Test func anAccountOverItsPlanGetsItBackToo() async throws {
        try await withContainers { cloud in
            let (keeper, reader) = try await devices(of: cloud)
            let content = SplitMix64.bytes(60_000, seed: 5)
            try await keeper.container.put(content, at: "f")
            for device in [keeper, reader] { try await device.settle() }
            try cloud.setPlan(bytes: 1000)
            // What is refused for the plan is in nobody's way.
            try await keeper.container.put(SplitMix64.bytes(60_000, seed: 6), at: "refused")
            #expect(try await passes(cloud) { try await keeper.container.status().refused.count == 1 })
            try await damage("f", reader, cloud)
            cloud.simulation.advance(by: .seconds(30))
            #expect(try await reader.container.read("f") == content)
            #expect(try await damagedCount(keeper) == 0)
        }
    }
}
