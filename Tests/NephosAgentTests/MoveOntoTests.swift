import Foundation
import NephosCore
import NephosFiles
import NephosKit
import NephosTestKit
import Testing

@testable import NephosAgent

/// Moves that meet deletions, other moves, and writes that hide their times.
@Suite struct MoveOntoTests {
    /// A file that was read in the moment of its last write is looked at again, unless it is gone by then.
    @Test func fileThatIsGoneIsNotWaitedFor() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "a")
        try await house.expectEqual()
        try await house[0].sync.lookLater("gone.txt")
        try await house[0].sync.scanAll()
        try await house.settle(within: .seconds(10))
    }

    /// Another device's move arrives between a look at the disk and the sending of what it found.
    @Test(arguments: [true, false]) func whatIsMadeWhereAnItemComesTakesItsFilesNowhere(isFolder: Bool) async throws {
        let house = try await Household()
        try house[0].write(isFolder ? "A/f.txt" : "A", "f")
        try await house.expectEqual()
        try house[1].move("A", "B")
        for _ in 0..<5 {
            try await house[1].sync.pass()
            try await house.cloud.settle()
        }
        try house[0].write(isFolder ? "B/n.txt" : "B", "n")
        try await house[0].sync.sendMade("B")
        let tree = try await house.expectEqual()
        #expect(tree["A"] == nil && tree.values.contains("f") && tree.values.contains("n"), "\(tree)")
        #expect(tree[isFolder ? "B/f.txt" : "B"] == "f", "\(tree)")
        #expect(try await house[0].container.trash.list().isEmpty)
    }

    /// Items that came for a folder which had no row yet come once another row gets its id: two devices had made it.
    @Test func itemsOfAFolderThatGetsAnotherIdCome() async throws {
        let house = try await Household()
        try house[0].makeFolder("here")
        try await house.settle()
        let tree = house[1].container.tree()
        let (folder, link) = (tree.makeID(), tree.makeID())
        let files = try tree.stageFiles()
        let target = try files.copyLink(to: Array("a/b".utf8))
        // Its name keeps it from being placed.
        let changes: [ContainerTree.Change] = [
            .makeFolder(folder, in: tree.root, name: Data("x.nosync".utf8)),
            .make(link, in: folder, name: Data("link".utf8), target),
        ]
        for result in try await tree.apply(changes, files) { _ = try result.get() }
        try await house.settle()
        #expect(try house[0].tree() == ["here": "folder"])
        let sync = try house[0].sync
        try await sync.rename(house[0].id(of: "here"), to: folder)
        _ = try await sync.pass()
        #expect(try house[0].tree()["here/link"] == "link to a/b")
    }

    /// Each device moves one of two folders into the other. The later move is undone, and what was put into its folder
    /// meanwhile is found.
    @Test func fileInAFolderWhoseMoveIsUndoneIsFound() async throws {
        let house = try await Household()
        for name in ["a", "b"] { try house[0].write(name + "/file", name) }
        try await house.expectEqual()
        try house[0].move("a", "b/a")
        for _ in 0..<5 {
            try await house[0].sync.pass()
            try await house.cloud.settle()
        }
        try house[1].move("b", "a/b")
        try house[1].write("a/b/new.txt", "new")
        let tree = try await house.expectEqual()
        #expect(tree["b/a/file"] == "a" && tree["b/new.txt"] == "new", "\(tree)")
    }

    /// `rm -r dist; mv build dist`, as build programs do.
    @Test func folderTakesTheNameOfOneThatWasDeleted() async throws {
        let house = try await Household()
        try house[0].write("dist/old.txt", "old")
        try house[0].write("build/new.txt", "new")
        try await house.expectEqual()
        let ids = (try await house[0].id(of: "Documents/build"), try await house[0].id(of: "Documents/build/new.txt"))
        try house[0].remove("dist")
        try house[0].move("build", "dist")
        #expect(try await house.expectEqual() == ["dist": "folder", "dist/new.txt": "new"])
        #expect(try await house[1].id(of: "Documents/dist") == ids.0)
        #expect(try await house[1].id(of: "Documents/dist/new.txt") == ids.1)
        #expect(try await house[0].container.trash.list().count == 1)
    }

    /// `mv a/a t; rm -r a; mv t a`.
    @Test func folderTakesTheNameOfTheOneItWasIn() async throws {
        let house = try await Household()
        try house[0].write("a/a/kept.txt", "kept")
        try house[0].write("a/gone.txt", "gone")
        try await house.expectEqual()
        let id = try await house[0].id(of: "Documents/a/a/kept.txt")
        try house[0].move("a/a", "t")
        try house[0].remove("a")
        try house[0].move("t", "a")
        #expect(try await house.expectEqual() == ["a": "folder", "a/kept.txt": "kept"])
        #expect(try await house[1].id(of: "Documents/a/kept.txt") == id)
    }

    @Test func foldersOfDifferentFoldersChangePlaces() async throws {
        let house = try await Household()
        for name in ["p/a", "q/b", "r/c"] { try house[0].write(name + "/file", name) }
        try await house.expectEqual()
        var ids: [DocumentID] = []
        for name in ["p/a", "q/b", "r/c"] { ids.append(try await house[0].id(of: "Documents/\(name)/file")) }
        // In a circle.
        try house[0].move("p/a", "x")
        try house[0].move("q/b", "p/a")
        try house[0].move("r/c", "q/b")
        try house[0].move("x", "r/c")
        let tree = try await house.expectEqual()
        #expect(tree["p/a/file"] == "q/b" && tree["q/b/file"] == "r/c" && tree["r/c/file"] == "p/a")
        #expect(try await house[1].id(of: "Documents/r/c/file") == ids[0])
        #expect(try await house[1].id(of: "Documents/p/a/file") == ids[1])
        #expect(try await house[1].id(of: "Documents/q/b/file") == ids[2])
        #expect(try await house[0].container.trash.list().isEmpty)
    }

    /// After the container has an exchange, a kill may take its rows: the same moves are sent again.
    @Test func exchangeThatWasSentBeforeKeepsItsNames() async throws {
        let house = try await Household()
        for name in ["a", "b"] { try house[0].write(name + "/file", name) }
        try await house.expectEqual()
        let tree = house[0].container.tree()
        let names = try tree.children(of: tree.root)
        let (a, b) = (try #require(names.first), try #require(names.last))
        for (from, to) in [("a", "x"), ("b", "a"), ("x", "b")] { try house[0].move(from, to) }
        let moves: [ContainerTree.Change] = [
            .move(a.id, in: tree.root, name: Data("x".utf8)), .move(b.id, in: tree.root, name: a.name),
            .move(a.id, in: tree.root, name: b.name),
        ]
        for outcome in try await tree.apply(moves, tree.stageFiles()) { _ = try outcome.get() }
        #expect(
            try await house.expectEqual() == ["a": "folder", "a/file": "b", "b": "folder", "b/file": "a"])
    }

    private func writeHidingItsTime(_ file: String, _ text: String) throws {
        let descriptor = open(file, O_WRONLY)
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        var status = stat()
        fstat(descriptor, &status)
        #expect(write(descriptor, text, text.utf8.count) == text.utf8.count)
        futimens(descriptor, [status.st_atim, status.st_mtim])
    }

    @Test(arguments: [false, true]) func writeThatHidesItsTimeIsSentAfterAMove(isElsewhere: Bool) async throws {
        let house = try await Household()
        try house[0].write("file.txt", "mine 1")
        try house[0].makeFolder("Folder")
        try await house.expectEqual()
        // While the agent does not run.
        try writeHidingItsTime(house[0].path + "/file.txt", "mine 2")
        if isElsewhere {
            try house[1].move("file.txt", "Folder/file.txt")
            try await house[1].sync.pass()
            try await house.cloud.settle()
        } else {
            try house[0].move("file.txt", "Folder/file.txt")
        }
        try await house.settle()
        #expect(try await house.expectEqual()["Folder/file.txt"] == "mine 2")
    }

    /// A move alone is read again, and not sent.
    @Test func movedFileIsNoNewVersion() async throws {
        let house = try await Household()
        try house[0].write("file.txt", String(repeating: "text", count: 10_000))
        try await house.expectEqual()
        let before = try await house[0].container.item(at: "Documents/file.txt")
        try house[0].move("file.txt", "moved.txt")
        try await house.expectEqual()
        let after = try await house[1].container.item(at: "Documents/moved.txt")
        #expect(after?.id == before?.id && after?.version == before?.version)
    }

    /// A name of a folder on disk is a name: it leads nowhere else.
    @Test func namesThatLeadElsewhereAreRefused() throws {
        let path = NSTemporaryDirectory() + "/nephos-held-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path + "/inner", withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: path) }
        let folder = try HeldFolder(path: path + "/inner")
        let file = FileName("file".utf8)
        close(try folder.makeFile(file, mode: 0o600))
        for name in ["../out", "..", ".", "", "a/b", "file\0"].map({ FileName($0.utf8) }) {
            #expect(throws: FileFailure(EINVAL)) { try folder.move(file, to: folder, as: name) }
            #expect(throws: FileFailure(EINVAL)) { try folder.makeFolder(name) }
            #expect(throws: FileFailure(EINVAL)) { try folder.makeLink(name, to: [1]) }
            #expect(throws: FileFailure(EINVAL)) { try folder.removeFile(name) }
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: path) == ["inner"])
        #expect(try folder.names() == [file])
    }

    /// A database in use is not sent. If another device puts another file in its place, it is not hidden.
    @Test func changedFileWhoseNameIsTakenComesBack() async throws {
        let house = try await Household()
        let start = "SQLite format 3\0"
        try house[0].write("app.db", start + "first")
        try await house.expectEqual()
        try house[0].write("app.db", start + "mine")
        try house[0].write("app.db-wal", "in use")
        for _ in 0..<5 {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(10))
        }
        try house[1].remove("app.db")
        for _ in 0..<10 {
            try await house[1].sync.pass()
            try await Task.sleep(for: .milliseconds(10))
        }
        try house[1].write("app.db", "another")
        try await house[1].sync.pass()
        try await house.cloud.settle()
        for _ in 0..<50 {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(house[0].read("app.db") == start + "mine")
        #expect(try FileManager.default.contentsOfDirectory(atPath: house[0].path + "/.nephos/parked").isEmpty)
        try house[0].remove("app.db-wal")
        // It is looked at again after a pause, which has grown.
        for _ in 0..<3000 where try house[0].tree() != house[1].tree() || house[0].tree()["app.db-wal"] != nil {
            for device in house.devices { try await device.sync.pass() }
            try await house.cloud.settle()
            try await Task.sleep(for: .milliseconds(10))
        }
        let tree = try await house.expectEqual()
        let isInConflict = try await !house[0].container.conflicts.list().isEmpty
        #expect(tree.values.contains(start + "mine") || isInConflict, "\(tree)")
    }

    /// Of two new names of one file, one is the file and the other a new one.
    @Test func bothNewNamesOfAHardLinkAreSent() async throws {
        let house = try await Household()
        try house[0].write("s", "hello")
        try await house.expectEqual()
        let path = house[0].path
        #expect(link(path + "/s", path + "/s1") == 0)
        try house[0].move("s", "s2")
        try await house[0].restart()
        #expect(try await house.expectEqual() == ["s1": "hello", "s2": "hello"])
    }

    @Test func whatIsWrittenUnderOneNameIsSentForTheOther() async throws {
        let house = try await Household()
        try house[0].write("x", "1")
        #expect(link(house[0].path + "/x", house[0].path + "/y") == 0)
        try await house.expectEqual()
        let file = try FileHandle(forUpdating: URL(fileURLWithPath: house[0].path + "/y"))
        try file.write(contentsOf: Data("22".utf8))
        try file.close()
        #expect(try await house.expectEqual() == ["x": "22", "y": "22"])
    }

    /// Where nothing tells of what a program writes through a mapping, a file that it has open is read again.
    @Test(.enabled(if: FileManager.default.fileExists(atPath: "/dev/shm"))) func mappedFileInMemoryIsReadAgain()
        async throws
    {
        let house = try await Household(1)
        let path = "/dev/shm/nephos-mapped-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: path) }
        let device = try await house.addDevice("memory", at: path)
        try device.write("mapped", "AAAAA")
        try await house.expectEqual()
        let descriptor = open(path + "/mapped", O_RDWR)
        defer { close(descriptor) }
        let mapping = try #require(mmap(nil, 5, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0))
        memcpy(mapping, "BBBBB", 5)
        utimes(path + "/mapped", nil)
        func pass() async throws {
            for one in house.devices { try await one.sync.pass() }
            try await house.cloud.settle()
            try await Task.sleep(for: .milliseconds(10))
        }
        for _ in 0..<400 where house[0].read("mapped") != "BBBBB" { try await pass() }
        // It was read while the program had it open.
        for _ in 0..<20 { try await pass() }
        memcpy(mapping, "CCCCC", 5)
        munmap(mapping, 5)
        for _ in 0..<400 where house[0].read("mapped") != "CCCCC" { try await pass() }
        #expect(house[0].read("mapped") == "CCCCC")
    }

    /// After an answer to a held deletion the files came back by themselves: the answer was to that one.
    @Test func answerToAHeldDeletionIsForThatOne() async throws {
        let house = try await Household()
        for number in 0..<100 { try house[0].write("Letters/\(number).txt", "\(number)") }
        try await house.expectEqual()
        let away = house[0].path + "-away"
        defer { try? FileManager.default.removeItem(atPath: away) }
        func hold() async throws {
            for _ in 0..<400 {
                try await house[0].sync.pass()
                if try house[0].store.report(of: house[0].folder)?.heldDeletionCount ?? 0 > 0 { return }
                try await Task.sleep(for: .milliseconds(5))
            }
            Issue.record("Nothing is held.")
        }
        try FileManager.default.moveItem(atPath: house[0].path + "/Letters", toPath: away)
        try await hold()
        try FileManager.default.moveItem(atPath: away, toPath: house[0].path + "/Letters")
        // The person says yes in the moment when a backup has brought them back.
        try house[0].store.allowDeletions(100, in: house[0].folder)
        try await house.expectEqual()
        try FileManager.default.moveItem(atPath: house[0].path + "/Letters", toPath: away)
        try await hold()
        try await house[1].sync.pass()
        #expect(try house[1].tree().count == 101)
    }

    /// A folder that waited with one of its files is gone: nothing is waited for.
    @Test func waitingEndsWithItsFolder() async throws {
        let house = try await Household()
        try house[0].write("Log/a.txt", "a")
        try await house.expectEqual()
        // Written, and not closed.
        let file = open(house[0].path + "/Log/open.txt", O_WRONLY | O_CREAT, 0o600)
        defer { close(file) }
        for _ in 0..<3 {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(10))
        }
        let away = house[0].path + "-away"
        defer { try? FileManager.default.removeItem(atPath: away) }
        try FileManager.default.moveItem(atPath: house[0].path + "/Log", toPath: away)
        #expect(try await house.expectEqual() == [:])
    }

    /// A folder that nothing can be put into costs one download, not one each minute.
    @Test(.enabled(if: canBeImmutable("/tmp")), arguments: [false, true])
    func contentThatCannotBePlacedIsFetchedOnce(isNew: Bool) async throws {
        let house = try await Household()
        try house[0].makeFolder("Folder")
        if !isNew { try house[0].write("Folder/file", "old") }
        try await house.expectEqual()
        let folder = house[1].path + "/Folder"
        try #require(setImmutable(folder, true))
        defer { _ = setImmutable(folder, false) }
        try house[0].write("Folder/file", String(repeating: "x", count: 50_000))
        func parts() throws -> [UInt64] {
            let own = try HeldFolder(path: house[1].path + "/.nephos/parts")
            return try own.names().map { try own.facts($0).inode }
        }
        func wait(_ condition: () throws -> Bool) async throws {
            for _ in 0..<400 where try !condition() {
                for number in 0..<2 { try await house[number].sync.pass() }
                try await house.cloud.settle()
                try await Task.sleep(for: .milliseconds(10))
            }
        }
        try await wait { try !house[1].store.blocked(in: house[1].folder).isEmpty }
        let first = try parts()
        #expect(first.count == 1)
        // It is tried again after one second.
        for _ in 0..<150 {
            try await house[1].sync.pass()
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(try parts() == first)
        #expect(setImmutable(folder, false))
        try await wait { house[1].read("Folder/file")?.count == 50_000 }
        #expect(house[1].read("Folder/file")?.count == 50_000)
        #expect(try parts().isEmpty)
        try await house.expectEqual()
    }
}

/// Whether it worked.
private func setImmutable(_ path: String, _ isImmutable: Bool) -> Bool {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/chattr")
    process.arguments = [isImmutable ? "+i" : "-i", path]
    process.standardError = nil
    guard (try? process.run()) != nil else { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
}

private func canBeImmutable(_ folder: String) -> Bool {
    let path = folder + "/nephos-immutable-" + UUID().uuidString
    guard (try? FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: false)) != nil else {
        return false
    }
    defer { try? FileManager.default.removeItem(atPath: path) }
    return setImmutable(path, true) && setImmutable(path, false)
}

extension FolderSync {
    /// Notes a name at the top that is due to be looked at again.
    fileprivate func lookLater(_ name: String) {
        later.noteFailed(Place(folder: container.root, name: FileName(name.utf8)), .now - .seconds(5))
    }

    /// Sends a new file or folder at the top, as a look found it a moment ago.
    fileprivate func sendMade(_ name: String) async throws {
        let place = Place(folder: container.root, name: FileName(name.utf8))
        var batch = LocalBatch()
        batch.append(.make(place, try root.folder.facts(place.name)))
        try await send(&batch)
    }
}
