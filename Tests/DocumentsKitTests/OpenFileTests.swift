import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A file of a content is open for as long as something may write to it, and no longer.
@Suite struct OpenFileTests {
    /// How many files below the folder this process has open, those without a name included.
    private func openFiles(below folder: String) -> Int {
        let folder = URL(fileURLWithPath: folder).resolvingSymlinksInPath().path
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.count { number in
            let target = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/" + number)
            return target?.hasPrefix(folder + "/") == true
        }
    }

    /// What is looked for in the home may be found after its download has ended: under the number of a file that was
    /// closed another may be open by then. It has none to write to any more.
    @Test func workThatIsLateWritesNothing() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            var content = SplitMix64.bytes(3_000_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            _ = try await two.container.read("x")
            content[1_500_000] ^= 1
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            let folder = cloud.root + "/out"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            cloud.simulation.use { $0.network.offloadTime = .seconds(20) }
            await #expect(throws: CloudError.self) {
                try await two.container.get("x", to: folder + "/x", timeout: .seconds(2))
            }
            #expect(openFiles(below: folder) == 0)
            cloud.simulation.use { $0.network.offloadTime = nil }
            cloud.simulation.pass(.seconds(30))
            #expect(openFiles(below: folder) == 0)
            try await two.container.get("x", to: folder + "/x")
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/x")) == content)
        }
    }

    @Test func whatCameInTheBackgroundIsClosed() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for number in 0..<6 {
                try await one.container.put(
                    SplitMix64.bytes(50_000, seed: UInt64(number)), at: "f/\(number)", makesFolders: true)
            }
            try await one.settle()
            try await two.settle()
            try await two.container.downloads.start("f")
            #expect(
                try await passes(cloud) {
                    try await two.container.items().allSatisfy { $0.download.status == .current }
                })
            cloud.simulation.pass(.seconds(10))
            #expect(openFiles(below: two.session.home.path + "/content") == 0)
        }
    }
}

/// Time passes until it is so.
func passes(
    _ cloud: ContainerCloud, for seconds: Int = 120, _ isSo: () async throws -> Bool
) async throws -> Bool {
    for _ in 0..<seconds * 2 {
        if try await isSo() { return true }
        cloud.simulation.pass(.milliseconds(500))
    }
    return try await isSo()
}

extension ContainerCloud.Device {
    /// The files of its home's contents.
    var contentFiles: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: session.home.path + "/content")) ?? [])
            .filter { !$0.hasPrefix(".") }
    }

    func download(_ path: String) async throws -> DocumentDownload {
        try #require(try await container.item(at: path)).download
    }

    /// Bytes of chunks that have come over the connection that is open.
    func fetchedBytes() async throws -> Int {
        try await session.engine.perform { engine, completion in
            completion(
                Result { try engine.contents.join(.documents("", app: ContainerCloud.app)).progress.bytesDone }
                    .mapError { CloudError(wrapping: $0) })
        }
    }
}
