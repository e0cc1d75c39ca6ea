import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What a home keeps of whom, and for whom.
@Suite struct HomeTests {
    @Test func nothingOfAnAccountStaysWhenAnotherSignsIn() throws {
        let cloud = try TestCloud(seed: 51)
        defer { cloud.close() }
        try cloud.createAccount("anna")
        try cloud.createAccount("bert")
        let device = try cloud.addDevice(to: "anna")
        try device.store?.set("of anna", forKey: "sent")
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        try device.store?.set("of anna", forKey: "unsent")
        let anna = try #require(device.store?.scope)
        func kept() throws -> [Int] {
            try device.local.read { database in
                let store = StoreTransaction(database, anna)
                return [try store.items().count, try store.rows.operationCount(), try store.state().synced ? 1 : 0]
            }
        }
        #expect(try kept() == [1, 1, 1])
        try device.signIn(as: "bert", discardsUnsent: true)
        #expect(try kept() == [0, 0, 0])
    }

    /// And the other's sign-in is taken back at the server, also by a clock that is wrong.
    @Test(arguments: [0, -40 * 86_400])
    func whatIsWrittenWhileAnotherSignsInIsNotLost(_ clockOffset: Int) throws {
        let cloud = try TestCloud(seed: 52)
        defer { cloud.close() }
        try cloud.createAccount("anna")
        try cloud.createAccount("bert")
        let device = try cloud.addDevice(to: "anna")
        #expect(cloud.settle())
        cloud.crash(.keyValue)
        device.setClockOffset(.seconds(clockOffset))
        let connection = try cloud.connection
        let request = SignInRequest(
            identity: SessionRecord.Service(
                service: ServiceName.identity.rawValue, publicKey: connection.key.z85,
                requests: [connection.endpoint], subscriptions: []),
            accountName: "bert", password: TestCloud.password, deviceName: "home")
        var result: Result<SessionRecord, CloudError>?
        device.engine?.signIn(request) { result = $0 }
        // It waited for nothing when the sign-in began.
        try device.store?.set("of anna", forKey: "k")
        cloud.network.run(within: .seconds(60)) { result != nil }
        let refused = #expect(throws: CloudError.self) { try #require(result).get() }
        #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "1")
        cloud.network.run(for: .seconds(1))
        var list = WireListDevices()
        list.accountName = "bert"
        let known = try cloud.operate("ListDevices", list, as: WireListDevicesReply.self).devices
        // One that has signed out is not listed.
        #expect(known.isEmpty)
        try cloud.start(.keyValue)
        #expect(cloud.settle(within: .seconds(60)))
        #expect(device.session?.accountName == "anna" && device.values == ["k": "of anna"])
    }

    /// An app's first token tells which store is its own. What it has written before goes there.
    @Test func whatAnAppWritesBeforeItsStoreIsKnownIsSent() throws {
        let cloud = try TestCloud(seed: 53)
        defer { cloud.close() }
        try cloud.createApp("T.second", store: "T.shared")
        let device = try cloud.addDevice()
        #expect(cloud.settle())
        device.setOffline(true)
        let store = try #require(device.engine?.keyValue(AppID("T.second")))
        try store.set("early", forKey: "k")
        cloud.network.run(for: .seconds(10))
        device.setOffline(false)
        #expect(cloud.network.run(within: .seconds(120)) { (try? store.status().isInSync) == true })
        let guest = try Guest(of: cloud, app: "T.second")
        #expect(try guest.pull().get().items.map(\.key) == ["k"])
        #expect(try store.dictionary() == ["k": "early"])
    }

    @Test func aHomeFromAnOldImageLosesNothing() throws {
        let cloud = try TestCloud(seed: 16)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        try devices[0].set("a", 1)
        #expect(cloud.settle())
        devices[0].setOffline(true)
        try devices[0].set("b", 1)
        // The image holds a write that was never sent; what goes out later under its id is another.
        let image = try devices[0].copyHome()
        try devices[0].set("b", 2)
        devices[0].setOffline(false)
        #expect(cloud.settle())
        try devices[1].set("c", 3)
        try devices[1].set("a", nil)
        #expect(cloud.settle())
        try devices[0].restoreHome(image)
        cloud.settleForGood()
        for device in devices { #expect(device.values == ["b": 2, "c": 3]) }
    }
}
