import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

extension TestCloud {
    /// Everybody is in sync, and stays so when the next heartbeats have come.
    func settleForGood() {
        #expect(settle())
        network.run(for: .seconds(15))
        #expect(settle())
    }

    /// Whether it becomes so in time; looked at once a second, where looking costs much.
    func passes(within limit: Duration, _ condition: () -> Bool) -> Bool {
        let end = network.now + limit
        while !condition() {
            guard network.now < end else { return false }
            network.run(for: .seconds(1))
        }
        return true
    }

    /// The operator ends the device's sign-in.
    func revoke(_ device: TestDevice) throws {
        var revoke = WireRevokeDevice()
        revoke.accountName = Self.accountName
        revoke.deviceID = try #require(device.session?.deviceID.rawValue)
        try operate("RevokeDevice", revoke, as: WireRevokeDeviceReply.self)
    }

    /// An app that may use the one store.
    @discardableResult
    func createApp(_ id: String, store: String) throws -> WireApp {
        var app = WireApp()
        app.appID = id
        app.storeID = store
        try createApp(app)
        return app
    }

    func health(of service: ServiceName) throws -> WireCheckHealthReply {
        try makeClient().call("CheckHealth", WireCheckHealth(), at: .requests(service))
    }
}

extension TestDevice {
    /// Sets a key of the app's store; nil deletes it.
    func set(_ key: ItemName, _ value: PropertyValue?) throws {
        try #require(store).set(value, forKey: key)
    }
}

/// The code of what the body throws.
func refusal(_ body: () throws -> Void) -> CloudError.Code? {
    do { try body() } catch { return (error as? CloudError)?.code }
    return nil
}
