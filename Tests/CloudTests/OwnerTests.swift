import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// Scopes of others are answered like scopes that do not exist.
@Suite struct OwnerTests {
    @Test func nobodyElsesStoreIsReadOrFollowed() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        #expect(try guest.ask(guest.push([guest.write("secret", "text")])).code == nil)
        try cloud.createAccount("bert")
        let curious = try Guest(of: cloud, account: "bert")
        func code(_ subscribe: WireSubscribe) -> CloudError.Code? {
            refusal {
                let _: WireSubscribeReply = try curious.client.call(
                    "Subscribe", subscribe, at: .subscriptions, accessToken: curious.session.accessToken.token)
            }
        }
        let app = guest.session.accessToken.app
        let owners = [guest.session.accountID, "app/" + app.appID, "directory", "acct_nobody", "app/"]
        for owner in owners {
            var read = WireReadChanges()
            read.scope = app.storeID
            read.owner = owner
            #expect(try curious.ask(read).code == .missingEntitlement, "\(owner)")
            var scope = WireSubscribedScope()
            scope.service = "keyvalue"
            scope.scope = app.storeID
            scope.owner = owner
            var subscribe = WireSubscribe()
            subscribe.scopes = [scope]
            #expect(code(subscribe) == .missingEntitlement, "\(owner)")
            scope.service = "identity"
            scope.scope = owner == "directory" ? "directory" : "account"
            subscribe.scopes = [scope]
            #expect(code(subscribe) == .missingEntitlement, "\(owner)")
        }
    }
}
