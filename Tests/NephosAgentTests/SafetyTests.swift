import Foundation
import GRDB
import NephosAgent
import NephosCore
import NephosKit
import NephosTestKit
import Synchronization
import Testing

/// Nothing is deleted because it could not be seen, and nothing large without being asked.
@Suite struct SafetyTests {
    private func fill(_ house: Household, _ count: Int = 80) async throws {
        for number in 0..<count { try house[0].write("Letters/\(number).txt", "\(number)") }
        try house[0].write("other.txt", "other")
        try await house.settle()
    }

    /// Passes of one device, whose deletions may be held.
    private func run(_ house: Household) async throws {
        for _ in 0..<3 {
            for device in house.devices {
                try await device.sync.scanAll()
                try await device.sync.pass()
            }
            try await house.cloud.settle()
            try await Task.sleep(for: .milliseconds(20))
        }
        let end = ContinuousClock.now + .seconds(60)
        while ContinuousClock.now < end {
            var isDone = true
            for device in house.devices {
                try await device.sync.pass()
                isDone = try await device.sync.isDone && isDone
            }
            try await house.cloud.settle()
            if isDone { return }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    @Test func largeDeletionIsHeldUntilAllowed() async throws {
        let house = try await Household()
        try await fill(house)
        try house[0].remove("Letters")
        try house[0].write("new.txt", "new")
        try await run(house)
        #expect(try house[1].tree().count == 83)
        #expect(house[1].read("new.txt") == "new")
        #expect(try house[0].store.report(of: house[0].folder)?.heldDeletionCount == 80)
        try house[0].store.allowDeletions(79, in: house[0].folder)
        try await run(house)
        #expect(try house[1].tree().count == 83)
        try house[0].store.allowDeletions(80, in: house[0].folder)
        #expect(try await house.expectEqual() == ["other.txt": "other", "new.txt": "new"])
        // The permission is for one deletion.
        for number in 0..<80 { try house[0].write("More/\(number).txt", "\(number)") }
        try await house.settle()
        try house[0].remove("More")
        try await run(house)
        #expect(try house[1].tree().count == 83)
    }

    @Test func heldDeletionIsRestored() async throws {
        let house = try await Household()
        try await fill(house)
        let tree = try house[1].tree()
        try house[0].remove("Letters")
        try await run(house)
        try house[0].store.requestRestore(in: house[0].folder)
        #expect(try await house.expectEqual() == tree)
    }

    /// Another folder was moved to the name of a folder whose deletion is held, and that is restored.
    @Test func folderThatTookARestoredFoldersNameIsKept() async throws {
        let house = try await Household()
        try await fill(house)
        try house[0].write("Other/x.txt", "x")
        try await house.expectEqual()
        try house[0].remove("Letters")
        try house[0].move("Other", "Letters")
        for _ in 0..<200 where try house[0].store.report(of: house[0].folder)?.heldDeletionCount ?? 0 == 0 {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(50))
        }
        try house[0].store.requestRestore(in: house[0].folder)
        let tree = try await house.expectEqual()
        #expect(tree["Letters/x.txt"] == "x" && tree["Letters/0.txt"] == "0" && tree["other.txt"] == "other")
        #expect(tree.count == 83, "\(tree.keys.sorted())")
    }

    @Test func movedFolderIsNoLargeDeletion() async throws {
        let house = try await Household()
        try await fill(house)
        try house[0].move("Letters", "Archive")
        #expect(try await house.expectEqual().count == 82)
    }

    @Test func emptyPlaceOfTheFolderDeletesNothing() async throws {
        let house = try await Household()
        try await fill(house, 3)
        let path = house[0].path
        // As if its disk was unmounted.
        try FileManager.default.moveItem(atPath: path, toPath: path + ".away")
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
        for _ in 0..<2 {
            await #expect(throws: CloudError.self) { try await house[0].sync.pass() }
            try await house[1].sync.pass()
            try await house.cloud.settle()
        }
        #expect(try house[0].store.report(of: house[0].folder)?.state == .stopped)
        await #expect(throws: CloudError.self) { try await house[0].restart() }
        #expect(try house[1].tree().count == 5 && house[0].tree().isEmpty)
        try FileManager.default.removeItem(atPath: path)
        try FileManager.default.moveItem(atPath: path + ".away", toPath: path)
        try await house[0].restart()
        #expect(try await house.expectEqual().count == 5)
    }

    @Test func removedFolderWithItsMarkDeletesNothing() async throws {
        let house = try await Household()
        try await fill(house, 3)
        try FileManager.default.removeItem(atPath: house[0].path)
        await #expect(throws: CloudError.self) { try await house[0].sync.pass() }
        try await house.cloud.settle()
        try await house[1].sync.pass()
        #expect(try house[1].tree().count == 5)
    }

    @Test func secondAgentOfTheFolderIsRefused() async throws {
        let house = try await Household(1)
        #expect(throws: CloudError.self) { try RootFolder(house[0].folder) }
        #expect(throws: CloudError.self) { try RootFolder.adopt(house[0].path) }
        // Taken over by another, this one stops.
        _ = try RootFolder.adopt(house[0].path, takesOver: true)
        await #expect(throws: CloudError.self) { try await house[0].sync.pass() }
    }

    @Test func databaseInUseIsRefusedWithReason() async throws {
        let house = try await Household()
        try house[0].write("app.db", "SQLite format 3\0 and more")
        try house[0].write("app.db-wal", "log")
        try house[0].write("a.txt", "a")
        try await run(house)
        #expect(try house[1].tree() == ["a.txt": "a"])
        let blocked = try house[0].store.blocked(in: house[0].folder)
        #expect(blocked.map(\.text) == ["app.db", "app.db-wal"])
        // Once nobody has it open it is a file like any other.
        try house[0].remove("app.db-wal")
        try await house[0].sync.scanAll()
        try await run(house)
        #expect(house[1].read("app.db") != nil)
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    @Test func editDuringDownloadStays() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "base")
        try await house.settle()
        try house[1].write("a.txt", "theirs")
        try await house[1].sync.pass()
        try await house.cloud.settle()
        // The download begins in this pass, and takes its place in the next.
        try await house[0].sync.pass()
        try await Task.sleep(for: .milliseconds(50))
        try house[0].write("a.txt", "mine")
        try await house.expectEqual()
        let id = try await house[0].id(of: "a.txt")
        #expect(try await house[0].container.conflicts.versions(of: id).count == 2)
    }

