import Foundation
import GRDB
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosFiles
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// Contents on their way, and what comes between.
@Suite struct UploadTests {
    func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func files(_ home: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: home + "/content")) ?? []).filter { !$0.hasPrefix(".") }
    }

    // MARK: What is staged

    /// However long it takes, and whatever the clock says.
    @Test func aSweepLeavesWhatIsBeingPut() async throws {
        try await withContainers { cloud in
            let home = Mutex<String?>(nil)
            let one = try await cloud.open { name in
                guard name == "save", let home = home.withLock({ $0 }) else { return }
                // Another process opens the container, a day after this one has begun to copy.
                let folder = try ContentFolder(home: home)
                for name in (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [] {
                    let file = folder.path + "/" + name
                    try FileManager.default.setAttributes([.modificationDate: Date.distantPast], ofItemAtPath: file)
                }
                folder.sweep { [] }
            }
            try await one.settle()
            home.withLock { $0 = one.session.home.path }
            let content = bytes(100_000, seed: 1)
            try await one.container.put(content, at: "x")
            home.withLock { $0 = nil }
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("x") == content)
        }
    }

    @Test func whatWasLeftBehindIsSweptAtOnceWhenNobodyStages() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let folder = try ContentFolder(home: one.session.home.path)
            var claim: FileLock? = try folder.claim()
            _ = try folder.stage(bytes(100_000, seed: 2), version: .documents, modified: 0)
            _ = FileManager.default.createFile(atPath: folder.path + "/\(DocumentID.top).part", contents: Data())
            _ = try await cloud.open(one.session.home.path)
            cloud.simulation.pass(.seconds(1))
            #expect(files(one.session.home.path).count == 2)
            withExtendedLifetime(claim) {}
            claim = nil
            _ = try await cloud.open(one.session.home.path)
            cloud.simulation.pass(.seconds(1))
            #expect(files(one.session.home.path).isEmpty)
        }
    }

    /// Whoever took it.
    @Test func whatIsGoneBeforeItIsKnownIsNotAcknowledged() async throws {
        try await withContainers { cloud in
            let home = Mutex<String?>(nil)
            let one = try await cloud.open { name in
                guard name == "save", let home = home.withLock({ $0 }) else { return }
                let folder = try ContentFolder(home: home)
                for name in (try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [] {
                    if !name.hasPrefix(".") { unlink(folder.path + "/" + name) }
                }
            }
            try await one.settle()
            home.withLock { $0 = one.session.home.path }
            await #expect { try await one.container.put(bytes(100_000, seed: 3), at: "x") } throws: {
                ($0 as? CloudError)?.code == .storageFailure
            }
            home.withLock { $0 = nil }
            #expect(try await one.paths().isEmpty)
        }
    }

    // MARK: Copying

    /// As `rsync --inplace --times` writes: the time of the last writing is set back.
    @Test func whatIsWrittenWhileItIsReadIsNotTaken() throws {
        let home = NSTemporaryDirectory() + "/nephos-stage-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let source = home + "/source"
        try bytes(4 << 20, seed: 4).write(to: URL(fileURLWithPath: source))
        let isDone = Mutex(false)
        let writer = Thread {
            let descriptor = open(source, O_WRONLY)
            defer { close(descriptor) }
            let times = [timespec(tv_sec: 1000, tv_nsec: 0), timespec(tv_sec: 1000, tv_nsec: 0)]
            while !isDone.withLock({ $0 }) {
                _ = pwrite(descriptor, "x", 1, 3 << 20)
                _ = futimens(descriptor, times)
                usleep(2000)
            }
        }
        writer.start()
        defer { isDone.withLock { $0 = true } }
        while (try FileManager.default.attributesOfItem(atPath: source)[.modificationDate] as? Date)?
            .timeIntervalSince1970 != 1000
        {}
        let folder = try ContentFolder(home: home)
        // Between a write and the setting back there is a moment in which the other time tells it too.
        for _ in 0..<20 {
            #expect { try folder.stage(file: LocalPath(source), version: .top) } throws: {
                ($0 as? CloudError)?.code == .constraintViolation
            }
        }
        #expect(files(home).isEmpty)
    }

    @Test func whatIsTooLongIsNotCopiedFirst() throws {
        let home = NSTemporaryDirectory() + "/nephos-stage-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: home) }
        let source = home + "/source"
        _ = FileManager.default.createFile(atPath: source, contents: nil)
        try #require(truncate(source, 2 << 40) == 0)
        #expect { try ContentFolder(home: home).stage(file: LocalPath(source), version: .top) } throws: {
            ($0 as? CloudError)?.code == .limitExceeded
        }
        #expect(files(home).isEmpty)
    }

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func theDatabaseKeepsRoomOnItsDisk() throws {
        let disk = try SmallDisk(megabytes: 40)
        defer { disk.remove() }
        let source = NSTemporaryDirectory() + "/nephos-long-" + UUID().uuidString
        _ = FileManager.default.createFile(atPath: source, contents: nil)
        defer { unlink(source) }
        let folder = try ContentFolder(home: disk.folder)
        try #require(truncate(source, 39 << 20) == 0)
        #expect { try folder.stage(file: LocalPath(source), version: .top) } throws: {
            ($0 as? CloudError)?.code == .storageFailure && ($0 as? CloudError)?.details["reserve_bytes"] != nil
        }
        #expect(files(disk.folder).isEmpty)
        try #require(truncate(source, 30 << 20) == 0)
        #expect(try folder.stage(file: LocalPath(source), version: .top).length == 30 << 20)
    }

    // MARK: Going on

    private func setSlow(_ time: Duration?, _ cloud: ContainerCloud) {
        cloud.simulation.use { $0.network.offloadTime = time }
    }

    /// Lets time pass until so many bytes are sent.
    private func send(_ bytes: Int, _ device: ContainerCloud.Device) async throws -> Int {
        for _ in 0..<10_000 {
            let progress = try await device.container.outbox.progress()
            if progress.done >= bytes { return progress.done }
            device.simulation.pass(.milliseconds(20))
        }
        throw CloudError(.deadlineExceeded, "It was not sent.")
    }

    /// Puts a film and ends the process when half of it is sent.
    private func putHalf(_ megabytes: Int, _ cloud: ContainerCloud) async throws -> (home: String, done: Int) {
        let one = try await cloud.open()
        try await one.settle()
        setSlow(.milliseconds(300), cloud)
        try await one.container.put(SplitMix64.bytes(megabytes << 20, seed: 1), at: "film")
        let done = try await send(megabytes << 19, one)
        one.session.close()
        cloud.simulation.pass(.seconds(5))
        return (one.session.home.path, done)
    }

    private func total(_ device: ContainerCloud.Device) async throws -> Int {
        for _ in 0..<10_000 {
            let progress = try await device.container.outbox.progress()
            if progress.total > 0 { return progress.total }
            device.simulation.pass(.milliseconds(5))
        }
        return 0
    }

    private func expectFilm(_ megabytes: Int, _ device: ContainerCloud.Device, _ cloud: ContainerCloud) async throws {
        try await device.settle()
        #expect(try await device.container.scope.status().refused.isEmpty)
        setSlow(nil, cloud)
        let two = try await cloud.open()
        try await two.settle()
        #expect(try await two.container.read("film") == SplitMix64.bytes(megabytes << 20, seed: 1))
    }

    @Test func whatTheServiceHasIsNotSentAgain() async throws {
        try await withContainers { cloud in
            let (home, done) = try await putHalf(48, cloud)
            let again = try await cloud.open(home)
            let total = try await total(again)
            #expect(total > 0 && total <= 48 << 20 - done)
            try await expectFilm(48, again, cloud)
        }
    }

    @Test(arguments: [false, true]) func anUploadThatHasEndedIsBegunAnew(isClosed: Bool) async throws {
        try await withContainers { cloud in
            let (home, _) = try await putHalf(10, cloud)
            if !isClosed {
                cloud.simulation.use { $0.skip(.seconds(24 * 3600)) }
                await cloud.simulation.run { $0.network.run(for: .seconds(90)) }
                #expect(try cloud.uploadCount() == 0)
            }
            let again = try await cloud.open(home)
            if isClosed {
                _ = try await total(again)
                try cloud.closeUploads(again)
            }
            try await expectFilm(10, again, cloud)
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// As on a laptop that was shut. The process is the same.
    @Test func aLargeUploadGoesOnTheNextMorningWhereItWas() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            setSlow(.milliseconds(300), cloud)
            try await one.container.put(SplitMix64.bytes(20 << 20, seed: 1), at: "film")
            _ = try await send(10 << 20, one)
            let sent = try cloud.receivedChunks()
            one.setOffline(true)
            cloud.simulation.pass(.seconds(5))
            await cloud.simulation.run { $0.network.run(for: .seconds(3600)) }
            cloud.simulation.use { $0.skip(.seconds(10 * 3600), with: [one.name]) }
            await cloud.simulation.run { $0.network.run(for: .seconds(3600)) }
            // What the rest of it had reserved is free meanwhile.
            #expect(try cloud.uploadCount() == 1 && cloud.usedBytes() < 15 << 20)
            one.setOffline(false)
            // The pause before the next attempt has grown meanwhile.
            await cloud.simulation.run { $0.network.run(for: .seconds(600)) }
            try await expectFilm(20, one, cloud)
            // Half was sent: of all again it would be three times as many.
            #expect(try cloud.receivedChunks() * 2 < sent * 5)
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// What it holds counts on the plan, and is needed no more.
    @Test func whatAnotherDeviceCommitsMeanwhileIsInNobodysWay() async throws {
        try await withContainers { cloud in
            let (home, done) = try await putHalf(20, cloud)
            setSlow(nil, cloud)
            let two = try await cloud.open()
            try await two.settle()
            try await two.container.put(SplitMix64.bytes(20 << 20, seed: 1).prefix(done), at: "half")
            try await two.settle()
            try await expectFilm(20, try await cloud.open(home), cloud)
            #expect(try cloud.uploadCount() == 0)
        }
    }

    /// The service says each time that it has what it lacks.
    @Test func whatTheServiceDoesNotKeepIsSentLessAndLessOften() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await cloud.uploads(of: one) { $0.nodesBytesMax = 300 }
            try cloud.execute(
                """
                CREATE TRIGGER lose AFTER INSERT ON content_chunks BEGIN
                    DELETE FROM content_chunks WHERE owner = NEW.owner AND id = NEW.id;
                END
                """)
            let requests = cloud.simulation.use { $0.requestCount(.documents) }
            let before = cloud.simulation.use { $0.network.now }
            let sources = ["x", "y", "z"].map {
                DocumentSource.data(bytes(1_000_000, seed: UInt64($0.utf8.first ?? 0)), at: $0)
            }
            try await one.container.put(sources)
            for _ in 0..<600 where try await one.container.scope.status().refused.isEmpty {
                cloud.simulation.pass(.seconds(1))
            }
            let status = try await one.container.scope.status()
            #expect(
                status.refused.map(\.key) == ["/Documents/x", "/Documents/y", "/Documents/z"] && status.pending.isEmpty)
            #expect(status.refused.first?.error.details["chunk"] != nil, "\(status.refused.map(\.error))")
            #expect(cloud.simulation.use { $0.network.now } - before > .seconds(40))
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - requests < 120)
            // What it had stored is given back at once.
            cloud.simulation.pass(.seconds(5))
            #expect(try cloud.uploadCount() == 0)
        }
    }

    // MARK: What is in the way

    @Test func aContentThatIsGoneFromTheHomeIsToldOfAndHoldsNothingUp() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(bytes(100_000, seed: 1), at: "lost")
            try await one.container.put(bytes(200_000, seed: 2), at: "whole")
            try await one.container.put([
                .data(bytes(300_000, seed: 3), at: "a"), .data(bytes(90_000, seed: 4), at: "b"),
            ])
            let folder = try ContentFolder(home: one.session.home.path)
            for path in ["lost", "a"] {
                let version = try #require(try await one.container.item(at: path)?.version)
                unlink(folder.file(version))
            }
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/b", "/Documents/whole"])
            let refused = try await one.container.scope.status().refused
            #expect(refused.map(\.key).sorted() == ["/Documents/a", "/Documents/lost"])
            #expect(refused.allSatisfy { $0.error.code == .unknownItem && $0.recovery == nil })
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("b") == bytes(90_000, seed: 4))
            cloud.simulation.pass(.seconds(5))
            #expect(try cloud.uploadCount() == 0)
        }
    }

    @Test func aContentThatWasChangedInTheHomeIsToldOf() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.put([
                .data(bytes(300_000, seed: 3), at: "a"), .data(bytes(90_000, seed: 4), at: "b"),
            ])
            let version = try #require(try await one.container.item(at: "b")?.version)
            let file = try ContentFolder(home: one.session.home.path).file(version)
            try bytes(90_000, seed: 5).write(to: URL(fileURLWithPath: file))
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/a"])
            #expect(try await one.container.scope.status().refused.map(\.key) == ["/Documents/b"])
        }
    }

    @Test func aContentThatCannotBeReadHoldsUpNobodyElseAndSaysWhy() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            let content = bytes(100_000, seed: 1)
            try await one.container.put(content, at: "x")
            let version = try #require(try await one.container.item(at: "x")?.version)
            let file = try ContentFolder(home: one.session.home.path).file(version)
            unlink(file)
            // What cannot be read, also by the superuser.
            mkdir(file, 0o700)
            try await one.container.put(bytes(200_000, seed: 2), at: "y")
            one.setOffline(false)
            let requests = cloud.simulation.use { $0.requestCount(.documents) }
            cloud.simulation.pass(.seconds(600))
            #expect(try await one.container.item(at: "y")?.pending == DocumentEntry.PendingState.none)
            let pending = try #require(try await one.container.scope.status().pending.first)
            #expect(pending.keys == ["/Documents/x"] && pending.error?.code == .storageFailure)
            #expect(pending.attempts > 5 && pending.nextAttempt != nil && pending.blocker == .thisDevice)
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - requests < 120)
            rmdir(file)
            try content.write(to: URL(fileURLWithPath: file))
            one.container.scope.synchronize()
            cloud.simulation.pass(.seconds(3))
            #expect(try await one.container.item(at: "x")?.pending == DocumentEntry.PendingState.none)
        }
    }

    @Test func whyAContentWaitsIsToldAndHastenedIsTriedAtOnce() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            cloud.simulation.use { $0.setCommitsFail(of: .documents, true) }
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            cloud.simulation.pass(.seconds(300))
            let pending = try #require(try await one.container.scope.status().pending.first)
            #expect(pending.error?.code == .storageFailure && pending.reason == pending.error?.message)
            #expect(pending.attempts > 3 && pending.nextAttempt != nil)
            cloud.simulation.use { $0.setCommitsFail(of: .documents, false) }
            one.container.scope.synchronize()
            cloud.simulation.pass(.seconds(2))
            #expect(try await one.container.scope.status().pending.isEmpty)
        }
    }

    /// The service takes requests, and no chunks.
    @Test func whyTheServiceTakesNoChunksIsTold() async throws {
        var configuration = Transfers.Configuration()
        configuration.roomKeptBytes = .max / 4
        try await withContainers(configuration: configuration) { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            cloud.simulation.pass(.seconds(120))
            let pending = try #require(try await one.container.scope.status().pending.first)
            #expect(pending.error?.code == .storageFailure && pending.reason == pending.error?.message)
            #expect(pending.attempts > 3 && pending.nextAttempt != nil && pending.blocker == .server)
            #expect(try await one.container.outbox.progress().waiting?.code == .storageFailure)
        }
    }

    /// What a content lacks is asked in as many requests as it needs, however few are answered at a time.
    @Test func whatWasAnsweredIsNotAskedAgain() async throws {
        var budgets = BudgetConfiguration.unlimited
        budgets.device = BudgetConfiguration.Limit(capacity: 12, refillPerSecond: 1)
        try await withContainers(budgets: budgets) { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await cloud.uploads(of: one) { $0.askedMax = 1 }
            // Its chunks have a mebibyte each.
            var film = Data(count: 30 << 20)
            for place in 0..<30 { film[place << 20] = UInt8(place) }
            try await one.container.put(film, at: "film")
            for _ in 0..<5 {
                cloud.simulation.pass(.seconds(4))
                cloud.simulation.use { $0.crash(.documents) }
                cloud.simulation.pass(.seconds(15))
                try cloud.simulation.use { try $0.start(.documents) }
            }
            cloud.simulation.pass(.seconds(4))
            #expect(try await one.container.scope.status().pending.isEmpty)
        }
    }

    @Test func aNewConnectionEndsThePause() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            cloud.simulation.pass(.seconds(900))
            one.setOffline(false)
            for _ in 0..<6000 where try await !one.container.scope.status().isFollowing {
                cloud.simulation.pass(.milliseconds(20))
            }
            cloud.simulation.pass(.seconds(1))
            #expect(try await one.container.scope.status().pending.isEmpty)
        }
    }

    /// To make a connection costs more than to move many chunks: who goes on soon does so over the one that is there.
    @Test func whatFollowsSoonGoesOverTheConnectionThatIsThere() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for number in 1...3 {
                try await one.container.put(bytes(100_000, seed: UInt64(number)), at: "\(number)")
                try await one.container.scope.waitUntilSent(timeout: .seconds(60))
            }
            #expect(try await cloud.connectionCount(of: one) == 1)
            // Nobody has used it for a while: it is closed.
            cloud.simulation.pass(.seconds(10))
            try await one.container.put(bytes(100_000, seed: 4), at: "4")
            try await one.container.scope.waitUntilSent(timeout: .seconds(60))
            #expect(try await cloud.connectionCount(of: one) == 2)
        }
    }

    @Test func aLetterDoesNotWaitForAFilm() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await cloud.uploads(of: one) { $0.shortBytesMax = 1 << 20 }
            setSlow(.seconds(2), cloud)
            for name in ["film", "film 2"] {
                try await one.container.put(SplitMix64.bytes(40 << 20, seed: 1) + Data(name.utf8), at: name)
            }
            _ = try await send(4 << 20, one)
            try await one.container.put(bytes(100_000, seed: 1), at: "letter")
            cloud.simulation.pass(.seconds(9))
            #expect(try await one.container.item(at: "letter")?.pending == DocumentEntry.PendingState.none)
            let pending = try await one.container.scope.status().pending
            #expect(pending.map(\.reason) == [Preparation.sending.rawValue, Preparation.waiting.rawValue])
            #expect(try await one.container.item(at: "film")?.pending == .uploading)
            setSlow(nil, cloud)
            try await one.settle()
        }
    }
}

