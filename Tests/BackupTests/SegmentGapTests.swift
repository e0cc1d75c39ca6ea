import Foundation
import NephosContent
import NephosCore
import NephosServiceKit
import Testing

@testable import NephosBackup

/// What the deployment's disk cannot read, or has lost, ends no backup: it is zeros in the copy, and is read again by the
/// next backup.
@Suite struct SegmentGapTests {
    private static func data(_ path: String) -> Data? { FileManager.default.contents(atPath: path) }

    private static func restored(_ house: BackupHouse, _ segment: SegmentID, _ snapshot: String?) throws -> Data? {
        let place = house.elsewhere(UUID().uuidString)
        try house.restore(to: place, snapshot)
        return data(try place.contentFolder(of: .documents) + "/" + #require(segment.filePath))
    }

    @Test func aSegmentThatTheDiskHasLostEndsNoBackups() throws {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.put("b", partition: 2)
        let own = try house.file(place.segment)
        let whole = try #require(Self.data(own))
        unlink(own)
        let first = try house.backup()
        #expect(first.damagedFiles == [own] && first.damagedCopies.isEmpty)
        #expect(first.manifest.segments.map(\.isPartial) == [true, nil])
        #expect(try house.verify() == [[]])
        #expect(try Self.restored(house, place.segment, nil) == Data(count: whole.count))
        // It is looked for each time, and said.
        let second = try house.backup(at: 1)
        #expect(second.damagedFiles == [own] && second.manifest.segments == first.manifest.segments)
        #expect(try house.verify() == [[], []])
        // It was brought back.
        try whole.write(to: URL(fileURLWithPath: own))
        let third = try house.backup(at: 2)
        #expect(third.damagedFiles.isEmpty && third.manifest.segments.allSatisfy { $0.isPartial == nil })
        #expect(try house.verify() == [[], [], []])
        #expect(try Self.restored(house, place.segment, third.snapshot) == whole)
        #expect(try house.backup(at: 3).copiedSegments == 0)
    }

    /// What was copied before is not lost by it, and what comes after is copied.
    @Test func ofASegmentThatGrowsOnlyWhatIsLostIsMissing() throws {
        let house = try BackupHouse()
        let first = try house.put("a", partition: 1)
        try house.backup()
        try house.put("b", partition: 1)
        let third = try house.put("c", partition: 1)
        let own = try house.file(first.segment)
        let whole = try #require(Self.data(own))
        try whole.prefix(third.offset).write(to: URL(fileURLWithPath: own))
        let made = try house.backup(at: 1)
        #expect(made.damagedFiles == [own] && made.manifest.segments[0].isPartial == true)
        #expect(try house.verify() == [[], []])
        let got = try #require(try Self.restored(house, first.segment, nil))
        #expect(got.count == whole.count && got.prefix(third.offset) == whole.prefix(third.offset))
        // Of each record a restore takes the copy that is whole.
        var other = whole
        other.replaceSubrange(first.offset..<third.offset, with: Data(count: third.offset - first.offset))
        try other.write(to: URL(fileURLWithPath: own))
        let last = try house.backup(at: 2)
        #expect(last.damagedFiles == [own] && last.manifest.segments[0].isPartial == nil)
        #expect(last.manifest.segments[0].others == [1, 2])
        #expect(try house.verify() == [[], [], []])
        #expect(try Self.restored(house, first.segment, nil) == whole)
    }

    /// It is not mounted: nothing is made that looks like a snapshot of it. The folder itself may be there: it is what the
    /// disk is mounted on, or its service was started since.
    @Test(arguments: [false, true]) func contentsThatAreNotMountedEndTheBackup(isFolderThere: Bool) throws {
        let house = try BackupHouse()
        let segments = try (1...3).map { try house.put("a", partition: $0).segment }
        let content = house.place.contentFolder(of: .documents)
        let mounted = house.root + "/mounted"
        try FileManager.default.moveItem(atPath: content, toPath: mounted)
        if isFolderThere { try FileManager.default.createDirectory(atPath: content, withIntermediateDirectories: true) }
        #expect { try house.backup() } throws: { ($0 as? CloudError)?.message.contains("not mounted") == true }
        #expect(try house.folder.snapshots().isEmpty)
        guard isFolderThere else { return }
        // Whoever runs it says that this is all there is.
        try Data().write(to: URL(fileURLWithPath: content + "/" + SegmentStore.acceptedLoss))
        #expect(try house.backup().damagedFiles == segments.map { try house.file($0) })
    }

    /// A segment has grown since it was copied.
    private static func grown() throws -> (house: BackupHouse, place: SegmentPlace) {
        let house = try BackupHouse()
        let place = try house.put("a", partition: 1)
        try house.put("b", partition: 2)
        try house.backup()
        try house.put("more", partition: 1)
        return (house, place)
    }

    /// A backup that comes to no end, after a segment was copied.
    private static func endBackup(of house: BackupHouse) throws {
        struct Ended: Error {}
        #expect(throws: Ended.self) { try house.backup(at: 1) { if $0 == "segment" { throw Ended() } } }
    }

    /// What a backup has left that came to no end is counted on by nobody.
    @Test func theGapsOfABackupThatCameToNoEndAreFoundAgain() throws {
        let (house, place) = try Self.grown()
        let own = try house.file(place.segment)
        let whole = try #require(Self.data(own))
        unlink(own)
        try Self.endBackup(of: house)
        let second = try house.backup(at: 2)
        #expect(second.damagedFiles == [own])
        #expect(second.manifest.segments[0].isPartial == true && second.manifest.segments[0].bytes == whole.count)
        try whole.write(to: URL(fileURLWithPath: own))
        let third = try house.backup(at: 3)
        #expect(third.damagedFiles.isEmpty && third.manifest.segments.allSatisfy { $0.isPartial == nil })
        #expect(try Self.restored(house, place.segment, third.snapshot) == whole)
    }

    /// Nor is what it has left lost that nobody else has any more.
    @Test func whatABackupThatCameToNoEndHasCopiedIsKept() throws {
        let (house, place) = try Self.grown()
        let own = try house.file(place.segment)
        let whole = try #require(Self.data(own))
        try Self.endBackup(of: house)
        unlink(own)
        let second = try house.backup(at: 2)
        #expect(second.damagedFiles == [own])
        #expect(try Self.restored(house, place.segment, second.snapshot) == whole)
    }

    /// A real error of reading, in the middle: of this process's own memory the page that no file is behind.
    @Test func aPageThatCannotBeReadIsZerosAndTheRestIsCopied() throws {
        let (page, house) = (4096, try BackupHouse())
        let path = house.root + "/empty"
        let empty = open(path, O_RDWR | O_CREAT, 0o600)
        defer { close(empty) }
        let memory = try #require(
            mmap(nil, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "No memory.")
        defer { munmap(memory, 3 * page) }
        memset(memory, 7, 3 * page)
        #expect(mmap(memory + page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, empty, 0) == memory + page)
        let start = Int(bitPattern: memory)
        let target = house.root + "/target"
        var salvage = Salvage(to: try FileCopy.Opened(target, O_WRONLY | O_CREAT | O_TRUNC)) { _ in }
        let hashes = try salvage.run("/proc/self/mem", start..<start + 3 * page, stops: [start + page])
        #expect(salvage.missingBytes == page)
        let sevens = Data(repeating: 7, count: page)
        #expect(Self.data(target) == sevens + Data(count: page) + sevens)
        for pages in [1, 3] {
            #expect(try FileCopy.hash(target, first: pages * page) { _ in } == hashes[start + pages * page])
        }
    }
}
