import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Answers to pushes that come after something newer: another epoch, or a listing that was made after them.
@Suite struct LateAnswerTests {
    @Test func anAnswerFromAnEpochThatIsOverIsNotStored() throws {
        let device = try Device.ready()
        try device.store.set(1, forKey: "first")
        device.network.run(for: .seconds(1))
        let old = device.cloud.head
        // The answer to this push was kept from before a restore, of which the device has heard meanwhile.
        device.cloud.overrides["PushKeys"] = { request in
            guard let push = try? request.body.decode(WirePushKeys.self), push.head.epoch == old.epoch else {
                return nil
            }
            var reply = WirePushKeysReply()
            reply.token = WireChangeToken(ChangeToken(epoch: old.epoch, sequence: old.sequence + 7))
            reply.previousSequence = old.sequence
            reply.outcomes = push.writes.map { write in
                var outcome = WireKeyOutcome()
                outcome.current.key = write.key
                outcome.current.timestamp = write.timestamp
                outcome.current.sequence = old.sequence + 7
                guard write.key == "lost" else { return outcome }
                // To a value that is too long for a reply.
                outcome.superseded = true
                outcome.valueOmitted = true
                outcome.current.timestamp += 1
                outcome.current.deviceID = "dev_other"
                outcome.current.sequence = old.sequence
                return outcome
            }
            return .success(Frame(encoding: reply))
        }
        // It was sent before that, and is answered after it.
        device.cloud.lossy = ["PushKeys"]
        try device.store.write(["k", "l", "lost"].map { LocalWrite(key: $0, value: 2) })
        device.network.run(for: .milliseconds(200))
        device.cloud.restore(to: device.cloud.items, sequence: old.sequence)
        device.cloud.deliver { $0.heads = [device.cloud.scopeHead] }
        device.network.run(for: .seconds(1))
        #expect(try device.state().head.epoch == old.epoch + 1)
        device.cloud.lossy = []
        let sent = device.cloud.requests("PushKeys").count
        while device.cloud.requests("PushKeys").count == sent { device.network.run(for: .milliseconds(1)) }
        #expect(try device.state().head == device.cloud.head)
        let scope = try #require(device.store.scope)
        #expect(try device.local.read { try StoreTransaction($0, scope).item("k") } == nil)
        #expect(try device.state().digest == device.cloud.digest)
        // Nor is it lost: what was brought back does not have it. Together, as it was written.
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items.mapValues(\.value) == ["first": 1, "k": 2, "l": 2, "lost": 2])
        #expect(Set(["k", "l", "lost"].map { device.cloud.items[$0]?.sequence }).count == 1)
        #expect(try device.store.status().isInSync)
    }

    @Test(arguments: [true, false])
    func aDeletionWhoseAnswerAListingOvertakesIsRememberedWithItsOwnTime(isOfAnOldEpoch: Bool) throws {
        let device = try Device.ready()
        try device.store.set("mine", forKey: "a")
        device.network.run(for: .milliseconds(200))
        // Other devices' writes that this one never sees.
        device.cloud.write("a", "unseen", at: device.now)
        device.cloud.write("b", "unseen", at: device.now)
        let backup = device.cloud.items
        let sequence = device.cloud.head.sequence
        device.network.run(for: .milliseconds(10))
        device.cloud.lossy = ["PushKeys"]
        for key: ItemName in ["a", "b"] { try device.store.set(nil, forKey: key) }
        device.network.run(for: .milliseconds(200))
        #expect(device.cloud.items.values.allSatisfy { $0.value == nil })
        var listings = 0
        device.cloud.overrides["ReadChanges"] = { request in
            guard (try? request.body.decode(WireReadChanges.self))?.after.sequence != 0 else {
                listings += 1
                return nil
            }
            return .failure(CloudError(.changeTokenExpired, "Too old."))
        }
        func bringBack() {
            device.cloud.overrides = [:]
            let answers = device.cloud.answers
            device.cloud.restore(to: backup, sequence: sequence)
            // The first answer is still on its way.
            if isOfAnOldEpoch { device.cloud.answers = answers }
            device.cloud.deliver { $0.heads = [device.cloud.scopeHead] }
            device.network.run(for: .seconds(2))
        }
        device.store.pull()
        device.network.run(for: .milliseconds(200))
        #expect(listings == 1)
        #expect(try device.store.status().pending.count == 2)
        if isOfAnOldEpoch { bringBack() }
        device.cloud.lossy = []
        device.network.run(for: .seconds(30))
        if !isOfAnOldEpoch {
            #expect(try device.store.status().isInSync)
            bringBack()
        }
        #expect(device.cloud.items.mapValues(\.value) == ["a": nil, "b": nil])
        #expect(try device.store.dictionary().isEmpty)
        #expect(try device.store.status().isInSync)
    }
}
