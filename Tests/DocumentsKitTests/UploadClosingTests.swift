import Foundation
import GRDB
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What an upload that was given up holds of the plan comes back, whatever ends the process or is in the way.
@Suite struct UploadClosingTests {
    /// A film of which half is sent, and which is then held still: what was stored for it goes.
    ///
    /// - Parameter body: What happens just before.
    private func giveUpHalf(
        _ device: ContainerCloud.Device, _ cloud: ContainerCloud, after body: () -> Void = {}
    ) async throws {
        cloud.simulation.use { $0.network.offloadTime = .milliseconds(300) }
        try await device.container.put(SplitMix64.bytes(12 << 20, seed: 1), at: "film")
        while try await device.container.uploadProgress().done < 6 << 20 {
            cloud.simulation.pass(.milliseconds(20))
        }
        #expect(try cloud.uploadCount() == 1)
        body()
        try await device.container.pauseSync("film")
    }

    private func rowCount(_ device: ContainerCloud.Device) throws -> Int {
        try device.session.local.read { try Int.fetchOne($0, sql: "SELECT COUNT(*) FROM upload_closings") ?? -1 }
    }

    @Test func whatIsHeldStillOnItsWayHoldsNoRoom() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await giveUpHalf(one, cloud)
            cloud.simulation.pass(.seconds(10))
            #expect(try cloud.uploadCount() == 0 && rowCount(one) == 0)
            try await one.container.resumeSync("film")
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("film") == SplitMix64.bytes(12 << 20, seed: 1))
        }
    }

    @Test func whatWasGivenUpIsEndedByTheNextProcess() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await giveUpHalf(one, cloud) { one.setOffline(true) }
            one.session.close()
            cloud.simulation.pass(.seconds(60))
            #expect(try cloud.uploadCount() == 1)
            let again = try await cloud.open(one.session.home.path)
            cloud.simulation.pass(.seconds(10))
            #expect(try cloud.uploadCount() == 0 && rowCount(again) == 0)
        }
    }

    /// The connection is there all the time, so nothing else has it tried again.
    @Test func whatWasGivenUpIsAskedForUntilTheServiceAnswers() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await giveUpHalf(one, cloud) { cloud.simulation.use { $0.setCommitsFail(of: .documents, true) } }
            cloud.simulation.pass(.seconds(1200))
            #expect(try rowCount(one) == 1)
            cloud.simulation.use { $0.setCommitsFail(of: .documents, false) }
            #expect(try cloud.uploadCount() == 1)
            cloud.simulation.pass(.seconds(90))
            #expect(try cloud.uploadCount() == 0 && rowCount(one) == 0)
        }
    }

    @Test func whatTheServiceDoesNotKnowIsAskedForOnce() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let count = try await one.container.scope.perform { driver, completion in
                (driver.model as? DocumentsModel)?.closeSoon(Data(1...16), of: ContainerCloud.container)
                completion(.success(true))
            }
            #expect(try count && rowCount(one) == 1)
            cloud.simulation.pass(.seconds(5))
            #expect(try rowCount(one) == 0)
        }
    }
}
