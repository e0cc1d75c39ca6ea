import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Testing

/// What a service learns that was away while identity's directory and another scope of its partition changed in turn.
@Suite struct InterleavedScopesTests {
    /// An account whose own scope lies beside the directory, as that of each 64th does.
    private func createNeighbour(_ cloud: TestCloud) throws -> AccountID {
        for number in 0..<2000 {
            let account = try cloud.createAccount("neighbour-\(number)")
            if ScopeName(account, "account").partition == directoryScope.partition { return account }
        }
        throw CloudError(.unknownItem, "No account lies there.")
    }

    @Test func whatAnotherScopeChangedMeanwhileHidesNoRevocation() throws {
        let cloud = try TestCloud(seed: 31)
        defer { cloud.close() }
        let neighbour = try createNeighbour(cloud)
        let lost = try Guest(of: cloud)
        let kept = try Guest(of: cloud, seed: 2)
        #expect(try lost.pull().code == nil)
        cloud.network.run(for: .seconds(2))

        cloud.crash(.keyValue)
        var revoke = WireRevokeDevice()
        revoke.deviceID = lost.device
        #expect(try kept.ask(revoke, to: .identity).code == nil)
        // The neighbour's plan fills up: its scope has the next sequence.
        var settle = WireSettleAllotment()
        settle.ownerID = Owner(neighbour).rawValue
        settle.revision = 1
        settle.wantedBytes = 1 << 40
        settle.usedBytes = 1 << 40
        let documents = try cloud.makeClient(asService: .documents)
        let reply: WireSettleAllotmentReply = try documents.call(
            "SettleAllotment", settle, at: .requests(.identity))
        #expect(reply.planBytes > 0)
        // And the directory the one after it.
        var app = WireApp()
        app.appID = "T.any"
        app.name = "Any"
        try cloud.createApp(app)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(10))

        let health: WireCheckHealthReply = try cloud.makeClient().call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
        #expect(health.followerLag["identity"] == 0)
        #expect(try lost.pull().code == .deviceRevoked)
        #expect(try kept.pull().code == nil)
    }
}
