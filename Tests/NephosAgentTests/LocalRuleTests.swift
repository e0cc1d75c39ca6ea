import NephosCore
import NephosFiles
import Testing

@testable import NephosAgent

/// The rule by which local changes are found, over all of its inputs.
@Suite struct LocalRuleTests {
    private static func facts(_ kind: FileFacts.Kind, inode: UInt64, size: Int64 = 1) -> FileFacts {
        FileFacts(kind: kind, inode: inode, born: 5, size: size, modified: 7, changed: 9)
    }

    private static func item(_ number: UInt8, _ facts: FileFacts, isRacy: Bool = false) throws -> SyncedItem {
        let id = try #require(DocumentID(bytes: [UInt8](repeating: number, count: 16)))
        return SyncedItem(
            id: id, parent: .documents, name: FileName("name".utf8), kind: facts.kind,
            version: facts.kind == .folder ? nil : id, stamp: FileStamp(facts), isRacy: isRacy)
    }

    @Test func everyInputHasItsDecision() throws {
        var count = 0
        for kind in [FileFacts.Kind.file, .folder, .link] {
            let found = Self.facts(kind, inode: 1)
            // The item that had the name: none, the same file, the same file with another content, another file of the
            // kind, and something of another kind.
            let items: [(SyncedItem?, isSame: Bool, isChanged: Bool)] = [
                (nil, false, false),
                (try Self.item(1, found), true, false),
                (try Self.item(1, Self.facts(kind, inode: 1, size: 2)), true, true),
                (try Self.item(1, Self.facts(kind, inode: 2)), false, true),
                (try Self.item(1, Self.facts(kind == .file ? .folder : .file, inode: 2)), false, false),
            ]
            let known: [SyncedItem?] = [
                nil, try Self.item(3, found), try Self.item(3, Self.facts(kind, inode: 1, size: 2)),
                try Self.item(3, Self.facts(kind == .link ? .file : .link, inode: 1)),
            ]
            for (item, isSame, isChanged) in items {
                for known in known {
                    for standing in Standing.allCases {
                        for isElsewhere in [false, true] {
                            let decision = LocalRule.decide(
                                found, item, isElsewhere: isElsewhere, known: known, standing: standing)
                            let expected = Self.expected(
                                kind, item, isSame, isChanged, known, standing, isElsewhere, found)
                            #expect(
                                decision == expected,
                                "\(kind) \(String(describing: item)) \(String(describing: known)) \(standing)")
                            count += 1
                        }
                    }
                }
            }
        }
        #expect(count == 3 * 5 * 4 * 4 * 2)
    }

    /// The rule as it is read aloud.
    private static func expected(
        _ kind: FileFacts.Kind, _ item: SyncedItem?, _ isSame: Bool, _ isChanged: Bool, _ known: SyncedItem?,
        _ standing: Standing, _ isElsewhere: Bool, _ found: FileFacts
    ) -> LocalDecision {
        // Something of another kind with the inode is no former place of this.
        let known = known.flatMap { $0.kind == kind ? $0 : nil }
        if let item, item.kind == kind {
            // A file or link stays with its name, whatever has become of its inode.
            if kind != .folder { return isChanged || !isSame ? .change(item) : .unchanged }
            if isSame { return .unchanged }
            if let known, standing == .absent || standing == .replaced { return .move(known, isChanged: false) }
            if known != nil, standing == .unknown { return .wait }
            return isElsewhere ? .make : .adopt(item)
        }
        guard let known else { return .make }
        switch standing {
        case .absent: return .move(known, isChanged: kind != .folder && known.stamp.size != found.size)
        case .replaced where kind == .folder: return .move(known, isChanged: false)
        case .unknown: return .wait
        case .replaced, .same: return .make
        }
    }

    @Test func racyFileIsReadAgain() throws {
        let found = Self.facts(.file, inode: 1)
        let item = try Self.item(1, found, isRacy: true)
        let decision = LocalRule.decide(found, item, isElsewhere: false, known: nil, standing: .absent)
        #expect(decision == .change(item))
    }

    @Test func inodeAloneIsNoIdentity() throws {
        var found = Self.facts(.file, inode: 1)
        found.born = 0
        var former = found
        former.size = 2
        func decide(_ known: SyncedItem) -> LocalDecision {
            LocalRule.decide(found, nil, isElsewhere: false, known: known, standing: .absent)
        }
        // Without a birth, another content means another file.
        #expect(try decide(Self.item(3, former)) == .make)
        let same = try Self.item(3, found)
        #expect(decide(same) == .move(same, isChanged: false))
    }
}

/// Places that are looked at again later.
struct LaterPlacesTests {
    private let place = Place(folder: .documents, name: FileName("a.txt".utf8))

    /// A place is looked at once when its time has come, also if its folder is gone.
    @Test func placeIsTakenOnce() {
        var later = LaterPlaces()
        later.noteFailed(place, .now)
        #expect(later.takeDue(.now).isEmpty)
        #expect(later.takeDue(.now + .seconds(2)) == [place])
        #expect(later.count == 0)
        #expect(later.nextDue == nil)
    }

    @Test func pauseGrowsWhileItFails() {
        var later = LaterPlaces()
        var now = ContinuousClock.now
        var pauses: [Duration] = []
        for _ in 0..<8 {
            later.noteFailed(place, now)
            let due = later.nextDue ?? now
            pauses.append(due - now)
            now = due
            #expect(later.takeDue(now) == [place])
        }
        #expect(pauses.map { $0 / .seconds(1) } == [1, 2, 4, 8, 16, 32, 60, 60])
    }
}
