import Foundation
import NephosCore
import NephosSimulation
import Synchronization
import Testing

@testable import NephosKit

/// Contents that are fetched before they are needed, kept, and dropped.
@Suite struct DownloadTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func files(_ device: ContainerCloud.Device) -> [String] {
        let folder = device.session.home.path + "/content"
        return ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).filter { !$0.hasPrefix(".") }
    }

    private func download(_ device: ContainerCloud.Device, _ path: String) async throws -> DocumentDownload {
        try #require(try await device.container.item(at: path)).download
    }

    /// Time passes until it is so.
    private func wait(
        _ cloud: ContainerCloud, for seconds: Int = 120, _ isSo: () async throws -> Bool
    ) async throws -> Bool {
        for _ in 0..<seconds * 2 {
            if try await isSo() { return true }
            cloud.simulation.pass(.milliseconds(500))
        }
        return try await isSo()
    }

    @Test func whatIsAskedForComesByItselfAndSaysHowFarItIs() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(3_000_000, seed: 1), at: "f/x", makesFolders: true)
            try await one.container.put(bytes(100_000, seed: 2), at: "f/y")
            try await one.container.put(Data("short".utf8), at: "f/z")
            try await one.settle()
            try await two.settle()
            // So slow that it can be seen.
            two.session.setTransferLimits(TransferLimits(download: 100_000))
            #expect(try await two.container.downloads.start("f") == 2)
            #expect(try await download(two, "f/z").status == .current)
            let seen = Mutex<Set<Int>>([])
            let reader = QueryReader(
                try two.container.query("percentDownloaded > 0 AND downloadingStatus != 'current'"))
            let isDone = try await wait(cloud) {
                let now = try await download(two, "f/x")
                seen.withLock { _ = $0.insert(now.percent) }
                if now.status != .current { #expect(now.isRequested) }
                // No time of the simulation passes meanwhile: the download stays where it is.
                if 10..<60 ~= now.percent { #expect(await reader.wait { !$0.items.isEmpty }) }
                return now.status == .current
            }
            #expect(isDone && seen.withLock { $0.count } > 5)
            #expect(await reader.wait { $0.items.isEmpty })
            #expect(try await download(two, "f/y").status == .current)
            two.setOffline(true)
            #expect(try await two.container.read("f/x") == bytes(3_000_000, seed: 1))
            // Nothing to do: what is here is left as it is.
            #expect(try await two.container.downloads.start("f") == 0)
            reader.cancel()
        }
    }

    @Test func whatWasBegunIsGoneOnWithByTheNextProcess() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(4_000_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            two.session.setTransferLimits(TransferLimits(download: 100_000))
            try await two.container.downloads.start("x")
            #expect(try await wait(cloud) { try await download(two, "x").percent >= 50 })
            two.session.close()
            let three = try await cloud.open(two.session.home.path)
            #expect(files(three).count == 1)
            #expect(try await wait(cloud) { try await download(three, "x").status == .current })
            let fetched: Int = try await three.session.engine.perform { engine, completion in
                completion(
                    Result { try engine.contents.join(.documents("", app: ContainerCloud.app)).progress.bytesDone }
                        .mapError { CloudError(wrapping: $0) })
            }
            #expect(fetched < 3_000_000, "\(fetched)")
            #expect(files(three).count == 1)
            three.setOffline(true)
            #expect(try await three.container.read("x") == bytes(4_000_000, seed: 1))
        }
    }

    /// It is asked for by the next session, and nothing has failed.
    @Test func whatIsAskedForWithoutAServerIsNotTried() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            two.session.close()
            let away = try await cloud.open(two.session.home.path, isOffline: true)
            let item = try #require(try await away.container.item(at: "x"))
            #expect(try await away.container.downloads.start(item.id) == 1)
            cloud.simulation.pass(.seconds(60))
            #expect(try await away.container.downloads.failure(of: item.id) == nil)
            #expect(files(away).isEmpty)
            away.session.close()
            let back = try await cloud.open(two.session.home.path)
            #expect(try await wait(cloud) { try await download(back, "x").status == .current })
        }
    }

    @Test func whyItDoesNotComeIsToldAndItComesWhenItCan() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.downloads.start("x")
            #expect(try await two.container.item(at: "x")?.state == .downloading)
            #expect(try await wait(cloud) { try await download(two, "x").problem != nil })
            two.setOffline(false)
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(60), isImpatient: true)
            #expect(try await wait(cloud) { try await download(two, "x").status == .current })
            #expect(try await download(two, "x").problem == nil)
        }
    }

    /// The last step fails once: nothing is lost by it, and nothing is left.
    @Test func aDownloadThatIsCutOffAtItsEndIsMadeOnceMore() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            let count = Mutex(0)
            let two = try await cloud.open { name in
                guard name == "download.keep" else { return }
                let isFirst = count.withLock { count in
                    count += 1
                    return count == 1
                }
                if isFirst { throw POSIXError(.EIO) }
            }
            try await two.settle()
            try await two.container.downloads.start("x")
            #expect(try await wait(cloud) { try await download(two, "x").status == .current })
            #expect(count.withLock { $0 } == 2 && files(two).count == 1)
        }
    }

    @Test func whatIsDroppedIsFetchedAgainAndWhatMustStayStays() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "f/x", makesFolders: true)
            try await one.settle()
            try await two.settle()
            _ = try await two.container.read("f/x")
            var dropped = try await two.container.downloads.evict("f/x")
            #expect(dropped.itemCount == 1 && dropped.byteCount == 300_000 && files(two).isEmpty)
            #expect(try await download(two, "f/x").status == .notDownloaded)
            dropped = try await two.container.downloads.evict("f/x")
            #expect(dropped.itemCount == 0)
            #expect(try await two.container.read("f/x") == bytes(300_000, seed: 1))
            // Unsent
            two.setOffline(true)
            try await two.container.put(bytes(300_000, seed: 2), at: "f/new")
            await expect(.constraintViolation, "sent") { try await two.container.downloads.evict("f/new") }
            dropped = try await two.container.downloads.evict("f")
            #expect(dropped.itemCount == 1 && dropped.kept.map(\.name) == ["new"])
            #expect(try await two.container.read("f/new") == bytes(300_000, seed: 2))
            // In conflict
            try await one.container.put(bytes(200_000, seed: 3), at: "f/x")
            try await one.settle()
            try await two.container.put(bytes(200_000, seed: 4), at: "f/x")
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.container.item(at: "f/x")?.conflictCount == 1)
            await expect(.constraintViolation, "conflict") { try await two.container.downloads.evict("f/x") }
            await expect(.unknownItem, "no such item") { try await two.container.downloads.evict("no") }
        }
    }

    @Test func whatIsKeptDownloadedStaysAndWhatComesThereComesHere() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "f/x", makesFolders: true)
            try await one.container.put(bytes(300_000, seed: 2), at: "y")
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 400_000)
            try await two.container.downloads.pin("f")
            #expect(try await wait(cloud) { try await download(two, "f/x").status == .current })
            #expect(try await download(two, "f/x").isPinned)
            #expect(try await !download(two, "y").isPinned)
            #expect(try await two.container.downloads.pinned().map(\.path) == ["/Documents/f"])
            // What it takes does not count, and it does not go.
            cloud.simulation.pass(.seconds(120))
            _ = try await two.container.read("y")
            #expect(try await download(two, "f/x").status == .current)
            #expect(try await download(two, "y").status == .current)
            await expect(.constraintViolation, "folder") { try await two.container.downloads.evict("f/x") }
            // New versions, new files, and what is moved there.
            try await one.container.put(bytes(310_000, seed: 3), at: "f/x")
            try await one.container.put(bytes(320_000, seed: 4), at: "f/g/z", makesFolders: true)
            try await one.container.put(bytes(330_000, seed: 5), at: "h/w", makesFolders: true)
            try await one.settle()
            try await one.container.move("h", to: "f/h")
            try await one.settle()
            try await two.settle()
            for path in ["f/x", "f/g/z", "f/h/w"] {
                #expect(try await wait(cloud) { try await download(two, path).status == .current }, "\(path)")
            }
            two.session.close()
            let three = try await cloud.open(two.session.home.path)
            try await three.settle()
            #expect(try await download(three, "f/g/z").status == .current)
            try await three.container.downloads.unpin("f")
            #expect(try three.session.contentCache().bytes <= 400_000)
            await expect(.unknownItem, "for its own sake") { try await three.container.downloads.unpin("f") }
            // Whoever drops what is kept keeps it no longer, with what is kept in it for its own sake.
            try await three.container.downloads.pin("f")
            try await three.container.downloads.pin("f/g")
            #expect(try await three.container.downloads.evict("f").unpinnedCount == 2)
            #expect(try await three.container.downloads.pinned().isEmpty)
            #expect(try await three.container.downloads.evict("f").unpinnedCount == 0)
        }
    }

    @Test func whatMayNotStayIsNotSaidToCome() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            try two.session.setContentCache(maxBytes: 200_000)
            await expect(.limitExceeded, "more than may stay") { try await two.container.downloads.start("x") }
            try await two.container.downloads.pin("x")
            #expect(try await wait(cloud) { try await download(two, "x").status == .current })
            // Asked to go, it is kept no longer.
            try await two.container.downloads.evict("x")
            #expect(try await !download(two, "x").isPinned)
            #expect(files(two).isEmpty)
        }
    }

    @Test func theNewestVersionIsFetchedWhenItIsAskedFor() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try await two.settle()
            try await one.container.put(bytes(300_000, seed: 2), at: "x")
            try await one.settle()
            let version = try await two.container.downloads.fetchLatest("x")
            #expect(try await one.container.item(at: "x")?.version == version.id)
            two.setOffline(true)
            #expect(try await two.container.read("x") == bytes(300_000, seed: 2))
        }
    }

    private func expect(
        _ code: CloudError.Code, _ words: String, _ body: () async throws -> some Any
    ) async {
        await #expect {
            _ = try await body()
        } throws: {
            ($0 as? CloudError)?.code == code && ($0 as? CloudError)?.message.contains(words) == true
        }
    }
}
