import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Contents that are too long to go along: in the home until the server has them, and back chunk by chunk.
@Suite struct ContentTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        SplitMix64.bytes(count, seed: seed)
    }

    private func files(_ device: ContainerCloud.Device) throws -> [String] {
        let folder = device.session.home.path + "/content"
        guard FileManager.default.fileExists(atPath: folder) else { return [] }
        return try FileManager.default.contentsOfDirectory(atPath: folder).filter { !$0.hasPrefix(".") }
    }

    @Test(arguments: [4096, 4097, 100_000, 3_000_000]) func aContentComesBackAsItWas(count: Int) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = bytes(count, seed: UInt64(count))
            try await one.container.put(content, at: "x")
            #expect(try await one.container.read("x") == content)
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            try await two.settle()
            #expect(try await two.container.item(at: "x")?.size == UInt64(count))
            #expect(try await two.container.read("x") == content)
            let file = cloud.root + "/copy"
            try await two.container.get("x", to: file)
            #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == content)
            try one.session.setContentCache(maxBytes: 0)
            #expect(try files(one).isEmpty)
        }
    }

    @Test(arguments: [10, 100_000]) func whatIsThereAlreadyMakesNoVersion(count: Int) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let data = Data((0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) })
            for _ in 0..<3 {
                try await one.container.put(data, at: "a")
                try await one.settle()
            }
            #expect(try await one.container.versions.list(of: "a").count == 1)
            try one.session.setContentCache(maxBytes: 0)
            // A small one goes with its item, and is kept in no file.
            let kept = try? FileManager.default.contentsOfDirectory(atPath: cloud.root + "/device-1/content")
            #expect(kept?.filter { !$0.hasPrefix(".") } ?? [] == [])
        }
    }

    @Test func whatWaitsForItsContentHoldsUpOnlyWhatRestsOnIt() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            let content = bytes(500_000, seed: 3)
            try await one.container.put(content, at: "long")
            #expect(try await one.container.item(at: "long")?.pending == .uploading)
            #expect(try files(one).count == 1)
            try await one.container.move("long", to: "moved")
            try await one.container.makeFolder(at: "folder")
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/folder", "/Documents/moved"])
            #expect(try await two.container.read("moved") == content)
        }
    }

    @Test func whatWaitsIsGoneOnWithByTheNextProcess() async throws {
        try await withContainers { cloud in
            var one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            let content = bytes(700_000, seed: 4)
            try await one.container.put(content, at: "x")
            one.session.close()
            one = try await cloud.open(one.session.home.path)
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("x") == content)
            // What was sent stays as far as it may.
            #expect(try files(one).count == 1)
            try one.session.setContentCache(maxBytes: 0)
            #expect(try files(one).isEmpty)
        }
    }

    @Test func manyFilesGoInFewRequests() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let before = cloud.simulation.use { $0.requestCount(.documents) }
            let sources = (0..<600).map { DocumentSource.data(Data("\($0)".utf8), at: "many/\($0 % 7)/\($0)") }
            try await one.container.put(sources, makesFolders: true)
            #expect(try await one.container.items().count == 600 + 8)
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.items().count == 600 + 8)
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - before < 20)
        }
    }

    @Test func aContentIsCutTheSameInWhateverPiecesItComes() throws {
        let content = bytes(2_500_000, seed: 5)
        func cut(_ piece: Int) throws -> CutContent {
            var cutter = ContentCutter()
            try content.withUnsafeBytes { bytes in
                for start in stride(from: 0, to: bytes.count, by: piece) {
                    try cutter.take(UnsafeRawBufferPointer(rebasing: bytes[start..<min(bytes.count, start + piece)]))
                }
            }
            return try cutter.finish()
        }
        let (whole, parts) = (try cut(content.count), try cut(7919))
        #expect(whole.root == parts.root && whole.chunks == parts.chunks && whole.nodes == parts.nodes)
        #expect(whole.chunks.reduce(0) { $0 + $1.length } == content.count && whole.depth == 1)
        #expect(CutChunk.decode(CutChunk.encode(whole.chunks)) == whole.chunks)
    }
}
