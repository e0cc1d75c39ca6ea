import NephosBus
import NephosCore
import NephosKit
import NephosNotifications
import NephosSimulation
import NephosWire
import Testing

/// A subscription ends with its token, and not with the heartbeat that looks for it.
@Suite struct TokenEndTests {
    @Test func nothingIsDeliveredBetweenATokensEndAndTheNextHeartbeat() throws {
        let cloud = try TestCloud(
            seed: 5,
            factories: [
                .notifications: { _ in
                    var configuration = NotificationsConfiguration()
                    configuration.heartbeat = .seconds(36_000)
                    return NotificationsService(configuration: configuration)
                }
            ])
        defer { cloud.close() }
        try cloud.addDevice()
        guard cloud.settle() else { throw CloudError(.deadlineExceeded, "The device did not settle.") }
        let client = try cloud.makeClient()
        var signIn = WireSignIn()
        signIn.accountName = TestCloud.accountName
        signIn.password = TestCloud.password
        signIn.deviceName = "bare"
        let session: WireSignInReply = try client.call("SignIn", signIn, at: .requests(.identity))
        var scope = WireSubscribedScope()
        scope.service = ServiceName.keyValue.rawValue
        scope.scope = session.accessToken.app.storeID
        var subscribe = WireSubscribe()
        subscribe.scopes = [scope]
        try client.call(
            "Subscribe", subscribe, at: .subscriptions, accessToken: session.accessToken.token,
            as: WireSubscribeReply.self)

        func write(_ key: ItemName) throws {
            try cloud.devices[0].store?.set(1, forKey: key)
            cloud.network.run(for: .seconds(5))
            #expect(cloud.devices[0].isSettled)
        }
        cloud.network.run(for: .seconds(880))
        try write("before")
        #expect(client.notifications.count == 1)
        cloud.network.run(for: .seconds(30))
        try write("after")
        #expect(client.notifications.count == 1)
    }
}
