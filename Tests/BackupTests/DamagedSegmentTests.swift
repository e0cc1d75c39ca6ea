import Foundation
import NephosContent
import NephosCore
import NephosServiceKit
import Testing

@testable import NephosBackup

/// A segment of the deployment is not what was copied of it before: one of the two is damaged, or both are.
@Suite struct DamagedSegmentTests {
    /// What the restored deployment has of a segment.
    private static func restored(_ house: BackupHouse, _ segment: SegmentID, _ name: String) throws -> Data? {
        let place = house.elsewhere(name)
        try house.restore(to: place)
        return FileManager.default.contents(
            atPath: try place.contentFolder(of: .documents) + "/" + #require(segment.filePath))
    }

    private static func data(_ path: String) -> Data? { FileManager.default.contents(atPath: path) }

    @Test func aDamagedByteInASegmentThatGrowsEndsNoBackups() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        let first = try house.backup()
        try house.put("more", partition: 1)
        let own = try house.file(place.segment)
        let whole = Self.data(own)
        try BackupTests.flip(own, at: 90)
        let second = try house.backup(at: 1)
        #expect(second.damagedFiles == [own] && second.damagedCopies.isEmpty)
        #expect(second.manifest.segmentBytes > first.manifest.segmentBytes)
        #expect(try house.verify() == [[], []])
        let copies = try [2, 1].map { try house.copy(place.segment, $0) }
        #expect(try house.differingCopies() == [[], [copies]])
        #expect(try Self.restored(house, place.segment, "second") == whole)
        // It goes on growing.
        let last = try house.put("yet more", partition: 1)
        let third = try house.backup(at: 2)
        #expect(third.damagedFiles == [own])
        #expect(try house.verify() == [[], [], []])
        #expect(try house.differingCopies() == [[], [copies], [copies]])
        let got = try #require(try Self.restored(house, place.segment, "third"))
        #expect(
            got.prefix(whole?.count ?? 0) == whole
                && got.suffix(last.recordBytes) == Self.data(own)?.suffix(last.recordBytes))
        // Nothing is read that has not grown.
        #expect(try house.backup(at: 3).damagedFiles.isEmpty)
    }

    @Test func whereTheCopyIsDamagedTheDeploymentsFileIsTaken() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.backup()
        try house.put("more", partition: 1)
        let (own, copy) = (try house.file(place.segment), try house.copy(place.segment))
        try BackupTests.flip(copy, at: 90)
        _ = try house.verify()
        let outcome = try house.backup(at: 1)
        #expect(outcome.damagedCopies == [copy] && outcome.damagedFiles.isEmpty)
        #expect(try house.verify() == [[], []])
        #expect(try house.differingCopies() == [[], []])
        #expect(try Self.restored(house, place.segment, "elsewhere") == Self.data(own))
    }

    /// Neither is what it was; of each record one has it whole.
    @Test(arguments: [false, true]) func ofTwoThatAreDamagedEachGivesWhatItHasWhole(hasGrown: Bool) throws {
        let house = try BackupHouse()
        let places = try ["a", "b", "c"].map { try house.put($0, partition: 1) }
        try house.backup()
        let (own, copy) = (try house.file(places[0].segment), try house.copy(places[0].segment))
        if hasGrown { try house.put("more", partition: 1) }
        let whole = Self.data(own)
        // In the bytes of one, the header of the next.
        try BackupTests.flip(own, at: places[0].offset + 100)
        try BackupTests.flip(copy, at: places[1].offset + 10)
        try BackupTests.flip(own, at: places[2].offset + 20)
        _ = try house.verify()
        let outcome = try house.backup(at: 1)
        #expect(outcome.damagedFiles == [own] && outcome.damagedCopies.isEmpty)
        #expect(try house.verify().map(\.isEmpty) == [false, true])
        #expect(try Self.restored(house, places[0].segment, "elsewhere") == whole)
    }

    @Test func whatNeitherHasWholeIsLostAlone() throws {
        let house = try BackupHouse()
        let places = try ["a", "b", "c"].map { try house.put($0, partition: 1) }
        let first = try house.backup()
        let (own, copy) = (try house.file(places[0].segment), try house.copy(places[0].segment))
        let whole = try #require(Self.data(own))
        for path in [own, copy] { try BackupTests.flip(path, at: places[1].offset + 10) }
        try BackupTests.flip(copy, at: places[0].offset + 100)
        try BackupTests.flip(own, at: places[2].offset + 100)
        #expect(try house.verify().map(\.isEmpty) == [false])
        let second = try house.backup(at: 1)
        #expect(second.damagedFiles == [own])
        #expect(try house.folder.snapshots().map(\.isKnownDamaged) == [true, false])
        #expect(try house.verify().map(\.isEmpty) == [false, true])
        let got = try #require(try Self.restored(house, places[0].segment, "elsewhere"))
        for place in [places[0], places[2]] {
            let range = place.offset..<place.offset + place.recordBytes
            #expect(got[range] == whole[range])
        }
        #expect { try house.restore(to: house.elsewhere("first"), first.snapshot) } throws: {
            ($0 as? CloudError)?.details["file"] == copy
        }
        // The next ones go on from there, whether it grows or not.
        #expect(try house.backup(at: 2).copiedSegments == 0)
        try house.put("more", partition: 1)
        try house.backup(at: 3)
        #expect(try house.verify().map(\.isEmpty) == [false, true, true, true])
    }

    @Test func whatIsGoneInTheBackupsIsTakenAsItIs() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.backup()
        let own = try house.file(place.segment)
        unlink(try house.copy(place.segment))
        try BackupTests.flip(own, at: 90)
        #expect(try house.backup(at: 1).damagedFiles == [own])
        #expect(try house.verify().map(\.isEmpty) == [false, true])
        #expect(try house.differingCopies() == [[], []])
        #expect(try Self.restored(house, place.segment, "elsewhere") == Self.data(own))
    }

    /// As after a restore, or when the state of a machine came back that ran: the same file has two histories.
    @Test func twoHistoriesOfAFileAreBothKept() throws {
        let house = try BackupHouse()
        let first = try house.put("a", partition: 1)
        let own = try house.file(first.segment)
        try house.backup()
        let before = Self.data(own)
        let lost = try house.put("one", partition: 1)
        let kept = try house.backup(at: 1)
        let former = Self.data(own)
        // It is set back, and goes on otherwise.
        let second = try BackupHouse()
        try second.put("a", partition: 1)
        let place = try second.put("other", partition: 1)
        try second.put("more", partition: 1)
        let other = try #require(Self.data(try second.file(first.segment)))
        #expect(other.prefix(before?.count ?? 0) == before && lost.offset == place.offset)
        try other.write(to: URL(fileURLWithPath: own))
        try house.forgetContent()
        try house.note(second.stored())
        let made = try house.backup(at: 2)
        #expect(made.damagedFiles.isEmpty && made.copiedSegments == 1)
        #expect(try house.verify() == [[], [], []])
        // Nothing is missing in the new copy, so that no other is needed.
        #expect(try house.differingCopies() == [[], [], []])
        #expect(try Self.restored(house, first.segment, "made") == other)
        try house.restore(to: house.elsewhere("kept"), kept.snapshot)
        #expect(
            Self.data(
                try house.elsewhere("kept").contentFolder(of: .documents) + "/" + #require(first.segment.filePath))
                == former)
        // With the last snapshot that names it a copy goes.
        let thinned = try house.backup(at: 3, keep: Retention("last=1,daily=1"))
        #expect(thinned.removed.count == 3)
        #expect(FileCopy.byteCount(try house.copy(first.segment)) == nil)
        #expect(FileCopy.byteCount(try house.copy(first.segment, 2)) == other.count)
    }
}
