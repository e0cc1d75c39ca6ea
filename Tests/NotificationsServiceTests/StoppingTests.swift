import NephosBus
import NephosCore
import NephosKit
import NephosNotifications
import NephosSimulation
import NephosWire
import Testing

@Suite struct StoppingTests {
    /// It does not have to find out by a heartbeat that does not come.
    @Test func whoeverIsSubscribedIsToldThatTheServiceStops() throws {
        // Made on the loop, and touched while it stands still.
        nonisolated(unsafe) let service = NotificationsService()
        let cloud = try TestCloud(seed: 5, factories: [.notifications: { _ in service }])
        defer { cloud.close() }
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
        service.stopsSoon()
        cloud.network.run(for: .milliseconds(100))
        let ended = try #require(client.deliveries.last.map { CloudError($0.ended) })
        #expect(ended.code == .serviceUnavailable && ended.retryAfter != nil)
    }
}
