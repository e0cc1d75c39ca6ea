import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What has to stay on a device stays, whosever copy it is, and goes when nobody wants it any more.
@Suite struct KeptCopyTests {
    /// Two devices; on the second `b`, which is kept downloaded, has the bytes that came for `a`.
    private func withSharedCopy(
        _ body: (ContainerCloud, ContainerCloud.Device, ContainerCloud.Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "a")
            try await one.settle()
            try await two.settle()
            _ = try await two.container.read("a")
            try await one.container.copy("a", to: "b")
            try await one.settle()
            try await two.settle()
            try await two.container.downloads.pin("b")
            cloud.simulation.pass(.seconds(5))
            #expect(try await two.download("b").status == .current && two.contentFiles.count == 1)
            try await body(cloud, one, two)
            #expect(try await two.download("b").status == .current)
            two.setOffline(true)
            #expect(try await two.container.read("b") == SplitMix64.bytes(300_000, seed: 1))
        }
    }

    @Test func whatIsKeptStaysWhenItsFirstOwnerGetsAnotherContent() async throws {
        try await withSharedCopy { cloud, one, two in
            try await one.container.put(SplitMix64.bytes(200_000, seed: 2), at: "a")
            try await one.settle()
            try await two.settle()
            let fetched = try await two.fetchedBytes()
            _ = try await two.container.read("a")
            cloud.simulation.pass(.seconds(5))
            #expect(try await two.fetchedBytes() - fetched == 200_000)
        }
    }

    @Test func whatIsKeptStaysWhenItsFirstOwnerIsDropped() async throws {
        try await withSharedCopy { cloud, one, two in
            two.setOffline(true)
            let dropped = try await two.container.downloads.evict("a")
            #expect(dropped.itemCount == 0)
        }
    }

    @Test func whatIsKeptStaysWhenItsFirstOwnersWouldGo() async throws {
        try await withSharedCopy { cloud, one, two in
            two.setOffline(true)
            try two.session.setContentCache(maxBytes: 0)
        }
    }

    @Test func whatIsKeptTwiceStaysForOneOfThem() async throws {
        try await withSharedCopy { cloud, one, two in
            try await two.container.downloads.pin("a")
            cloud.simulation.pass(.seconds(5))
            try two.session.setContentCache(maxBytes: 0)
            try await two.container.downloads.unpin("a")
            cloud.simulation.pass(.seconds(5))
            #expect(two.contentFiles.count == 1)
        }
    }

    @Test func whatIsKeptAndFoundDamagedComesAgain() async throws {
        try await withSharedCopy { cloud, one, two in
            #expect(truncate(two.session.home.path + "/content/" + (two.contentFiles.first ?? ""), 100_000) == 0)
            two.setOffline(true)
            await #expect(throws: CloudError.self) { try await two.container.read("a", timeout: .seconds(1)) }
            two.setOffline(false)
            try await two.settle()
            #expect(try await passes(cloud) { try await two.download("b").status == .current })
        }
    }

    @Test func whatIsPutWhereAllIsKeptIsNotFetchedAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try one.session.setContentCache(maxBytes: 400_000)
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "y")
            try await one.container.makeFolder(at: "f")
            try await one.settle()
            try await one.container.downloads.pin("f")
            try await one.container.put(SplitMix64.bytes(900_000, seed: 2), at: "f/x")
            try await one.settle()
            #expect(try await one.download("f/x").status == .current)
            // Nor does it drive out what may go.
            #expect(try await one.download("y").status == .current)
            cloud.simulation.pass(.seconds(5))
            #expect(try await one.fetchedBytes() == 0 && one.contentFiles.count == 2)
        }
    }

    @Test func whatIsNotKeptAnyMoreCountsAgainAndGoes() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for (number, path) in ["f/removed", "f/trashed", "f/moved", "f/g/inside", "f/stays"].enumerated() {
                try await one.container.put(
                    SplitMix64.bytes(200_000, seed: UInt64(number)), at: path, makesFolders: true)
            }
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 100_000)
            try await two.container.downloads.pin("f")
            #expect(try await passes(cloud) { two.contentFiles.count == 5 })
            #expect(
                try await passes(cloud) { try await two.download("f/stays").status == .current })
            try await one.container.trash.remove(try await one.container.trash(["f/removed"]))
            try await one.container.trash(["f/trashed"])
            try await one.container.move("f/moved", to: "moved")
            try await one.container.move("f/g", to: "g")
            try await one.settle()
            try await two.settle()
            #expect(try await passes(cloud, for: 20) { two.contentFiles.count == 1 }, "\(two.contentFiles.count)")
            #expect(try await two.download("f/stays").status == .current)
            #expect(try two.session.contentCache().bytes == 0)
        }
    }

    @Test func moreThanMayStayIsNotSaidToComeInParts() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for (number, path) in ["a", "b", "f/c", "f/d", "f/e"].enumerated() {
                try await one.container.put(
                    SplitMix64.bytes(300_000, seed: UInt64(number)), at: path, makesFolders: true)
            }
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 700_000)
            _ = try await two.container.read("f/c")
            _ = try await two.container.read("f/d")
            await #expect(throws: CloudError.self) { try await two.container.downloads.start("f") }
            two.setOffline(true)
            #expect(try await two.container.downloads.start("a") == 1)
            #expect(try await two.container.downloads.start("b") == 1)
            await #expect(throws: CloudError.self) { try await two.container.downloads.start("f/e") }
        }
    }

    /// What is here of a folder was used longest ago, and something else lately, by a clock that was ahead.
    @Test func whatComesWithOthersDoesNotPushThemOut() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for (number, path) in ["f/a", "f/b", "other"].enumerated() {
                try await one.container.put(
                    SplitMix64.bytes(300_000, seed: UInt64(number)), at: path, makesFolders: true)
            }
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 700_000)
            _ = try await two.container.read("f/a")
            cloud.simulation.pass(.seconds(5))
            _ = try await two.container.read("other")
            cloud.simulation.pass(.seconds(5))
            #expect(try await two.container.downloads.start("f") == 1)
            #expect(try await passes(cloud) { try await two.download("f/b").status == .current })
            #expect(try await two.download("f/a").status == .current)
            #expect(try await two.download("other").status == .notDownloaded)
        }
    }

    @Test func severalThatMayNotStayTogetherAreRefusedBeforeTheFirstByte() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for (number, path) in ["a", "b", "c"].enumerated() {
                try await one.container.put(SplitMix64.bytes(300_000, seed: UInt64(number)), at: path)
            }
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 700_000)
            await #expect(throws: CloudError.self) { try await two.container.downloads.start(["a", "b", "c"]) }
            cloud.simulation.pass(.seconds(60))
            for path in ["a", "b", "c"] { #expect(try await two.download(path).status == .notDownloaded) }
            // What is named twice counts once.
            #expect(try await two.container.downloads.start(["a", "b", "a"]) == 2)
            #expect(
                try await passes(cloud) {
                    var isHere = true
                    for path in ["a", "b"] { isHere = try await two.download(path).status == .current && isHere }
                    return isHere
                })
        }
    }

    @Test func whatMayNotStayIsNotFetchedForNothing() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 200_000)
            let version = try await two.container.downloads.fetchLatest("x")
            #expect(try await one.container.item(at: "x")?.version == version.id)
            #expect(try await two.fetchedBytes() == 0)
            // What is kept downloaded has its room.
            try await two.container.downloads.pin("x")
            try await two.container.downloads.fetchLatest("x")
            #expect(try await passes(cloud) { try await two.download("x").status == .current })
            #expect(try await two.fetchedBytes() == 300_000)
        }
    }
}
