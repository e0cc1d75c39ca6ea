import NephosBus
import NephosCore
import NephosKit
import NephosSimulation
import Testing

/// Notifications through the whole cloud in one process.
@Suite struct DeliveryTests {
    private func house(_ devices: Int) throws -> TestCloud {
        let cloud = try TestCloud(seed: 42)
        for _ in 0..<devices { try cloud.addDevice() }
        guard cloud.settle() else { throw CloudError(.deadlineExceeded, "The devices did not settle.") }
        return cloud
    }

    private func changes(_ device: TestDevice, of key: ItemName) -> [ChangeReason] {
        device.changes.filter { $0.changedKeys.contains(key) }.map(\.reason)
    }

    @Test func aNewDeviceGetsInitialSyncAlsoForAnEmptyStore() throws {
        let cloud = try house(1)
        defer { cloud.close() }
        #expect(cloud.devices[0].changes.map(\.reason) == [.initialSyncChange])
        #expect(cloud.devices[0].changes[0].changedKeys.isEmpty)
    }

    @Test func theOthersAreToldAndTheOriginatorIsNot() throws {
        let cloud = try house(3)
        defer { cloud.close() }
        try cloud.devices[0].store?.set("dark", forKey: "theme")
        let told = cloud.network.run(within: .seconds(5)) {
            cloud.devices.dropFirst().allSatisfy { $0.values["theme"] == "dark" }
        }
        #expect(told)
        // Time for an echo to arrive, were there one.
        cloud.network.run(for: .seconds(5))
        #expect(changes(cloud.devices[0], of: "theme").isEmpty)
        for device in cloud.devices.dropFirst() {
            #expect(changes(device, of: "theme") == [.serverChange])
            #expect(device.changes.last?.device == cloud.devices[0].session?.deviceID)
            #expect(device.values["theme"] == "dark")
        }
    }

    @Test func devicesSubscribeAgainByThemselvesAfterARestart() throws {
        let cloud = try house(2)
        defer { cloud.close() }
        cloud.crash(.notifications)
        cloud.network.run(for: .seconds(1))
        try cloud.devices[0].store?.set(1, forKey: "while-down")
        cloud.network.run(for: .seconds(1))
        try cloud.start(.notifications)
        let told = cloud.network.run(within: .seconds(60)) { cloud.devices[1].values["while-down"] == 1 }
        #expect(told)
        try cloud.devices[0].store?.set(2, forKey: "after")
        let toldAgain = cloud.network.run(within: .seconds(5)) { cloud.devices[1].values["after"] == 2 }
        #expect(toldAgain)
    }

    @Test func aRefusedWriteIsToldToItsOwnDeviceAlone() throws {
        let cloud = try house(2)
        defer { cloud.close() }
        let long = ItemName(String(repeating: "k", count: 65))
        #expect(throws: CloudError.self) { try cloud.devices[0].store?.set(1, forKey: long) }
        cloud.network.run(for: .seconds(5))
        #expect(changes(cloud.devices[0], of: long) == [.quotaViolationChange])
        #expect(changes(cloud.devices[1], of: long).isEmpty)
        #expect(cloud.devices[0].values[long] == nil)
    }
}
