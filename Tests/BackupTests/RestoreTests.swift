import Foundation
import NephosCore
import NephosServiceKit
import NephosStorage
import Testing

@testable import NephosBackup

@Suite struct RestoreTests {
    @Test func everythingComesBackElsewhere() throws {
        let house = try BackupHouse()
        for partition in 1...5 {
            try house.put("content \(partition)", partition: partition)
            try house.put("asset \(partition)", partition: partition, of: .records)
        }
        let made = try house.backup()
        let place = house.elsewhere()
        let outcome = try house.restore(to: place)
        #expect(outcome.aside.isEmpty)
        try house.requireContent(in: place)
        for service in ServiceName.all {
            #expect(
                try place.files.secrets(of: service).masterKeys == house.place.files.secrets(of: service).masterKeys)
            #expect(
                try DatabaseCopy.integers("SELECT count(*) FROM feed_restored", of: place.database(of: service)) == [
                    [1]
                ])
        }
        #expect(try place.files.roster() == house.place.files.roster())
        #expect(try place.files.operatorKeys().publicKey == house.place.files.operatorKeys().publicKey)
        #expect(try place.files.recoveryKey() == house.key.publicKey)
        // What is there for good: a second snapshot of it is like the first.
        #expect(made.manifest.segments.count == 10)
        // There is something now.
        #expect { try house.restore(to: place) } throws: { ($0 as? CloudError)?.code == .alreadyExists }
    }

    @Test func whatIsWrongIsSaidBeforeAnythingIsTouched() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let made = try house.backup()
        let place = house.elsewhere()
        func expect(_ code: CloudError.Code, key: RecoveryKey? = nil, _ snapshot: String? = nil) {
            #expect { try house.restore(to: place, snapshot, key: key) } throws: { ($0 as? CloudError)?.code == code }
            #expect(!FileManager.default.fileExists(atPath: place.files.directory))
        }
        expect(.wrongCredentials, key: RecoveryKey())
        expect(.unknownItem, "2020-01-01T00-00-00Z")
        let segment = try #require(house.folder.path(of: made.manifest.segments[0].file))
        for file in [segment, house.folder.path(of: made.snapshot) + "/keyvalue.sqlite"] {
            try BackupTests.flip(file, at: 200)
            expect(.storageFailure)
            try BackupTests.flip(file, at: 200)
        }
        // Of another release: the snapshot alone, and the folder.
        for path in [house.folder.manifestPath(of: made.snapshot), house.folder.path + "/backup.json"] {
            let text = String(decoding: try #require(FileManager.default.contents(atPath: path)), as: UTF8.self)
            for format in [1, Manifest.format + 1] {
                let other = text.replacing("\"format\":\(Manifest.format)", with: "\"format\":\(format)")
                #expect(other != text)
                try Data(other.utf8).write(to: URL(fileURLWithPath: path))
                expect(.incompatibleVersion)
                expect(.incompatibleVersion, made.snapshot)
            }
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        }
        _ = try house.restore(to: place)
    }

    /// In the first form segments named no service, and lay elsewhere.
    @Test func nothingIsAddedToBackupsOfAnOlderRelease() throws {
        let house = try BackupHouse()
        let file = URL(fileURLWithPath: house.folder.path + "/backup.json")
        try house.backup()
        let text = String(decoding: try Data(contentsOf: file), as: UTF8.self)
        try Data(text.replacing("\"format\":\(Manifest.format)", with: "\"format\":1").utf8).write(to: file)
        for attempt in [{ _ = try house.backup(at: 1) }, { _ = try house.verify() }] {
            #expect { try attempt() } throws: {
                let error = $0 as? CloudError
                return error?.code == .incompatibleVersion && error?.message.contains("older release") == true
            }
        }
        #expect(try house.folder.entries(of: house.folder.snapshotsPath).count == 1)
    }

    @Test func keysOfAnotherSnapshotAreNotTaken() throws {
        let house = try BackupHouse()
        let first = try house.backup()
        try house.put("a")
        let second = try house.backup(at: 1)
        // Somebody who has the folder, and not the key, puts an old database's manifest beside newer keys.
        var manifest = try house.folder.manifest(of: first.snapshot)
        manifest.keys = second.manifest.keys
        let path = house.folder.path(of: first.snapshot)
        try manifest.encoded().write(to: URL(fileURLWithPath: path + "/manifest.json"))
        unlink(path + "/keys.sealed")
        try FileManager.default.copyItem(
            atPath: house.folder.keysPath(of: second.snapshot), toPath: path + "/keys.sealed")
        #expect { try house.restore(to: house.elsewhere(), first.snapshot) } throws: {
            ($0 as? CloudError)?.message.contains("belong to another one") == true
        }
    }

    @Test func whatIsThereIsMovedAsideAndNeverDeleted() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        let made = try house.backup()
        try house.put("later", partition: 2)
        house.close()
        let before = BackupHouse.contents(of: house.place.files.directory)
        let outcome = try house.restore(to: house.place, made.snapshot, inPlace: true)
        #expect(outcome.aside.count == 6)
        var after: [String: Data] = [:]
        for folder in outcome.aside {
            let within = folder.dropFirst(house.place.files.directory.count + 1)
            let base = String(within.prefix { _ in true }).replacing("/before-restore-2026-04-15T02-00-00Z", with: "")
            for (name, data) in BackupHouse.contents(of: folder) {
                after[base.hasPrefix("before-restore") ? name : base + "/" + name] = data
            }
        }
        #expect(Set(after.keys) == Set(before.keys))
        #expect(after == before)
        #expect(FileManager.default.fileExists(atPath: house.place.contentFolder(of: .documents) + "/0001"))
        #expect(!FileManager.default.fileExists(atPath: house.place.contentFolder(of: .documents) + "/0002"))
    }

    @Test func servicesThatRunKeepItFromBeingReplaced() throws {
        let house = try BackupHouse()
        try house.backup()
        #expect { try house.restore(to: house.place, inPlace: true) } throws: {
            ($0 as? CloudError)?.message.contains("Stop them first") == true
        }
    }

    static let points =
        ServiceName.all.flatMap { ["copied \($0)", "aside \($0)", "moved \($0)"] }
        + ["segment", "copied", "marked", "deployment aside", "written"]

    @Test(arguments: points) func aRestoreThatIsKilledIsRunAgain(point: String) throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.put("b", partition: 1, of: .records)
        try house.backup()
        for isInPlace in [false, true] {
            let place = isInPlace ? house.place : house.elsewhere()
            if isInPlace { house.close() }
            // As a killed process leaves it: nothing is taken back.
            #expect(throws: Killed.self) {
                _ = try house.restore(to: place, inPlace: isInPlace) { if $0 == point { throw Killed() } }
            }
            let isMoving = !point.hasPrefix("copied") && point != "segment"
            for service in ServiceName.all {
                #expect(UnfinishedRestore.isThere(in: place.folder(of: service)) == isMoving, "\(service)")
                if !isMoving, isInPlace { _ = try SQLiteEngine(path: place.database(of: service)) }
            }
            if isMoving {
                #expect { try UnfinishedRestore.require(noneIn: place.files.directory) } throws: {
                    ($0 as? CloudError)?.message.contains("nephos restore") == true
                }
            }
            // Also where nobody says --in-place again.
            let outcome = try house.restore(to: place, inPlace: isInPlace && !isMoving)
            for folder in [place.files.directory] + ServiceName.all.map(place.folder(of:)) {
                #expect(!UnfinishedRestore.isThere(in: folder))
                #expect(!FileManager.default.fileExists(atPath: folder + "/.restoring"))
            }
            for service in ServiceName.all {
                _ = try place.files.secrets(of: service)
                #expect(
                    try DatabaseCopy.integers("SELECT count(*) FROM feed_restored", of: place.database(of: service))
                        == [[1]])
            }
            if isInPlace {
                // What was there at first is among what was moved aside.
                let all = outcome.aside.reduce(into: Set<String>()) { $0.formUnion(BackupHouse.contents(of: $1).keys) }
                for service in ServiceName.all { #expect(all.contains("\(service).sqlite"), "\(service)") }
                #expect(all.contains("roster.json"))
            } else {
                try house.requireContent(in: place)
            }
        }
    }

    @Test func whatWasThereIsNamedHoweverOftenItIsKilled() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.backup()
        house.close()
        let original = try Data(contentsOf: URL(fileURLWithPath: house.place.files.directory + "/operator.secret.json"))
        try house.place.files.write(RecoveryKey().publicKey)
        let recovery = try Data(contentsOf: URL(fileURLWithPath: house.place.files.recoveryPath))
        for point in ["written", "moved records", "marked", "aside keyvalue"] {
            #expect(throws: Killed.self) {
                try house.restore(to: house.place, inPlace: true) { if $0 == point { throw Killed() } }
            }
        }
        let outcome = try house.restore(to: house.place)
        for service in ServiceName.all {
            let within = try FileManager.default.contentsOfDirectory(atPath: house.place.folder(of: service))
            let asides = within.filter { $0.hasPrefix("before-restore-") }
            #expect(!asides.isEmpty)
            for name in asides { #expect(outcome.aside.contains(house.place.folder(of: service) + "/" + name)) }
        }
        // What the deployment was at first is among them.
        #expect(outcome.aside.contains { FileManager.default.contents(atPath: $0 + "/recovery.json") == recovery })
        #expect(
            outcome.aside.contains { FileManager.default.contents(atPath: $0 + "/operator.secret.json") == original })
    }

    @Test func aMarkLeadsNowhereElse() throws {
        let house = try BackupHouse()
        let mark = UnfinishedRestore(
            snapshot: "", aside: "before-restore-1",
            earlier: ["../../etc", "before-restore-/../x", "/etc", "before-restore-0"])
        #expect(mark.asides == ["before-restore-0", "before-restore-1"])
        let long = UnfinishedRestore(
            snapshot: "", aside: "before-restore-last", earlier: (0..<5000).map { "before-restore-\($0)" })
        try long.write(in: house.root)
        let read = try #require(UnfinishedRestore.read(in: house.root)).asides
        #expect(read.first == "before-restore-0" && read.last == "before-restore-last")
    }

    /// A copy can be as large as all that is there.
    @Test func whatOneThatWasKilledHasCopiedIsSaidAndGoes() throws {
        let house = try BackupHouse()
        try house.put("a", partition: 1)
        try house.backup()
        house.close()
        #expect(throws: Killed.self) {
            try house.restore(to: house.place, inPlace: true) {
                guard $0 == "copied" else { return }
                for service in ServiceName.all {
                    let left = UnfinishedRestore.leftCopy(in: house.place.folder(of: service))
                    #expect(left == house.place.folder(of: service) + "/.restoring")
                    #expect(FileCopy.treeBytes(try #require(left)) > 0)
                }
                throw Killed()
            }
        }
        let outcome = try house.backup(at: 1)
        #expect(outcome.leftCopies == ServiceName.all.map { house.place.folder(of: $0) + "/.restoring" })
        try house.restore(to: house.place, inPlace: true)
        #expect(try house.backup(at: 2).leftCopies == [])
    }

    @Test func eachRestoreIsAHistoryOfItsOwn() throws {
        let house = try BackupHouse()
        try house.backup()
        let key = try #require(SipHash(key: Array(0..<16)))
        func start(_ place: DeploymentPlace, random: UInt64) throws -> UInt64 {
            let engine = try SQLiteEngine(path: place.database(of: .keyValue))
            defer { engine.close() }
            return try engine.write { transaction in
                let history = try Feed.beginRun(in: transaction, key: key, at: BackupHouse.time(101), random: random)
                let cache = FeedCache()
                cache.history = history
                return try Feed(over: transaction, at: BackupHouse.time(101), cache: cache).position(ofPartition: 0)
                    .epoch
            }
        }
        let own = try start(house.place, random: 1)
        let (one, other) = (house.elsewhere("one"), house.elsewhere("other"))
        _ = try house.restore(to: one)
        _ = try house.restore(to: other)
        let epochs = [own, try start(one, random: 7 << 32), try start(other, random: 9 << 32)]
        #expect(Set(epochs).count == 3)
        // Once: the next start goes on in it.
        #expect(try start(one, random: 8 << 32) == epochs[1])
    }

    @Test func theHostsOwnKeysStayWhereTheyFit() throws {
        let house = try BackupHouse()
        try house.backup(keys: false)
        house.close()
        var restore = Restore(from: house.folder, to: house.place, keys: .sealed(house.key))
        restore.isInPlace = true
        #expect { try restore.plan(nil) { _ in } } throws: {
            ($0 as? CloudError)?.message.contains("--keep-keys") == true
        }
        restore.keys = .kept
        // A key that came since does no harm; one that is gone does.
        try house.place.files.addMasterKey(of: .keyValue)
        let plan = try restore.plan(nil) { _ in }
        #expect(!plan.replacesDeployment)
        try house.place.files.removeOldMasterKeys(of: .keyValue)
        #expect { try restore.plan(nil) { _ in } } throws: { ($0 as? CloudError)?.message.contains("rotated") == true }
    }
}
