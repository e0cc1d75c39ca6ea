import Foundation
import NephosContent
import NephosCore
import NephosServiceKit
import Testing

@testable import NephosBackup

/// What somebody else has put into a folder of backups.
@Suite struct HostileFolderTests {
    /// A manifest with a right checksum, which no backup can have made.
    static let changes: [(String, @Sendable (inout Manifest) -> Void)] = [
        (
            "sum of databases",
            {
                $0.databases[0].bytes = .max - 1; $0.databases[1].bytes = .max - 1
            }
        ),
        ("sum of segments", { $0.segments[0].bytes = .max - 1 }),
        ("less than nothing", { $0.databases[0].bytes = -5 }),
        ("number", { $0.number = .max }),
        ("time", { $0.createdAt = .max }),
        ("partition", { $0.segments[0].partition = -1 }),
        ("length of keys", { $0.keys = Manifest.Keys(recoveryKey: "", bytes: .max, sha256: "") }),
        ("another place", { $0.databases[0].service = "../../../../x" }),
        ("a database is missing", { $0.databases.removeFirst() }),
        ("a database twice", { $0.databases[0] = $0.databases[1] }),
        ("a segment twice", { $0.segments.append($0.segments[0]) }),
        ("no segment", { $0.segments[0].number = -1 }),
        ("no copy", { $0.segments[0].copy = 0 }),
        ("a copy twice", { $0.segments[0].others = [1] }),
        ("a service that moves no content", { $0.segments[0].service = "keyvalue" }),
        ("an unknown service", { $0.segments[0].service = "letters" }),
        ("no service", { $0.segments[0].service = "" }),
        ("a way out for a service", { $0.segments[0].service = "../../records" }),
        ("a segment of another service, which has it too", { $0.segments[0].service = "records" }),
        ("a segment of another service, which has none", { $0.segments[1].service = "records" }),
        ("a service's segments are missing", { $0.segments.removeAll { $0.service == "records" } }),
        ("another deployment", { $0.deployment = "other" }),
    ]

    @Test(arguments: changes.indices) func aManifestThatNoBackupHasMadeIsDamage(index: Int) throws {
        let (what, change) = Self.changes[index]
        let house = try BackupHouse()
        try house.put("a")
        try house.put("c", of: .records)
        let first = try house.backup()
        try house.put("b", partition: 8)
        let second = try house.backup(at: 1)
        #expect(second.manifest.segments.map(\.service) == ["documents", "documents", "records"])
        var manifest = second.manifest
        change(&manifest)
        let path = house.folder.manifestPath(of: second.snapshot)
        try manifest.encoded().write(to: URL(fileURLWithPath: path))
        #expect(try house.verify().map(\.isEmpty).sorted { !$0 && $1 } == [false, true], "\(what)")
        #expect(try house.folder.find(nil).name == first.snapshot, "\(what)")
        let third = try house.backup(at: 2)
        #expect(try house.folder.find(nil).name == third.snapshot, "\(what)")
        _ = try house.restore(to: house.elsewhere())
    }

    @Test func whatIsNoSnapshotHindersNothing() throws {
        let house = try BackupHouse()
        let place = try house.put("a")
        try house.backup()
        try Data("look here".utf8).write(to: URL(fileURLWithPath: house.folder.snapshotsPath + "/note.txt"))
        #expect(try house.verify() == [[]])
        try house.forgetContent()
        try house.backup(at: 1, keep: Retention("last=1,daily=1"))
        #expect(FileCopy.byteCount(try house.copy(place.segment)) == nil)
    }

    @Test(arguments: ["long", "pipe", "device"]) func whatIsTooLongIsNotTakenIntoMemory(kind: String) throws {
        let house = try BackupHouse()
        let made = try house.backup()
        let snapshot = house.folder.path(of: made.snapshot)
        for path in [snapshot + "/keys.sealed", snapshot + "/manifest.json", house.folder.path + "/backup.json"] {
            unlink(path)
            switch kind {
            case "pipe": mkfifo(path, 0o600)
            case "device": symlink("/dev/zero", path)
            default:
                try Data().write(to: URL(fileURLWithPath: path))
                truncate(path, 1 << 30)
            }
            #expect { try house.restore(to: house.elsewhere()) } throws: {
                let message = ($0 as? CloudError)?.message ?? ""
                return message.contains(kind == "device" ? "A link lies" : "far too long")
            }
        }
    }

    @Test func damagedKeysAreNotTakenForAWrongKey() throws {
        let house = try BackupHouse()
        let made = try house.backup()
        let path = house.folder.keysPath(of: made.snapshot)
        let whole = try #require(FileManager.default.contents(atPath: path))
        var flipped = whole
        flipped[whole.count - 3] ^= 1
        for damaged in [whole.prefix(10), whole.prefix(whole.count - 1), Data(), flipped] {
            try damaged.write(to: URL(fileURLWithPath: path))
            #expect { try house.restore(to: house.elsewhere()) } throws: {
                ($0 as? CloudError)?.code == .storageFailure
            }
        }
    }
}
