import Foundation
import NephosAgent
import NephosCore
import NephosFiles
import NephosKit
import NephosTestKit
import Synchronization
import Testing

/// Files whose contents are not on a device.
@Suite struct EvictionTests {
    private static let large = String(repeating: "large ", count: 4000)

    private func request(
        _ path: String, evicts: Bool, _ house: Household, device: Int = 0
    ) async throws -> ContentRequest.Outcome {
        let device = house[device]
        let names = path.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }
        let request = try device.store.request(names, evicts: evicts, in: device.folder)
        for _ in 0..<2000 {
            try await device.sync.pass()
            try await house.cloud.settle()
            if try device.store.isDone(request) { return try #require(try device.store.end(request)) }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw CloudError(.deadlineExceeded, "The request is not carried out.")
    }

    private func household(_ files: [String: String] = ["Folder/file.txt": large]) async throws -> Household {
        let house = try await Household()
        for (path, text) in files { try house[0].write(path, text) }
        try await house.expectEqual()
        return house
    }

    private func versions(_ house: Household, _ path: String) async throws -> Int {
        try await house[1].container.versions.list(of: path).count
    }

    @Test func evictedFileIsHereByNameAndComesBack() async throws {
        let house = try await household()
        #expect(try await request("Folder", evicts: true, house).files == 1)
        #expect(try house[0].tree().keys.sorted() == ["Folder", "Folder/file.txt.nephos"])
        #expect(try #require(house[0].read("Folder/file.txt.nephos")).contains("nephos agent download"))
        // The other device has it as before, and nothing was sent.
        try await house.settle()
        #expect(house[1].read("Folder/file.txt") == Self.large)
        let back = try await request("Folder/file.txt", evicts: false, house)
        #expect(back.files == 1 && back.failureCount == 0)
        #expect(try await house.expectEqual() == ["Folder": "folder", "Folder/file.txt": Self.large])
        #expect(try await versions(house, "Folder/file.txt") == 1)
    }

    /// A file's own name may be that of another file's placeholder.
    @Test func fileWithThePlaceholdersNameOfAnotherComesOnDemand() async throws {
        let house = try await Household()
        try house[1].store.setPolicy(RoomPolicy(isOnDemand: true), of: house[1].folder)
        try house[0].write("x", Self.large)
        try await house.settle()
        #expect(try house[1].tree().keys.sorted() == ["x.nephos"])
        try house[0].write("x.nephos", Self.large + "another")
        try await house.settle()
        _ = try await request("", evicts: false, house, device: 1)
        #expect(try await house.expectEqual() == ["x": Self.large, "x.nephos": Self.large + "another"])
    }

    /// Such files are never evicted, or each placeholder could be in another's way.
    @Test func filesThatAreCalledLikePlaceholdersAreAlwaysHere() async throws {
        let house = try await Household()
        try house[1].store.setPolicy(RoomPolicy(isOnDemand: true), of: house[1].folder)
        var files: [String: String] = [:]
        for (number, name) in ["x", "x.nephos", "x.nephos.nephos", "x.nephos.nephos.nephos"].enumerated() {
            files[name] = Self.large + "\(number)"
            try house[0].write(name, files[name] ?? "")
            try await house.settle()
        }
        #expect(try await house.expectEqual() == files)
        _ = try await request("", evicts: true, house, device: 1)
        try await house.settle()
        #expect(try house[1].tree() == files)
    }

    /// Also those in a folder that is gone.
    @Test func heldDeletionOfPlaceholdersBringsPlaceholdersBack() async throws {
        var options = AgentOptions()
        options.deletionsMax = 2
        let house = try await Household(options: options)
        for number in 0..<8 { try house[0].write("Folder/\(number).txt", Self.large + "\(number)") }
        try await house.expectEqual()
        #expect(try await request("Folder", evicts: true, house).files == 8)
        try house[0].remove("Folder")
        for _ in 0..<400 where try house[0].store.report(of: house[0].folder)?.heldDeletionCount ?? 0 == 0 {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(5))
        }
        try house[0].store.requestRestore(in: house[0].folder)
        try await house.settle()
        #expect(try house[0].tree().keys.sorted() == ["Folder"] + (0..<8).map { "Folder/\($0).txt.nephos" })
        #expect(try house[1].tree().count == 9)
    }

