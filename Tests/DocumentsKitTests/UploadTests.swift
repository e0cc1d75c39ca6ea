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
        (try? FileManager.default.contentsOfDirectory(atPath: home + "/content")) ?? []
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
            home.withLock { $0 = one.session.home }
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
            let folder = try ContentFolder(home: one.session.home)
            var claim: FileLock? = try folder.claim()
            _ = try folder.stage(bytes(100_000, seed: 2), version: .documents, modified: 0)
            _ = FileManager.default.createFile(atPath: folder.path + "/\(DocumentID.top).part", contents: Data())
            _ = try await cloud.open(one.session.home)
            cloud.simulation.pass(.seconds(1))
            #expect(files(one.session.home).count == 2)
            withExtendedLifetime(claim) {}
            claim = nil
            _ = try await cloud.open(one.session.home)
            cloud.simulation.pass(.seconds(1))
            #expect(files(one.session.home).isEmpty)
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
                    unlink(folder.path + "/" + name)
                }
            }
            try await one.settle()
            home.withLock { $0 = one.session.home }
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
            #expect { try folder.stage(file: source, version: .top) } throws: {
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
        #expect { try ContentFolder(home: home).stage(file: source, version: .top) } throws: {
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
        #expect { try folder.stage(file: source, version: .top) } throws: {
            ($0 as? CloudError)?.code == .storageFailure && ($0 as? CloudError)?.details["reserve_bytes"] != nil
        }
        #expect(files(disk.folder).isEmpty)
        try #require(truncate(source, 30 << 20) == 0)
        #expect(try folder.stage(file: source, version: .top).length == 30 << 20)
    }
}
