import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Whatever a server says, a device neither traps nor keeps from its user what can be read.
@Suite struct HostileReplyTests {
    private func item(_ key: String, _ number: Int64, edit: (inout WireKeyValueItem) -> Void = { _ in })
        -> WireKeyValueItem
    {
        var item = WireKeyValueItem(
            KeyValueItem(
                key: ItemName(key), value: .integer(number), timestamp: HybridTimestamp(rawValue: 1 << 16),
                deviceID: DeviceID("dev_other"), sequence: 1))
        edit(&item)
        return item
    }

    /// A device whose first pull brings these items.
    private func device(_ items: [WireKeyValueItem], edit: (inout WireReadChangesReply) -> Void = { _ in }) throws
        -> Device
    {
        let device = try Device()
        var reply = WireReadChangesReply()
        reply.items = items
        reply.complete = true
        reply.token = WireChangeToken(ChangeToken(epoch: 1, sequence: 1))
        edit(&reply)
        let frame = Frame(encoding: reply)
        device.cloud.overrides["ReadChanges"] = { _ in .success(frame) }
        try device.signIn()
        device.network.run(for: .seconds(5))
        return device
    }

    @Test func whatCannotBeReadDoesNotKeepTheRestAway() throws {
        let device = try device([
            item("good", 1),
            item("a\0b", 2), item("", 3),
            item("no type", 4) { $0.value = WirePropertyValue() },
            item("twice", 5) {
                var entry = WirePropertyDictionary.Entry()
                entry.key = "k"
                entry.value = WirePropertyValue(.integer(1))
                $0.value.dictionary.entries = [entry, entry]
            },
            item("good too", 6),
        ])
        #expect(try device.store.dictionary() == ["good": 1, "good too": 6])
        #expect(try device.store.status().problem?.code == .storeOutOfStep)
    }

    // A release to come has kinds of values that this one does not know: the key is neither gone nor older there.
    @Test func whatIsNewerThanThisDeviceStaysAsItWasHere() throws {
        let device = try Device.ready()
        device.cloud.write("k", 1, at: device.now)
        device.store.pull()
        device.network.run(for: .seconds(1))
        #expect(try device.store.dictionary() == ["k": 1])
        (device.changes, device.cloud.requests) = ([], [])
        var reply = WireReadChangesReply()
        reply.items = [item("k", 2) { $0.value = WirePropertyValue() }]
        reply.token = WireChangeToken(ChangeToken(epoch: device.cloud.head.epoch, sequence: 9))
        reply.digestKey = .init(device.cloud.digestKey)
        reply.digest = .init(repeating: 9, count: 32)
        let newer = reply
        device.cloud.overrides["ReadChanges"] = { request in
            var reply = newer
            reply.complete = (try? request.body.decode(WireReadChanges.self))?.after.sequence == 0
            return .success(Frame(encoding: reply))
        }
        device.store.pull()
        device.network.run(for: .seconds(60))
        #expect(try device.store.dictionary() == ["k": 1])
        #expect(device.changes.isEmpty && device.cloud.pushes().isEmpty)
        #expect(try device.store.status().problem?.code == .storeOutOfStep)
    }

    @Test func oneKeyTwiceInAReplyEndsNoDevice() throws {
        let device = try device([item("k", 1), item("k", 2)])
        #expect(try device.store.dictionary().count == 1)
    }

    @Test func theGreatestNumbersEndNoDevice() throws {
        let device = try device([
            item("k", 1) {
                $0.timestamp = .max
                $0.sequence = .max
            }
        ]) {
            $0.token = WireChangeToken(ChangeToken(epoch: .max, sequence: .max))
            $0.epochStart = .max
            $0.usage.totalBytesMax = .max
            $0.usage.valueBytesMax = .max
            $0.usage.keyCountMax = .max
            $0.usage.keyBytesMax = .max
        }
        #expect(try device.store.dictionary() == ["k": 1])
        #expect(device.store.engine.local.storedHead == ChangeToken(epoch: .max, sequence: .max))
        try device.store.set(2, forKey: "k")
        device.network.run(for: .seconds(5))
    }
}

extension LocalStore {
    fileprivate var storedHead: ChangeToken? {
        let scope = StoreScope(account: AccountID("acc_one"), store: StoreID("store.one"))
        return try? read { try StoreTransaction($0, scope).state().head }
    }
}
