import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// What a device does while the service's disk is full.
@Suite(.serialized) struct FullDiskTests {
    private func withFullDisk(
        before: (ContainerCloud.Device, ContainerCloud.Device) async throws -> Void,
        _ body: (ContainerCloud.Device, ContainerCloud.Device, SmallDisk) async throws -> Void
    ) async throws {
        let disk = try SmallDisk(megabytes: 120)
        defer { disk.remove() }
        let engine = try SQLiteEngine(path: disk.folder + "/documents.sqlite")
        let cloud = try ContainerCloud(engine: engine)
        defer { cloud.close() }
        let (one, two) = (try await cloud.open(), try await cloud.open())
        try await one.settle()
        try await two.settle()
        try await before(one, two)
        let filler = try await cloud.open()
        try await filler.settle()
        try disk.fill()
        for number in 0..<2000 where !cloud.simulation.use({ _ in engine.isShortOfRoom }) {
            for part in 0..<50 {
                try await filler.container.put(Data(repeating: 1, count: 3000), at: "fill-\(number)-\(part)")
            }
            try? await filler.container.scope.waitUntilSent(timeout: .seconds(2))
        }
        #expect(cloud.simulation.use { _ in engine.isShortOfRoom })
        filler.setOffline(true)
        try await body(one, two, disk)
    }

    private func waiting(_ device: ContainerCloud.Device) async throws -> [String] {
        for _ in 0..<50 where try await device.container.scope.status().pending.count > 1 {
            device.simulation.pass(.milliseconds(100))
        }
        return try await device.container.scope.status().pending.flatMap(\.keys).map(\.rawValue).sorted()
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatMakesRoomGoesPastWhatWaitsForIt() async throws {
        var batch = DocumentID.documents
        try await withFullDisk { one, two in
            for name in ["old", "older", "with/inner", "shared"] {
                try await one.container.put(Data(name.utf8), at: name, makesFolders: true)
            }
            try await one.settle()
            batch = try await one.container.trash(["older"])
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.put(Data("by two".utf8), at: "shared")
            try await one.container.put(Data("by one".utf8), at: "shared")
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
        } _: { one, two, disk in
            try await one.container.makeFolder(at: "x")
            one.simulation.pass(.seconds(1))
            #expect(try await one.container.scope.status().pending.map(\.error?.code) == [.storageFailure])
            // Deleted, removed for good, and resolved.
            try await one.container.trash(["old"])
            #expect(try await waiting(one) == ["/Documents/x"])
            try await one.container.trash.remove(batch)
            #expect(try await waiting(one) == ["/Documents/x"])
            try await one.container.conflicts.resolve("shared")
            #expect(try await waiting(one) == ["/Documents/x"])
            // In their order: what is about the same, or about a folder with something that waits.
            try await one.container.put(Data("new".utf8), at: "with/new")
            try await one.container.trash(["with"])
            one.simulation.pass(.seconds(25))
            #expect(try await one.container.scope.status().pending.count == 3)
            #expect(try await one.container.scope.status().refused.isEmpty)
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(30))
            let paths = try await two.container.items().map(\.path).filter { !$0.hasPrefix("/Documents/fill") }
            #expect(paths.sorted() == ["/Documents/shared", "/Documents/with", "/Documents/with/inner"])
            #expect(try await two.container.item(at: "shared")?.conflictCount == 0)
            await #expect(throws: CloudError.self) { try await two.container.trash.restore(batch) }
            // Once there is room everything goes.
            try disk.empty()
            try await one.settle()
            try await two.settle()
            let all = try await two.container.items().map(\.path).filter { !$0.hasPrefix("/Documents/fill") }
            #expect(all.sorted() == ["/Documents/shared", "/Documents/x"])
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await one.container.scope.verify().agrees)
        }
    }

    /// It may be behind very many.
    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func whatMakesRoomIsFoundBehindManyThatNeedSome() async throws {
        try await withFullDisk { one, two in
            try await one.container.put(Data("1".utf8), at: "old")
            try await one.settle()
            try await two.settle()
        } _: { one, two, _ in
            for number in 0..<200 { try await one.container.makeFolder(at: "x\(number)") }
            try await one.container.trash(["old"])
            one.simulation.pass(.seconds(5))
            #expect(try await one.container.scope.status().pending.count == 200)
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(30))
            #expect(try await two.container.item(at: "old") == nil)
        }
    }
}
