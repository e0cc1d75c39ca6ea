import Core
import Foundation
import NephosKit
import Testing

@Suite struct SessionTests {
    @Test func sessionWorksOverTheRealTransportWithoutAServer() async throws {
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        let session = try await Session.open(home: home)
        let store = try session.keyValueStore(app: AppID("app.one"))
        try store.set("x", forKey: "a")
        try store.transaction { $0 = ["b": 2, "c": true] }
        #expect(store.string(forKey: "a") == "x")
        #expect(store.longLong(forKey: "b") == 2)
        #expect(store.bool(forKey: "c"))
        #expect(!store.synchronize())
        #expect(try await store.status().problem?.code == .notSignedIn)
        await #expect(throws: CloudError.self) { try await session.whoAmI() }
        session.close()
        let again = try await Session.open(home: home)
        #expect(try again.keyValueStore(app: AppID("app.one")).string(forKey: "a") == "x")
        again.close()
    }
}
