import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// From one container to another nothing is sent but names and lists; and what is moved is never nowhere.
@Suite struct ContainerCopyTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    private func settle(_ device: ContainerCloud.Device, _ other: UbiquityContainer) async throws {
        // What leaves one container waits for the other.
        for container in [other, device.container, other] {
            try await container.scope.waitUntilSent(timeout: .seconds(60))
            try await container.scope.waitUntilCurrent(timeout: .seconds(60))
        }
    }

    private func refused(_ container: UbiquityContainer) async throws -> [String] {
        try await container.scope.status().refused.map { "\($0.key): \($0.error.code)" }
    }

    @Test func aFolderIsCopiedToAnotherContainerWithoutItsBytes() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let other = try await one.openOther()
            let (long, longer) = (bytes(100_000, seed: 1), bytes(3_000_000, seed: 2))
            try await one.container.put(long, at: "a/b/long", makesFolders: true)
            try await one.container.put(longer, at: "a/longer")
            try await one.container.put(Data("short".utf8), at: "a/short")
            try await one.settle()
            try cloud.forbidBytes()
            let copy = try await one.container.copy("a", to: "c", in: other)
            #expect(copy.itemCount == 5 && copy.stepCount == 1 && copy.item.path == "/Documents/c")
            try await settle(one, other)
            #expect(try await refused(other).isEmpty)
            // Of what is not on a device the server says what it consists of.
            let there = try await two.openOther()
            try await two.settle()
            try await two.container.copy("a", to: "d", in: there)
            try await settle(two, there)
            #expect(try await refused(there).isEmpty)
            for name in ["c", "d"] {
                #expect(try await there.read("\(name)/b/long") == long)
                #expect(try await there.read("\(name)/longer") == longer)
                #expect(try await there.read("\(name)/short") == Data("short".utf8))
            }
            try await one.container.trash.remove(try await one.container.trash(["a"]))
            try await one.settle()
            cloud.simulation.pass(.seconds(60))
            #expect(try await other.read("c/longer") == longer)
            #expect(try await other.scope.verify().agrees)
        }
    }

    /// A package is one content: a list of its members, and their bytes.
    @Test func aPackageIsCopiedAndMovedWithoutItsBytes() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let package = cloud.root + "/a.bundle"
            try FileManager.default.createDirectory(
                atPath: package + "/Contents", withIntermediateDirectories: true)
            let large = bytes(3_000_000, seed: 5)
            try large.write(to: URL(fileURLWithPath: package + "/Contents/large"))
            try await one.container.put(package: package, at: "f/a.bundle", makesFolders: true)
            try await one.settle()
            try await two.settle()
            let other = try await two.openOther()
            try cloud.forbidBytes()
            try await two.container.copy("f", to: "g", in: other)
            try await two.container.move("f/a.bundle", to: "b.bundle", in: other)
            try await settle(two, other)
            #expect(try await refused(other).isEmpty)
            #expect(try await two.paths() == ["/Documents/f"])
            for path in ["g/a.bundle", "b.bundle"] {
                let members = try await other.packages.members(of: path)
                #expect(members.map(\.path) == ["Contents", "Contents/large"])
                #expect(try await other.packages.read(members[1], of: path) == large)
            }
        }
    }

    /// A list that is too long for one request goes ahead of it, piece by piece, into an upload without a byte.
    @Test func aLongListGoesAheadOfTheCopy() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let film = bytes(3_000_000, seed: 7)
            try await one.container.put(film, at: "film")
            try await one.settle()
            try await two.settle()
            let there = try await two.openOther()
            try await cloud.uploads(of: two, there) {
                $0.nodesBytesMax = 300
                $0.askedMax = 3
            }
            try cloud.forbidBytes()
            try await two.container.copy("film", to: "copy", in: there)
            try await settle(two, there)
            #expect(try await refused(there).isEmpty)
            #expect(try await there.read("copy") == film)
            cloud.simulation.pass(.seconds(5))
            #expect(try cloud.uploadCount() == 0)
        }
    }

    @Test func whatWaitsGoesAsBytesAndIsReadInBoth() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let (other, there) = (try await one.openOther(), try await two.openOther())
            let (sent, content) = (bytes(700_000, seed: 1), bytes(900_000, seed: 2))
            try await one.container.put(sent, at: "sent")
            try await one.settle()
            one.setOffline(true)
            try await one.container.put(content, at: "x")
            try await one.container.copy("x", to: "y", in: other)
            try await one.container.copy("sent", to: "sent", in: other)
            // A copy of what is on its way itself.
            try await other.copy("sent", to: "again", in: one.container)
            #expect(try await other.read("y") == content)
            #expect(try await other.read("sent") == sent)
            #expect(try await one.container.read("again") == sent)
            one.setOffline(false)
            try await settle(one, other)
            #expect(try await refused(other).isEmpty)
            #expect(try await refused(one.container).isEmpty)
            try await there.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await there.read("y") == content)
            #expect(try await there.read("sent") == sent)
            try await two.settle()
            #expect(try await two.container.read("again") == sent)
        }
    }

    @Test func aContentThatIsGoneIsRefusedAndTheRestIsCopied() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let other = try await one.openOther()
            try await one.container.put(bytes(100_000, seed: 1), at: "a/gone", makesFolders: true)
            try await one.container.put(bytes(2_000_000, seed: 2), at: "a/lost")
            try await one.container.put(bytes(100_000, seed: 3), at: "a/there")
            try await one.settle()
            one.setOffline(true)
            try await one.container.copy("a", to: "b", in: other)
            try await two.settle()
            try await two.container.trash.remove(try await two.container.trash(["a/gone", "a/lost"]))
            try await two.settle()
            cloud.simulation.pass(.seconds(60))
            one.setOffline(false)
            try await settle(one, other)
            #expect(
                try await refused(other).sorted()
                    == ["/Documents/b/gone: unknownItem", "/Documents/b/lost: unknownItem"])
            let error = try #require(try await other.scope.status().refused.first?.error)
            #expect(error.details["source"] == ContainerCloud.container)
            #expect(try await other.items().map(\.path).sorted() == ["/Documents/b", "/Documents/b/there"])
            #expect(try await other.read("b/there") == bytes(100_000, seed: 3))
        }
    }

    @Test func anAppCopiesNothingOfAContainerThatItDoesNotList() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            try await one.settle()
            let narrow = try await one.session.container(app: ContainerCloud.narrowApp)
            try await narrow.scope.waitUntilCurrent(timeout: .seconds(60))
            await #expect(throws: CloudError.self) { try await one.container.copy("x", to: "x", in: narrow) }
            #expect(try await narrow.items().map(\.path) == [])
            await #expect(throws: CloudError.self) { try await one.container.copy("no", to: "x", in: narrow) }
        }
    }

    // MARK: Moves

    @Test func whatIsMovedLeavesItsContainerOnceTheOtherHasIt() async throws {
        try await withContainers { cloud in
            var one = try await cloud.open()
            let two = try await cloud.open()
            try await one.settle()
            var other = try await one.openOther()
            let content = bytes(2_000_000, seed: 1)
            try await one.container.put(content, at: "a/x", makesFolders: true)
            try await one.settle()
            one.setOffline(true)
            let moved = try await one.container.move("a", to: "", in: other)
            #expect(moved.item.path == "/Documents/a" && moved.itemCount == 2)
            // Until the server has it, it is in both.
            #expect(try await one.container.status().leaving.map(\.path) == ["/Documents/a"])
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/x"])
            one.session.close()
            one = try await cloud.open(one.session.home.path)
            one.setOffline(true)
            // Only the container that it goes to is opened before there is a connection.
            other = try await one.session.container(ContainerCloud.container + ".other", app: ContainerCloud.app)
            one.setOffline(false)
            try await settle(one, other)
            #expect(try await one.paths().isEmpty)
            #expect(try await one.container.status().leaving.isEmpty)
            #expect(try await one.container.trash.list().first?.items.map(\.path) == ["/Documents/a"])
            // It is not missing anywhere: on no device it is what is brought back, unless it is named.
            for device in [one, two] {
                try await device.settle()
                let left = try #require(try await device.container.trash.list().first)
                #expect(left.movedTo == other.id)
                let error = await #expect(throws: CloudError.self) { try await device.container.trash.restore() }
                #expect(error?.code == .unknownItem)
            }
            try await two.container.put(Data("1".utf8), at: "b")
            try await two.container.trash(["b"])
            #expect(try await two.container.trash.restore().map(\.path) == ["/Documents/b"])
            try await two.container.trash(["b"])
            try await two.settle()
            #expect(try await two.paths().isEmpty)
            #expect(try await two.openOther().read("a/x") == content)
            #expect(try await refused(other).isEmpty)
            #expect(try await refused(one.container).isEmpty)
        }
    }

    @Test func whatWasChangedMeanwhileStaysInBoth() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let other = try await one.openOther()
            try await one.container.put(bytes(100_000, seed: 1), at: "x")
            try await one.container.put(Data("1".utf8), at: "folder/1", makesFolders: true)
            try await one.settle()
            try await two.settle()
            one.setOffline(true)
            try await one.container.move("x", to: "x", in: other)
            try await one.container.move("folder", to: "folder", in: other)
            try await two.container.put(Data("newer".utf8), at: "x")
            try await two.container.put(Data("2".utf8), at: "folder/2")
            try await two.settle()
            one.setOffline(false)
            try await settle(one, other)
            #expect(
                try await refused(one.container)
                    == ["/Documents/folder: constraintViolation", "/Documents/x: constraintViolation"])
            #expect(try await one.text("x") == "newer")
            #expect(try await one.text("folder/2") == "2")
            #expect(try await other.read("x") == bytes(100_000, seed: 1))
            #expect(try await other.items().map(\.path).contains("/Documents/folder/1"))
        }
    }

    @Test func whatCouldNotBeCopiedAsAWholeStays() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let other = try await one.openOther()
            try await one.container.put(bytes(100_000, seed: 1), at: "a/lost", makesFolders: true)
            try await one.container.put(bytes(200_000, seed: 2), at: "a/there")
            try await one.settle()
            try cloud.execute("UPDATE content_uses SET use_count = 0 WHERE counted = 100000")
            try await one.container.move("a", to: "a", in: other)
            try await settle(one, other)
            #expect(try await refused(other) == ["/Documents/a/lost: unknownItem"])
            #expect(try await refused(one.container) == ["/Documents/a: constraintViolation"])
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/lost", "/Documents/a/there"])
            #expect(try await one.container.status().leaving.isEmpty)
            #expect(try await other.read("a/there") == bytes(200_000, seed: 2))
        }
    }
}

extension ContainerCloud {
    /// From now on the service takes no chunk, whoever sends it.
    func forbidBytes() throws {
        try execute(
            """
            CREATE TRIGGER no_bytes BEFORE INSERT ON content_holds WHEN length(NEW.chunk) = 32
            BEGIN SELECT RAISE(ABORT, 'a chunk was sent'); END
            """)
    }

    func uploads(
        of device: Device, _ container: UbiquityContainer, _ body: @escaping @Sendable (ContentUploads) -> Void
    ) async throws {
        let _: Bool = try await container.scope.perform { driver, completion in
            if let uploads = (driver.model as? DocumentsModel)?.uploads { body(uploads) }
            completion(.success(true))
        }
    }
}