    @Test(arguments: [false, true]) func changesOfOtherDevicesReachAPlaceholder(restarts: Bool) async throws {
        let house = try await household()
        _ = try await request("Folder", evicts: true, house)
        try house[1].write("Folder/file.txt", Self.large + "more")
        try await house.settle()
        try house[1].move("Folder/file.txt", "moved.txt")
        if restarts { try await house[0].restart() }
        try await house.settle()
        #expect(try house[0].tree().keys.sorted() == ["Folder", "moved.txt.nephos"])
        _ = try await request("moved.txt", evicts: false, house)
        #expect(try await house.expectEqual()["moved.txt"] == Self.large + "more")
        _ = try await request("moved.txt", evicts: true, house)
        try house[1].remove("moved.txt")
        #expect(try await house.expectEqual() == ["Folder": "folder"])
    }

    @Test func aPlaceholderIsMovedRenamedAndDeletedAsTheFile() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b", "Folder/x": "x"])
        _ = try await request("", evicts: true, house)
        try house[0].move("a.txt.nephos", "Folder/c.txt.nephos")
        // Without the end of its name it gets that again.
        try house[0].move("b.txt.nephos", "d.txt")
        try await house.settle()
        #expect(
            try house[1].tree()
                == ["Folder": "folder", "Folder/x": "x", "Folder/c.txt": Self.large, "d.txt": Self.large + "b"])
        #expect(try house[0].tree().keys.sorted() == ["Folder", "Folder/c.txt.nephos", "Folder/x", "d.txt.nephos"])
        try house[0].remove("d.txt.nephos")
        try await house.settle()
        #expect(house[1].read("d.txt") == nil && house[1].read("Folder/c.txt") == Self.large)
    }

    /// No program's write is lost, and no placeholder is taken for a content.
    @Test func whatIsWrittenOverAPlaceholderIsKept() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b", "c.txt": Self.large + "c"])
        _ = try await request("", evicts: true, house)
        // A program writes the file by its own name: a new version of it.
        try house[0].write("a.txt", "new")
        // Text that is written into a placeholder is a file of that name. The item's own file comes.
        try house[0].write("b.txt.nephos", "text")
        // A copy of a placeholder has no content.
        try house[0].write("copy.txt.nephos", try #require(house[0].read("c.txt.nephos")))
        try await house.settle()
        #expect(house[1].read("a.txt") == "new" && house[0].read("a.txt") == "new")
        #expect(house[0].read("a.txt.nephos") == nil)
        #expect(try await versions(house, "a.txt") == 2)
        #expect(house[1].read("b.txt.nephos") == "text" && house[1].read("b.txt") == Self.large + "b")
        #expect(house[0].read("b.txt") == Self.large + "b")
        #expect(house[1].read("copy.txt.nephos") == nil && house[1].read("c.txt.nephos") == nil)
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["copy.txt.nephos"])
        try house[0].remove("copy.txt.nephos")
        _ = try await request("", evicts: false, house)
        try await house.expectEqual()
    }

    /// Each state that a kill may leave.
    @Test func whatAKillLeavesIsPutRight() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b", "c.txt": Self.large + "c"])
        _ = try await request("a.txt", evicts: true, house)
        let placeholder = try #require(house[0].read("a.txt.nephos"))
        let id = try await "\(house[0].id(of: "a.txt"))"
        func text(of path: String) async throws -> String {
            placeholder.replacing(id, with: "\(try await house[0].id(of: path))")
        }
        // The content has come, and the row is not written.
        try house[0].write("a.txt", Self.large)
        // The placeholder is written, and the row is not.
        try house[0].write("b.txt.nephos", try await text(of: "b.txt"))
        try await house[0].restart()
        #expect(try await house.expectEqual().count == 3)
        for path in ["a.txt", "b.txt"] { #expect(try await versions(house, path) == 1) }
        // The row is written, and the file is still there.
        _ = try await request("c.txt", evicts: true, house)
        try house[0].write("c.txt", Self.large + "c")
        try await house[0].restart()
        #expect(try await house.expectEqual().count == 3)
        #expect(try await versions(house, "c.txt") == 1)
    }

    /// The device that has sent a file has a copy in its home, which goes too. Without a server nothing goes.
    @Test func evictingFreesTheHomeAndNeedsTheServer() async throws {
        let house = try await household(["a.txt": String(repeating: Self.large, count: 4)])
        house.cloud.disconnect(house[0].session)
        let path = [Array("a.txt".utf8)]
        let early = try house[0].store.request(path, evicts: true, in: house[0].folder)
        for _ in 0..<3 { try await house[0].sync.pass() }
        #expect(house[0].read("a.txt") != nil)
        if let outcome = try house[0].store.end(early) { #expect(outcome.files == 0 && outcome.failureCount == 1) }
        house.cloud.connect(house[0].session)
        #expect(try await request("a.txt", evicts: true, house).bytes > 0)
        #expect(try house[0].session.contentCache().bytes == 0)
    }

    @Test func folderThatIsAddedAgainKnowsItsPlaceholders() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": "b"])
        _ = try await request("", evicts: true, house)
        try await house[0].addAgain()
        try await house.expectEqual()
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    @Test func onlyWhatTheServerHasIsEvicted() async throws {
        let house = try await household(["small.txt": "small", "open.txt": Self.large, "linked.txt": Self.large])
        try FileManager.default.linkItem(
            atPath: house[0].path + "/linked.txt", toPath: house[0].path + "/../link-of-it")
        let writer = try #require(FileHandle(forUpdatingAtPath: house[0].path + "/open.txt"))
        let outcome = try await request("", evicts: true, house)
        // A small file in a folder is not meant.
        #expect(outcome.files == 0 && outcome.failureCount == 2)
        #expect(try await request("small.txt", evicts: true, house).failureCount == 1)
        #expect(outcome.failures["open.txt"] == "A program has it open.")
        try writer.close()
        // A file that is not sent stays.
        try house[0].write("new.txt", Self.large)
        house.cloud.disconnect(house[0].session)
        try await house[0].sync.pass()
        let pending = try house[0].store.request([Array("new.txt".utf8)], evicts: true, in: house[0].folder)
        for _ in 0..<5 { try await house[0].sync.pass() }
        #expect(try !house[0].store.isDone(pending))
        #expect(house[0].read("new.txt") == Self.large)
        house.cloud.connect(house[0].session)
        let missing = try await request("none.txt", evicts: false, house, device: 1)
        #expect(missing.failureCount == 1)
    }

    @Test func filesComeAsPlaceholdersOnDemand() async throws {
        let house = try await household(["first.txt": Self.large])
        let lazy = house[1]
        try lazy.store.setPolicy(RoomPolicy(isOnDemand: true), of: lazy.folder)
        try await lazy.sync.pass()
        try house[0].write("large.txt", Self.large)
        try house[0].write("small.txt", "small")
        try house[0].write("Code/.git/HEAD", "head")
        try house[0].write("Code/large.txt", Self.large)
        try house[0].write("first.txt", Self.large + "more")
        try await house.settle()
        // A file that was here is kept up to date, and a checkout of git is whole.
        #expect(lazy.read("first.txt") == Self.large + "more" && lazy.read("small.txt") == "small")
        #expect(lazy.read("Code/large.txt") == Self.large)
        #expect(lazy.read("large.txt") == nil && lazy.read("large.txt.nephos") != nil)
        // A local file of the name is the file.
        try lazy.write("other.txt", Self.large)
        try house[0].write("other.txt", Self.large)
        _ = try await request("", evicts: false, house, device: 1)
        try await house.expectEqual()
        #expect(try await house[1].container.conflicts.list().isEmpty)
    }

    /// Files of the same names that two devices make at once become one item each, also where files come on demand.
    @Test func filesOfOneNameBecomeOneOnDemand() async throws {
        let house = try await household([:])
        let lazy = house[1]
        try lazy.store.setPolicy(RoomPolicy(isOnDemand: true), of: lazy.folder)
        try await lazy.sync.pass()
        house.cloud.disconnect(lazy.session)
        for number in 0..<12 {
            for (device, text) in [(house[0], "a"), (lazy, "b")] {
                try device.write("\(number)", Self.large + text)
            }
        }
        for device in house.devices {
            try await device.sync.scanAll()
            try await device.sync.pass()
        }
        try await house[0].container.waitUntilSent()
        house.cloud.connect(lazy.session)
        try await house.expectEqual()
    }

    /// A placeholder that is copied over a file takes nothing away.
    @Test func fileUnderACopyOfAPlaceholderComesBack() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": "b"])
        _ = try await request("a.txt", evicts: true, house)
        try house[0].write("b.txt", try #require(house[0].read("a.txt.nephos")))
        try await house.settle()
        #expect(house[0].read("b.txt") == "b" && house[1].read("b.txt") == "b")
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["b.txt.nephos"])
        try house[0].remove("b.txt.nephos")
        _ = try await request("", evicts: false, house)
        #expect(try await house.expectEqual().keys.sorted() == ["a.txt", "b.txt"])
    }

    @Test func filesThatWereNotOpenedForLongestMakeRoom() async throws {
        let free = Mutex(Int64(1_000_000))
        var options = AgentOptions()
        options.freeBytes = { free.withLock { $0 } }
        let house = try await Household(options: options)
        for name in ["new.txt", "old.txt", "small.txt"] {
            try house[0].write(name, name == "small.txt" ? "small" : Self.large + name)
        }
        try await house.expectEqual()
        var old = timespec()
        old.tv_sec = 1_000_000_000
        #expect(utimensat(AT_FDCWD, house[0].path + "/old.txt", [old, old], 0) == 0)
        try house[0].store.setPolicy(RoomPolicy(keptFreeBytes: 1_000_000), of: house[0].folder)
        try await house.settle()
        // Nothing goes while there is room. The test must not open the file.
        #expect(FileManager.default.fileExists(atPath: house[0].path + "/old.txt"))
        free.withLock { $0 = 999_000 }
        try await house[0].restart()
        try await house.settle()
        #expect(try house[0].tree().keys.sorted() == ["new.txt", "old.txt.nephos", "small.txt"])
        free.withLock { $0 = 0 }
        try await house[0].restart()
        try await house.settle()
        #expect(try house[0].tree().keys.sorted() == ["new.txt.nephos", "old.txt.nephos", "small.txt"])
        #expect(house[1].read("new.txt") == Self.large + "new.txt")
    }

    /// Under whatever name it is found.
    @Test func noTextOfAPlaceholderIsSent() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b", "other.txt": "other"])
        _ = try await request("a.txt", evicts: true, house)
        let text = try #require(house[0].read("a.txt.nephos"))
        for name in ["a.txt", "other.txt", "copy.txt", "a.txt.nephos~"] { try house[0].write(name, text) }
        try await house.settle()
        #expect(
            try house[1].tree() == ["a.txt": Self.large, "b.txt": Self.large + "b", "other.txt": "other"])
        #expect(try await versions(house, "a.txt") == 1)
        #expect(try house[0].store.blocked(in: house[0].folder).count == 4)
    }

    @Test func aPlaceholderThatTakesAnothersNameIsNotLost() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b"])
        _ = try await request("", evicts: true, house)
        try house[0].move("a.txt.nephos", "b.txt")
        try await house.settle()
        #expect(Set(try house[1].tree().values) == [Self.large, Self.large + "b"])
        _ = try await request("", evicts: false, house)
        #expect(try await house.expectEqual().count == 2)
    }

    @Test func aPlaceholderMovedOverAFileIsNotLost() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": "b"])
        _ = try await request("a.txt", evicts: true, house)
        #expect(rename(house[0].path + "/a.txt.nephos", house[0].path + "/b.txt") == 0)
        try await house.settle()
        #expect(try house[1].tree().values.contains(Self.large))
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
        _ = try await request("", evicts: false, house)
        try await house.expectEqual()
    }

    /// A copy of a placeholder must not keep the file from being deleted.
    @Test func fileWithACopiedPlaceholderIsDeleted() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": "b"])
        _ = try await request("a.txt", evicts: true, house)
        try house[0].write("copy.nephos", try #require(house[0].read("a.txt.nephos")))
        try await house.settle()
        _ = try await request("a.txt", evicts: false, house)
        try house[0].remove("a.txt")
        try await house.settle()
        #expect(try house[1].tree() == ["b.txt": "b"])
    }

    /// As file managers and rsync do between disks, and within one.
    @Test func placeholdersThatAreMovedByCopyingStay() async throws {
        let house = try await household(["Videos/a": Self.large, "Videos/b": Self.large + "b"])
        _ = try await request("", evicts: true, house)
        for name in ["a", "b"] {
            try house[0].write("Archive/\(name).nephos", try #require(house[0].read("Videos/\(name).nephos")))
        }
        try await house[0].sync.pass()
        try house[0].remove("Videos")
        try await house.settle()
        #expect(
            try house[1].tree() == ["Archive": "folder", "Archive/a": Self.large, "Archive/b": Self.large + "b"])
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    @Test func deletedPlaceholderTakesNoUnseenEditWithIt() async throws {
        let house = try await household(["a.txt": Self.large])
        _ = try await request("", evicts: true, house)
        try house[0].remove("a.txt.nephos")
        try house[1].write("a.txt", Self.large + "edited")
        // Sent before the other device's agent looks.
        try await house[1].sync.scanAll()
        try await house[1].sync.pass()
        try await house.cloud.settle()
        #expect(try await versions(house, "a.txt") == 2)
        try await house[0].restart()
        try await house.settle()
        #expect(house[1].read("a.txt") == Self.large + "edited")
    }

    /// The file is gone from the disk for good, and the row of the eviction with the power.
    @Test func evictionWhoseRowIsLostDeletesNothing() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": "b"])
        _ = try await request("", evicts: true, house)
        let text = try #require(house[0].read("a.txt.nephos"))
        _ = try await request("", evicts: false, house)
        try house[0].remove("a.txt")
        try house[0].write("a.txt.nephos", text)
        try await house[0].restart()
        try await house.settle()
        #expect(house[1].read("a.txt") == Self.large)
        #expect(try house[0].tree().keys.sorted() == ["a.txt.nephos", "b.txt"])
        _ = try await request("", evicts: false, house)
        try await house.expectEqual()
    }

    /// A file that only its owner may read does not come back for everybody.
    @Test func permissionsAreKept() async throws {
        let house = try await household(["secret.txt": Self.large])
        chmod(house[0].path + "/secret.txt", 0o600)
        try await house.settle()
        _ = try await request("", evicts: true, house)
        _ = try await request("", evicts: false, house)
        var status = stat()
        #expect(stat(house[0].path + "/secret.txt", &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    /// Names that no placeholder can have.
    @Test func filesWithoutAPlaceholderComeWhole() async throws {
        let house = try await household(["a.txt": Self.large, "b.txt": Self.large + "b", "c.txt.nephos": "c"])
        let lazy = house[1]
        try lazy.store.setPolicy(RoomPolicy(isOnDemand: true), of: lazy.folder)
        _ = try await request("", evicts: true, house, device: 1)
        // Its placeholder's name is another file's.
        try house[0].write("c.txt", Self.large + "c")
        try house[0].move("a.txt", "d.txt")
        try house[0].write("d.txt.nephos", "d")
        // Its placeholder's name is too long.
        let long = String(repeating: "x", count: 250)
        try house[0].move("b.txt", long)
        try await house.settle()
        #expect(lazy.read("c.txt") == Self.large + "c" && lazy.read("c.txt.nephos") == "c")
        #expect(lazy.read(long) == Self.large + "b")
        _ = try await request("", evicts: false, house, device: 1)
        #expect(try await house.expectEqual().count == 5)
    }

    /// Killed after the content was taken out of sight.
    @Test func contentThatWasBeingEvictedComesBack() async throws {
        let house = try await household(["Folder/a.txt": Self.large])
        _ = try await request("", evicts: true, house)
        let id = try await house[0].id(of: "Folder/a.txt")
        try house[0].write(".nephos/parked/\(id)", Self.large)
        try await house[0].restart()
        #expect(try await house.expectEqual() == ["Folder": "folder", "Folder/a.txt": Self.large])
        #expect(try await versions(house, "Folder/a.txt") == 1)
    }

    /// Contents wait in the folder, not as copies in the home.
    @Test func noMoreIsCopiedThanMayWait() async throws {
        var options = AgentOptions()
        options.unsentBytesMax = 100_000
        let house = try await Household(options: options)
        try await house.settle()
        house.cloud.disconnect(house[0].session)
        // Bytes that no chunk of another file has.
        let texts = (0..<20).map { number in
            (0..<10_000).map { String(($0 + 1) * (number + 7) * 7919 % 99_991) }.joined(separator: " ")
        }
        for (number, text) in texts.enumerated() { try house[0].write("\(number).txt", text) }
        for _ in 0..<5 { try await house[0].sync.pass() }
        let unsent = try house[0].container.tree().unsentBytes()
        #expect(unsent >= 100_000 && unsent < 400_000)
        house.cloud.connect(house[0].session)
        #expect(try await house.expectEqual().count == 20)
    }
}
