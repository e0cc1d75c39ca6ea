import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What several changes that were made together do to each other.
@Suite struct TogetherTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    /// Two devices; what happens on the second while it is offline, and what on the first meanwhile.
    private func whileOffline(
        begin: (ContainerCloud.Device) async throws -> Void, there: (ContainerCloud.Device) async throws -> Void,
        here: (ContainerCloud.Device) async throws -> Void, then: (ContainerCloud.Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await begin(one)
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
            try await then(two)
        }
    }

    /// One folder is made again for all of them, not one for each.
    @Test func whatWasPutTogetherIntoADeletedFolderStaysTogether() async throws {
        let names = (0..<30).map { "f/\($0)" }
        try await whileOffline { one in
            try await one.container.put(names.map { .data(Data("old".utf8), at: $0) }, makesFolders: true)
        } there: { two in
            try await two.container.put(
                names.map { .data(Data("new".utf8), at: $0) } + [.data(Data("deep".utf8), at: "f/g/x")],
                makesFolders: true)
        } here: { one in
            try await one.container.trash(["f"])
        } then: { two in
            let expected = (["f", "f/g", "f/g/x"] + names).map { "/Documents/" + $0 }
            let (paths, text) = (try await two.paths(), try await two.text("f/17"))
            #expect(paths == expected.sorted() && text == "new")
            #expect(try await two.container.scope.status().refused.isEmpty)
        }
    }

    @Test func twoContentsOfOneFileAreRefusedTogether() async throws {
        try await withContainers { cloud in
            try cloud.define { $0.names = .folded }
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "x")
            try await one.settle()
            // In this container the two are one name.
            for other in ["x", "X"] {
                let sources = [
                    DocumentSource.data(Data("1".utf8), at: "x"), DocumentSource.data(Data("2".utf8), at: other),
                ]
                await #expect { try await one.container.put(sources) } throws: {
                    ($0 as? CloudError)?.code == .alreadyExists
                }
                let results = try await one.container.localFiles.imports.putEach(sources, makesFolders: false)
                #expect(results.map { (try? $0.get()) != nil } == [true, false])
                try await one.settle()
                let item = try #require(try await one.container.item(at: "x"))
                #expect(item.conflictCount == 0)
                #expect(try await one.text("x") == "1")
            }
        }
    }

    /// The content that is sent yet is deleted with the folder, and does not bring it back.
    @Test(arguments: [false, true]) func whatIsDeletedWithItsFolderStaysDeleted(isNew: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(bytes(500_000, seed: 1), at: "f/g/x", makesFolders: true)
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(bytes(500_000, seed: 2), at: isNew ? "f/g/y" : "f/g/x")
            try await one.container.trash(["f"])
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            for device in [one, two] {
                #expect(try await device.paths().isEmpty)
                #expect(try await device.container.scope.status().refused.isEmpty)
            }
        }
    }

    /// However many it has put there itself, and however deep.
    @Test func aFolderOfManyOwnChangesIsDeleted() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            let folder = "f/a/b/c/d/e"
            try await one.container.put(
                (0..<600).map { .data(Data("\($0)".utf8), at: "\(folder)/\($0)") }, makesFolders: true)
            try await one.container.trash(["f"])
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.paths().isEmpty)
            #expect(try await one.container.scope.status().refused.isEmpty)
        }
    }

    /// However many wait for contents that cannot be sent, others are.
    @Test func manyThatWaitForContentsHoldUpNobodyElse() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            one.setOffline(true)
            let folder = try ContentFolder(home: one.session.home.path)
            for number in 0..<40 {
                let item = try await one.container.put(bytes(10_000, seed: UInt64(number)), at: "\(number)")
                let file = folder.file(try #require(item.version))
                // A folder cannot be read as a file.
                unlink(file)
                #expect(mkdir(file, 0o700) == 0)
            }
            try await one.container.makeFolder(at: "letters")
            one.setOffline(false)
            for _ in 0..<200 where try await two.paths().isEmpty {
                cloud.simulation.pass(.milliseconds(100))
                try await two.container.scope.waitUntilCurrent(timeout: .seconds(10))
            }
            #expect(try await two.paths() == ["/Documents/letters"])
        }
    }

    /// One content that was changed in the home keeps nobody waiting, and its end is heard once.
    @Test func aContentThatEndsHasNoPauseForTheOthers() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            let item = try await one.container.put(bytes(6_000_000, seed: 1), at: "changed")
            try await one.container.put(bytes(6_000_000, seed: 2), at: "whole")
            let file = try ContentFolder(home: one.session.home.path).file(try #require(item.version))
            let handle = try #require(FileHandle(forUpdatingAtPath: file))
            try handle.write(contentsOf: bytes(300_000, seed: 3))
            try handle.close()
            one.setOffline(false)
            let before = cloud.simulation.use { $0.network.now }
            try await one.settle()
            #expect(cloud.simulation.use { $0.network.now } - before < .seconds(5))
            #expect(try await one.container.scope.status().refused.map(\.key) == ["/Documents/changed"])
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/whole"])
        }
    }

    /// Deleting for good what somebody has brought back is refused, and told.
    @Test func whatWasBroughtBackIsNotSaidToBeGone() async throws {
        var batch: DocumentID?
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            batch = try await one.container.trash(["x"])
            try await one.settle()
            try await two.settle()
            let deleted = try #require(batch)
            two.setOffline(true)
            try await two.container.trash.remove(deleted)
            try await one.container.trash.restore(deleted)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/x"])
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/x"], "\(refused)")
        }
    }

    /// Many downloads share a connection: one is not given up because the others' chunks come first.
    @Test func whatComesSlowlyForOthersIsNotGivenUp() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for number in 0..<6 { try await one.container.put(bytes(5_000_000, seed: UInt64(number)), at: "\(number)") }
            try await one.settle()
            try await two.settle()
            cloud.simulation.use { $0.network.offloadTime = .milliseconds(700) }
            let items = try await two.container.items().map { item in
                (item: item.id, place: LocalPath(cloud.root + "/got-" + item.name))
            }
            let results = await two.container.localFiles.exports.getEach(items, timeout: .seconds(10))
            for result in results { #expect(throws: Never.self) { try result?.get() } }
            #expect(results.allSatisfy { $0 != nil })
        }
    }
}
