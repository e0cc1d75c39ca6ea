import Foundation
import NephosContent
import NephosCore
import NephosFiles
import NephosServiceKit
import NephosStorage
import Testing

@testable import NephosBackup

@Suite struct BackupTests {
    @Test func whatWasCopiedOnceIsNotCopiedAgain() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 2)
        let first = try house.backup()
        #expect(first.copiedSegments == 2)
        #expect(try house.verify() == [[]])
        // One grows, one is as it was, and one is new.
        try house.put("more", partition: 1)
        try house.put("c", partition: 3)
        let second = try house.backup(at: 1)
        #expect(second.copiedSegments == 2)
        #expect(second.manifest.segments.count == 3)
        #expect(try house.backup(at: 2).copiedSegments == 0)
        // The one before names less of the segment that has grown, and is whole all the same.
        #expect(try house.verify() == [[], [], []])
        #expect(first.manifest.segmentBytes < second.manifest.segmentBytes)
    }

    @Test func aDatabaseThatDidNotChangeTakesNoRoom() throws {
        let house = try BackupHouse()
        let first = try house.backup()
        let second = try house.backup(at: 1)
        var one = stat()
        var other = stat()
        stat(house.folder.path(of: first.snapshot) + "/identity.sqlite", &one)
        stat(house.folder.path(of: second.snapshot) + "/identity.sqlite", &other)
        #expect(one.st_ino == other.st_ino && one.st_ino != 0)
        #expect(try house.verify() == [[], []])
    }

    @Test func nobodyElseMayReadABackup() throws {
        let house = try BackupHouse()
        try house.put("a")
        try house.backup()
        for case let name as String in FileManager.default.enumerator(atPath: house.folder.path) ?? .init() {
            var information = stat()
            stat(house.folder.path + "/" + name, &information)
            #expect(information.st_mode & 0o077 == 0, "\(name)")
        }
        // No secret lies there as it is.
        let secret = try house.place.files.secrets(of: .identity).masterKeys[0]
        for (name, data) in BackupHouse.contents(of: house.folder.path) {
            #expect(data.range(of: Data(secret.utf8)) == nil, "\(name)")
        }
    }

    @Test(arguments: ["databases", "copied documents", "segment", "segments", "whole"])
    func whatIsKilledLeavesNothingThatLooksWhole(point: String) throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 1, of: .records)
        // A killed process takes nothing back: as it lies then, it is put there again.
        var left: [String: Data] = [:]
        #expect(throws: Killed.self) {
            _ = try house.backup { place in
                guard place == point else { return }
                left = BackupHouse.contents(of: house.folder.path)
                throw Killed()
            }
        }
        #expect(try house.folder.snapshots().isEmpty)
        for (name, data) in left {
            let path = house.folder.path + "/" + name
            try FileManager.default.createDirectory(
                atPath: (path as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
            try data.write(to: URL(fileURLWithPath: path))
        }
        let parts = Deployment.contentServices.map { house.folder.segmentsPath(of: $0) + "/0001/x.part" }
        for part in parts {
            try FileManager.default.createDirectory(
                atPath: (part as NSString).deletingLastPathComponent, withIntermediateDirectories: true)
            try Data("x".utf8).write(to: URL(fileURLWithPath: part))
        }
        #expect(try house.folder.snapshots().isEmpty)
        #expect(throws: CloudError.self) { try house.folder.find(nil) }
        _ = try house.backup(at: 1)
        #expect(try house.verify() == [[]])
        #expect(try house.folder.entries(of: house.folder.snapshotsPath).allSatisfy { !$0.hasPrefix(".") })
        for part in parts { #expect(!FileManager.default.fileExists(atPath: part)) }
    }

    @Test func damageIsFoundAndToldBySnapshot() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let first = try house.backup()
        try house.put("grown", partition: 1)
        let second = try house.backup(at: 1)
        // In what only the second one names.
        let segment = try #require(house.folder.path(of: second.manifest.segments[0].file))
        try Self.flip(segment, at: second.manifest.segments[0].bytes - 10)
        #expect(try house.verify().map(\.isEmpty) == [true, false])
        #expect(try house.folder.find(nil).name == first.snapshot)
        // In what both name.
        try Self.flip(segment, at: 100)
        #expect(try house.verify().map(\.isEmpty) == [false, false])
        try Self.flip(segment, at: 100)
        try Self.flip(segment, at: second.manifest.segments[0].bytes - 10)
        #expect(try house.verify() == [[], []])
        #expect(try house.folder.find(nil).name == second.snapshot)
        for file in ["identity.sqlite", "keys.sealed", "manifest.json"] {
            let path = house.folder.path(of: second.snapshot) + "/" + file
            try Self.flip(path, at: 60)
            #expect(try house.verify().contains { !$0.isEmpty }, "\(file)")
            try Self.flip(path, at: 60)
        }
        unlink(segment)
        #expect(try house.verify().map(\.isEmpty) == [false, false])
    }

    static func flip(_ path: String, at offset: Int) throws {
        let file = try #require(FileHandle(forUpdatingAtPath: path))
        try file.seek(toOffset: UInt64(offset))
        let byte = try #require(try file.read(upToCount: 1)?.first)
        try file.seek(toOffset: UInt64(offset))
        try file.write(contentsOf: Data([byte ^ 1]))
        try file.close()
    }

    /// Its service has let it go since its database was copied.
    @Test func aSegmentThatIsGoneIsSaid() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.put("b", partition: 2)
        let file = try house.file(place.segment)
        #expect {
            try house.backup {
                guard $0 == "databases" else { return }
                try house.forgetContent()
                unlink(file)
            }
        } throws: { error in
            let error = error as? CloudError
            return error?.code == .storageFailure && error?.message.contains("gone") == true
        }
        #expect(try house.folder.snapshots().isEmpty)
    }

    @Test func whatTheBackupHasAndTheDiskHasLostIsNoHindrance() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.backup()
        unlink(try house.file(place.segment))
        try house.put("b", partition: 2)
        #expect(try house.backup(at: 1).copiedSegments == 1)
        #expect(try house.verify() == [[], []])
    }

    @Test func aCopyThatWasFoundDamagedIsMadeAnew() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 2)
        let made = try house.backup()
        let segment = try #require(house.folder.path(of: made.manifest.segments[0].file))
        try Self.flip(segment, at: 100)
        #expect(try house.verify().map(\.count) == [1])
        #expect(try house.verify()[0][0].message.contains("next backup copies it anew"))
        let second = try house.backup(at: 1)
        #expect(second.copiedSegments == 1 && second.damagedCopies == [segment] && second.damagedFiles.isEmpty)
        #expect(try house.verify() == [[], []])
        // One that has grown too.
        try Self.flip(segment, at: 100)
        _ = try house.verify()
        try house.put("more", partition: 1)
        #expect(try house.backup(at: 2).copiedSegments == 1)
        #expect(try house.verify() == [[], [], []])
        unlink(segment)
        #expect(try house.verify().map(\.isEmpty) == [false, false, false])
        #expect(try house.backup(at: 3).copiedSegments == 1)
        #expect(try house.verify() == [[], [], [], []])
    }

    @Test func aSnapshotThatCannotBeReadAnyMoreKeepsNobodyFromTheNext() throws {
        let house = try BackupHouse()
        let made = try house.backup()
        for service in ServiceName.all {
            let path = house.folder.path(of: made.snapshot) + "/\(service).sqlite"
            unlink(path)
            if service == .records { mkdir(path, 0o700) }
        }
        #expect(try house.backup(at: 1).manifest.databases.count == 5)
        #expect(try house.verify().map(\.isEmpty) == [false, true])
    }

    /// A disk of a size, at the folder of backups; nil: this user cannot make one.
    private static func disk(_ house: BackupHouse, megabytes: Int) throws -> Bool {
        mkdir(house.folder.path, 0o700)
        return mount("tmpfs", house.folder.path, "tmpfs", 0, "size=\(megabytes)m") == 0
    }

    @Test func onAFullDiskThoseGoThatNeedNotBeKept() throws {
        let house = try BackupHouse()
        guard try Self.disk(house, megabytes: 30) else { return }
        defer { umount2(house.folder.path, Int32(MNT_DETACH)) }
        for day in 0..<3 {
            try house.put("\(day)", partition: day + 1)
            try house.backup(at: day)
        }
        // Nothing is left but what the snapshots have.
        let free = try #require(FileCopy.freeBytes(at: house.folder.path))
        try Data(count: free - 100_000).write(to: URL(fileURLWithPath: house.folder.path + "/filled"))
        let before = try house.folder.snapshots().map(\.name)
        var needed: Int?
        #expect { try house.backup(at: 3) } throws: {
            needed = ($0 as? CloudError)?.details["needed_bytes"].flatMap { Int($0) }
            return ($0 as? CloudError)?.message.contains("not enough room") == true
        }
        #expect(try house.folder.snapshots().map(\.name) == before)
        truncate(house.folder.path + "/filled", off_t(free - (try #require(needed)) + 20_000))
        let outcome = try house.backup(at: 3, keep: Retention("last=1,daily=1"))
        #expect(outcome.removed == before)
        #expect(try house.verify() == [[]])
    }

    @Test func aDiskThatIsReadOnlyIsVerified() throws {
        let house = try BackupHouse()
        guard try Self.disk(house, megabytes: 30) else { return }
        defer { umount2(house.folder.path, Int32(MNT_DETACH)) }
        let made = try house.backup()
        try Self.flip(house.folder.path(of: made.snapshot) + "/records.sqlite", at: 100)
        mount("tmpfs", house.folder.path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), "size=30m")
        #expect(try house.verify().map(\.count) == [1])
        #expect { try house.backup(at: 1) } throws: { ($0 as? CloudError)?.message.contains("read-only") == true }
    }

    @Test func aFolderWithinTheDataOrWithOtherThingsIsRefused() throws {
        let house = try BackupHouse()
        for within in ["/data/backups", "/backups", "", "/data/documents/content", "/data/records/content"] {
            let folder = BackupFolder(house.place.files.directory + within)
            #expect { try Backup(of: house.place, into: folder).run(at: BackupHouse.time(0)) { _ in } } throws: {
                ($0 as? CloudError)?.code == .invalidArguments
            }
        }
        // By another way too.
        let link = house.root + "/link"
        symlink(house.place.dataFolder, link)
        #expect(throws: CloudError.self) {
            try Backup(of: house.place, into: BackupFolder(link + "/x")).run(at: BackupHouse.time(0)) { _ in }
        }
        let other = house.root + "/other"
        try FileManager.default.createDirectory(atPath: other + "/letters", withIntermediateDirectories: true)
        #expect(throws: CloudError.self) {
            try Backup(of: house.place, into: BackupFolder(other)).run(at: BackupHouse.time(0)) { _ in }
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: other) == ["letters"])
        try house.backup()
        let stranger = try BackupHouse()
        #expect { try Backup(of: stranger.place, into: house.folder).run(at: BackupHouse.time(0)) { _ in } } throws: {
            ($0 as? CloudError)?.message.contains("another deployment") == true
        }
    }

    @Test func oneBackupAtATime() throws {
        let house = try BackupHouse()
        try house.backup()
        let held = try house.folder.lock()
        defer { withExtendedLifetime(held) {} }
        for attempt in [{ _ = try house.backup(at: 1) }, { _ = try house.verify() }] {
            #expect { try attempt() } throws: { ($0 as? CloudError)?.code == .constraintViolation }
        }
    }

    @Test func withoutARecoveryKeyItIsRefusedAndTheCureIsSaid() throws {
        let house = try BackupHouse()
        unlink(house.place.files.recoveryPath)
        #expect { try house.backup() } throws: {
            ($0 as? CloudError)?.message.contains("nephos recovery-key new") == true
        }
        #expect(!FileManager.default.fileExists(atPath: house.folder.path))
        #expect(try house.backup(keys: false).manifest.keys == nil)
        // Whoever could put their own key there would get everything.
        try house.place.files.write(house.key.publicKey)
        chmod(house.place.files.recoveryPath, 0o666)
        #expect(throws: CloudError.self) { try house.backup(at: 1) }
    }

    @Test func aFolderThatWasHandedOutIsNoDeployment() throws {
        let house = try BackupHouse()
        let handed = house.root + "/handed"
        mkdir(handed, 0o700)
        for name in ["roster.json", "keyvalue.secret.json"] {
            try FileManager.default.copyItem(
                atPath: house.place.files.directory + "/" + name, toPath: handed + "/" + name)
        }
        for keys in [true, false] {
            var backup = Backup(
                of: DeploymentPlace(deployment: handed, dataFolder: house.place.dataFolder), into: house.folder)
            backup.leavesOutKeys = !keys
            #expect { try backup.run(at: BackupHouse.time(0)) { _ in } } throws: {
                ($0 as? CloudError)?.message.contains("handed to a service") == true
            }
        }
        #expect(!FileManager.default.fileExists(atPath: house.folder.path))
    }

    @Test func whatIsThinnedTakesItsSegmentsAlong() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let rule = Retention(daily: 2, weekly: 0, monthly: 0)
        try house.backup(at: 0, keep: rule)
        // The chunk goes, and another comes.
        try house.forgetContent()
        try house.put("b", partition: 2)
        try house.backup(at: 1, keep: rule)
        #expect(try house.folder.entries(of: house.folder.segmentsPath(of: .documents) + "/0001").count == 1)
        let last = try house.backup(at: 2, keep: rule)
        #expect(last.removed == [BackupHouse.time(0).snapshotName])
        #expect(try house.folder.entries(of: house.folder.segmentsPath(of: .documents) + "/0001").isEmpty)
        #expect(try house.verify() == [[], []])
    }

    @Test(arguments: ["unnamed", "segment removed", "named"]) func aThinningThatIsKilledLeavesTooMuchAndNotTooLittle(
        point: String
    ) throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let rule = Retention(daily: 1, weekly: 0, monthly: 0)
        try house.backup(at: 0, keep: rule)
        try house.forgetContent()
        try house.put("b", partition: 2)
        #expect(throws: Killed.self) {
            _ = try house.backup(at: 1, keep: rule) { if $0 == point { throw Killed() } }
        }
        #expect(try house.verify().allSatisfy(\.isEmpty))
        #expect(try house.folder.find(nil).name == BackupHouse.time(1).snapshotName)
        try house.backup(at: 2, keep: rule)
        #expect(try house.verify() == [[]])
        #expect(try house.folder.entries(of: house.folder.segmentsPath(of: .documents) + "/0001").isEmpty)
    }

    @Test func noSegmentGoesWhileAManifestCannotBeRead() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let first = try house.backup(at: 0)
        try house.forgetContent()
        try house.put("b", partition: 2)
        try Self.flip(house.folder.manifestPath(of: first.snapshot), at: 5)
        try house.backup(at: 1, keep: Retention(daily: 1, weekly: 0, monthly: 0))
        #expect(try house.folder.entries(of: house.folder.segmentsPath(of: .documents) + "/0001").count == 1)
    }

    @Test func aCopyIsOfOneMomentWhileOthersWrite() async throws {
        let house = try BackupHouse()
        let engine = try house.database(of: .documents)
        try engine.migrate([Migration(name: "pairs", statements: ["CREATE TABLE pairs (a BIGINT, b BIGINT, c BLOB)"])])
        let insert = SQL("INSERT INTO pairs (a, b, c) VALUES (?1, ?1, zeroblob(4000))")
        try engine.write { transaction in
            for number in 0..<6000 { try transaction.execute(insert, [.integer(Int64(number))]) }
        }
        var written = 6000
        // In the middle of the copying somebody writes, on this thread: what it looks at between two steps.
        let target = house.root + "/copy.sqlite"
        _ = try DatabaseCopy.make(of: house.place.database(of: .documents), at: target) {
            for _ in 0..<50 { _ = try engine.write { try $0.execute(insert, [.integer(Int64(written))]) } }
            written += 1
        }
        try DatabaseCopy.requireSound(target, isThorough: true)
        #expect(try DatabaseCopy.integers("SELECT count(*) FROM pairs", of: target) == [[6000]])
        #expect(written > 6001)
        #expect(!FileManager.default.fileExists(atPath: target + "-wal"))
    }
}
