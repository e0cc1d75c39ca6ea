import Foundation
import NephosAgent
import NephosCore
import NephosFiles
import NephosKit
import NephosTestKit
import Testing

@Suite struct FolderSyncTests {
    @Test func savedFileAppearsOnOtherDevice() async throws {
        let house = try await Household()
        try house[0].write("Letters/ben.txt", "Dear Ben")
        try house[0].makeFolder("Empty/Deep")
        let long = String(repeating: "All work and no play. ", count: 200_000)
        try house[0].write("long.txt", long)
        let tree = try await house.expectEqual()
        #expect(
            tree == [
                "Letters": "folder", "Letters/ben.txt": "Dear Ben", "Empty": "folder", "Empty/Deep": "folder",
                "long.txt": long,
            ])
    }

    @Test func editsTravelBothWays() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "one")
        try await house.expectEqual()
        try house[1].write("a.txt", "two")
        try await house.expectEqual()
        #expect(house[0].read("a.txt") == "two")
        try house[0].replace("a.txt", "three")
        try await house.expectEqual()
        #expect(house[1].read("a.txt") == "three")
    }

    @Test func atomicSaveKeepsItem() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "one")
        try await house.settle()
        let id = try await house[0].id(of: "a.txt")
        try house[0].replace("a.txt", "two")
        // As vim saves: the old file becomes a backup, which is deleted.
        try await house.settle()
        try house[0].move("a.txt", "a.txt~")
        try house[0].write("a.txt", "three")
        try house[0].remove("a.txt~")
        try await house.expectEqual()
        #expect(try await house[1].id(of: "a.txt") == id)
        #expect(try await house[0].container.versions.list(of: "a.txt").count == 3)
    }

    @Test func moveKeepsItemAndSendsNoContent() async throws {
        let house = try await Household()
        try house[0].write("Letters/Old/ben.txt", "Dear Ben")
        try house[0].write("Letters/anna.txt", "Dear Anna")
        try await house.settle()
        let (file, folder) = try await (house[0].id(of: "Letters/Old/ben.txt"), house[0].id(of: "Letters/Old"))
        try house[0].move("Letters/Old", "Archive")
        try house[0].move("Letters/anna.txt", "Archive/a.txt")
        let tree = try await house.expectEqual()
        #expect(
            tree == [
                "Letters": "folder", "Archive": "folder", "Archive/ben.txt": "Dear Ben", "Archive/a.txt": "Dear Anna",
            ])
        #expect(try await house[1].id(of: "Archive/ben.txt") == file)
        #expect(try await house[1].id(of: "Archive") == folder)
        try house[1].move("Archive", "Letters/Old")
        try await house.expectEqual()
        #expect(try await house[0].id(of: "Letters/Old/ben.txt") == file)
        #expect(try await house[0].container.versions.list(of: "Letters/Old/ben.txt").count == 1)
    }

    @Test func deletionTravelsAsOneBatch() async throws {
        let house = try await Household()
        for number in 0..<5 { try house[0].write("Letters/\(number).txt", "\(number)") }
        try house[0].write("other.txt", "stays")
        try await house.settle()
        try house[1].remove("Letters")
        #expect(try await house.expectEqual() == ["other.txt": "stays"])
        let deleted = try await house[0].container.trash.list()
        #expect(deleted.count == 1)
        try await house[0].container.trash.restore()
        #expect(try await house.expectEqual().count == 7)
    }

    @Test func foldersSwapNames() async throws {
        let house = try await Household()
        try house[0].write("a/1.txt", "1")
        try house[0].write("b/2.txt", "2")
        try await house.settle()
        for device in [1, 0] {
            let id = try await house[0].id(of: "a")
            try house[device].move("a", "c")
            try house[device].move("b", "a")
            try house[device].move("c", "b")
            try await house.expectEqual()
            #expect(try await house[0].id(of: "b") == id)
        }
        #expect(house[1].read("a/1.txt") == "1" && house[1].read("b/2.txt") == "2")
    }

    @Test func parentAndChildChangePlaces() async throws {
        let house = try await Household()
        try house[0].write("a/b/1.txt", "1")
        try house[0].write("a/2.txt", "2")
        try await house.settle()
        try house[0].move("a/b", "b")
        try house[0].move("a", "b/a")
        let tree = try await house.expectEqual()
        #expect(tree == ["b": "folder", "b/a": "folder", "b/1.txt": "1", "b/a/2.txt": "2"])
    }

    @Test func fileBecomesFolderAndBack() async throws {
        let house = try await Household()
        try house[0].write("a", "file")
        try await house.settle()
        try house[0].remove("a")
        try house[0].write("a/b", "inside")
        #expect(try await house.expectEqual() == ["a": "folder", "a/b": "inside"])
        try house[1].remove("a")
        try house[1].write("a", "file again")
        #expect(try await house.expectEqual() == ["a": "file again"])
    }

    @Test func linksModesAndNamesAreKept() async throws {
        let house = try await Household()
        try house[0].write("run.sh", "#!/bin/sh")
        #expect(chmod(house[0].path + "/run.sh", 0o755) == 0)
        #expect(symlink("/nowhere/at all", house[0].path + "/link") == 0)
        try house[0].write("Makefile", "upper")
        try house[0].write("makefile", "lower")
        try house[0].write(String(repeating: "x", count: 255), "long name")
        try house[0].write("trailing. ", "dots")
        try await house.expectEqual()
        #expect(try house[1].tree()["run.sh"] == "* #!/bin/sh")
        #expect(try house[1].tree()["link"] == "link to /nowhere/at all")
        #expect(chmod(house[1].path + "/run.sh", 0o644) == 0)
        #expect(unlink(house[1].path + "/link") == 0 && symlink("elsewhere", house[1].path + "/link") == 0)
        try await house.expectEqual()
        #expect(try house[0].tree()["run.sh"] == "#!/bin/sh")
        #expect(try house[0].tree()["link"] == "link to elsewhere")
    }

    @Test func nosyncStaysAlsoIfItsFolderIsDeleted() async throws {
        let house = try await Household()
        try house[0].write("Build/a.txt", "a")
        try house[0].write("Build/cache.nosync/big", "big")
        try house[0].write("Build/.DS_Store", "junk")
        try await house.settle()
        #expect(try house[1].tree() == ["Build": "folder", "Build/a.txt": "a"])
        try house[1].remove("Build")
        try await house.settle()
        #expect(try house[1].tree() == [:])
        #expect(house[0].read("Build/cache.nosync/big") == "big" && house[0].read("Build/a.txt") == nil)
        // The folder is this device's alone, until another makes it again.
        try await house[0].restart()
        try await house.settle()
        #expect(try house[1].tree() == [:])
        try house[1].write("Build/b.txt", "b")
        try await house.settle()
        #expect(house[0].read("Build/cache.nosync/big") == "big" && house[0].read("Build/b.txt") == "b")
    }

    /// A device that has files of its own waits for the patterns of the others.
    @Test func newDeviceIgnoresWhatTheOthersDo() async throws {
        let house = try await Household(1)
        try house[0].write(".nephosignore", ".env\nBuild/\n")
        try house[0].write(".env", "mine")
        try await house.settle()
        try await house.addDevice("late") { path in
            try Data("theirs".utf8).write(to: URL(fileURLWithPath: path + "/.env"))
            try FileManager.default.createDirectory(atPath: path + "/Build", withIntermediateDirectories: true)
            try Data("new".utf8).write(to: URL(fileURLWithPath: path + "/new.txt"))
        }
        try await house.settle()
        #expect(house[0].read(".env") == "mine" && house[1].read(".env") == "theirs")
        #expect(try house[0].tree() == [".nephosignore": ".env\nBuild/\n", ".env": "mine", "new.txt": "new"])
    }

    /// Patterns that cannot be read hold new files back, so nothing that was moved may look deleted.
    @Test func unreadablePatternsDeleteNothing() async throws {
        let house = try await Household()
        try house[0].write("a.jpg", "a")
        try await house.expectEqual()
        #expect(symlink("/nowhere", house[0].path + "/.nephosignore") == 0)
        try await house[0].sync.pass()
        try house[0].makeFolder("2024")
        try house[0].move("a.jpg", "2024/a.jpg")
        for _ in 0..<20 {
            for number in 0..<2 { try await house[number].sync.pass() }
            try await house.cloud.settle()
            try await Task.sleep(for: .milliseconds(10))
        }
        #expect(house[1].read("a.jpg") == "a")
        try house[0].remove(".nephosignore")
        #expect(try await house.expectEqual() == ["2024": "folder", "2024/a.jpg": "a"])
    }

    @Test func newFileInAFolderOfIgnoredFilesIsSent() async throws {
        let house = try await Household()
        try house[0].write(".nephosignore", ".venv/\n")
        try await house.settle()
        try house[0].write("Project/.venv/bin", "x")
        try await house.settle()
        try house[0].write("Project/main.py", "main")
        try await house.settle()
        #expect(try house[1].tree().filter { $0.key.hasPrefix("Project/") } == ["Project/main.py": "main"])
        // The same after another device has deleted the folder.
        try house[1].remove("Project")
        try await house.settle()
        #expect(house[0].read("Project/main.py") == nil && house[0].read("Project/.venv/bin") == "x")
        try house[0].write("Project/again.py", "again")
        // The event of the file may be late.
        for _ in 0..<20 where house[1].read("Project/again.py") == nil { try await house.settle() }
        #expect(house[1].read("Project/again.py") == "again" && house[0].read("Project/.venv/bin") == "x")
    }

    @Test func junkGoesWithItsFolder() async throws {
        let house = try await Household()
        try house[0].write("Build/a.txt", "a")
        try house[0].write("Build/.DS_Store", "junk")
        try await house.settle()
        try house[1].remove("Build")
        #expect(try await house.expectEqual() == [:])
    }

    @Test func ignoredFilesStayOnTheirDevice() async throws {
        let house = try await Household()
        try house[0].write("kept.log", "synced before")
        try await house.expectEqual()
        try house[0].write(".nephosignore", "*.log\n/Build/\n!important.log\n")
        try house[0].write("a.log", "a")
        try house[0].write("important.log", "b")
        try house[0].write("Build/out/c.txt", "c")
        try house[0].write("Source/Build/d.txt", "d")
        try await house.settle()
        let files = try house[1].tree().filter { $0.value != "folder" }
        #expect(
            files == [
                ".nephosignore": "*.log\n/Build/\n!important.log\n", "kept.log": "synced before", "important.log": "b",
                "Source/Build/d.txt": "d",
            ])
        // Synced files stay synced, and files that are no longer ignored are sent.
        try house[1].write("kept.log", "changed")
        try house[1].write(".nephosignore", "a.log\n")
        try await house.settle()
        #expect(house[0].read("kept.log") == "changed" && house[1].read("Build/out/c.txt") == "c")
        #expect(house[1].read("a.log") == nil && house[0].read("a.log") == "a")
    }

    @Test func specialFilesAreNamedAndLeft() async throws {
        let house = try await Household()
        #expect(mkfifo(house[0].path + "/pipe", 0o600) == 0)
        try house[0].write("a.txt", "a")
        try await house.settle()
        #expect(try house[1].tree() == ["a.txt": "a"])
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["pipe"])
    }

    /// The list follows a folder that is moved.
    @Test func blockedFileIsListedWhereItIs() async throws {
        let house = try await Household()
        try house[0].makeFolder("Letters")
        #expect(mkfifo(house[0].path + "/Letters/pipe", 0o600) == 0)
        try await house.settle()
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["Letters/pipe"])
        try house[0].move("Letters", "Post")
        try await house.settle()
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["Post/pipe"])
    }

    @Test func equalFoldersBecomeOneWithoutConflict() async throws {
        let house = try await Household(1)
        try house[0].write("Letters/a.txt", "same")
        try house[0].write("Letters/b.txt", "ours")
        try await house.settle()
        let other = try await house.addDevice("late") { path in
            try FileManager.default.createDirectory(atPath: path + "/Letters", withIntermediateDirectories: true)
            try Data("same".utf8).write(to: URL(fileURLWithPath: path + "/Letters/a.txt"))
            try Data("theirs".utf8).write(to: URL(fileURLWithPath: path + "/Letters/b.txt"))
            try Data("new".utf8).write(to: URL(fileURLWithPath: path + "/Letters/c.txt"))
        }
        let tree = try await house.expectEqual()
        #expect(tree.count == 4 && tree["Letters/c.txt"] == "new")
        let conflicts = try await other.container.conflicts.list()
        #expect(conflicts.map(\.path) == ["/Documents/Letters/b.txt"])
        let contents = try await other.container.conflicts.versions(of: conflicts[0].id)
        #expect(contents.count == 2)
    }

    /// Without the server other devices' changes are not known.
    @Test func folderIsInSyncOnlyWhileTheServerAnswers() async throws {
        let house = try await Household()
        try house[0].write("a", "a")
        try await house.expectEqual()
        func report() throws -> FolderReport { try #require(try house[0].store.report(of: house[0].folder)) }
        #expect(try report().isProved && report().isConnected)
        house.cloud.disconnect(house[0].session)
        await house.cloud.advance(by: .seconds(120))
        try await house[0].sync.pass()
        #expect(try !report().isConnected)
        house.cloud.connect(house[0].session)
        await house.cloud.advance(by: .seconds(120))
        try await house.settle()
        #expect(try report().isProved && report().isConnected)
    }
}
