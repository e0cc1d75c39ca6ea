import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

/// Whose a write is, and what a request id stands for.
@Suite struct IdentityOfRequestsTests {
    @Test func aWriteCannotNameAnotherAccountsDevice() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        try cloud.createAccount("mallory")
        let ann = try Guest(of: cloud)
        let mallory = try Guest(of: cloud, account: "mallory", seed: 2)
        for name in [ann.device, "dev_one", "no/device", mallory.device.uppercased()] {
            let reply = try mallory.ask(mallory.push([mallory.write("k", 1, by: name)]))
            #expect(reply.code == .permissionFailure, "\(name)")
        }
        #expect(try mallory.pull().get().items.isEmpty)
        #expect(try mallory.ask(mallory.push([mallory.write("k", 1, by: mallory.device)])).code == nil)
    }

    @Test func aWriteOfADeviceThatIsGoneIsOfferedAgainUnderItsName() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        let gone = try Guest(of: cloud)
        let here = try Guest(of: cloud, seed: 2)
        var revoke = WireRevokeDevice()
        revoke.deviceID = gone.device
        #expect(try here.ask(revoke, to: .identity).code == nil)
        let reply = try here.ask(here.push([here.write("k", 1, by: gone.device)])).decoded(as: WirePushKeysReply.self)
        #expect(reply.outcomes.map(\.current.deviceID) == [gone.device])
    }

    @Test func anIdStandsForOneMethodAndOneBody() throws {
        let cloud = try TestCloud(seed: 4)
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let id = guest.operation()
        let push = guest.push([guest.write("a", "one")])
        let first = try guest.ask(push, id: id)
        let second = try guest.ask(push, id: id)
        #expect(try first.result.get().bytes == second.result.get().bytes)
        // As many writes, of the same key: nothing but the value tells them apart.
        var other = push
        other.writes[0].value = WirePropertyValue(.string("two"))
        #expect(try guest.ask(other, id: id).code == .operationReused)
        #expect(try guest.pull().get().items.map(\.value.string) == ["one"])
        // Another service is another place.
        var rename = WireRenameDevice()
        rename.deviceID = guest.device
        rename.name = "renamed"
        #expect(try guest.ask(rename, to: .identity, id: id).code == nil)
        rename.name = "renamed again"
        #expect(try guest.ask(rename, to: .identity, id: id).code == .operationReused)
        var revoke = WireRevokeDevice()
        revoke.deviceID = guest.device
        #expect(try guest.ask(revoke, to: .identity, id: id).code == .operationReused)
    }
}
