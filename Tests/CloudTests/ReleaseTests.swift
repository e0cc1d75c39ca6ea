import Foundation
import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// What is closed does not stay in memory.
@Suite struct ReleaseTests {
    /// What a cloud is made of, as far as others keep it.
    private struct Remains {
        private struct Part {
            var name: String
            weak var object: AnyObject?
        }

        private var parts: [Part] = []

        mutating func note(_ object: AnyObject?, _ name: String) {
            if let object { parts.append(Part(name: name, object: object)) }
        }

        mutating func note(_ cloud: TestCloud) throws {
            note(cloud, "cloud")
            note(cloud.network, "network")
            note(cloud.faults, "faults")
            for service in TestCloud.services {
                note(cloud.host(of: service), "host of \(service)")
                note(try cloud.storage(of: service), "storage of \(service)")
            }
            for device in cloud.devices {
                note(device, device.name)
                note(device.local, "store of \(device.name)")
                note(device.engine, "engine of \(device.name)")
                note(device.engine?.loop, "loop of \(device.name)")
            }
        }

        var names: [String] { parts.filter { $0.object != nil }.map(\.name) }
        var count: Int { parts.count }
    }

    /// Closed in the midst of whatever goes on.
    private func remains(_ happen: (TestCloud, inout Remains) throws -> Void) throws -> Remains {
        var remains = Remains()
        let cloud = try TestCloud(seed: 1)
        try happen(cloud, &remains)
        try remains.note(cloud)
        cloud.close()
        return remains
    }

    private func expectNothing(of remains: Remains) {
        #expect(remains.count > 10)
        #expect(remains.names == [])
    }

    @Test func aClosedCloudIsGone() throws {
        expectNothing(
            of: try remains { cloud, _ in
                for _ in 0..<2 { try cloud.addDevice() }
                try cloud.devices[0].store?.set(.integer(1), forKey: "a")
                #expect(cloud.settle())
            })
    }

    @Test func soIsOneWithCallsAndTimersUnderWay() throws {
        expectNothing(
            of: try remains { cloud, _ in
                for _ in 0..<4 { try cloud.addDevice() }
                #expect(cloud.settle())
                for device in cloud.devices { try device.store?.set(.integer(1), forKey: "a") }
                cloud.devices[0].setOffline(true)
                cloud.devices[0].engine?.signOut(keepsUnsent: true) { _ in }
                cloud.devices[1].engine?.signOut(keepsUnsent: true) { _ in }
                cloud.devices[2].store?.whenCurrent(timeout: .seconds(60)) { _ in }
                cloud.devices[3].engine?.call(
                    .identity, WireWhoAmI(), as: WireWhoAmIReply.self, app: AppID("app.other")
                ) { _, _ in }
                cloud.network.run(for: .milliseconds(1))
            })
    }

    @Test func soIsOneWhoseServicesWereEndedAndStartedAgain() throws {
        expectNothing(
            of: try remains { cloud, remains in
                try cloud.addDevice()
                #expect(cloud.settle())
                for service in TestCloud.services {
                    remains.note(cloud.host(of: service), "first host of \(service)")
                    cloud.crash(service)
                    cloud.network.run(for: .seconds(3))
                    if service != .identity { try cloud.start(service) }
                }
                // Nobody is there any more, and all wait for somebody.
                cloud.crash(.keyValue)
                cloud.crash(.notifications)
                cloud.network.run(for: .seconds(3))
            })
    }

    @Test func aServiceThatHasEndedIsGoneOnceAnotherRuns() throws {
        let cloud = try TestCloud(seed: 1)
        defer { cloud.close() }
        try cloud.addDevice()
        #expect(cloud.settle())
        var remains = Remains()
        for service in TestCloud.services {
            remains.note(cloud.host(of: service), "first host of \(service)")
            cloud.crash(service)
            try cloud.start(service)
        }
        cloud.network.run(for: .seconds(7200))
        #expect(remains.names == [])
    }

    @Test func soIsOneWithHomesOfSeveralProcesses() throws {
        expectNothing(
            of: try remains { cloud, _ in
                for isJoined in [true, false] {
                    let device = try cloud.addDevice(isShared: true, isJoined: isJoined)
                    for _ in 0..<2 { try cloud.addProcess(of: device) }
                }
                #expect(cloud.settle())
                for device in cloud.devices {
                    try device.store?.set(.integer(1), forKey: "a")
                    device.store?.whenCurrent(timeout: .seconds(60)) { _ in }
                }
                cloud.devices[0].stop()
            })
    }

    @Test func soIsOneThatCameBackFromCopies() throws {
        expectNothing(
            of: try remains { cloud, remains in
                let device = try cloud.addDevice()
                #expect(cloud.settle())
                let (home, storage) = (try device.copyHome(), try cloud.copyStorage(of: .keyValue))
                remains.note(device.engine, "first engine")
                remains.note(device.local, "first store")
                remains.note(try cloud.storage(of: .keyValue), "first storage")
                try device.restoreHome(home)
                try cloud.restore(storage, of: .keyValue)
                cloud.network.run(for: .milliseconds(500))
            })
    }

    @Test func aClosedSessionIsGone() async throws {
        let simulation = try Simulation { try TestCloud(seed: 1) }
        var remains = Remains()
        let connection = try simulation.use { try $0.connection.description }
        let home = NSTemporaryDirectory() + "/nephos-test-" + UUID().uuidString
        defer { try? FileManager.default.removeItem(atPath: home) }
        try await {
            var options = simulation.makeOptions(of: "device")
            let engines = Engines()
            let made = options.onMade
            options.onMade = {
                made?($0)
                engines.engine = $0
            }
            let session = try await Session.open(
                home: URL(fileURLWithPath: home), transport: simulation.transport(of: "device"), options: options)
            try await session.signIn(
                connection: connection, account: TestCloud.accountName, password: TestCloud.password)
            let store = try session.keyValueStore()
            try await store.ready()
            try store.set(1, forKey: "a")
            let changes = Task { for await _ in store.changes {} }
            let accounts = Task { for await _ in session.accountChanges {} }
            let waiting = Task { try await store.waitUntilCurrent() }
            remains.note(session, "session")
            remains.note(engines.engine, "engine")
            remains.note(engines.engine?.local, "store")
            session.close()
            await changes.value
            await accounts.value
            _ = await waiting.result
        }()
        // Its loop ends when it comes to it.
        await simulation.run { $0.network.run(for: .milliseconds(1)) }
        simulation.use { _ in }
        #expect(remains.count == 3)
        #expect(remains.names == [])
        simulation.close()
    }

    // Unchecked: set before it is read.
    private final class Engines: @unchecked Sendable {
        weak var engine: DeviceEngine?
    }
}
