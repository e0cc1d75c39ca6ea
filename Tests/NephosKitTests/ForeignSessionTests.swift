import Foundation
import NephosCore
import Synchronization
import Testing

@testable import NephosKit

/// What another process of the home does to the session, seen by one that cannot read it at once.
@Suite struct ForeignSessionTests {
    /// Secrets on a disk that can be made to fail.
    private final class FailingSecrets: SecretStore {
        private let inner = MemorySecrets()
        let fails = Mutex(false)

        func load(_ name: String) throws(CloudError) -> DeviceSecrets {
            if fails.withLock({ $0 }) { throw CloudError(.storageFailure, "The disk fails.") }
            return inner.load(name)
        }
        func save(_ secrets: DeviceSecrets, as name: String) { inner.save(secrets, as: name) }
        func hasOthers(than name: String?) -> Bool { inner.hasOthers(than: name) }
        func removeOthers(than name: String?) { inner.removeOthers(than: name) }
        func tryLock() -> Bool { inner.tryLock() }
        func unlock() { inner.unlock() }
    }

    // Else it would go on as it was, until another process happens to write again.
    @Test func aSessionWhoseSecretsCannotBeReadIsTakenUpOnceTheyCan() throws {
        let home = "nephos-foreign-\(UUID().uuidString)"
        let secrets = FailingSecrets()
        let device = try Device(local: try LocalStore(inMemory: home), secrets: secrets)
        try device.signIn()
        device.engine.checkForeign()
        let other = try LocalStore(inMemory: home)
        try other.write { database in
            var session = try #require(try Facts(database).session)
            session.deviceName = "elsewhere"
            try Facts(database).setSession(session)
        }
        secrets.fails.withLock { $0 = true }
        device.engine.checkForeign()
        #expect(device.engine.session?.deviceName != "elsewhere")
        secrets.fails.withLock { $0 = false }
        device.engine.checkForeign()
        #expect(device.engine.session?.deviceName == "elsewhere")
    }
}
