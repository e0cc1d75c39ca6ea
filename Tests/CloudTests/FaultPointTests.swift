import Foundation
import NephosKit
import NephosSimulation
import NephosTestKit
import Testing

/// The list of names is the list of places: each name is reached, and no place has another.
@Suite struct FaultPointTests {
    @Test func everyNameIsReachedAndNoOther() async throws {
        let cloud = try await NephosTestKit.TestCloud()
        cloud.faults.record()
        let session = try await cloud.openSession(account: "anna", device: "phone")
        let store = try session.keyValueStore()
        try store.set("x", forKey: "k")
        try await store.ready()
        _ = try await session.storage()
        let path = session.home + "/defaults.json"
        let mirroring = Task { try await DefaultsMirror(store: store, path: path).run() }
        while !cloud.faults.reached.contains("device.mirror.note") { try await Task.sleep(for: .milliseconds(5)) }
        mirroring.cancel()
        _ = try? await mirroring.value
        try await cloud.settle()
        try await session.signOut()
        await cloud.advance(by: .seconds(10))
        let names = Set(FaultPoint.all.map(\.name))
        let reached = cloud.faults.reached
        #expect(reached.subtracting(names).isEmpty, "places without a name in the list")
        #expect(names.subtracting(reached).sorted() == [], "names without a place")
    }
}
