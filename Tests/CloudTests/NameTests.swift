import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

/// Names that look alike and have other bytes are two, in all of the cloud.
@Suite struct NameTests {
    private static let composed: ItemName = "caf\u{e9}"
    private static let decomposed: ItemName = "cafe\u{301}"

    /// A client of another language, which compares texts by their bytes.
    private struct Stranger {
        let client: TestClient
        let token: String
        let store: String
        let cloud: TestCloud

        init(_ cloud: TestCloud) throws {
            self.cloud = cloud
            client = try cloud.makeClient()
            var request = WireSignIn()
            request.accountName = TestCloud.accountName
            request.password = TestCloud.password
            request.deviceName = "another language"
            let reply: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
            token = reply.accessToken.token
            store = reply.accessToken.app.storeID
        }

        func push(_ writes: [(String, WirePropertyValue?)], store: String? = nil) throws -> WirePushKeysReply {
            var request = WirePushKeys()
            request.storeID = store ?? self.store
            request.writes = writes.map { key, value in
                var write = WireKeyWrite()
                write.key = key
                if let value { write.value = value }
                write.timestamp = HybridTimestamp(SimulatedNetwork.epoch.advanced(by: cloud.network.now)).rawValue
                return write
            }
            return try client.call("PushKeys", request, at: .requests(.keyValue), accessToken: token)
        }

        func push(_ key: ItemName, _ value: PropertyValue?) throws {
            _ = try push([(key.rawValue, value.map { WirePropertyValue($0) })])
        }
    }

    private func code(of body: () throws -> Void) -> CloudError.Code? {
        do { try body() } catch { return (error as? CloudError)?.code }
        return nil
    }

    private func cloud(devices: Int) throws -> TestCloud {
        let cloud = try TestCloud(seed: 7)
        for _ in 0..<devices { try cloud.addDevice() }
        return cloud
    }

    /// Whoever is not told by an event is by the next heartbeat.
    private func settles(_ cloud: TestCloud) -> Bool {
        cloud.network.run(for: .seconds(6))
        return cloud.settle()
    }

