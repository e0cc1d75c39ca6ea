import Foundation
import NephosCore
import NephosFiles
import NephosSimulation
import Synchronization
import Testing

@testable import NephosKit

/// Contents that stay in the home besides on the server.
@Suite struct CacheTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func files(_ device: ContainerCloud.Device) -> [String] {
        let folder = device.session.home.path + "/content"
        return ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).filter { !$0.hasPrefix(".") }.map
        { folder + "/" + $0 }
    }

    private func status(_ device: ContainerCloud.Device, _ path: String) async throws -> DocumentDownload.Status? {
        try await device.container.item(at: path)?.download.status
    }

    /// Bytes of chunks that have come over the connection that is open.
    private func fetched(_ device: ContainerCloud.Device) async throws -> Int {
        try await device.session.engine.perform { engine, completion in
            completion(
                Result { try engine.contents.join(.documents("", app: ContainerCloud.app)).progress.bytesDone }
                    .mapError { CloudError(wrapping: $0) })
        }
    }

    @Test func whatWasPutReadOrGotIsReadWithoutAConnection() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let (x, y) = (bytes(900_000, seed: 1), bytes(300_000, seed: 2))
            try await one.container.put(x, at: "x")
            try await one.container.put(y, at: "y")
            try await one.settle()
            #expect(files(one).count == 2)
            #expect(try await one.container.item(at: "x")?.state == .current)
            one.setOffline(true)
            #expect(try await one.container.read("x") == x)
            try await two.settle()
            #expect(try await status(two, "x") == .notDownloaded)
            #expect(try await two.container.item(at: "x")?.state == .notDownloaded)
            #expect(try await two.container.read("x", range: 7..<100) == x[7..<100])
            // A part is not kept.
            #expect(files(two).isEmpty)
            #expect(try await two.container.read("x") == x)
            try await two.container.get("y", to: cloud.root + "/y")
            #expect(files(two).count == 2)
            #expect(try await status(two, "x") == .current)
            two.setOffline(true)
            #expect(try await two.container.read("x") == x)
            #expect(try await two.container.read("x", range: 300_000..<800_000) == x[300_000..<800_000])
            try await two.container.get("y", to: cloud.root + "/y2")
            #expect(try Data(contentsOf: URL(fileURLWithPath: cloud.root + "/y2")) == y)
            // The same bytes under another name are here too.
            try await two.container.copy("x", to: "copy")
            #expect(try await two.container.read("copy") == x)
        }
    }

    @Test func severalThatAreGotAreKeptInOneTransaction() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let sources = (0..<20).map { DocumentSource.data(bytes(5000, seed: $0), at: "f\($0)") }
            let ids = try await one.container.put(sources)
            try await one.settle()
            try await two.settle()
            let outcomes = await two.container.localFiles.exports.getEach(
                ids.enumerated().map { ($1, LocalPath(cloud.root + "/\($0)")) }, timeout: .seconds(30))
            #expect(outcomes.count == 20 && files(two).count == 20)
            two.setOffline(true)
            for number in 0..<20 {
                #expect(try await two.container.read("f\(number)") == bytes(5000, seed: UInt64(number)))
            }
        }
    }

    @Test func whatWasUsedLongestAgoGoesFirst() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try one.session.setContentCache(maxBytes: 700_000)
            for (number, name) in ["a", "b"].enumerated() {
                try await one.container.put(bytes(300_000, seed: UInt64(number)), at: name)
                try await one.settle()
                cloud.simulation.pass(.seconds(120))
            }
            #expect(try await one.container.read("a") == bytes(300_000, seed: 0))
            cloud.simulation.pass(.seconds(120))
            try await one.container.put(bytes(300_000, seed: 3), at: "c")
            try await one.settle()
            #expect(try await status(one, "a") == .current)
            #expect(try await status(one, "b") == .notDownloaded)
            #expect(try await status(one, "c") == .current)
            #expect(files(one).count == 2)
            #expect(try one.session.contentCache().bytes == 600_000)
            // What is longer than all that may stay drives out nothing.
            try await one.container.put(bytes(800_000, seed: 4), at: "d")
            try await one.settle()
            #expect(try await status(one, "d") == .notDownloaded)
            #expect(files(one).count == 2)
            // Lowered, the bound holds at once; raised, it is remembered.
            try one.session.setContentCache(maxBytes: 0)
            #expect(files(one).isEmpty)
            #expect(try one.session.contentCache().maxBytes == 0)
            #expect(try await one.container.read("c") == bytes(300_000, seed: 3))
            #expect(files(one).isEmpty)
            try one.session.setContentCache(maxBytes: 1_000_000)
            let again = try await cloud.open(one.session.home.path)
            #expect(try again.session.contentCache().maxBytes == 1_000_000)
        }
    }

    @Test func whatIsUnsentStaysWhateverTheBound() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try one.session.setContentCache(maxBytes: 0)
            #expect(files(one).count == 1)
            #expect(try await status(one, "x") == .current)
            one.setOffline(false)
            try await one.settle()
            #expect(files(one).isEmpty)
            try await two.settle()
            #expect(try await two.container.read("x") == bytes(300_000, seed: 1))
        }
    }

    @Test func whatIsDamagedIsNeverReturnedAndFetchedAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let content = bytes(900_000, seed: 1)
            for damage in ["changed", "cut", "gone"] {
                try await one.container.put(content, at: damage)
                try await one.settle()
                let file = try #require(files(one).first)
                switch damage {
                case "changed":
                    let handle = try #require(FileHandle(forWritingAtPath: file))
                    try handle.seek(toOffset: 500_000)
                    try handle.write(contentsOf: Data([content[500_000] ^ 1]))
                    try handle.close()
                case "cut": #expect(truncate(file, 800_000) == 0)
                default: unlink(file)
                }
                one.setOffline(true)
                await #expect(throws: CloudError.self) {
                    try await one.container.read(damage, timeout: .seconds(1))
                }
                #expect(files(one).isEmpty)
                #expect(try await status(one, damage) == .notDownloaded)
                one.setOffline(false)
                #expect(try await one.container.read(damage) == content)
                #expect(files(one).count == 1)
                #expect(try await status(one, damage) == .current)
                try await one.container.downloads.evict(damage)
            }
        }
    }

    /// A process ends between the file and its row, and between a row's end and its file's.
    @Test func whatAnEndedProcessHasLeftIsNobodysContent() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let content = bytes(300_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            try one.session.setContentCache(maxBytes: 0)
            try one.session.setContentCache(maxBytes: nil)
            let isBroken = Mutex(false)
            let two = try await cloud.open(one.session.home.path) { name in
                if name == "save", isBroken.withLock({ $0 }) { throw POSIXError(.EIO) }
            }
            isBroken.withLock { $0 = true }
            // That nothing can be kept is no failure of reading.
            #expect(try await two.container.read("x") == content)
            #expect(files(two).isEmpty)
            isBroken.withLock { $0 = false }
            #expect(try await two.container.read("x") == content)
            #expect(files(two).count == 1)
            let folder = try ContentFolder(home: one.session.home.path)
            try content.write(to: URL(fileURLWithPath: folder.file(.random())))
            #expect(files(two).count == 2)
            let three = try await cloud.open(one.session.home.path)
            cloud.simulation.pass(.seconds(1))
            #expect(files(three).count == 1)
            three.setOffline(true)
            #expect(try await three.container.read("x") == content)
        }
    }

    @Test func whatIsHereBelongsToItsAccountAndLeavesWithIt() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            try await one.session.signOut()
            #expect(files(one).count == 1)
            let connection = try cloud.simulation.use { try $0.connection }.description
            try await one.session.signIn(
                connection: ConnectionString(connection), account: "other", password: TestCloud.password,
                deviceName: one.name)
            cloud.simulation.pass(.seconds(1))
            #expect(files(one).isEmpty)
        }
    }

    /// Also where somebody stages in that moment, and the process ends before they have ended.
    @Test(arguments: [true, false]) func whatAnAccountHasLeftGoesAsSoonAsItMay(staysOpen: Bool) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.settle()
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            try await one.session.signOut()
            var claim: FileLock? = try ContentFolder(home: one.session.home.path).claim()
            let connection = try cloud.simulation.use { try $0.connection }.description
            try await one.session.signIn(
                connection: ConnectionString(connection), account: "other", password: TestCloud.password,
                deviceName: one.name)
            cloud.simulation.pass(.seconds(5))
            #expect(files(one).count == 1)
            if !staysOpen { one.session.close() }
            withExtendedLifetime(claim) { claim = nil }
            // No container is opened.
            let next =
                try staysOpen
                ? nil
                : await Session.open(
                    home: one.session.home, transport: cloud.simulation.transport(of: "next"),
                    options: cloud.simulation.makeOptions(of: "next"))
            cloud.simulation.pass(.seconds(60))
            #expect(files(one).isEmpty)
            next?.close()
        }
    }

    @Test func ofANewContentOnlyWhatIsNotHereIsFetched() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            var content = bytes(6_000_000, seed: 1)
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.read("x") == content)
            let before = try await fetched(two)
            content[3_000_000] ^= 1
            try await one.container.put(content, at: "x")
            try await one.settle()
            try await two.settle()
            #expect(try await status(two, "x") == .downloaded)
            #expect(try await two.container.item(at: "x")?.state == .notDownloaded)
            #expect(try await two.container.read("x") == content)
            #expect(try await fetched(two) - before <= 2 << 20)
            #expect(try await status(two, "x") == .current)
            // The former content has gone for it.
            #expect(files(two).count == 1)
        }
    }
}

extension DocumentID {
    static func random() -> DocumentID {
        var system = SystemRandomNumberGenerator()
        return .random(using: &system)
    }
}
