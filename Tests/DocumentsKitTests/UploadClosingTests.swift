import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What an upload that was given up holds of the plan comes back.
@Suite struct UploadClosingTests {
    /// A film of which half is sent, and which is then held still.
    ///
    /// - Parameter body: What happens just before.
    private func giveUpHalf(
        _ device: ContainerCloud.Device, _ cloud: ContainerCloud, after body: () -> Void = {}
    ) async throws {
        cloud.simulation.use { $0.network.offloadTime = .milliseconds(300) }
        try await device.container.put(SplitMix64.bytes(12 << 20, seed: 1), at: "film")
        while try await device.container.outbox.progress().done < 6 << 20 {
            cloud.simulation.pass(.milliseconds(20))
        }
        #expect(try cloud.uploadCount() == 1)
        body()
        try await device.container.pauses.pause("film")
    }

    @Test func whatIsHeldStillOnItsWayHoldsNoRoom() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await giveUpHalf(one, cloud)
            cloud.simulation.pass(.seconds(10))
            #expect(try cloud.uploadCount() == 0)
            try await one.container.pauses.resume("film")
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("film") == SplitMix64.bytes(12 << 20, seed: 1))
        }
    }

    /// The device is offline, and does not come back.
    @Test func anUploadThatWasGivenUpHoldsTheRestOfItsRoomForAnHour() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let used = try cloud.usedBytes()
            try await giveUpHalf(one, cloud) { one.setOffline(true) }
            one.session.close()
            cloud.simulation.pass(.seconds(60))
            #expect(try cloud.uploadCount() == 1 && cloud.usedBytes() >= used + 12 << 20)
            await cloud.simulation.run { $0.network.run(for: .seconds(3600)) }
            #expect(try cloud.uploadCount() == 1 && cloud.usedBytes() < used + 9 << 20)
            cloud.simulation.use { $0.skip(.seconds(23 * 3600)) }
            await cloud.simulation.run { $0.network.run(for: .seconds(90)) }
            #expect(try cloud.uploadCount() == 0 && cloud.usedBytes() == used)
        }
    }
}
