import Foundation
import NephosBulk
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// Bytes that the server's disk has lost come back from a device that has them, and people are told which.
@Suite struct DamagedContentTests {
    /// Bytes of several chunks, or of one.
    private static func bytes(_ count: Int, seed: UInt64) -> Data {
        SplitMix64.bytes(count, seed: seed)
    }

    @Test(arguments: [60_000, 3_000_000]) func aFileThatIsPutAgainHeals(count: Int) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            // What is asked for is fetched.
            for device in [one, two] { try device.session.setContentCache(maxBytes: 0) }
            let content = Self.bytes(count, seed: 5)
            try await one.settle()
            try await one.container.put(Self.bytes(300_000, seed: 6), at: "whole")
            try await one.settle()
            try await one.container.put(content, at: "f")
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.read("f") == content)
            // Nothing is to be sent for what is there.
            let version = try await one.container.item(at: "f")?.version
            try await one.container.put(content, at: "f")
            #expect(try await one.container.status().waiting.isEmpty)
            try SegmentDamage.damageAll(in: cloud.root)
            let failure = await #expect(throws: CloudError.self) { try await two.container.read("f") }
            #expect(failure?.code == .storageFailure && failure?.details["reason"] == "damaged")
            _ = try? await two.container.read("whole")
            _ = try await one.container.scope.verify()
            let status = try await one.container.status()
            #expect(status.damagedChunkCount >= 1)
            let damaged = try await one.container.damagedItems()
            #expect(damaged.map(\.path).contains("/Documents/f"))
            let elsewhere = try await one.container.damagedItems(of: "whole")
            #expect(!elsewhere.map(\.path).contains("/Documents/f"))
            // On a plan that has no room for anything.
            try cloud.setPlan(bytes: 1000)
            try await one.container.put(content, at: "f")
            #expect(try await one.container.status().waiting.map(\.item.path) == ["/Documents/f"])
            try await one.settle()
            #expect(try await one.container.status().refused.isEmpty)
            #expect(try await one.container.item(at: "f")?.version != version)
            try await two.settle()
            #expect(try await two.container.read("f") == content)
            _ = try await one.container.scope.verify()
            #expect(!(try await one.container.damagedItems()).map(\.path).contains("/Documents/f"))
            #expect(try await one.container.status().conflicts.isEmpty)
        }
    }

    /// A manifest node that the server's database has lost is in no list; the same bytes under another name bring it back.
    @Test func theSameFileUnderAnotherNameHealsItsManifest() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try device.session.setContentCache(maxBytes: 0) }
            let content = Self.bytes(3_000_000, seed: 5)
            try await one.settle()
            try await one.container.put(content, at: "f")
            try await one.settle()
            try await two.settle()
            try cloud.simulation.use { cloud in
                _ = try cloud.storage(of: .documents).write {
                    try $0.execute(SQL("UPDATE content_nodes SET node = X'00'"), [])
                }
            }
            let failure = await #expect(throws: CloudError.self) { try await two.container.read("f") }
            #expect(failure?.code == .storageFailure && failure?.details["reason"] == "damaged")
            try await one.container.put(content, at: "g")
            try await one.settle()
            #expect(try await two.container.read("f") == content)
        }
    }

    /// Also where the file is as it was when it was put: then it need not be read, and is.
    @Test(arguments: [false, true]) func theSameFileUnderTheSameNameHealsItsManifest(isFile: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try device.session.setContentCache(maxBytes: 0) }
            let content = Self.bytes(3_000_000, seed: 5)
            let file = NSTemporaryDirectory() + "/manifest-\(UUID().uuidString)"
            try content.write(to: URL(fileURLWithPath: file))
            defer { try? FileManager.default.removeItem(atPath: file) }
            // Long enough ago that its times tell whether it is written to.
            try FileManager.default.setAttributes(
                [.modificationDate: Date(timeIntervalSinceNow: -100)], ofItemAtPath: file)
            try await Task.sleep(for: .milliseconds(100))
            func put() async throws {
                if isFile {
                    for result in try await one.container.localFiles.imports.putEach(
                        [.file(file, at: "f")], makesFolders: false)
                    {
                        _ = try result.get()
                    }
                } else {
                    try await one.container.put(content, at: "f")
                }
                try await one.settle()
            }
            try await one.settle()
            try await put()
            try await two.settle()
            try cloud.simulation.use { cloud in
                _ = try cloud.storage(of: .documents).write {
                    try $0.execute(SQL("UPDATE content_nodes SET node = X'00'"), [])
                }
            }
            await #expect(throws: CloudError.self) { try await two.container.read("f") }
            try await put()
            #expect(try await two.container.read("f") == content)
        }
    }

    /// What is put while the same bytes wait here makes no further version.
    @Test func whatWaitsHereHealsByItself() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let content = Self.bytes(60_000, seed: 5)
            try await one.container.put(content, at: "f")
            try await one.settle()
            try SegmentDamage.damageAll(in: cloud.root)
            _ = try? await one.container.read("f")
            _ = try await one.container.scope.verify()
            one.setOffline(true)
            try await one.container.put(content, at: "f")
            let version = try await one.container.item(at: "f")?.version
            try await one.container.put(content, at: "f")
            #expect(try await one.container.item(at: "f")?.version == version)
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.read("f") == content)
        }
    }
}
