import Foundation
import NephosAgent
import NephosCore
import NephosKit
import NephosTestKit
import Testing

/// Files that the server rejects stay on disk, and are sent again once.
@Suite struct RejectedTests {
    private func large() -> String {
        (0..<5000).map { _ in UUID().uuidString }.joined()
    }

    private func household(retry: Duration = .seconds(3600)) async throws -> Household {
        var options = AgentOptions()
        options.rejectedRetry = retry
        let house = try await Household(options: options)
        try house[0].write("small.txt", "small")
        try await house.expectEqual()
        try house.cloud.setPlan(bytes: 20_000, of: "anna")
        return house
    }

    private func rejected(_ house: Household) async throws -> [String] {
        try await house[0].container.conflicts.rejected().map(\.key.rawValue)
    }

    /// Runs passes until this number of files has been rejected. A household whose files are sent again every few milliseconds
    /// need not settle before they have room.
    private func awaitRejected(_ count: Int, _ house: Household) async throws {
        for _ in 0..<1000 {
            for device in house.devices { try await device.sync.pass() }
            try await house.cloud.settle()
            if try house[0].store.blocked(in: house[0].folder).count == count { return }
        }
        Issue.record("Not rejected: \(try house[0].store.blocked(in: house[0].folder))")
    }

    @Test func rejectedFileIsNotSentAgainAtEachStart() async throws {
        let house = try await household()
        let text = large()
        try house[0].write("new.txt", text)
        try house[0].write("Folder/inner.txt", text)
        try house[0].write("small.txt", text)
        for _ in 0..<3 {
            try await house.settle()
            try await house[0].restart()
        }
        try await house.settle()
        let paths = ["/Documents/Folder/inner.txt", "/Documents/new.txt", "/Documents/small.txt"]
        #expect(try await rejected(house).sorted() == paths)
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text).count == 3)
        #expect(house[0].read("small.txt") == text && house[1].read("small.txt") == "small")
    }

    /// Another device deletes a file that was moved here. There is nothing to decide.
    @Test func moveOfADeletedFileIsNotListed() async throws {
        let house = try await Household()
        try house[0].write("Letters/a.txt", "a")
        try house[0].write("Folder/b.txt", "b")
        try await house.expectEqual()
        house.cloud.disconnect(house[0].session)
        try house[0].move("Letters/a.txt", "a.txt")
        for _ in 0..<3 { try await house[0].sync.pass() }
        try house[1].remove("Letters")
        for _ in 0..<30 {
            try await house[1].sync.pass()
            try? await house.cloud.settle(within: .seconds(1))
            try await Task.sleep(for: .milliseconds(100))
        }
        house.cloud.connect(house[0].session)
        try await house.settle()
        #expect(try await house.expectEqual()["Folder/b.txt"] == "b")
        #expect(try await rejected(house) == [])
    }

    /// A file that was read in the moment of its last write is read once more a second later.
    @Test func rejectionIsStillSaidWhenTheFileIsReadAgain() async throws {
        let house = try await household()
        try house[0].write("small.txt", large())
        try await awaitRejected(1, house)
        let end = ContinuousClock.now + .milliseconds(1500)
        while ContinuousClock.now < end {
            try await house[0].sync.pass()
            try await Task.sleep(for: .milliseconds(50))
        }
        #expect(try house[0].store.blocked(in: house[0].folder).map(\.text) == ["small.txt"])
        // Another device's item of this name waits, and is no work.
        try house[1].remove("small.txt")
        try await house.settle()
        try house[1].write("small.txt", "other")
        try await house.settle()
    }

    @Test func savedFileTakesThePlaceOfItsRejectedContent() async throws {
        let house = try await household()
        try house[0].write("new.txt", large())
        try house[0].write("small.txt", large())
        try await house.settle()
        try house[0].write("small.txt", large())
        try await house.settle()
        #expect(try await rejected(house).sorted() == ["/Documents/new.txt", "/Documents/small.txt"])
        try house[0].write("new.txt", "new")
        try house[0].write("small.txt", "smaller")
        #expect(try await house.expectEqual() == ["new.txt": "new", "small.txt": "smaller"])
        #expect(try await rejected(house) == [])
        #expect(try await house[1].container.conflicts.list().isEmpty)
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    @Test func rejectedFileIsSentOnceThereIsRoom() async throws {
        let house = try await household(retry: .milliseconds(50))
        let text = large()
        try house[0].write("new.txt", text)
        try house[0].write("small.txt", text)
        try await awaitRejected(2, house)
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        try await Task.sleep(for: .milliseconds(60))
        #expect(try await house.expectEqual() == ["new.txt": text, "small.txt": text])
        #expect(try await rejected(house) == [])
        #expect(try await house[1].container.conflicts.list().isEmpty)
        #expect(try house[0].store.blocked(in: house[0].folder).isEmpty)
    }

    @Test func rejectedFileIsSentAfterARestartToo() async throws {
        let house = try await household(retry: .milliseconds(50))
        let text = large()
        try house[0].write("new.txt", text)
        try await awaitRejected(1, house)
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        try await house[0].restart()
        try await house.settle()
        try await Task.sleep(for: .milliseconds(60))
        #expect(try await house.expectEqual() == ["new.txt": text, "small.txt": "small"])
    }

    /// Its content is nowhere else, so nothing takes its place.
    @Test func rejectedFileStaysWhenAnotherOfItsNameComes() async throws {
        let house = try await household()
        let text = large()
        try house[0].write("new.txt", text)
        try await house.settle()
        try house[1].write("new.txt", "theirs")
        try await house.settle()
        #expect(house[0].read("new.txt") == text && house[1].read("new.txt") == "theirs")
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        try await house[0].container.conflicts.retryRejected()
        try await house.expectEqual()
        let id = try await house[0].id(of: "new.txt")
        #expect(try await house[1].container.conflicts.versions(of: id).count == 2)
    }

    @Test func rejectedFileIsDeletedWithItsRejection() async throws {
        let house = try await household()
        try house[0].write("new.txt", large())
        try house[0].write("small.txt", large())
        try await house.settle()
        try house[0].remove("new.txt")
        try house[0].remove("small.txt")
        #expect(try await house.expectEqual() == [:])
        #expect(try await rejected(house) == [])
    }

    @Test func rejectedFileBringsItsFolderBack() async throws {
        let house = try await household()
        try house[0].write("Letters/a.txt", "a")
        try await house.expectEqual()
        let text = large()
        try house[0].write("Letters/new.txt", text)
        try await house.settle()
        try house[1].remove("Letters")
        try await house.settle()
        #expect(house[0].read("Letters/new.txt") == text && house[0].read("Letters/a.txt") == nil)
        #expect(try house[1].tree()["Letters"] == "folder")
        #expect(try await rejected(house) == ["/Documents/Letters/new.txt"])
    }

    /// Another item takes the name while the agent does not run, and the user dismisses the rejection meanwhile.
    @Test func dismissedFileIsNotRemovedForAnotherOfItsName() async throws {
        let house = try await household()
        try house[0].write("other.txt", "other")
        try await house.expectEqual()
        let text = large()
        try house[0].write("small.txt", text)
        try await house.settle()
        try house[1].remove("small.txt")
        try await house.settle()
        try house[1].move("other.txt", "small.txt")
        try await house.settle()
        #expect(house[0].read("small.txt") == text)
        try await house[0].container.conflicts.dismissRejected()
        try await house[0].restart()
        try await house.settle()
        // The other item has the name, and the file another.
        let tree = try house[0].tree()
        #expect(tree["small.txt"] == "other" && tree.values.contains(text), "\(tree.keys)")
    }

    @Test func twoRejectedSavesAreDroppedTogether() async throws {
        let house = try await household()
        house.cloud.disconnect(house[0].session)
        for _ in 0..<2 {
            try house[0].write("new.txt", large())
            for _ in 0..<3 {
                try await house[0].sync.scanAll()
                try await house[0].sync.pass()
            }
        }
        house.cloud.connect(house[0].session)
        try await house.settle()
        try house[0].write("new.txt", "new")
        #expect(try await house.expectEqual()["new.txt"] == "new")
        #expect(try await rejected(house) == [])
    }

    @Test func dismissedFileIsStillWanted() async throws {
        let house = try await household()
        let text = large()
        try house[0].write("small.txt", text)
        try await house.settle()
        try await house[0].container.conflicts.dismissRejected()
        try await house.settle()
        #expect(house[0].read("small.txt") == text)
        try house[1].write("small.txt", "other")
        try await house.settle()
        try house.cloud.setPlan(bytes: 100_000_000, of: "anna")
        try await house[0].container.conflicts.retryRejected()
        try await house.settle()
        // Both were written at once.
        #expect(try await house[0].container.conflicts.list().map(\.path) == ["/Documents/small.txt"])
    }
}
