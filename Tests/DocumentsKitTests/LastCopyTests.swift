import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosKit

/// What the server has lost goes from nowhere else.
@Suite struct LastCopyTests {
    /// A device that has a copy of a file whose first chunk the server has lost, knows of that, and cannot send it.
    private func withLoss(
        _ count: Int = 300_000, _ body: (ContainerCloud, ContainerCloud.Device, Data) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try two.session.setContentCache(maxBytes: 0)
            for device in [one, two] { try await device.settle() }
            let content = SplitMix64.bytes(count, seed: 5)
            try await one.container.put(SplitMix64.bytes(50_000, seed: 6), at: "whole")
            try await one.settle()
            try await one.container.put(content, at: "f")
            for device in [one, two] { try await device.settle() }
            one.setOffline(true)
            try SegmentDamage.damageAll(in: cloud.root)
            await #expect(throws: CloudError.self) { try await two.container.read("f") }
            _ = try await two.container.scope.verify()
            #expect(try two.container.lostCount() > 0)
            // As it hears of it in a moment in which it cannot send.
            try one.container.setLoss(try two.container.lostCount())
            try await body(cloud, one, content)
        }
    }

    @Test func aLocalFileStaysWhoseBytesTheServerHasLost() async throws {
        try await withLoss { cloud, one, content in
            let id = try #require(try await one.container.item(at: "f")).id
            let file = cloud.root + "/local"
            try content.write(to: URL(fileURLWithPath: file))
            #expect(try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: id) == .lost)
            #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == content)
            // Once it is there again the file goes, also where that was not told yet.
            let lost = try one.container.lostCount()
            one.setOffline(false)
            try await one.settle()
            cloud.simulation.advance(by: .seconds(30))
            try one.container.setLoss(lost)
            #expect(try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: id) == .removed)
        }
    }

    @Test(arguments: [true, false]) func aLocalFileStaysWhileAnyMayBeLost(isAllMissing: Bool) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let (file, content) = (cloud.root + "/local", SplitMix64.bytes(300_000, seed: 5))
            try content.write(to: URL(fileURLWithPath: file))
            let id = try await one.container.put(file: file, at: "f").id
            try await one.settle()
            one.setOffline(true)
            try one.container.setLoss(isAllMissing ? 0 : 1, isAllMissing: isAllMissing)
            #expect(try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: id) == .lost)
            await #expect(throws: CloudError.self) { try await one.container.downloads.evict("f") }
            try one.session.setContentCache(maxBytes: 0)
            #expect(try await one.container.read("f") == content)
        }
    }

    @Test func aCopyIsNotDroppedThatHealsWhatTheServerHasLost() async throws {
        try await withLoss { cloud, one, content in
            let failure = await #expect(throws: CloudError.self) { try await one.container.downloads.evict("f") }
            #expect(failure?.code == .constraintViolation && failure?.details["path"] == "/Documents/f")
            #expect(try await one.container.downloads.evict("/Documents").kept.map(\.path).contains("/Documents/f"))
            try one.session.setContentCache(maxBytes: 0)
            #expect(try await one.container.read("f") == content)
            one.setOffline(false)
            try await one.settle()
            cloud.simulation.advance(by: .seconds(30))
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("f") == content)
            // Then it has no more right to stay than others.
            _ = try await one.container.scope.verify()
            cloud.simulation.advance(by: .seconds(10))
            one.setOffline(true)
            await #expect(throws: CloudError.self) { try await one.container.read("f") }
        }
    }

    /// What has come in its place does not push it out.
    @Test func aFormerContentStaysUntilTheServerHasIt() async throws {
        try await withLoss { _, one, _ in
            let former = try #require(try one.container.handle.read { try $0.place(DocumentPath("f")) })
            guard case .item(let item) = former else { throw CancellationError() }
            try await one.container.put(SplitMix64.bytes(300_000, seed: 9), at: "f")
            one.setOffline(false)
            try await one.container.scope.waitUntilSent(timeout: .seconds(60))
            #expect(try one.container.handle.read { try $0.copies.has(item.wire.content) })
        }
    }
}

extension UbiquityContainer {
    fileprivate func lostCount() throws -> Int { try handle.read { try $0.loss() }.lostChunks }

    /// As if the service had said so.
    fileprivate func setLoss(_ count: Int, isAllMissing: Bool = false) throws {
        try handle.session.local.write { database in
            let rows = try handle.documents(database).rows
            var state = try rows.state()
            var info = try WireContainerInfo(serializedBytes: state.info)
            (info.lostChunks, info.contentMissing) = (UInt32(count), isAllMissing)
            state.info = try info.serializedData()
            try rows.save(state)
        }
    }
}