    @Test func bothFormsOfAKeyReachEveryDeviceAsTwoKeys() throws {
        let cloud = try cloud(devices: 2)
        defer { cloud.close() }
        let stranger = try Stranger(cloud)
        try stranger.push(Self.composed, 1)
        try stranger.push(Self.decomposed, 2)
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values == [Self.composed: 1, Self.decomposed: 2]) }

        // In one push, and to a device that begins with both.
        _ = try stranger.push([
            (Self.composed.rawValue, WirePropertyValue(3)), (Self.decomposed.rawValue, WirePropertyValue(4)),
        ])
        try cloud.addDevice()
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values == [Self.composed: 3, Self.decomposed: 4]) }
        #expect(Set(cloud.devices.map(\.digest)).count == 1)

        // One of them deleted leaves the other.
        try stranger.push(Self.composed, nil)
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values == [Self.decomposed: 4]) }
        #expect(Set(cloud.devices.map(\.digest)).count == 1)
    }

    @Test func aStoreThatOnlyLooksLikeTheAppsOwnIsNotServed() throws {
        let cloud = try cloud(devices: 0)
        defer { cloud.close() }
        try cloud.createAccount("other")
        var app = WireApp()
        app.appID = "T.Kiosk"
        try cloud.createApp(app)
        let client = try cloud.makeClient()
        var request = WireSignIn()
        request.accountName = "other"
        request.password = TestCloud.password
        request.deviceName = "kiosk"
        request.appID = app.appID
        let reply: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
        let token = reply.accessToken.token
        // The Kelvin sign, which Swift's strings take for a K.
        for (store, expected) in [("T.Kiosk", nil), ("T.\u{212A}iosk", CloudError.Code.missingEntitlement)] {
            var pull = WireReadChanges()
            pull.scope = store
            var subscribe = WireSubscribe()
            subscribe.scopes = [.with { ($0.service, $0.scope) = ("keyvalue", store) }]
            let pulled = code {
                try client.call(
                    "ReadChanges", pull, at: .requests(.keyValue), accessToken: token, as: WireReadChangesReply.self)
            }
            let subscribed = code {
                try client.call(
                    "Subscribe", subscribe, at: .subscriptions, accessToken: token, as: WireSubscribeReply.self)
            }
            #expect(pulled == expected)
            #expect(subscribed == expected)
        }
    }

    @Test func aKeyWithNULIsRefusedAtTheDoorAndInTheSDK() throws {
        let cloud = try cloud(devices: 1)
        defer { cloud.close() }
        let stranger = try Stranger(cloud)
        for key: ItemName in ["a\0b", "\0", ""] {
            #expect(code { try stranger.push(key, 1) } == .invalidArguments)
            #expect(code { try stranger.push(key, nil) } == .invalidArguments)
            #expect(code { try cloud.devices[0].store?.set(1, forKey: key) } == .invalidArguments)
            #expect(code { try cloud.devices[0].store?.set(nil, forKey: key) } == .invalidArguments)
        }
        #expect(settles(cloud) && cloud.devices[0].values.isEmpty)
    }

    @Test func aDictionaryMayHaveBothFormsOfAKeyAndKeepsThem() throws {
        let cloud = try cloud(devices: 2)
        defer { cloud.close() }
        let both: PropertyValue = .dictionary([Self.composed: 1, Self.decomposed: .array([2])])
        try Stranger(cloud).push("both", both)
        try cloud.devices[0].store?.set(both, forKey: "ours")
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values == ["both": both, "ours": both]) }
        #expect(Set(cloud.devices.map(\.digest)).count == 1)
    }

    @Test func aDictionaryWithOneKeyTwiceIsRefused() throws {
        let cloud = try cloud(devices: 1)
        defer { cloud.close() }
        var twice = WirePropertyValue()
        twice.dictionary.entries = [1, 2].map { number in
            .with { ($0.key, $0.value) = ("k", WirePropertyValue(.integer(number))) }
        }
        let stranger = try Stranger(cloud)
        #expect(code { _ = try stranger.push([("twice", twice)]) } == .invalidArguments)
        #expect(settles(cloud) && cloud.devices[0].values.isEmpty)
    }

    @Test func aValueWhoseTextOnlyLooksTheSameIsTold() throws {
        let cloud = try cloud(devices: 1)
        defer { cloud.close() }
        let stranger = try Stranger(cloud)
        try stranger.push("name", .string(Self.composed.rawValue))
        #expect(settles(cloud))
        let before = cloud.devices[0].changes.count
        try stranger.push("name", .string(Self.decomposed.rawValue))
        #expect(settles(cloud))
        #expect(cloud.devices[0].changes.dropFirst(before).map(\.changedKeys) == [["name"]])
        #expect(cloud.devices[0].values == ["name": .string(Self.decomposed.rawValue)])
    }

    @Test func whatSwiftCallsEqualIsOneKeyToAnApp() throws {
        let cloud = try cloud(devices: 2)
        defer { cloud.close() }
        let store = try #require(cloud.devices[0].store)
        // A new key is stored composed; the other spelling means the same key.
        try store.write([LocalWrite(text: Self.decomposed.rawValue, value: 1)])
        #expect(settles(cloud))
        #expect(cloud.devices[1].values == [Self.composed: 1])
        try store.write([LocalWrite(text: Self.decomposed.rawValue, value: 2)])
        #expect(settles(cloud))
        #expect(cloud.devices[1].values == [Self.composed: 2])

        // What another language has named stays as it is named, and the newest of several stands for all.
        let stranger = try Stranger(cloud)
        try stranger.push(Self.decomposed, 3)
        #expect(settles(cloud))
        try store.write([LocalWrite(text: Self.composed.rawValue, value: 4)])
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values == [Self.composed: 2, Self.decomposed: 4]) }
        try store.write([LocalWrite(text: Self.composed.rawValue, value: nil)])
        #expect(settles(cloud))
        for device in cloud.devices { #expect(device.values.isEmpty) }
        #expect(
            code {
                try store.write([
                    LocalWrite(text: Self.composed.rawValue, value: 1),
                    LocalWrite(text: Self.decomposed.rawValue, value: 1),
                ])
            } == .invalidArguments)
    }
}
