import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What a device does while the disk of its home has little room.
@Suite struct HomeRoomTests {
    /// What is read page by page is bounded by the disk alone, which is left room for the database.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatTheHomeHasNoRoomForIsReadOnceThereIsSome() async throws {
        let disk = try SmallDisk(megabytes: 40)
        defer { disk.remove() }
        try await withContainers { cloud in
            cloud.simulation.use { $0.pageItemsMax = 1 }
            let (one, two) = (try await cloud.open(), try await cloud.open(disk.folder + "/home"))
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            for number in 0..<5 { try await one.container.put(Data("\(number)".utf8), at: "\(number)") }
            try await one.settle()
            let space = try #require(LocalDisk(at: disk.folder))
            let junk = URL(fileURLWithPath: disk.folder + "/junk")
            try Data(count: Int(space.free - space.reserve / 8)).write(to: junk)
            two.setOffline(false)
            let error = await #expect(throws: CloudError.self) {
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
            }
            #expect(error?.code == .storageFailure && error?.message == LocalFailure.noRoom)
            #expect(try await two.paths().isEmpty)
            try FileManager.default.removeItem(at: junk)
            try await two.settle()
            #expect(try await two.paths().count == 5)
        }
    }

    /// What is read lies with SQLite's temporary files until all of it has come, which may be on another disk.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whereThereIsNoRoomForTemporaryFilesThatDiskIsNamed() async throws {
        let disk = try SmallDisk(megabytes: 4)
        defer { disk.remove() }
        try await withContainers { cloud in
            cloud.simulation.use { $0.pageItemsMax = 1 }
            let one = try await cloud.open()
            let two = try await cloud.open(temporaryFolder: disk.folder)
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            for number in 0..<5 { try await one.container.put(Data("\(number)".utf8), at: "\(number)") }
            try await one.settle()
            try disk.fill()
            two.setOffline(false)
            let error = await #expect(throws: CloudError.self) {
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
            }
            #expect(error?.code == .storageFailure && error?.message == LocalFailure.noTemporaryRoom)
            #expect(error?.details["path"] == disk.folder)
            #expect(try await two.container.scope.status().problem?.message == LocalFailure.noTemporaryRoom)
            try disk.empty()
            try await two.settle()
            #expect(try await two.paths().count == 5)
            #expect(try await two.container.scope.verify().differences.isEmpty)
        }
    }
}
