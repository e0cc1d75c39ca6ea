import GRDB
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A device whose own disk fails for a while, at any step of sending: it goes on by itself, and asks with pauses.
@Suite struct OwnDiskTests {
    private func execute(_ device: TestDevice, _ sql: String) throws {
        try device.local.write { try $0.execute(sql: sql) }
    }

    /// What happens to the table ends as on a full disk.
    private func fail(_ device: TestDevice, _ event: String) throws {
        try execute(device, "CREATE TRIGGER full BEFORE \(event) BEGIN SELECT RAISE(ABORT, 'full'); END")
    }

    private func heal(_ device: TestDevice) throws { try execute(device, "DROP TRIGGER full") }

    private func makeDevice(_ cloud: TestCloud) throws -> TestDevice {
        let device = try cloud.addDevice()
        cloud.settleForGood()
        // The write budget is known from here on.
        try device.set("warm", 1)
        #expect(cloud.settle())
        return device
    }

    private func expectInSync(_ cloud: TestCloud, _ device: TestDevice, within limit: Duration) throws {
        #expect(cloud.passes(within: limit) { device.isSettled })
        #expect(try device.store?.status().problem == nil)
    }

    @Test func aWriteThatCouldNotBeMarkedAsSentIsSentOnceItCan() throws {
        let cloud = try TestCloud(seed: 11)
        defer { cloud.close() }
        let device = try makeDevice(cloud)
        try device.set("k", 1)
        try fail(device, "UPDATE ON outbox")
        cloud.network.run(for: .seconds(5))
        #expect(try device.store?.status().problem?.code == .storageFailure)
        try heal(device)
        try expectInSync(cloud, device, within: .seconds(90))
    }

    // It is due at once by what is on disk: sent so, it would use up the budget within seconds.
    @Test func anAnswerThatCouldNotBeTakenInIsAskedForWithPauses() throws {
        let cloud = try TestCloud(seed: 12)
        defer { cloud.close() }
        let device = try makeDevice(cloud)
        try fail(device, "DELETE ON outbox")
        let before = cloud.requestCount(.keyValue)
        try device.set("k", 1)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.requestCount(.keyValue) - before < 30)
        #expect(try device.store?.status().problem?.code == .storageFailure)
        try heal(device)
        try expectInSync(cloud, device, within: .seconds(90))
    }

    @Test func aRefusalThatCouldNotBeKeptIsAskedForWithPauses() throws {
        let cloud = try TestCloud(seed: 13)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        cloud.settleForGood()
        devices[0].setOffline(true)
        try devices[0].set("big", .string(String(repeating: "x", count: 600_000)))
        try devices[1].set("large", .string(String(repeating: "y", count: 600_000)))
        cloud.network.run(for: .seconds(5))
        try fail(devices[0], "INSERT ON undecided")
        let before = cloud.requestCount(.keyValue)
        devices[0].setOffline(false)
        cloud.network.run(for: .seconds(60))
        #expect(cloud.requestCount(.keyValue) - before < 40)
        try heal(devices[0])
        #expect(
            cloud.passes(within: .seconds(90)) {
                (try? devices[0].store?.status()).map { $0.refused.count == 1 && $0.problem == nil } == true
            })
    }

    // What another device writes is here, and the app has to hear of it.
    @Test func newsThatCouldNotBeReadIsToldOnceItCan() throws {
        let cloud = try TestCloud(seed: 14)
        defer { cloud.close() }
        let device = try makeDevice(cloud)
        let other = try cloud.addDevice()
        cloud.settleForGood()
        try execute(
            device,
            "INSERT INTO news (account, service, scope, notification) "
                + "SELECT account, service, scope, x'ff' FROM news LIMIT 1")
        try other.set("k", 2)
        cloud.network.run(for: .seconds(5))
        #expect(device.changes.allSatisfy { !$0.changedKeys.contains("k") })
        try execute(device, "DELETE FROM news WHERE notification = x'ff'")
        #expect(cloud.passes(within: .seconds(90)) { device.changes.contains { $0.changedKeys.contains("k") } })
        try expectInSync(cloud, device, within: .seconds(90))
    }
}
