import NephosBulk
import NephosContent
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// The documents service comes back from an old copy of its database. The files that content lies in stay as they are.
@Suite struct OldCopyTests {
    private func revoke(_ mover: TestBulk, _ house: BulkHouse) throws {
        var request = WireRevokeDevice()
        request.accountName = TestCloud.accountName
        request.deviceID = mover.device.rawValue
        try house.cloud.operate("RevokeDevice", request, as: WireRevokeDeviceReply.self)
        house.cloud.network.run(for: .seconds(1))
    }

    @Test func whatTheCopyKnowsIsFetchedAndWhoHasEndedSinceStaysOut() throws {
        // Uploads stand for contents here, and stay.
        var configuration = Transfers.Configuration()
        configuration.retention = .seconds(24 * 3600)
        let house = try BulkHouse(configuration: configuration)
        let network = house.cloud.network
        let mover = try TestBulk(of: house.cloud)
        // A segment of its own for each.
        let early = (0..<4).map { content($0, count: 1 << 20) }
        let first = try mover.connect(BulkClient.Purpose(upload: upload(1), uploadBytes: 8 << 20))
        #expect(house.store(early, with: first).allSatisfy { $0.isSuccess })
        let copy = try house.cloud.copyStorage(of: .documents)

        // All of it is removed, and other content comes.
        try house.close(mover, upload: upload(1))
        let late = content(20)
        let second = try mover.connect(BulkClient.Purpose(upload: upload(2), uploadBytes: 8 << 20))
        #expect(house.store([late], with: second).allSatisfy { $0.isSuccess })
        network.run(for: .seconds(1800))
        #expect(try house.chunkCount(of: mover.account) == 1)
        let lost = try TestBulk(of: house.cloud)
        _ = try house.open(lost)
        try revoke(lost, house)

        try house.cloud.restore(copy, of: .documents)
        network.run(for: .seconds(5))
        #expect(code { _ = try house.open(lost) } == .deviceRevoked)
        let reader = try mover.connect(BulkClient.Purpose())
        #expect(try house.fetch(early.map { id(of: $0) }, with: reader).map { try $0.get() } == early)
        // What the copy has never heard of is said not to be there, and is stored again.
        #expect(house.fetch([id(of: late)], with: reader).map(\.code) == [.unknownItem])
        let again = try mover.connect(BulkClient.Purpose(upload: upload(3), uploadBytes: 8 << 20))
        #expect(house.store([late], with: again).allSatisfy { $0.isSuccess })
        // Nor does anything go later that the copy knows.
        network.run(for: .seconds(3600))
        let last = try mover.connect(BulkClient.Purpose())
        #expect(
            try house.fetch([id(of: late)] + early.map { id(of: $0) }, with: last).map { try $0.get() } == [late]
                + early)
    }
}
