import NephosCore
import NephosKit
import NephosSimulation
import Testing

/// What is stored comes back as it was, to those who may have it.
@Suite struct RoundTripTests {
    @Test func whatIsStoredComesBack() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let chunks =
            (0..<40).map { content($0) } + [content(100, count: 1), content(101, count: BulkLimits.chunkBytesMax)]
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 16 << 20))
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let fetched = house.fetch(chunks.map(id), with: client)
        #expect(try fetched.map { try $0.get() } == chunks)
    }

    @Test func anotherDeviceOfTheAccountFetchesWhatOneHasStored() throws {
        let house = try BulkHouse()
        let writer = try TestBulk(of: house.cloud)
        let client = try writer.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        let reader = try TestBulk(of: house.cloud)
        let fetched = house.fetch(
            [id(of: content(1)), id(of: content(2))], with: try reader.connect(BulkClient.Purpose()))
        #expect(try fetched[0].get() == content(1))
        #expect(fetched[1].code == .unknownItem)
    }

    @Test func anotherAccountDoesNot() throws {
        let house = try BulkHouse()
        try house.cloud.createAccount("other")
        let writer = try TestBulk(of: house.cloud)
        let client = try writer.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        let stranger = try TestBulk(of: house.cloud, account: "other")
        let fetched = house.fetch([id(of: content(1))], with: try stranger.connect(BulkClient.Purpose()))
        #expect(fetched.map(\.code) == [.unknownItem])
    }
}
