import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Contents that come one after the other: none keeps another away, and none is fetched for nothing.
@Suite struct DownloadTurnTests {
    /// A folder in the trash takes with it what is in it: that is not to come, and nothing asks for it again and again.
    @Test func whatLiesInTheTrashIsNotFetchedAndCostsNothing() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "f/g/x", makesFolders: true)
            try await one.settle()
            try await two.settle()
            two.session.setTransferLimits(TransferLimits(download: 1000))
            try await two.container.downloads.pin("f")
            cloud.simulation.pass(.seconds(5))
            #expect(try await two.download("f/g/x").isRequested)
            try await one.container.trash(["f/g"])
            try await one.settle()
            try await two.settle()
            func touches() throws -> Int64 {
                try two.session.local.read { database in
                    try two.container.handle.documents(database).latestTouch()
                }
            }
            cloud.simulation.pass(.seconds(5))
            let before = try touches()
            cloud.simulation.pass(.seconds(20))
            #expect(try touches() - before < 5)
            #expect(two.contentFiles.isEmpty)
            // It comes back with its folder.
            two.session.setTransferLimits(TransferLimits())
            try await one.container.trash.restore()
            try await one.settle()
            try await two.settle()
            #expect(try await passes(cloud) { try await two.download("f/g/x").status == .current })
        }
    }

    @Test func whatTheServerHasLostKeepsNoOtherAway() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for number in 10..<26 {
                try await one.container.put(
                    SplitMix64.bytes(900_000, seed: UInt64(number)), at: "f/\(number)", makesFolders: true)
                try await one.settle()
            }
            try SegmentDamage.damageAll(in: cloud.root)
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "f/x")
            try await one.settle()
            try await two.settle()
            try await two.container.downloads.pin("f")
            let isHere = try await passes(cloud, for: 20) { try await two.download("f/x").status == .current }
            #expect(isHere)
            #expect(try await two.container.items(in: "f").count { $0.download.problem != nil } > 4)
        }
    }

    /// One that is replaced while it comes: what has come of it is the most of the next.
    @Test func whatChangesWhileItComesIsNotFetchedAnew() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            var content = SplitMix64.bytes(3_000_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            two.session.setTransferLimits(TransferLimits(download: 200_000))
            try await two.container.downloads.start("x")
            #expect(try await passes(cloud) { try await two.download("x").percent >= 40 })
            content[1_500_000] ^= 1
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await passes(cloud) { try await two.download("x").status == .current })
            #expect(try await two.fetchedBytes() < 4_500_000)
            #expect(try await two.container.read("x") == content && two.contentFiles.count == 1)
        }
    }

    @Test func whoeverWaitsSeesThatALongOneMoves() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(SplitMix64.bytes(3_000_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            // A chunk takes a quarter of a minute.
            two.session.setTransferLimits(TransferLimits(download: 16_000))
            try await two.container.downloads.start("x")
            cloud.simulation.pass(.seconds(20))
            var last = try await two.container.downloads.beats()
            for _ in 0..<10 {
                cloud.simulation.pass(.seconds(5))
                let beats = try await two.container.downloads.beats()
                #expect(beats > last)
                last = beats
            }
            #expect(try await two.download("x").status == .notDownloaded)
        }
    }
}
