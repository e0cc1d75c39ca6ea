import Foundation
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What content does when the disk has little room, or none.
@Suite(.serialized) struct FullDiskTests {
    private static let isPossible: ConditionTrait = .enabled(
        if: SmallDisk.isAvailable, "Only the superuser may mount a small disk.")

    /// Takes so many bytes of the disk.
    private func take(_ bytes: Int, of disk: SmallDisk) throws {
        try Data(count: bytes).write(to: URL(fileURLWithPath: disk.folder + "/taken"))
    }

    private func give(_ disk: SmallDisk) throws { try disk.remove(disk.folder + "/taken") }

    private func send(_ number: Int, _ mover: TestBulk, _ house: BulkHouse, upload id: UInt8) throws -> BulkFrame? {
        mover.clear()
        try mover.send(
            frame(ticket(house.open(mover, upload: upload(id), bytes: 8 << 20)), content(number, count: 1 << 20)))
        // That another ticket has ended may be told before.
        house.cloud.network.run(within: .seconds(5)) { mover.frames.contains { $0.chunk != .none } }
        return mover.frames.first { $0.chunk != .none }
    }

    @Test(isPossible) func emptiedSegmentsAreGivenUpBeforeTheirTimeWhenRoomIsLow() throws {
        let disk = try SmallDisk(megabytes: 60)
        defer { disk.remove() }
        let log = LogLines()
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(24 * 3600)
        configuration.roomKeptBytes = 1 << 20
        configuration.lowRoomPart = 0.25
        let house = try BulkHouse(configuration: configuration, folder: disk.folder + "/content", log: log)
        let mover = try TestBulk(of: house.cloud)
        for number in 0..<8 { #expect(try send(number, mover, house, upload: 1)?.kind == .stored) }
        try house.close(mover, upload: upload(1))
        // Those before it are full.
        #expect(try send(20, mover, house, upload: 2)?.kind == .stored)
        house.cloud.network.run(for: .seconds(3 * 3600))
        #expect(try house.diskBytes(of: mover.account) > 8 << 20)
        #expect(log.count(of: "little room") == 0)

        try take(38 << 20, of: disk)
        house.cloud.network.run(for: .seconds(60))
        #expect(try house.diskBytes(of: mover.account) < 3 << 20)
        #expect(log.count(of: "little room") > 0)
        let client = try mover.connect(BulkClient.Purpose())
        #expect(try house.fetch([id(of: content(20, count: 1 << 20))], with: client).first?.get() != nil)
    }

    @Test(isPossible) func roomThatIsLowIsMadeAlsoOfWhatIsMostlyDead() throws {
        let disk = try SmallDisk(megabytes: 60)
        defer { disk.remove() }
        var configuration = Transfers.Configuration()
        configuration.roomKeptBytes = 1 << 20
        configuration.lowRoomPart = 0.25
        let house = try BulkHouse(configuration: configuration, folder: disk.folder + "/content")
        let mover = try TestBulk(of: house.cloud)
        for number in 0..<8 { #expect(try send(number, mover, house, upload: 1)?.kind == .stored) }
        #expect(try send(20, mover, house, upload: 2)?.kind == .stored)
        try house.close(mover, upload: upload(1))
        try take(38 << 20, of: disk)
        // No round was due by then.
        house.cloud.network.run(for: .seconds(120))
        #expect(try house.diskBytes(of: mover.account) < 3 << 20)
    }

    @Test(isPossible) func nothingIsWrittenToADiskThatHasNoRoomForTheRows() throws {
        let disk = try SmallDisk(megabytes: 60)
        defer { disk.remove() }
        var configuration = Transfers.Configuration()
        configuration.roomKeptBytes = 16 << 20
        let house = try BulkHouse(configuration: configuration, folder: disk.folder + "/content")
        let mover = try TestBulk(of: house.cloud)
        #expect(try send(1, mover, house, upload: 1)?.kind == .stored)
        try take(44 << 20, of: disk)
        let before = try house.diskBytes(of: mover.account)
        for number in 2..<10 {
            let refused = try #require(try send(number, mover, house, upload: 1)?.failure)
            #expect(refused.code == .storageFailure && refused.retryAfter != nil)
        }
        #expect(try house.diskBytes(of: mover.account) == before)
        #expect(try house.open(mover, upload: upload(1), bytes: 8 << 20).storedBytes == 1 << 20)
        try give(disk)
        #expect(try send(2, mover, house, upload: 1)?.kind == .stored)
    }

    /// The database on a disk of its own, which fills.
    @Test(isPossible) func nothingIsWrittenWhileTheDatabaseHasNoRoom() throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/documents.sqlite")
        let house = try BulkHouse(engine: engine)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        let other = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(other, upload: upload(2), bytes: 100 << 20))
        try disk.fill()
        var number = 100
        var refused: CloudError?
        while refused == nil, number < 20_000 {
            other.clear()
            for _ in 0..<100 {
                number += 1
                try other.send(frame(good, number: UInt64(number), content(number, count: 64)))
            }
            house.cloud.network.run(within: .seconds(5)) { other.frames.count == 100 }
            refused = other.frames.first { $0.kind == .refused }?.failure
        }
        #expect(refused == .diskFull && engine.isShortOfRoom)

        // Whatever is sent now leaves the disk as it is.
        let before = try house.diskBytes(of: mover.account)
        for number in 0..<20 {
            other.clear()
            try other.send(frame(good, number: 1, content(50_000 + number)))
            house.cloud.network.run(within: .seconds(5)) { !other.frames.isEmpty }
            #expect(other.frames.first?.failure == .diskFull)
        }
        #expect(try house.diskBytes(of: mover.account) == before)
        #expect(code { _ = try house.open(other, upload: upload(3), bytes: 1) } == .storageFailure)
        // What is there is fetched, also under a new ticket; what ends makes room.
        let reader = try TestBulk(of: house.cloud)
        let fetched = house.fetch([id(of: content(1))], with: try reader.connect(BulkClient.Purpose()))
        #expect(try fetched.first?.get() == content(1))
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .seconds(5))
        #expect(
            house.fetch([id(of: content(1))], with: try reader.connect(BulkClient.Purpose())).map(\.code) == [
                .unknownItem
            ])

        try disk.empty()
        // The log is cut first, on a thread of its own and in its own time.
        let end = ContinuousClock.now + .seconds(120)
        repeat {
            other.clear()
            try other.send(frame(good, number: 1, content(60_000)))
            house.cloud.network.run(within: .seconds(5)) { !other.frames.isEmpty }
        } while other.frames.first?.kind != .stored && ContinuousClock.now < end
        #expect(other.frames.first?.kind == .stored)
    }
}
