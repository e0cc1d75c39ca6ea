import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A server that comes back from an older copy gets from devices what they have of its contents.
@Suite struct LostContentTests {
    @Test(arguments: [true, false]) func whatADeviceHasOnlyAsACopyComesBack(isFetched: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            let (long, other) = (SplitMix64.bytes(3_000_000, seed: 1), SplitMix64.bytes(300_000, seed: 2))
            try await one.container.put(long, at: "f/long", makesFolders: true)
            try await one.container.put(other, at: "other")
            try await one.settle()
            try await two.settle()
            let holder = isFetched ? two : one
            if isFetched {
                for path in ["f/long", "other"] { _ = try await two.container.read(path) }
            }
            (isFetched ? one : two).setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await holder.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await holder.settle()
            #expect(try await holder.container.status().refused.isEmpty)
            let three = try await cloud.open()
            try await three.settle()
            #expect(try await three.container.read("f/long") == long)
            #expect(try await three.container.read("other") == other)
            // Each has one file here still, and it is a copy.
            #expect(holder.contentFiles.count == 2)
            #expect(try holder.session.contentCache().bytes == 3_300_000)
            holder.setOffline(true)
            #expect(try await holder.container.read("f/long") == long)
        }
    }

    /// A restored server, which has lost a file: the first device has it, and is away; the second had only heard of it.
    private func devicesOfWhichOneCannotBringBack(
        _ bytes: Data, at path: String, _ cloud: ContainerCloud
    ) async throws -> (holder: ContainerCloud.Device, other: ContainerCloud.Device) {
        let (one, two) = (try await cloud.open(), try await cloud.open())
        try await one.settle()
        try await two.settle()
        let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
        try await one.container.put(bytes, at: path, makesFolders: true)
        try await one.settle()
        try await two.settle()
        one.setOffline(true)
        try cloud.simulation.use { try $0.restore(copy, of: .documents) }
        try await two.container.scope.waitUntilCurrent(timeout: .seconds(120))
        #expect(try await passes(cloud) { try await two.container.status().refused.count == 1 })
        return (one, two)
    }

    /// The device that asks first has no bytes of it: what it could not bring back is no news once another has.
    @Test func whatAnotherDeviceHasBroughtBackIsRefusedNoMore() async throws {
        try await withContainers { cloud in
            let bytes = SplitMix64.bytes(300_000, seed: 1)
            let (one, two) = try await devicesOfWhichOneCannotBringBack(bytes, at: "film", cloud)
            let told = try await two.container.scope.status().refused.first?.error.message
            #expect(told?.contains("A device that has one sends it by itself") == true)
            one.setOffline(false)
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.status().refused.isEmpty)
            #expect(try await two.container.read("film") == bytes)
        }
    }

    /// Nobody has it any more but somebody who puts it again, or puts something else in its place.
    @Test(arguments: [true, false]) func whatIsPutAgainIsRefusedNoMore(isSame: Bool) async throws {
        try await withContainers { cloud in
            let (_, two) = try await devicesOfWhichOneCannotBringBack(
                SplitMix64.bytes(300_000, seed: 1), at: "f/film", cloud)
            // Of another file's it is told still.
            try await two.container.put(SplitMix64.bytes(300_000, seed: 3), at: "other")
            try await two.settle()
            #expect(try await two.container.status().refused.count == 1)
            try await two.container.put(
                SplitMix64.bytes(300_000, seed: isSame ? 1 : 2), at: "f/film", makesFolders: true)
            try await two.settle()
            #expect(try await two.container.status().refused.isEmpty)
        }
    }

    /// What is put as something else of the file settles nothing of what was refused.
    @Test func aRefusalStaysWhenAFurtherContentIsPut() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "x")
            let folder = one.session.home.path + "/content"
            for file in try FileManager.default.contentsOfDirectory(atPath: folder) where !file.hasPrefix(".") {
                try FileManager.default.removeItem(atPath: folder + "/" + file)
            }
            one.setOffline(false)
            #expect(try await passes(cloud) { try await one.container.status().refused.count == 1 })
            try await one.container.renditions.set(Data("small".utf8), named: "icon", of: "x")
            try await one.settle()
            #expect(try await one.container.renditions.list(of: "x").count == 1)
            #expect(try await one.container.status().refused.count == 1)
        }
    }
}