    @Test func offlineChangesAreSentLater() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "base")
        try await house.settle()
        house.cloud.disconnect(house[0].session)
        try house[0].write("a.txt", "offline")
        try house[0].write("b.txt", "new")
        try await house[0].sync.scanAll()
        try await house[0].sync.pass()
        try house[0].write("b.txt", "newer")
        try await house[0].sync.scanAll()
        try await house[0].sync.pass()
        try await house[0].restart()
        house.cloud.connect(house[0].session)
        #expect(try await house.expectEqual() == ["a.txt": "offline", "b.txt": "newer"])
        #expect(try await house[0].container.conflicts.list().isEmpty)
    }

    @Test func openFileIsNotReplaced() async throws {
        let house = try await Household()
        try house[0].write("log.txt", "one")
        try await house.settle()
        let writer = open(house[1].path + "/log.txt", O_WRONLY | O_APPEND)
        #expect(writer >= 0)
        try house[0].write("log.txt", "two")
        try await run(house)
        try await run(house)
        #expect(house[1].read("log.txt") == "one")
        #expect(try house[1].store.blocked(in: house[1].folder).map(\.text) == ["log.txt"])
        close(writer)
        // It is tried again after a pause.
        for _ in 0..<500 where house[1].read("log.txt") != "two" {
            try await house[1].sync.pass()
            try await Task.sleep(for: .milliseconds(20))
        }
        try await house.expectEqual()
        #expect(house[1].read("log.txt") == "two")
        #expect(try house[1].store.blocked(in: house[1].folder).isEmpty)
    }

    @Test func touchedFileIsNoEdit() async throws {
        let house = try await Household()
        for number in 0..<3 { try house[0].write("\(number).txt", "\(number)") }
        try await house.settle()
        house.cloud.disconnect(house[1].session)
        // Copied to another disk and back: other inodes, the same contents.
        for number in 0..<3 {
            try FileManager.default.copyItem(
                atPath: house[1].path + "/\(number).txt", toPath: house[1].path + "/copy")
            #expect(rename(house[1].path + "/copy", house[1].path + "/\(number).txt") == 0)
        }
        try house[0].remove("0.txt")
        try house[0].write("1.txt", "edited")
        try await house[0].sync.scanAll()
        try await house[0].sync.pass()
        try await house[1].sync.scanAll()
        try await house[1].sync.pass()
        await house.cloud.advance(by: .seconds(1))
        house.cloud.connect(house[1].session)
        #expect(try await house.expectEqual() == ["1.txt": "edited", "2.txt": "2"])
        #expect(try await house[0].container.conflicts.list().isEmpty)
    }

    @Test func folderReplacedByALinkIsALargeDeletion() async throws {
        let house = try await Household()
        try await fill(house)
        // Moved to a larger disk.
        try FileManager.default.moveItem(atPath: house[0].path + "/Letters", toPath: house[0].path + ".elsewhere")
        #expect(symlink(house[0].path + ".elsewhere", house[0].path + "/Letters") == 0)
        try await run(house)
        #expect(try house[1].tree().count == 82)
        #expect(try house[0].store.report(of: house[0].folder)?.heldDeletionCount == 80)
    }

    @Test func copyOfTheFolderDeletesNothing() async throws {
        let house = try await Household()
        try await fill(house, 3)
        let path = house[0].path
        // A new disk, with a backup of the folder that lacks a file.
        try FileManager.default.copyItem(atPath: path, toPath: path + ".copy")
        try FileManager.default.removeItem(atPath: path + ".copy/Letters/1.txt")
        try FileManager.default.moveItem(atPath: path, toPath: path + ".old")
        try FileManager.default.moveItem(atPath: path + ".copy", toPath: path)
        try await house[0].restart()
        #expect(try await house.expectEqual().count == 5)
        #expect(try await house[0].container.conflicts.list().isEmpty)
    }

    @Test func leftoversOfAKillComeBack() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "a")
        try house[0].write("b.txt", "b")
        try await house.settle()
        let (id, path) = (try await house[0].id(of: "a.txt"), house[0].path)
        // Killed after a file was parked, before that was recorded; and while an edited file was exchanged.
        try FileManager.default.moveItem(atPath: path + "/a.txt", toPath: path + "/.nephos/parked/\(id)")
        try Data("edited".utf8).write(to: URL(fileURLWithPath: path + "/.nephos/parts/x-1"))
        try Data("part".utf8).write(to: URL(fileURLWithPath: path + "/.nephos/parts/1"))
        try await house[0].restart()
        let tree = try await house.expectEqual()
        #expect(tree == ["a.txt": "a", "b.txt": "b", "recovered x-1": "edited"])
    }

    /// A kill between the rename that frees a name and the removal of the file.
    @Test func parkedFileThatWasDeletedElsewhereIsRemovedAfterAKill() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "a")
        try await house.settle()
        let id = try await house[0].id(of: "a.txt")
        let path = house[0].path
        try house[1].remove("a.txt")
        try await house[1].sync.scanAll()
        try await house[1].sync.pass()
        try await Task.sleep(for: .milliseconds(30))
        try await house[1].sync.pass()
        try await house.cloud.settle()
        try FileManager.default.moveItem(atPath: path + "/a.txt", toPath: path + "/.nephos/parked/\(id)")
        let database = try DatabaseQueue(path: house[0].session.home.path + "/agent.sqlite")
        try await database.write { database in
            try database.execute(
                sql: "UPDATE items SET parent = ?, name = ? WHERE item = ?",
                arguments: [Data(DocumentID.top.bytes), Data("\(id)".utf8), Data(id.bytes)])
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: path + "/.nephos/parked").count == 1)
        try await house[0].restart()
        try await house.expectEqual()
        #expect(try FileManager.default.contentsOfDirectory(atPath: path + "/.nephos/parked").isEmpty)
        #expect(try house[0].store.report(of: house[0].folder)?.itemCount == 0)
    }

    /// Its contents were changed while no agent ran, or in the moment before.
    @Test func folderThatWasParkedInAKillIsScanned() async throws {
        let house = try await Household()
        for name in ["a.txt", "b.txt"] { try house[0].write("Letters/" + name, name) }
        try await house.settle()
        let (id, path) = (try await house[0].id(of: "Letters"), house[0].path)
        try FileManager.default.moveItem(atPath: path + "/Letters", toPath: path + "/.nephos/parked/\(id)")
        try FileManager.default.removeItem(atPath: path + "/.nephos/parked/\(id)/b.txt")
        try house[0].write(".nephos/parked/\(id)/c.txt", "new")
        try await house[0].restart()
        let tree = try await house.expectEqual()
        #expect(tree == ["Letters": "folder", "Letters/a.txt": "a.txt", "Letters/c.txt": "new"])
        try house[0].write("Letters/d.txt", "d")
        #expect(try await house.expectEqual()["Letters/d.txt"] == "d")
    }

    @Test func slowDeletionIsHeldToo() async throws {
        var options = AgentOptions()
        options.deleteDelay = .zero
        let house = try await Household(options: options)
        try await fill(house, 100)
        for number in 0..<80 {
            try house[0].remove("Letters/\(number).txt")
            try await house[0].sync.scanAll()
            try await house[0].sync.pass()
        }
        try await house.cloud.settle()
        #expect(try house[0].store.report(of: house[0].folder)?.heldDeletionCount ?? 0 > 20)
        try await house[1].sync.pass()
        #expect(try house[1].tree().count > 40)
    }

    /// Programs such as rsync and VeraCrypt set a file's date back after they have written it. Only the time of its last
    /// change tells of that, and a rename changes it.
    @Test(arguments: [false, true]) func writeThatHidesItsTimeIsKept(isDeleted: Bool) async throws {
        let house = try await Household()
        let names = (0..<8).map { "\($0).txt" }
        for name in names { try house[0].write(name, "mine 1") }
        try await house.expectEqual()
        for name in names {
            if isDeleted { try house[1].remove(name) } else { try house[1].write(name, "theirs") }
        }
        let edited = Mutex<[String]>([])
        let path = house[0].path
        house[0].hook.body.withLock {
            // While a pass is under way, after it has looked at the disk.
            $0 = { activity in
                guard activity.action == .received || activity.action == .removed else { return }
                let isFirst = edited.withLock { $0.isEmpty }
                guard isFirst else { return }
                for name in names where name != activity.path {
                    let file = path + "/" + name
                    guard let descriptor = Optional(open(file, O_WRONLY)), descriptor >= 0 else { continue }
                    var status = stat()
                    fstat(descriptor, &status)
                    write(descriptor, "mine 2", 6)
                    futimens(descriptor, [status.st_atim, status.st_mtim])
                    close(descriptor)
                    edited.withLock { $0.append(name) }
                }
            }
        }
        try await house.settle()
        let edits = edited.withLock { $0 }
        try #require(!edits.isEmpty)
        let conflicts = try await house[0].container.conflicts.list().count
        let kept = edits.count { house[0].read($0) == "mine 2" }
        #expect(isDeleted ? kept == edits.count : kept + conflicts >= edits.count, "\(kept) \(conflicts)")
        try await house.expectEqual()
    }

    /// Only files are junk: a folder of such a name was never synced, and may hold anything.
    @Test func folderWithANameOfJunkStays() async throws {
        let house = try await Household()
        try house[0].write("Folder/file", "file")
        try await house.expectEqual()
        try house[0].write("Folder/.DS_Store/keep", "keep")
        try house[1].remove("Folder")
        try await house.settle()
        #expect(house[0].read("Folder/.DS_Store/keep") == "keep")
    }

    @Test func fileWithoutRoomOnTheDiskIsBlocked() async throws {
        let free = Mutex(Int64(10_000))
        var options = AgentOptions()
        options.freeBytes = { free.withLock { $0 } }
        let house = try await Household(options: options)
        try house[0].write("large", String(repeating: "x", count: 20_000))
        try house[0].write("small", "small")
        try await house.settle()
        #expect(house[1].read("small") == "small")
        #expect(try house[1].store.blocked(in: house[1].folder).map(\.text) == ["large"])
        free.withLock { $0 = 30_000 }
        try await house[1].restart()
        try await house.expectEqual()
        #expect(try house[1].store.blocked(in: house[1].folder).isEmpty)
    }

    @Test func removedFolderOfTheAgentIsMadeAgain() async throws {
        let house = try await Household()
        try house[0].write("file", "1")
        try await house.expectEqual()
        try house[1].remove(".nephos/parts")
        try house[0].write("file", "2")
        await #expect(throws: CloudError.self) { try await house[1].sync.pass() }
        try await house[1].restart()
        try await house.expectEqual()
    }

    /// An item in a blocked folder does not keep the agent busy. Once another device deletes the folder, nothing is blocked.
    @Test func blockedItemThatIsDeletedIsBlockedNoMore() async throws {
        let house = try await Household()
        let long = String(repeating: "x", count: 250)
        let tree = house[1].container.tree()
        let files = try tree.stageFiles()
        var changes: [ContainerTree.Change] = []
        let (folder, inner) = (tree.makeID(), tree.makeID())
        changes.append(.makeFolder(folder, in: tree.root, name: Data("x.nosync".utf8)))
        changes.append(.makeFolder(inner, in: folder, name: Data(long.utf8)))
        for result in try await tree.apply(changes, files) { _ = try result.get() }
        try await house.settle()
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["x.nosync"])
        _ = try await tree.apply([.move(folder, in: tree.root, name: Data("y.nosync".utf8))], files)
        try await house.settle()
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["y.nosync"])
        _ = try await tree.apply([.trash(folder, batch: tree.makeID(), known: [folder: nil, inner: nil])], files)
        try await house.settle()
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    /// Both changes arrive at once.
    @Test func linkThatIsMovedAndChangedIsBoth() async throws {
        let house = try await Household()
        try house[0].makeFolder("Folder")
        #expect(symlink("old", house[0].path + "/link") == 0)
        try house[0].write("file", "text")
        try await house.expectEqual()
        house.cloud.disconnect(house[1].session)
        try house[0].move("link", "Folder/link")
        try house[0].move("file", "Folder/file")
        try await house[0].sync.scanAll()
        try await house[0].sync.pass()
        #expect(unlink(house[0].path + "/Folder/link") == 0)
        #expect(symlink("new", house[0].path + "/Folder/link") == 0)
        #expect(chmod(house[0].path + "/Folder/file", 0o755) == 0)
        try await house[0].sync.scanAll()
        try await house[0].sync.pass()
        try await house[0].container.waitUntilSent()
        house.cloud.connect(house[1].session)
        let tree = try await house.expectEqual()
        #expect(tree["Folder/link"] == "link to new" && tree["Folder/file"] == "* text")
    }

    /// Nothing shows the names that two folders have in the middle of their exchange.
    @Test func exchangeIsOneStep() async throws {
        let house = try await Household()
        for name in ["a", "b"] { try house[0].write(name + "/file", name) }
        try await house.expectEqual()
        let seen = Mutex<Set<String>>([])
        let tree = house[0].container.tree()
        house[0].hook.body.withLock {
            $0 = { _ in
                let names = (try? tree.children(of: tree.root).map { String(decoding: $0.name, as: UTF8.self) }) ?? []
                seen.withLock { $0.formUnion(names) }
            }
        }
        try house[0].move("a", "x")
        try house[0].move("b", "a")
        try house[0].move("x", "b")
        let end = try await house.expectEqual()
        #expect(end == ["a": "folder", "a/file": "b", "b": "folder", "b/file": "a"])
        #expect(seen.withLock { $0 } == ["a", "b"])
    }

    /// A content is read only once the rows say where its folder is now.
    @Test func newFilesInExchangedFoldersKeepTheirContents() async throws {
        let house = try await Household()
        for name in ["a", "b"] { try house[0].write(name + "/file", name) }
        for number in 0..<8 { try house[0].write("\(number)", "root \(number)") }
        try await house.expectEqual()
        try house[0].move("a", "x")
        try house[0].move("b", "a")
        try house[0].move("x", "b")
        for number in 0..<8 { try house[0].move("\(number)", "moved \(number)") }
        for name in ["a", "b"] {
            try house[0].write(name + "/file", "changed in " + name)
            try house[0].write(name + "/new", "new in " + name)
        }
        try await house[0].sync.scanAll()
        let tree = try await house.expectEqual()
        for name in ["a", "b"] {
            #expect(tree[name + "/file"] == "changed in " + name && tree[name + "/new"] == "new in " + name)
        }
    }

    /// A row that a fault has left behind is compared with its item once a day.
    @Test func rowThatIsLeftBehindIsBroughtUpToDate() async throws {
        let house = try await Household()
        try house[0].write("a", "a")
        try await house.expectEqual()
        let old = try Self.version(in: house[1])
        try house[0].write("a", "new")
        try await house.expectEqual()
        let new = try Self.version(in: house[1])
        #expect(try Self.version(in: house[1], set: old) == old && new != old)
        try await house.settle()
        #expect(try Self.version(in: house[1]) == old)
        try await house[1].sync.compareAll()
        #expect(try await house.expectEqual() == ["a": "new"])
        #expect(try Self.version(in: house[1]) == new)
    }

    /// The version in a device's only row, by its own database.
    private static func version(in device: Household.Device, set version: String? = nil) throws -> String {
        let process = Process()
        let output = Pipe()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/python3")
        process.arguments =
            [
                "-c",
                """
                import sqlite3, sys
                database = sqlite3.connect(sys.argv[1], timeout=10)
                if len(sys.argv) > 2: database.execute("UPDATE items SET version = ?", (bytes.fromhex(sys.argv[2]),))
                database.commit()
                print(database.execute("SELECT version FROM items").fetchone()[0].hex(), end="")
                """, device.session.home.path + "/" + AgentStore.fileName,
            ] + [version].compactMap { $0 }
        process.standardOutput = output
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return String(decoding: data, as: UTF8.self)
    }
}