extension ContainerCloud {
    func uploads(of device: Device, _ body: @escaping @Sendable (ContentUploads) -> Void) async throws {
        let _: Bool = try await device.container.scope.perform { driver, completion in
            if let uploads = (driver.model as? DocumentsModel)?.uploads { body(uploads) }
            completion(.success(true))
        }
    }

    func connectionCount(of device: Device) async throws -> Int {
        try await device.container.scope.perform { driver, completion in
            completion(.success((driver.model as? DocumentsModel)?.uploads.connectionCount ?? 0))
        }
    }

    func execute(_ sql: String) throws {
        let statement = SQL(sql)
        _ = try simulation.use { try $0.storage(of: .documents).write { try $0.execute(statement, []) } }
    }

    private static let countUploads = SQL("SELECT COUNT(*) FROM storage_reservations")
    private static let sumUsed = SQL("SELECT CAST(COALESCE(SUM(used), 0) AS BIGINT) FROM storage_owners")

    /// Uploads of which the service keeps something.
    func uploadCount() throws -> Int64 {
        try simulation.use {
            try $0.storage(of: .documents).write { try $0.first(Self.countUploads, []) { $0.integer(0) } ?? -1 }
        }
    }

    /// How many chunks devices have sent.
    func receivedChunks() throws -> UInt64 {
        try simulation.use { cloud in
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters["content.received.chunks"] ?? 0
        }
    }

    /// Bytes that count on plans.
    func usedBytes() throws -> Int64 {
        try simulation.use {
            try $0.storage(of: .documents).write { try $0.first(Self.sumUsed, []) { $0.integer(0) } ?? -1 }
        }
    }

    /// Ends all that the device has open, as if somebody else had.
    func closeUploads(_ device: Device) throws {
        let ids = try device.session.local.read {
            try Data.fetchAll($0, sql: "SELECT operation FROM outbox WHERE service = 'documents'")
        }
        try simulation.use { cloud in
            let mover = try TestBulk(of: cloud, app: Self.app.rawValue)
            for id in ids {
                var request = WireCloseTransfer()
                request.transferID = id
                let _: WireCloseTransferReply = try mover.client.call(
                    "CloseTransfer", request, at: .requests(.documents), accessToken: mover.accessToken)
            }
        }
    }
}
