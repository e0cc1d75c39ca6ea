import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What goes on while a service's disk is full, and after.
@Suite(.serialized) struct FullDiskTests {
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whileTheDiskIsFullDeletesAreTakenAndAfterwardsEverything() throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/keyvalue.sqlite")
        let cloud = try TestCloud(seed: 20, engines: [.keyValue: engine])
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let lost = try Guest(of: cloud, seed: 2)
        let value = PropertyValue.string(String(repeating: "x", count: 60_000))
        for number in 0..<8 { #expect(try guest.ask(guest.push([guest.write("k\(number)", value)])).code == nil) }
        #expect(!engine.isShortOfRoom)

        try disk.fill()
        var full: ReplyEnvelope?
        // What arrives together is one group: a delete is carried out also in the one that finds the disk full.
        cloud.network.faults = Faults(latency: .milliseconds(1)...(.milliseconds(1)))
        for number in 0..<1000 where full == nil {
            cloud.network.run(for: .milliseconds(5))
            try lost.send(lost.push([lost.write("never", nil)]))
            let reply = try guest.ask(guest.push([guest.write("k\(number % 8)", value)]))
            cloud.network.run(for: .milliseconds(5))
            #expect(lost.takeReplies().map(\.code) == [nil])
            if reply.code != nil { full = reply }
        }
        #expect(full?.code == .storageFailure && engine.isShortOfRoom)
        func saysSo() throws -> Bool {
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
            return health.shortOfRoom
        }
        #expect(try saysSo())
        // What was there is there, and can be read and deleted; nothing is added.
        #expect(try guest.pull().get().items.count == 8)
        // By another device: what it removes would be kept in the history, and take the room that it makes.
        let kept = SQL("SELECT COUNT(*) FROM key_history")
        let before = try engine.write { try $0.first(kept) { $0.integer(0) } }
        for number in 0..<4 { #expect(try lost.ask(lost.push([lost.write("k\(number)", nil)])).code == nil) }
        #expect(try engine.write { try $0.first(kept) { $0.integer(0) } } == before)
        #expect(try guest.ask(guest.push([guest.write("small", 1)])).code == .storageFailure)
        #expect(try guest.ask(guest.push([guest.write("k5", nil), guest.write("new", 1)])).code == .storageFailure)
        #expect(try guest.pull().get().items.map(\.key).sorted() == ["k4", "k5", "k6", "k7"])
        // And what identity says is heeded.
        var revoke = WireRevokeDevice()
        revoke.deviceID = lost.device
        #expect(try guest.ask(revoke, to: .identity).code == nil)
        cloud.network.run(for: .seconds(3))
        #expect(try lost.pull().code == .deviceRevoked)

        // Once there is room nobody has to start anything again.
        try disk.empty()
        #expect(try guest.ask(guest.push([guest.write("small", 1)])).code == nil)
        #expect(try !engine.isShortOfRoom && !saysSo())
        for number in 0..<40 {
            cloud.network.run(for: .milliseconds(5))
            #expect(try guest.ask(guest.push([guest.write("k\(number % 4)", value)])).code == nil)
        }
        let reply = try guest.pull().get()
        let store = ScopeName(AccountID(guest.session.accountID), "default")
        let counted = try engine.write { try Feed(over: $0).recount(store).digest }
        #expect(Array(reply.digest) == counted.bytes && reply.items.count == 9)
    }
}

/// What identity does while its disk is full.
extension FullDiskTests {
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whileIdentitysDiskIsFullOnlyWhatMakesRoomIsCarriedOut() throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/identity.sqlite")
        let cloud = try TestCloud(seed: 21, engines: [.identity: engine])
        defer { cloud.close() }
        let guest = try Guest(of: cloud)
        let lost = try Guest(of: cloud, seed: 2)
        try disk.fill()
        func create(_ number: Int) -> CloudError.Code? {
            var app = WireApp()
            app.appID = "T.app-\(number)"
            return refusal { try cloud.createApp(app) }
        }
        var number = 0
        while number < 20_000, !engine.isShortOfRoom {
            number += 1
            _ = create(number)
        }
        #expect(engine.isShortOfRoom)
        #expect(create(0) == .storageFailure)
        // A device is ended, and people sign in.
        var revoke = WireRevokeDevice()
        revoke.deviceID = lost.device
        #expect(try guest.ask(revoke, to: .identity).code == nil)
        try guest.signInAgain()
        try disk.empty()
        #expect(create(0) == nil)
    }
}
