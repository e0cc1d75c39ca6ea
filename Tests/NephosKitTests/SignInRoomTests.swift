import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A sign-in that cannot be kept is not asked for: the server would take it for the device's, and end the one before.
@Suite struct SignInRoomTests {
    @Test func aSignInThatCouldNotBeKeptLeavesTheOneBefore() throws {
        let secrets = CrampedSecrets()
        let device = try Device(secrets: secrets)
        try device.signIn()
        device.network.run(for: .seconds(1))
        device.cloud.requests = []
        let before = device.engine.session
        secrets.isFull = true
        let refused = #expect(throws: CloudError.self) { try device.signIn() }
        #expect(refused?.message == LocalFailure.full)
        #expect(device.cloud.requests("SignIn").isEmpty)
        #expect(device.engine.session == before)
        secrets.isFull = false
        try device.signIn()
        #expect(device.cloud.requests("SignIn").count == 1)
        #expect(secrets.reserved == 0)
    }

    @Test func whatIsInTheWayOfAllIsTheReasonOfEachWrite() throws {
        let device = try Device.ready()
        let locked = CloudError(.accountTemporarilyUnavailable, "Locked.", retryAfter: .seconds(60))
        device.cloud.overrides = ["PushKeys": { _ in .failure(locked) }, "ReadChanges": { _ in .failure(locked) }]
        try device.store.set(1, forKey: "a")
        device.store.pull()
        device.network.run(for: .seconds(1))
        let pending = try #require(try device.store.status().pending.first)
        #expect(pending.state == .blocked && pending.reason == "Locked." && pending.blocker == .policy)
        #expect(pending.attempts == 1)
    }

    @Test func onlyWhatWasSentIsAnAttempt() throws {
        let device = try Device.ready()
        device.cloud.lossy = ["PushKeys"]
        try device.store.set("x", forKey: "a")
        device.network.run(for: .seconds(1))
        #expect(try device.store.status().pending.first?.attempts == 1)
        device.network.run(for: .seconds(12))
        #expect(try device.store.status().pending.first?.attempts ?? 0 >= 1)
    }

    @Test func aRefusedWriteNamesItsKey() throws {
        let device = try Device.ready()
        let deep = (0..<30).reduce(PropertyValue.integer(1)) { value, _ in .array([value]) }
        let long = ItemName(String(repeating: "k", count: 65))
        for (key, value) in [("large", .string(String(repeating: "x", count: 1 << 20))), ("deep", deep), (long, 1)]
            as [(ItemName, PropertyValue)]
        {
            let refused = #expect(throws: CloudError.self) {
                try device.store.write([LocalWrite(key: "fine", value: 1), LocalWrite(key: key, value: value)])
            }
            #expect(refused?.details["key"] == key.rawValue)
        }
        #expect(try device.store.dictionary().isEmpty)
    }
}

/// Secrets for which there may be no room.
private final class CrampedSecrets: SecretStore, @unchecked Sendable {
    private let secrets = MemorySecrets()
    // Only ever used by the test's own thread.
    var isFull = false
    private(set) var reserved = 0

    func load(_ name: String) -> DeviceSecrets { secrets.load(name) }
    func save(_ new: DeviceSecrets, as name: String) { secrets.save(new, as: name) }
    func hasOthers(than name: String?) -> Bool { secrets.hasOthers(than: name) }
    func removeOthers(than name: String?) { secrets.removeOthers(than: name) }
    func tryLock() -> Bool { secrets.tryLock() }
    func unlock() { secrets.unlock() }
    func reserveRoom() throws(CloudError) {
        guard !isFull else { throw CloudError(.storageFailure, LocalFailure.full) }
        reserved = 1
    }
    func releaseRoom() { reserved = 0 }
}
