import NephosBulk
import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// An account that may store nothing is told so, everywhere, and stores when it may.
@Suite struct NothingTests {
    private func savePlan(_ size: UInt64, in house: BulkHouse) throws {
        try house.cloud.savePlan("nothing", bytes: size)
    }

    private func refusal(_ body: () throws -> Void) -> CloudError? {
        do { try body() } catch { return CloudError(wrapping: error) }
        return nil
    }

    @Test func anAccountThatMayStoreNothingIsToldSoAtOnce() throws {
        let house = try BulkHouse()
        try savePlan(0, in: house)
        try house.cloud.createAccount("guest", plan: "nothing")
        let mover = try TestBulk(of: house.cloud, account: "guest")
        for bytes in [1, 1 << 20, UInt64.max] {
            let before = house.cloud.network.now
            let refused = refusal { _ = try house.open(mover, upload: upload(1), bytes: bytes) }
            #expect(refused?.code == .quotaExceeded)
            #expect(refused?.details["plan_bytes"] == "0")
            #expect(house.cloud.network.now - before < .milliseconds(200))
        }
        // An upload of no room takes nothing.
        let good = try ticket(house.open(mover, upload: upload(2), bytes: 0))
        try mover.send(frame(good, content(1)))
        house.cloud.network.run(within: .seconds(5)) { !mover.frames.isEmpty }
        #expect(mover.frames.first?.failure.code == .quotaExceeded)
        #expect(try house.diskBytes(of: mover.account) == 0)
        let client = try mover.connect(BulkClient.Purpose(upload: upload(3), uploadBytes: 1 << 20))
        #expect(house.store([content(1)], with: client).map(\.code) == [.quotaExceeded])
        #expect(
            house.fetch([id(of: content(1))], with: try mover.connect(BulkClient.Purpose())).map(\.code) == [
                .unknownItem
            ])
        let storage: WireReadStorageReply = try mover.client.call(
            "ReadStorage", WireReadStorage(), at: .requests(.identity), accessToken: mover.accessToken)
        #expect(storage.hasPlan && storage.plan.hasSizeBytes && storage.plan.sizeBytes == 0 && storage.level == 100)
        try house.close(mover, upload: upload(2))

        // Once it has a plan of something it goes on by itself.
        try savePlan(1 << 20, in: house)
        house.cloud.network.run(for: .seconds(3))
        let larger = try mover.connect(BulkClient.Purpose(upload: upload(4), uploadBytes: 1 << 19))
        #expect(house.store([content(1)], with: larger).allSatisfy { $0.isSuccess })
        // And back: what is stored stays, nothing is added.
        try savePlan(0, in: house)
        house.cloud.network.run(for: .seconds(3))
        #expect(try house.fetch([id(of: content(1))], with: larger).first?.get() == content(1))
        #expect(code { _ = try house.open(mover, upload: upload(4), bytes: 1 << 20) } == .quotaExceeded)
        try house.close(mover, upload: upload(4))
        house.cloud.network.run(for: .seconds(3))
        #expect(try house.used(by: mover.account) == 0)
    }

    @Test func aPlanWithoutASizeIsNone() throws {
        let house = try BulkHouse()
        var plan = WireSavePlan()
        plan.plan.planID = "nothing"
        let refused = refusal { try house.cloud.operate("SavePlan", plan, as: WireSavePlanReply.self) }
        #expect(refused?.code == .invalidArguments)
    }
}
