import Foundation
import NephosBulk
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// Room is kept, and given back, and chunks live as long as an upload names them.
@Suite struct UploadTests {
    @Test func anUploadThatNobodyGoesOnWithIsRemoved() throws {
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(600)
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        let chunks = (0..<600).map { content($0, count: 5000) }
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        #expect(try house.used(by: mover.account) == 100 << 20)
        // To store something puts the end off.
        house.cloud.network.run(for: .seconds(500))
        let again = try TestBulk(of: house.cloud)
        let second = try again.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1000)], with: second).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(500))
        #expect(try house.chunkCount(of: mover.account) == 601)
        house.cloud.network.run(for: .seconds(200))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.used(by: mover.account) == 0)
    }

    private func setClocks(of house: BulkHouse, ahead time: Duration) {
        for service in TestCloud.services + [.documents] {
            house.cloud.network.setClockOffset(service.rawValue, time)
        }
        house.cloud.network.run(for: .seconds(30))
    }

    /// What was sent is kept for a day, for whoever goes on; the room that nothing has come into for an hour.
    @Test func anUploadThatStandsStillGivesBackTheRestOfItsRoom() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(3500))
        #expect(try house.used(by: mover.account) == 100 << 20)
        house.cloud.network.run(for: .seconds(200))
        let left = try house.used(by: mover.account)
        #expect(left > 0 && left < 1 << 20)
        house.cloud.skip(.seconds(19 * 3600))
        house.cloud.network.run(for: .seconds(3600))
        #expect(try house.chunkCount(of: mover.account) == 1)
        // It goes on with what it has, and has room again.
        let again = try TestBulk(of: house.cloud).connect(
            BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(2)], with: again).allSatisfy { $0.isSuccess })
        #expect(try house.used(by: mover.account) == 100 << 20 && house.chunkCount(of: mover.account) == 2)
        // The device has done with it in the first hour.
        house.cloud.network.run(for: .seconds(3600))
        house.cloud.skip(.seconds(23 * 3600))
        house.cloud.network.run(for: .seconds(90))
        #expect(try house.used(by: mover.account) == 0 && house.chunkCount(of: mover.account) == 0)
    }

    /// To ask for the same room again and again keeps it from nobody.
    @Test func roomIsNotKeptByAskingAlone() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        _ = try house.open(mover, upload: upload(1), bytes: 100 << 20)
        for _ in 0..<3 {
            house.cloud.network.run(for: .seconds(1150))
            _ = try house.open(TestBulk(of: house.cloud), upload: upload(1), bytes: 100 << 20)
        }
        #expect(try house.used(by: mover.account) == 100 << 20)
        house.cloud.network.run(for: .seconds(250))
        #expect(try house.used(by: mover.account) == 0)
    }

    /// The service was away for long, or the upload stood still: whoever goes on in the moment in which the room goes back is not
    /// refused.
    @Test func whoGoesOnWhenTheRoomWasJustGivenBackHasItAgain() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(3500))
        // It opens its transfer, asks for no more than it has, and sends nothing.
        let again = try TestBulk(of: house.cloud).connect(
            BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.fetch([id(of: content(1))], with: again).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(200))
        #expect(house.store([content(2)], with: again).allSatisfy { $0.isSuccess })
        #expect(try house.used(by: mover.account) == 100 << 20)
    }

    /// The purge clock runs at most twice as fast as time passes, so half of an upload's time is left to it.
    @Test func aClockThatIsAheadEndsNoUploadWithinHalfItsTime() throws {
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(3600)
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        setClocks(of: house, ahead: .seconds(40 * 86_400))
        house.cloud.network.run(for: .seconds(1600))
        #expect(try house.chunkCount(of: mover.account) == 1)
        // Whoever is at it goes on.
        let again = try TestBulk(of: house.cloud).connect(
            BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(2)], with: again).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(1600))
        #expect(try house.chunkCount(of: mover.account) == 2)
        setClocks(of: house, ahead: .zero)
        house.cloud.network.run(for: .seconds(2 * 3600))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.used(by: mover.account) == 0)
    }

    /// The purge clock may be days behind after a stop; no upload reserves room for so long.
    @Test func anUploadEndsInTimeWhileThePurgeClockIsBehind() throws {
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(3600)
        let house = try BulkHouse(configuration: configuration)
        setClocks(of: house, ahead: .seconds(3 * 86_400))
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        #expect(try house.used(by: mover.account) == 100 << 20)
        house.cloud.network.run(for: .seconds(3600 + 90))
        #expect(try house.used(by: mover.account) == 0)
    }

    @Test func whatWasReservedByAClockThatWasAheadIsNotKeptUntilThen() throws {
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(600)
        let house = try BulkHouse(configuration: configuration)
        setClocks(of: house, ahead: .seconds(365 * 86_400))
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 100 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        setClocks(of: house, ahead: .zero)
        // Whoever is at it may go on.
        #expect(house.store([content(2)], with: client).allSatisfy { $0.isSuccess })
        house.cloud.network.run(for: .seconds(400))
        #expect(try house.used(by: mover.account) == 100 << 20)
        house.cloud.network.run(for: .seconds(400))
        #expect(try house.used(by: mover.account) == 0)
    }

    @Test func theDiskIsGivenBack() throws {
        var configuration = Transfers.Configuration()
        configuration.upkeepInterval = .seconds(60)
        configuration.emptiedRetention = .seconds(500)
        let house = try BulkHouse(configuration: configuration)
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        let chunks = (0..<16).map { content($0, count: 256 << 10) }
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let other = try mover.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 2 << 20))
        #expect(house.store([chunks[5]], with: other).allSatisfy { $0.isSuccess })
        #expect(try house.diskBytes(of: mover.account) > 4 << 20)
        try house.close(mover, upload: upload(1))
        // The newest segment stays, until another is begun.
        #expect(house.store([content(50)], with: other).allSatisfy { $0.isSuccess })
        // What is emptied stays for a time.
        house.cloud.network.run(for: .seconds(150))
        #expect(try house.diskBytes(of: mover.account) > 4 << 20)
        house.cloud.network.run(for: .seconds(600))
        #expect(try house.diskBytes(of: mover.account) < 2 << 20)
        #expect(try house.fetch([id(of: chunks[5])], with: other).first?.get() == chunks[5])
    }

    @Test func aChunkThatTwoUploadsSentIsStoredOnceAndOutlivesOne() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let first = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1), content(2)], with: first).allSatisfy { $0.isSuccess })
        let second = try mover.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: second).allSatisfy { $0.isSuccess })
        #expect(try house.chunkCount(of: mover.account) == 2)
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.fetch([id(of: content(1))], with: second).first?.get() == content(1))
        #expect(house.fetch([id(of: content(2))], with: second).map(\.code) == [.unknownItem])
        #expect(try house.used(by: mover.account) == 1 << 20)
        try house.close(mover, upload: upload(2))
        try house.close(mover, upload: upload(2))
        house.cloud.network.run(for: .seconds(5))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.used(by: mover.account) == 0)
    }

    @Test func anUploadThatHasEndedTakesNothing() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 1 << 20))
        try mover.send(BulkFrame.control(.credit, good, number: 1))
        house.cloud.network.run(for: .milliseconds(20))
        try house.close(mover, upload: upload(1))
        house.cloud.network.run(for: .milliseconds(50))
        #expect(mover.frames.first?.failure.code == .unknownItem)
        mover.clear()
        try mover.send(frame(good, content(2)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.failure.code == .tokenExpired)
    }

    @Test func aClosedAccountLeavesNothing() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 10 << 20))
        let chunks = (0..<600).map { content($0, count: 5000) }
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        var request = WireCloseAccount()
        request.accountName = TestCloud.accountName
        try house.cloud.operate("CloseAccount", request, as: WireCloseAccountReply.self)
        house.cloud.network.run(for: .seconds(10))
        #expect(try house.chunkCount(of: mover.account) == 0)
        #expect(try house.used(by: mover.account) == 0)
        #expect(code { _ = try house.open(mover) } == .notAuthenticated)
    }

    /// Also under the same upload, where it is a repeat, and if that is full.
    @Test(arguments: [UInt8(1), 2], [UInt64(1 << 20), 100_000])
    func aDamagedChunkThatIsSentAgainIsWholeAgain(number: UInt8, room: UInt64) throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: room))
        #expect(house.store([content(1)], with: client).allSatisfy { $0.isSuccess })
        try house.damageAll(of: mover.account)
        #expect(house.fetch([id(of: content(1))], with: client).map(\.code) == [.storageFailure])
        let again = try mover.connect(BulkClient.Purpose(upload: upload(number), uploadBytes: room))
        #expect(house.store([content(1)], with: again).allSatisfy { $0.isSuccess })
        #expect(try house.fetch([id(of: content(1))], with: again).first?.get() == content(1))
        #expect(try house.chunkCount(of: mover.account) == 1)
    }

    @Test func nobodysRoomWaitsForAllThatAnotherHasEnded() throws {
        let house = try BulkHouse()
        try house.cloud.createAccount("other")
        let movers = try [TestBulk(of: house.cloud), TestBulk(of: house.cloud, account: "other")]
            .sorted { $0.account.rawValue < $1.account.rawValue }
        let (much, little) = (movers[0], movers[1])
        let client = try much.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        let chunks = (0..<1500).map { content($0, count: 100) }
        #expect(house.store(chunks, with: client).allSatisfy { $0.isSuccess })
        let other = try little.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: other).allSatisfy { $0.isSuccess })
        try house.close(much, upload: upload(1))
        try house.close(little, upload: upload(1))
        house.cloud.network.run(within: .seconds(5)) { (try? house.used(by: little.account)) == 0 }
        #expect(try house.used(by: little.account) == 0)
        #expect(try house.chunkCount(of: much.account) > 500)
        house.cloud.network.run(within: .seconds(5)) { (try? house.used(by: much.account)) == 0 }
        #expect(try house.used(by: much.account) == 0)
    }

    @Test func roomThatIsGivenWhileChunksAreCommittedCounts() throws {
        let house = try BulkHouse()
        let mover = try TestBulk(of: house.cloud)
        let good = try ticket(house.open(mover, upload: upload(1), bytes: 100_000))
        try mover.send(BulkFrame.control(.credit, good, number: 1))
        let network = house.cloud.network
        network.run(for: .seconds(1))
        // The rows of the first chunk and the room for the second meet in one transaction.
        network.faults.latency = .milliseconds(1)...(.milliseconds(1))
        network.offloadTime = .milliseconds(5)
        try mover.send(frame(good, number: 1, content(1)))
        network.run(for: .milliseconds(5))
        var request = WireOpenTransfer()
        request.transferID = Data(upload(1))
        request.uploadBytes = 200_000
        let answer = try mover.client.begin(
            "OpenTransfer", request, at: .requests(.documents), accessToken: mover.accessToken)
        network.run(within: .seconds(5)) { answer.result != nil && !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
        #expect(try answer.result?.get().decode(WireOpenTransferReply.self).reservedBytes == 200_000)
        mover.clear()
        try mover.send(frame(good, number: 2, content(2)))
        network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.kind == .stored)
    }
}
