import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Rejected changes that are sent again.
@Suite(.timeLimit(.minutes(5))) struct RetryRejectedTests {
    private typealias Device = ContainerCloud.Device
    private static let path: ItemName = "/Documents/x"

    /// A body with two devices, a function that fills the plan, and one that makes room.
    private func withFullPlan(
        before: (Device) async throws -> Void = { _ in }, bytes: UInt64 = 1_000,
        rejected body: (_ one: Device) async throws -> Void,
        room then: (_ one: Device, _ two: Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await before(one)
            try await one.settle()
            try await two.settle()
            try cloud.setPlan(bytes: bytes)
            try await body(one)
            try await one.settle()
            try cloud.setPlan(bytes: 10_000_000)
            try await then(one, two)
        }
    }

    private func retry(_ device: Device, _ names: [ItemName]? = nil, expecting: [ItemName]) async throws {
        #expect(try await device.container.conflicts.retryRejected(names) == expecting)
        try await device.settle()
    }

    /// A short content travels in its request, a long one in chunks.
    @Test("A rejected content is sent again from the version it was made from", arguments: [2_000, 300_000])
    func retriedContentIsNoConflict(_ length: Int) async throws {
        let bytes = SplitMix64.bytes(length, seed: 1)
        try await withFullPlan {
            try await $0.container.put(Data("before".utf8), at: "x")
        } rejected: { one in
            try await one.container.put(bytes, at: "x")
            try await one.settle()
            // There is no room yet, and each attempt leaves one entry and one file.
            for _ in 0..<2 {
                let rejected = try await one.container.conflicts.rejected()
                #expect(rejected.map(\.key) == [Self.path] && rejected.first?.error.code == .quotaExceeded)
                let file = try #require(rejected.first?.keptFile)
                #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == bytes)
                #expect(one.contentFiles.count == 1)
                try await retry(one, [Self.path], expecting: [Self.path])
            }
        } room: { one, two in
            try await retry(one, ["/Documents/other"], expecting: [])
            try await retry(one, expecting: [Self.path])
            try await two.settle()
            #expect(try await one.container.conflicts.rejected().isEmpty)
            #expect(try await one.container.conflicts.list().isEmpty)
            #expect(try await two.container.read("x") == bytes)
        }
    }

    @Test("A retried change is a conflict where another device has written since")
    func retriedContentMeetsNewerOne() async throws {
        try await withFullPlan(
            before: { try await $0.container.put(Data("before".utf8), at: "x") }, bytes: 40_000,
            rejected: { try await $0.container.put(SplitMix64.bytes(300_000, seed: 1), at: "x") },
            room: { one, two in
                try await two.container.put(Data("theirs".utf8), at: "x")
                try await two.settle()
                try await one.settle()
                try await retry(one, expecting: [Self.path])
                #expect(try await one.container.conflicts.versions(of: "x").count == 2)
            })
    }

    /// The file may be there already, or be a new one. An app saves again and again while there is no room.
    @Test("Several rejected contents of one file become its versions", arguments: [true, false], [2_000, 300_000])
    func retriedContentsBecomeVersions(_ isThere: Bool, _ length: Int) async throws {
        let contents = (1...3).map { SplitMix64.bytes(length, seed: UInt64($0)) }
        try await withFullPlan {
            if isThere { try await $0.container.put(Data("before".utf8), at: "x") }
        } rejected: { one in
            one.setOffline(true)
            for content in contents { try await one.container.put(content, at: "x") }
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.conflicts.rejected().count == 3)
        } room: { one, two in
            try await retry(one, expecting: [Self.path])
            try await two.settle()
            #expect(try await one.container.conflicts.rejected().isEmpty)
            #expect(try await two.container.conflicts.list().isEmpty)
            #expect(try await two.container.read("x") == contents[2])
            let versions = try await two.container.versions.list(of: "x").count
            #expect(versions == (isThere ? 4 : 3))
        }
    }

    /// A large content is rejected, and a small one that comes after it makes the file.
    @Test("A rejected content of a file that exists by now is kept as a conflict")
    func retriedCreationKeepsBoth() async throws {
        try await withFullPlan(bytes: 40_000) { one in
            one.setOffline(true)
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "x")
            try await one.container.put(Data("small".utf8), at: "x")
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.text("x") == "small")
        } room: { one, _ in
            try await retry(one, expecting: [Self.path])
            let versions = try await one.container.conflicts.versions(of: "x").map(\.size)
            #expect(versions.sorted() == [5, 300_000])
        }
    }

    /// Each is a creation of its own, with its own id, and at one place.
    @Test("Files that were created at one path become versions of one file")
    func creationsAtOnePathAreOneFile() async throws {
        let contents = (1...2).map { SplitMix64.bytes(300_000, seed: UInt64($0)) }
        try await withFullPlan {
            try await $0.container.makeFolder(at: "a")
        } rejected: { one in
            for content in contents {
                try await one.container.put(content, at: "a/x")
                try await one.settle()
            }
            // Another file of this path is elsewhere by now.
            try await one.container.move("a", to: "b")
            try await one.container.makeFolder(at: "a")
            try await one.container.put(Data(repeating: 3, count: 2_000), at: "a/x")
            try await one.settle()
            #expect(try await one.container.conflicts.rejected().count == 3)
        } room: { one, _ in
            try await one.container.conflicts.retryRejected()
            try await one.settle()
            #expect(try await one.container.conflicts.rejected().isEmpty)
            #expect(try await one.container.conflicts.list().isEmpty)
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/x", "/Documents/b", "/Documents/b/x"])
            #expect(try await one.container.read("b/x") == contents[1])
            #expect(try await one.container.read("a/x") == Data(repeating: 3, count: 2_000))
        }
    }

    @Test("A change whose condition did not hold is not sent again")
    func conditionalChangeStaysRejected() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.container.put(Data("1".utf8), at: "y")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            let conditions = DocumentCondition.asRead(try #require(try await two.container.item(at: "y")))
            try await two.container.put([.data(Data("2".utf8), at: "x")], conditions: conditions)
            try await one.container.put(Data("3".utf8), at: "y")
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let rejected = try #require(try await two.container.conflicts.rejected().first)
            #expect(rejected.key == Self.path && rejected.recovery?.hasPrefix("nephos docs put ") == true)
            try await retry(two, [Self.path], expecting: [])
            #expect(try await two.container.conflicts.rejected().count == 1)
        }
    }

    @Test("A change under conditions is not sent again without them, whatever it was rejected for")
    func conditionsStayWithTheirChange() async throws {
        try await withFullPlan {
            try await $0.container.put(Data("1".utf8), at: "y")
        } rejected: { one in
            let conditions = DocumentCondition.asRead(try #require(try await one.container.item(at: "y")))
            try await one.container.put([.data(Data(count: 2_000), at: "x")], conditions: conditions)
        } room: { one, _ in
            #expect(try await one.container.conflicts.rejected().map(\.error.code) == [.quotaExceeded])
            try await retry(one, expecting: [])
        }
    }

    @Test("A dropped change is sent again only by its name")
    func droppedChangeNeedsItsName() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try await one.container.pauses.pause("x")
            try await one.container.put(Data("2".utf8), at: "x")
            try await one.container.pauses.resume("x", with: .dropLocalChanges)
            try await one.settle()
            #expect(try await one.text("x") == "1")
            try await retry(one, expecting: [])
            try await retry(one, [Self.path], expecting: [Self.path])
            #expect(try await one.text("x") == "2")
        }
    }

    @Test("A file in a removed folder is sent again only by its path")
    func fileOfRemovedFolderNeedsItsName() async throws {
        try await withFullPlan {
            try await $0.container.makeFolder(at: "a")
        } rejected: { one in
            try await one.container.put(Data(count: 2_000), at: "a/x")
            try await one.settle()
            try await one.container.trash(["a"])
        } room: { one, _ in
            let rejected = try await one.container.conflicts.rejected().map(\.key)
            #expect(rejected.count == 1)
            try await retry(one, expecting: [])
            try await retry(one, rejected, expecting: rejected)
            #expect(try await one.container.conflicts.rejected().isEmpty)
        }
    }

    /// Two processes may have listed it before either sent it.
    @Test("A change that another process has sent again, or dismissed, is not sent twice", arguments: [2_000, 300_000])
    func changeIsTakenOnce(_ length: Int) async throws {
        let bytes = SplitMix64.bytes(length, seed: 1)
        try await withFullPlan {
            try await $0.container.put(bytes, at: "x")
        } room: { one, two in
            let listed = try one.container.handle.read { try $0.refusals() }
            let refusal = try #require(listed.first)
            one.setOffline(true)
            for isFirst in [true, false] {
                let isRetried = try await one.container.handle.change { draft in
                    var retried = RetriedChanges()
                    return try draft.retry(refusal, after: &retried, wasNamed: true)
                }
                #expect(isRetried == isFirst)
            }
            #expect(try await one.container.scope.status().pending.count == 1)
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            #expect(try await two.container.read("x") == bytes)
            #expect(try await two.container.versions.list(of: "x").count == 1)
        }
    }

    /// The same bytes under another version do, also where they are too short for chunks.
    @Test("A rejected file that is put again by hand is not listed any more", arguments: [3, 300_000])
    func putByHandSettles(_ length: Int) async throws {
        let bytes = SplitMix64.bytes(length, seed: 1)
        try await withFullPlan(bytes: 1) {
            try await $0.container.put(bytes, at: "x")
        } room: { one, _ in
            #expect(try await one.container.conflicts.rejected().count == 1)
            try await one.container.put(bytes, at: "x")
            try await one.settle()
            #expect(try await one.container.conflicts.rejected().isEmpty)
        }
    }
}
