import NephosKit
import NephosTestKit
import Testing

@Suite struct CloudInATestTests {
    @Test func theOtherDeviceSeesIt() async throws {
        let cloud = try await TestCloud()
        let phone = try await cloud.openSession(account: "anna")
        let laptop = try await cloud.openSession(account: "anna")
        try phone.keyValueStore().set("dark", forKey: "theme")
        try await cloud.settle()
        #expect(try laptop.keyValueStore().string(forKey: "theme") == "dark")
    }
}
