import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Items that two devices make under one name, one of them offline, become one.
@Suite struct MergerTests {
    /// Two devices; what happens on the second while it is offline, and what on the first meanwhile.
    private func whileOffline(
        there: (ContainerCloud.Device) async throws -> Void, here: (ContainerCloud.Device) async throws -> Void,
        then: (ContainerCloud.Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await there(two)
            try await here(one)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
            let paths = try await two.paths()
            #expect(try await one.paths() == paths)
            #expect(try await two.container.scope.status().refused.isEmpty)
            try await then(two)
        }
    }

    @Test func laterChangesReachTheSurvivingFolder() async throws {
        var folder: DocumentID?
        try await whileOffline { two in
            folder = try await two.container.makeFolder(at: "P").id
            try await two.container.put(
                [.data(Data("two".utf8), at: "P/two"), .data(Data("1".utf8), at: "P/Q/x")], makesFolders: true)
            try await two.container.put([.data(Data("e".utf8), at: "e")])
            try await two.container.move("e", to: "P/e")
        } here: { (one) async throws in
            try await one.container.put(
                [.data(Data("one".utf8), at: "P/one"), .data(Data("1".utf8), at: "P/Q/x")], makesFolders: true)
        } then: { (two) async throws in
            let names = ["/P", "/P/Q", "/P/Q/x", "/P/e", "/P/one", "/P/two"]
            #expect(try await two.paths() == names.map { "/Documents" + $0 })
            // Who knows the merged folder by its id finds the surviving one.
            let id = try #require(folder)
            let found = try await two.container.item(at: id)
            #expect(found?.path == "/Documents/P" && found?.id != id)
        }
    }

    @Test func deletingUnsentItemsDeletesNoOthers() async throws {
        try await whileOffline { two in
            try await two.container.makeFolder(at: "P")
            try await two.container.put([.data(Data("two".utf8), at: "f")])
            try await two.container.makeFolder(at: "own")
            let batch = try await two.container.trash(["P", "f", "own"])
            try await two.container.trash.remove(batch)
        } here: { (one) async throws in
            try await one.container.put(
                [.data(Data("one".utf8), at: "P/x"), .data(Data("one".utf8), at: "f")], makesFolders: true)
        } then: { (two) async throws in
            // The folder that nobody else has made is gone.
            #expect(try await two.paths() == ["/Documents/P", "/Documents/P/x", "/Documents/f"])
            #expect(try await two.text("f") == "one")
            #expect(try await two.container.trash.list().isEmpty)
            #expect(try await two.container.outbox.names().isEmpty)
        }
    }

    @Test func movingUnsentItemsMovesNoOthers() async throws {
        try await whileOffline { two in
            try await two.container.put([.data(Data("two".utf8), at: "notes.txt")])
            try await two.container.makeFolder(at: "P")
            try await two.container.makeFolder(at: "other")
            try await two.container.move("notes.txt", to: "other/x.txt")
            try await two.container.move("P", to: "other")
            try await two.container.put([.data(Data("y".utf8), at: "other/P/y")])
        } here: { (one) async throws in
            try await one.container.put([.data(Data("one".utf8), at: "notes.txt")])
            try await one.container.makeFolder(at: "P")
        } then: { (two) async throws in
            let paths = ["/Documents/P", "/Documents/P/y", "/Documents/notes.txt", "/Documents/other"]
            #expect(try await two.paths() == paths)
            let (text, conflicts) = (
                try await two.text("notes.txt"), try await two.container.conflicts.versions(of: "notes.txt")
            )
            #expect(text == "one" && conflicts.count == 2)
        }
    }

    @Test func aLaterVersionOfAnEqualFileIsNoConflict() async throws {
        try await whileOffline { two in
            try await two.container.put([.data(Data("equal".utf8), at: "s.txt")])
            try await two.container.put([.data(Data("later".utf8), at: "s.txt")])
        } here: { (one) async throws in
            try await one.container.put([.data(Data("equal".utf8), at: "s.txt")])
        } then: { (two) async throws in
            #expect(try await two.paths() == ["/Documents/s.txt"])
            let (text, conflicts) = (
                try await two.text("s.txt"), try await two.container.conflicts.versions(of: "s.txt")
            )
            #expect(text == "later" && conflicts.count == 1)
        }
    }

    @Test func unequalFilesAreVersionsInConflict() async throws {
        let long = Data((0..<400_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) })
        try await whileOffline { two in
            try await two.container.put([.data(long, at: "s.bin")])
        } here: { (one) async throws in
            try await one.container.put([.data(Data("short".utf8), at: "s.bin")])
        } then: { (two) async throws in
            #expect(try await two.paths() == ["/Documents/s.bin"])
            let conflicts = try await two.container.conflicts.versions(of: "s.bin")
            #expect(conflicts.map(\.standing) == [.current, .conflict])
            let lost = try #require(conflicts.last)
            #expect(try await two.container.read("s.bin", version: lost.id) == long)
        }
    }

    @Test func aFileAndAFolderOfOneNameStayTwo() async throws {
        try await whileOffline { two in
            try await two.container.makeFolder(at: "s")
        } here: { (one) async throws in
            try await one.container.put([.data(Data("file".utf8), at: "s")])
        } then: { (two) async throws in
            let paths = try await two.paths()
            #expect(paths == ["/Documents/s", "/Documents/s 2"])
        }
    }
}
