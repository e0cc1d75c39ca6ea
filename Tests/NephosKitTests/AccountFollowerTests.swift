import NephosBus
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

@Suite struct AccountFollowerTests {
    @Test func thePlanIsFollowedAgainAfterIdentityWasAwayForLongerThanATokenLives() throws {
        let device = try Device()
        var (isAway, followed) = (true, 0)
        device.cloud.overrides["Subscribe"] = { request in
            guard let wire = try? request.body.decode(WireSubscribe.self), wire.scopes.first?.service == "identity"
            else { return nil }
            guard !isAway else { return .failure(CloudError(.serviceUnavailable, "Away.")) }
            guard request.accessToken != "access-1" else { return .failure(CloudError(.tokenExpired, "Old.")) }
            followed += 1
            return nil
        }
        device.cloud.lifetime = 60_000
        try device.signIn()
        // The connection stays.
        func pass(seconds: Int) {
            for _ in 0..<(seconds / 4) {
                device.network.run(for: .seconds(4))
                device.cloud.deliver { ($0.heartbeat, $0.scopeCount) = (true, 10) }
            }
        }
        pass(seconds: 200)
        #expect(followed == 0)
        isAway = false
        pass(seconds: 32)
        #expect(followed == 1)
        pass(seconds: 60)
        #expect(followed == 1)
    }

    @Test func aStoresNextTokenFollowsThePlanAtOnce() throws {
        let device = try Device()
        var tokens: [String] = []
        device.cloud.overrides["Subscribe"] = { request in
            guard let wire = try? request.body.decode(WireSubscribe.self), wire.scopes.first?.service == "identity"
            else { return nil }
            tokens.append(request.accessToken)
            return request.accessToken == "access-1" ? .failure(CloudError(.permissionFailure, "Not this.")) : nil
        }
        device.cloud.lifetime = 60_000
        try device.signIn()
        // The connection stays, and the next attempt would be after a minute.
        for _ in 0..<12 {
            device.network.run(for: .seconds(4))
            device.cloud.deliver { ($0.heartbeat, $0.scopeCount) = (true, 10) }
        }
        #expect(tokens == ["access-1", "access-1", "access-2"])
    }
}
