import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Contents that compress take less of the line and of the server's disk, and are the same for whoever gets them.
@Suite struct CompressedContentTests {
    private func digits(_ count: Int, seed: UInt64) -> Data {
        SplitMix64.bytes(count, seed: seed, of: 48...57)
    }

    private func counters(_ cloud: ContainerCloud) throws -> [String: UInt64] {
        try cloud.simulation.use { cloud in
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters
        }
    }

    private func segmentBytes(_ cloud: ContainerCloud) throws -> Int {
        let files = FileManager.default.enumerator(atPath: cloud.root)?.compactMap { $0 as? String } ?? []
        return try files.filter { $0.hasSuffix(".segment") }.reduce(0) {
            try $0 + (FileManager.default.attributesOfItem(atPath: cloud.root + "/" + $1)[.size] as? Int ?? 0)
        }
    }

    @Test func whatCompressesTakesLessAndComesBack() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = digits(5_000_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            let counted = try counters(cloud)
            #expect(counted["content.received.plain_bytes"] == 5_000_000)
            #expect((2_000_000..<2_700_000).contains(counted["content.received.bytes"] ?? 0))
            #expect((2_000_000..<2_700_000).contains(try segmentBytes(cloud)))
            try await two.settle()
            #expect(try await two.container.read("x") == content)
            #expect(try await two.container.read("x", range: 2_000_000..<2_000_100) == content[2_000_000..<2_000_100])
        }
    }

    /// A change in its middle sends the chunks around it, and nothing else.
    @Test func whatIsStoredCompressedIsNotSentAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            var content = digits(4_000_000, seed: 2)
            try await one.container.put(content, at: "x")
            try await one.settle()
            let before = try counters(cloud)["content.received.plain_bytes"] ?? 0
            content[2_000_000] ^= 1
            try await one.container.put(content, at: "x")
            try await one.settle()
            let sent = try counters(cloud)["content.received.plain_bytes"].map { $0 - before } ?? 0
            #expect(sent > 0 && sent <= 2 << 20)
            #expect(try await one.container.read("x") == content)
        }
    }

    @Test func anUploadThatIsBrokenOffGoesOn() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let content = digits(6_000_000, seed: 3)
            one.session.setTransferLimits(TransferLimits(upload: 1_000_000))
            try await one.container.put(content, at: "x")
            try await Task.sleep(for: .milliseconds(50))
            cloud.simulation.use { $0.network.run(for: .seconds(2)) }
            one.setOffline(true)
            cloud.simulation.use { $0.network.run(for: .seconds(20)) }
            let before = try counters(cloud)["content.received.plain_bytes"] ?? 0
            #expect(before > 0 && before < 6_000_000)
            one.setOffline(false)
            one.session.setTransferLimits(TransferLimits())
            try await one.settle()
            // What had no answer came twice, at most.
            let sent = try counters(cloud)["content.received.plain_bytes"] ?? 0
            #expect(sent >= 6_000_000 && sent < 8_500_000)
            try await two.settle()
            #expect(try await two.container.read("x") == content)
        }
    }
}
