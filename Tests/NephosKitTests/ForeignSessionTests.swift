import Foundation
import NephosBus
import NephosCore
import NephosSimulation
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

    /// Also where this process writes to the session before it looks: it goes on with what is there now.
    @Test func newAddressesThatAnotherProcessHasSavedAreConnectedTo() throws {
        let home = "nephos-foreign-\(UUID().uuidString)"
        let device = try Device(local: try LocalStore(inMemory: home))
        try device.signIn()
        device.network.run(for: .seconds(1))
        let other = try LocalStore(inMemory: home)
        try other.write { database in
            var session = try #require(try Facts(database).session)
            for index in session.services.indices { session.services[index].nextPublicKey = "next" }
            try Facts(database).setSession(session)
        }
        device.cloud.requests = []
        try device.engine.changeSession { session, _ in session.deviceName = "renamed" }
        device.network.run(for: .seconds(1))
        device.engine.checkForeign()
        device.network.run(for: .seconds(1))
        #expect(device.engine.session?.services.first?.nextPublicKey == "next")
        #expect(device.cloud.requests("Subscribe").count == 2)
        #expect(device.engine.session?.deviceName == "renamed")
        // Its own changes are no news.
        device.cloud.requests = []
        try device.engine.changeSession { session, _ in session.deviceName = "renamed again" }
        device.network.run(for: .seconds(1))
        #expect(device.cloud.requests.isEmpty)
    }

    @Test func aDeviceThatIsTurnedAwaySaysSoThoughThatCannotBeSaved() throws {
        let isFull = Fullness()
        let local = try LocalStore { name in
            if name == "save", isFull.isFull.withLock({ $0 }) { throw POSIXError(.ENOSPC) }
        }
        let device = try Device(local: local)
        try device.signIn()
        device.network.run(for: .seconds(1))
        isFull.isFull.withLock { $0 = true }
        let revoked = CloudError(.deviceRevoked, "Revoked.", details: ["reason": "copied"])
        device.cloud.overrides["ReadChanges"] = { _ in .failure(revoked) }
        device.store.driver.pull()
        device.network.run(for: .seconds(10))
        #expect(device.engine.session?.ending?.details["reason"] == "copied")
        #expect(try device.store.status().problem?.code == .deviceRevoked)
        func saved() throws -> SessionRecord? { try local.read { try Facts($0).session } }
        #expect(try saved()?.revoked == false)
        isFull.isFull.withLock { $0 = false }
        device.network.run(for: .seconds(70))
        #expect(try saved()?.revoked == true && saved()?.wasCopied == true)
        try device.restart()
        #expect(device.engine.session?.ending?.details["reason"] == "copied")
    }

    /// Its home is another process's too, which knows nothing of it.
    @Test func whoIsTurnedAwayStaysSoWhateverAnotherProcessSaves() throws {
        let (home, isFull) = ("nephos-foreign-\(UUID().uuidString)", Fullness())
        let local = try LocalStore(inMemory: home) { name in
            if name == "save", isFull.isFull.withLock({ $0 }) { throw POSIXError(.ENOSPC) }
        }
        let device = try Device(local: local)
        try device.signIn()
        device.network.run(for: .seconds(1))
        isFull.isFull.withLock { $0 = true }
        device.cloud.overrides["ReadChanges"] = { _ in .failure(CloudError(.deviceRevoked, "Revoked.")) }
        device.store.driver.pull()
        device.network.run(for: .seconds(10))
        #expect(device.engine.session?.revoked == true)
        let other = try LocalStore(inMemory: home)
        try other.write { database in
            var session = try #require(try Facts(database).session)
            session.deviceName = "renamed"
            try Facts(database).setSession(session)
        }
        device.engine.checkForeign()
        #expect(device.engine.session?.revoked == true && device.engine.session?.deviceName == "renamed")
        #expect(try device.store.status().problem?.code == .deviceRevoked)
        // Whatever is saved next has it.
        isFull.isFull.withLock { $0 = false }
        try device.engine.changeSession { session, _ in session.deviceName = "again" }
        #expect(try local.read { try Facts($0).session }?.revoked == true)
    }

    /// Whether the disk has room for nothing more.
    private final class Fullness: Sendable {
        let isFull = Mutex(false)
    }
}
