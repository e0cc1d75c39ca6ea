import Foundation
import NephosAgent
import NephosCore
import NephosKit
import NephosTestKit
import Testing

/// Two devices change one thing before either has heard of the other.
@Suite struct ClashTests {
    @Test func bothEditsAreKept() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "base")
        try await house.settle()
        try house[0].write("a.txt", "mine")
        try house[1].write("a.txt", "theirs")
        let tree = try await house.expectEqual()
        let id = try await house[0].id(of: "a.txt")
        var contents: Set<String> = []
        for version in try await house[0].container.conflicts.versions(of: id) {
            let data = try await house[0].container.read("a.txt", version: version.id)
            contents.insert(String(decoding: data, as: UTF8.self))
        }
        #expect(contents == ["mine", "theirs"])
        #expect(contents.contains(try #require(tree["a.txt"])))
    }

    @Test func equalEditsAreNoConflict() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "base")
        try await house.settle()
        for device in [0, 1] { try house[device].write("a.txt", "same") }
        #expect(try await house.expectEqual() == ["a.txt": "same"])
        #expect(try await house[0].container.conflicts.list().isEmpty)
    }

    @Test func editSurvivesDeletion() async throws {
        let house = try await Household()
        for number in 0..<3 { try house[0].write("Letters/\(number).txt", "base") }
        try await house.settle()
        try house[0].write("Letters/1.txt", "edited")
        try house[1].remove("Letters")
        let tree = try await house.expectEqual()
        // The server refuses to delete a folder with a change that the device had not seen.
        #expect(tree["Letters/1.txt"] == "edited")
    }

    @Test func newFileSurvivesDeletionOfItsFolder() async throws {
        let house = try await Household()
        for number in 0..<3 { try house[0].write("a/b/\(number).txt", "base") }
        try await house.settle()
        try house[0].write("a/b/new.txt", "new")
        try house[0].write("a/b/c/d.txt", "deep")
        try house[1].remove("a")
        let tree = try await house.expectEqual()
        #expect(
            tree == ["a": "folder", "a/b": "folder", "a/b/new.txt": "new", "a/b/c": "folder", "a/b/c/d.txt": "deep"])
    }

    @Test func bothMovesKeepTheFile() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "a")
        for name in ["x", "y"] { try house[0].makeFolder(name) }
        try await house.settle()
        try house[0].move("a.txt", "x/a.txt")
        try house[1].move("a.txt", "y/a.txt")
        let tree = try await house.expectEqual()
        #expect(tree.values.filter { $0 == "a" }.count == 1)
    }

    @Test func moveAndEditMerge() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "base")
        try await house.settle()
        try house[0].move("a.txt", "b.txt")
        try house[1].write("a.txt", "edited")
        #expect(try await house.expectEqual() == ["b.txt": "edited"])
    }

    @Test func movesIntoEachOtherLoseNothing() async throws {
        let house = try await Household()
        try house[0].write("a/1.txt", "1")
        try house[0].write("b/2.txt", "2")
        try await house.settle()
        try house[0].move("a", "b/a")
        try house[1].move("b", "a/b")
        let tree = try await house.expectEqual()
        #expect(tree.values.filter { $0 != "folder" }.sorted() == ["1", "2"])
    }

    @Test func twoNewFilesOfOneName() async throws {
        let house = try await Household()
        try house[0].write("Letters/a.txt", "mine")
        try house[1].write("Letters/a.txt", "theirs")
        try house[1].write("Letters/b.txt", "other")
        let tree = try await house.expectEqual()
        #expect(tree.count == 3)
        let id = try await house[0].id(of: "Letters/a.txt")
        #expect(try await house[0].container.conflicts.versions(of: id).count == 2)
    }

    @Test func fileAndFolderOfOneName() async throws {
        let house = try await Household()
        try house[0].write("a", "file")
        try house[1].write("a/b.txt", "inside")
        let tree = try await house.expectEqual()
        #expect(tree.values.sorted() == ["file", "folder", "inside"])
    }

    @Test func movedFileAndNewFileOfOneName() async throws {
        let house = try await Household()
        try house[0].write("a.txt", "moved")
        try await house.settle()
        try house[0].move("a.txt", "b.txt")
        try house[1].write("b.txt", "new")
        // Files of one name become one item with a conflict.
        let tree = try await house.expectEqual()
        #expect(tree.count == 1)
        let id = try await house[0].id(of: "b.txt")
        #expect(try await house[0].container.conflicts.versions(of: id).count == 2)
    }

    @Test func folderThatAnotherDeviceChangedComesBackWithoutAQuestion() async throws {
        let house = try await Household()
        try house[0].write("Letters/a.txt", "a")
        try await house.settle()
        house.cloud.disconnect(house[0].session)
        try house[0].remove("Letters")
        // Once to see it, once to send it.
        for _ in 0..<2 {
            try await house[0].sync.scanAll()
            try await house[0].sync.pass()
        }
        try house[1].write("Letters/b.txt", "b")
        for _ in 0..<2 {
            try await house[1].sync.pass()
            await house.cloud.advance(by: .seconds(5))
        }
        house.cloud.connect(house[0].session)
        let tree = try await house.expectEqual()
        #expect(tree["Letters/b.txt"] == "b")
        #expect(try await house[0].container.conflicts.rejected().isEmpty)
    }
}
