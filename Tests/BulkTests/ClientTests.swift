import Bus
import Core
import NephosKit
import TestKit
import Testing
import Wire

/// What a device's own half does when the service is slow, or refuses it.
@Suite struct ClientTests {
    @Test func whatIsSentAgainBecauseTheDiskIsSlowIsNotLost() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        // All of the credit is under way, for longer than a device waits.
        house.cloud.network.offloadTime = .seconds(8)
        let chunks = (0..<12).map { content($0, count: 1 << 20) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
        #expect(try house.chunkCount(of: mover.account) == 13)
    }

    @Test func twoClientsOfADeviceShareItsCredit() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        // Another one of the device has nearly all of it.
        let good = try ticket(house.open(mover, upload: upload(2), bytes: 8 << 20))
        house.cloud.network.offloadTime = .seconds(1)
        for number in 0..<7 {
            try mover.send(frame(good, number: UInt64(number), content(number + 50, count: 1 << 20)))
        }
        house.cloud.network.run(for: .milliseconds(10))
        let chunks = (0..<4).map { content($0, count: 1 << 20) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
    }

    @Test(arguments: [UInt64(1), 2, 3])
    func whatIsLostDoubledOrOvertakenIsMadeUpFor(seed: UInt64) throws {
        let house = try BulkHouse(seed: seed)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store([content(100)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.faults = Faults(loss: 0.05, duplication: 0.05, reordering: 0.05)
        let chunks = (0..<100).map { content($0) }
        #expect(house.store(chunks, with: client).map(\.code) == chunks.map { _ in nil })
        #expect(try house.fetch(chunks.map(id), with: client).map { try $0.get() } == chunks)
        #expect(try house.chunkCount(of: mover.account) == 101)
    }

    @Test func whoIsGivenTicketsThatAreNoneAsksMoreAndMoreSeldom() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        var generator = SplitMix64(seed: 3)
        let asked = Asked()
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20)) { _, done in
            asked.count += 1
            done(.success(BulkClient.Pass(ticket: BulkTicket(using: &generator), creditBytes: 8 << 20)))
        }
        client.store(bytes: 1000, { $0.fill(with: content(1, count: 1000)) }) { _ in }
        house.cloud.network.run(for: .seconds(60))
        #expect(asked.count > 3)
        #expect(asked.count < 30)
    }

    private final class Asked {
        var count = 0
    }

    @Test func nothingIsLeftWithoutAnAnswerByAClientThatIsClosed() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        client.close()
        #expect(house.store([content(2)], with: client).map(\.code) == [.networkFailure])
        #expect(house.fetch([id(of: content(1))], with: client).map(\.code) == [.networkFailure])
    }
}
