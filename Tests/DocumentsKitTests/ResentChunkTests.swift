import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A content that does not come as it was sent is sent again, and given up only where it is another here too.
@Suite struct ResentChunkTests {
    private let content = SplitMix64.bytes(90_000, seed: 1)

    /// A device with a content that is to be sent, the file that it is in, and a server that is far away.
    private func withUnsent(
        _ body: (ContainerCloud, ContainerCloud.Device, _ file: String) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(content, at: "x")
            let version = try #require(try await one.container.item(at: "x")?.version)
            try await body(cloud, one, ContentFolder(home: one.session.home.path).file(version))
        }
    }

    /// How often the service has found a chunk of the request on its way to be another; nil: nothing is on its way.
    private func mistakes(_ device: ContainerCloud.Device) async throws -> Int? {
        try await device.container.scope.perform { driver, completion in
            let upload = (driver.model as? DocumentsModel)?.uploads.running.first
            completion(.success(upload?.mistaken.values.max()))
        }
    }

    private func isStoring(_ device: ContainerCloud.Device) async throws -> Bool {
        try await device.container.scope.perform { driver, completion in
            let upload = (driver.model as? DocumentsModel)?.uploads.running.first
            completion(.success(upload.map { $0.storing > 0 && $0.preparedBytes == 0 } ?? false))
        }
    }

    private func isReading(_ device: ContainerCloud.Device) async throws -> Bool {
        try await device.container.scope.perform { driver, completion in
            let upload = (driver.model as? DocumentsModel)?.uploads.running.first
            completion(.success(upload.map { $0.storing > 0 && $0.client?.progress.chunksLeft == 0 } ?? false))
        }
    }

    /// Its chunk is on its way with other bytes, as if it had changed between the disk and the server.
    ///
    /// - Returns: What it was.
    private func sendAnother(
        from device: ContainerCloud.Device, _ file: String, _ cloud: ContainerCloud
    ) async throws -> Data {
        let whole = try Data(contentsOf: URL(fileURLWithPath: file))
        try SplitMix64.bytes(90_000, seed: 2).write(to: URL(fileURLWithPath: file))
        cloud.simulation.use { $0.network.offloadTime = .milliseconds(200) }
        device.setOffline(false)
        for _ in 0..<2000 where try await !isStoring(device) { cloud.simulation.advance(by: .milliseconds(5)) }
        try #require(try await isStoring(device))
        return whole
    }

    private func expectArrival(from device: ContainerCloud.Device, _ cloud: ContainerCloud) async throws {
        cloud.simulation.use { $0.network.offloadTime = nil }
        try await device.settle()
        #expect(try await device.container.status().refused.isEmpty)
        let other = try await cloud.open()
        try await other.settle()
        #expect(try await other.container.read("x") == content)
    }

    @Test func whatBecameAnotherOnItsWayIsSentAgain() async throws {
        try await withUnsent { cloud, one, file in
            let whole = try await sendAnother(from: one, file, cloud)
            try whole.write(to: URL(fileURLWithPath: file))
            for _ in 0..<2000 where try await mistakes(one) == nil { cloud.simulation.advance(by: .milliseconds(5)) }
            #expect(try await mistakes(one) == 1)
            try await expectArrival(from: one, cloud)
        }
    }

    /// The connection ends while the chunk is read once more: no other chunk is on its way that would fail by that.
    @Test func anUploadWhoseConnectionEndsMeanwhileGoesOn() async throws {
        try await withUnsent { cloud, one, file in
            let whole = try await sendAnother(from: one, file, cloud)
            // It was answered, and is read again.
            for _ in 0..<2000 where try await !isReading(one) { cloud.simulation.advance(by: .milliseconds(5)) }
            try #require(try await isReading(one))
            try await one.container.scope.perform { driver, completion in
                (driver.model as? DocumentsModel)?.uploads.running.first?.client?.cancel()
                completion(.success(()))
            }
            try whole.write(to: URL(fileURLWithPath: file))
            cloud.simulation.advance(by: .seconds(1))
            try await expectArrival(from: one, cloud)
        }
    }

    @Test func whatIsAnotherHereStaysForWhoeverLooksForIt() async throws {
        try await withUnsent { _, one, file in
            let other = SplitMix64.bytes(90_000, seed: 2)
            try other.write(to: URL(fileURLWithPath: file))
            one.setOffline(false)
            try await one.settle()
            let refused = try #require(try await one.container.status().refused.first)
            #expect(refused.key == "/Documents/x" && refused.error.code == .constraintViolation)
            #expect(refused.keptFile == file)
            #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == other)
        }
    }

    /// - Parameter isMountPoint: Something lies where the folder was: the place where its disk is mounted.
    @Test(arguments: [false, true]) func aFolderOfContentsThatIsElsewhereIsNotMadeAnew(
        isMountPoint: Bool
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let contents = (0..<3).map { SplitMix64.bytes(90_000, seed: UInt64($0)) }
            for number in 0..<2 { try await two.container.put(contents[number], at: "\(number)") }
            for device in [two, one] { try await device.settle() }
            #expect(try await one.container.read("0") == contents[0])
            one.setOffline(true)
            try await one.container.put(contents[2], at: "2")
            let folder = one.session.home.path + "/content"
            try FileManager.default.moveItem(atPath: folder, toPath: folder + ".away")
            if isMountPoint {
                try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
            }
            one.setOffline(false)
            for number in 0..<2 { #expect(try await one.container.read("\(number)") == contents[number]) }
            let error = await #expect(throws: CloudError.self) {
                try await one.container.put(SplitMix64.bytes(90_000, seed: 9), at: "9")
            }
            #expect(error?.code == .storageFailure && error?.details["path"] == folder)
            cloud.simulation.advance(by: .seconds(20))
            #expect(try await one.container.status().refused.isEmpty)
            let made = try? FileManager.default.contentsOfDirectory(atPath: folder)
            #expect(made == (isMountPoint ? [] : nil))
            if isMountPoint { try FileManager.default.removeItem(atPath: folder) }
            try FileManager.default.moveItem(atPath: folder + ".away", toPath: folder)
            one.container.scope.synchronize()
            for device in [one, two] { try await device.settle() }
            #expect(try await two.container.read("2") == contents[2])
            one.setOffline(true)
            #expect(try await one.container.read("0") == contents[0])
        }
    }

    /// Somebody says so by removing the note.
    @Test func aFolderOfContentsThatIsLostIsMadeAnewOnceThatIsSaid() async throws {
        try await withUnsent { _, one, file in
            let folder = (file as NSString).deletingLastPathComponent
            try FileManager.default.removeItem(atPath: folder)
            let other = SplitMix64.bytes(90_000, seed: 2)
            let error = await #expect(throws: CloudError.self) { try await one.container.put(other, at: "y") }
            try FileManager.default.removeItem(atPath: try #require(error?.details["note"]))
            try await one.container.put(other, at: "y")
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.status().refused.map(\.key) == ["/Documents/x"])
            #expect(try await one.container.read("y") == other)
        }
    }

    /// It has no mark, and its home no note.
    @Test func aFolderOfAFormerReleaseIsThere() async throws {
        try await withUnsent { _, one, file in
            let folder = (file as NSString).deletingLastPathComponent
            for made in [folder + "/.nephos", folder + ".made", file] {
                try FileManager.default.removeItem(atPath: made)
            }
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.status().refused.map(\.key) == ["/Documents/x"])
            let other = SplitMix64.bytes(90_000, seed: 2)
            try await one.container.put(other, at: "y")
            #expect(try await one.container.read("y") == other)
        }
    }

    @Test func aFolderOfContentsThatIsNotThereIsWaitedFor() async throws {
        try await withUnsent { cloud, one, file in
            let folder = (file as NSString).deletingLastPathComponent
            try FileManager.default.moveItem(atPath: folder, toPath: folder + ".away")
            one.setOffline(false)
            cloud.simulation.advance(by: .seconds(20))
            let status = try await one.container.status()
            #expect(status.refused.isEmpty && status.waiting.map(\.item.path) == ["/Documents/x"])
            #expect(status.scope.pending.first?.error?.message == LocalFailure.contentFolderAway)
            try FileManager.default.moveItem(atPath: folder + ".away", toPath: folder)
            one.container.scope.synchronize()
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("x") == content)
        }
    }
}
