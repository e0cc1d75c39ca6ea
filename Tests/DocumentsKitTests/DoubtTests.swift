import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Synchronization
import Testing

@testable import NephosKit

/// That a listing lacks an item does not say what became of it: the device asks, and shows it meanwhile as it was.
@Suite struct DoubtTests {
    /// Makes the tokens of all devices expire: everything that was removed is long ago.
    private func forgetTombstones(_ cloud: ContainerCloud) {
        cloud.simulation.use { cloud in
            cloud.skip(.seconds(100 * 24 * 3600), of: .documents)
            cloud.network.run(for: .seconds(30))
            cloud.setClockOffset(of: .documents, .zero)
        }
    }

    /// What the service's feed knows of these items is gone, as if it had never been.
    private func lose(_ items: [DocumentID], of account: AccountID, in cloud: ContainerCloud) throws {
        try cloud.simulation.use { cloud in
            try cloud.storage(of: .documents).write { transaction in
                for item in items {
                    try transaction.execute(Self.deleteItem, [.text(item.description)])
                    for table in Self.deleteRows { try transaction.execute(table, [.blob(item.bytes)]) }
                }
                let feed = Feed(over: transaction)
                _ = try feed.correctHead(ScopeName(account, ItemName(ContainerCloud.container)))
                try feed.flush()
            }
            cloud.crash(.documents)
            try cloud.start(.documents)
        }
    }

    private static let deleteRows = ["versions", "places", "children"].map {
        SQL("DELETE FROM document_\($0) WHERE item = ?1")
    }
    private static let deleteItem = SQL("DELETE FROM feed_items WHERE name = ?1")

    @Test func ofFiveThousandRemovedItemsNoneComesBack() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(
                (0..<5000).map { .data(Data("\($0)".utf8), at: "f/\($0)") }, makesFolders: true)
            try await one.container.put(Data("1".utf8), at: "live")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await one.container.trash.remove(try await one.container.trash(["f"]))
            try await one.settle()
            cloud.simulation.use { $0.network.run(for: .seconds(30)) }
            try await two.container.put(Data("2".utf8), at: "own")
            two.setOffline(false)
            try await two.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/live", "/Documents/own"])
            let status = try await two.container.scope.status()
            #expect(status.isInSync && status.refused.isEmpty)
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/live", "/Documents/own"])
            let verification = try await two.container.scope.verify()
            #expect(verification.agrees)
        }
    }

    /// One that was removed, one that lives, one that the service has lost; at each step of the device's own disk the
    /// device is cut off, and begun again.
    @Test(arguments: 0..<9) func anExpiredTokenForgetsNothingUnseen(savesUntilTheEnd: Int) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let saves = Mutex<Int?>(nil)
            let two = try await cloud.open(cloud.root + "/two") { step in
                guard step == "save" else { return }
                try saves.withLock { left in
                    guard let count = left else { return }
                    guard count > 0 else { throw CloudError(.storageFailure, "The disk is gone.") }
                    left = count - 1
                }
            }
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "live")
            try await one.container.put(Data("2".utf8), at: "gone")
            try await one.container.put(Data("3".utf8), at: "f/g/lost", makesFolders: true)
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await one.container.trash.remove(try await one.container.trash(["gone"]))
            try await one.settle()
            let lost = try await one.container.items().filter { $0.path.hasPrefix("/Documents/f") }.map(\.id)
            let account = try #require(try one.session.account?.accountID)
            one.session.close()
            try lose(lost, of: account, in: cloud)
            forgetTombstones(cloud)
            #expect(try await two.paths().count == 5)
            saves.withLock { $0 = savesUntilTheEnd }
            two.setOffline(false)
            try? await two.container.scope.waitUntilCurrent(timeout: .seconds(20))
            #expect(try await two.paths().contains("/Documents/f/g/lost"))
            two.session.close()
            let again = try await cloud.open(cloud.root + "/two")
            try await again.settle()
            try await again.settle()
            let expected = ["/Documents/f", "/Documents/f/g", "/Documents/f/g/lost", "/Documents/live"]
            #expect(try await again.paths() == expected)
            let refused = try await again.container.scope.status().refused
            #expect(refused.isEmpty)
            let third = try await cloud.open()
            try await third.settle()
            #expect(try await third.paths() == expected)
            #expect(try await third.text("f/g/lost") == "3")
            let ids = try await third.container.items().map(\.id).sorted()
            let kept = try await again.container.items().map(\.id).sorted()
            #expect(ids == kept)
        }
    }

    /// What somebody has removed after a restore does not come back with a device that still has it.
    @Test func whatWasRemovedAfterARestoreIsNotOfferedAgain() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.container.put(Data("2".utf8), at: "y")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/x", "/Documents/y"])
            try await one.container.trash.remove(try await one.container.trash(["x"]))
            try await one.settle()
            forgetTombstones(cloud)
            two.setOffline(false)
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/y"])
            let refused = try await two.container.scope.status().refused
            #expect(refused.isEmpty)
        }
    }

    /// The versions between the one that the copy has and the one that devices have are nobody's any more.
    @Test func whatWasWrittenTwiceSinceTheCopyIsTheCurrentContentAgain() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for path in ["x", "y"] { try await one.container.put(Data("1".utf8), at: path) }
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            for text in ["2", "3"] {
                try await one.container.put(Data(text.utf8), at: "x")
                try await one.container.put(Data(text.utf8), at: "y")
                try await one.settle()
            }
            try await two.settle()
            two.setOffline(true)
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            // What somebody has written over the copy came beside what devices have: there the two are a conflict.
            let three = try await cloud.open()
            try await three.settle()
            try await three.container.put(Data("4".utf8), at: "y")
            try await three.settle()
            for device in [one, two] {
                device.setOffline(false)
                try await device.container.scope.waitUntilCurrent(timeout: .seconds(120))
                try await device.settle()
            }
            try await three.settle()
            #expect(try await three.text("x") == "3")
            #expect(try await three.container.conflicts.versions(of: "x").count == 1)
            #expect(try await three.text("y") == "4")
            #expect(try await three.container.conflicts.versions(of: "y").count == 2)
        }
    }

    /// The move is offered before the service has said that it does not know the folder.
    @Test func whatWasMovedIntoAFolderThatTheCopyLacksIsInThatFolderAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for path in ["x", "y"] { try await one.container.put(Data(path.utf8), at: path) }
            try await one.container.trash(["y"])
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.makeFolder(at: "f/g", makesParents: true)
            try await one.container.move("x", to: "f/g/x")
            try await one.container.trash.restore()
            try await one.container.move("y", to: "f/g/y")
            try await one.settle()
            let before = Set(try await one.container.items().map(\.id))
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(
                try await two.paths()
                    == ["/Documents/f", "/Documents/f/g", "/Documents/f/g/x", "/Documents/f/g/y"])
            #expect(Set(try await two.container.items().map(\.id)) == before)
            #expect(try await one.container.status().refused.isEmpty)
        }
    }

    /// A name that something in the trash has too is the living item's.
    @Test func whatLiesInTheTrashTakesNoNameWhenItIsOfferedAgain() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            for text in ["1", "2", "3"] {
                try await one.container.put(Data(text.utf8), at: "f/x", makesFolders: true)
                try await one.settle()
                if text != "3" { try await one.container.trash(["f"]) }
            }
            try await one.container.put(Data("4".utf8), at: "y")
            try await one.container.trash(["y"])
            try await one.container.put(Data("5".utf8), at: "y")
            try await one.settle()
            let trashed = try await one.container.trash.list().map(\.batch)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/f", "/Documents/f/x", "/Documents/y"])
            #expect(try await two.text("f/x") == "3")
            #expect(try await two.text("y") == "5")
            #expect(Set(try await two.container.trash.list().map(\.batch)) == Set(trashed) && trashed.count == 3)
        }
    }

    /// Not only that it was there: its attributes, that it lay in the trash, and what lost and nobody has resolved; and of
    /// each who has done it, and when.
    @Test func whatIsOfferedAgainIsAsItWas() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "old")
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.put(Data("1".utf8), at: "new")
            try await one.container.put(Data("1".utf8), at: "trashed")
            try await one.container.trash(["trashed"])
            try await one.container.put(Data("1".utf8), at: "f/g/deep", makesFolders: true)
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            cloud.simulation.use { $0.network.run(for: .seconds(60)) }
            for path in ["old", "new"] {
                try await one.container.setAttributes(path)
                try await one.container.put(Data("one".utf8), at: path)
                try await two.container.put(Data("two".utf8), at: path)
            }
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
            try await two.container.trash(["f"])
            try await two.settle()
            try await one.settle()
            let before = try await one.container.held()
            two.session.close()
            cloud.simulation.use { $0.network.run(for: .seconds(60)) }
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            let three = try await cloud.open()
            try await three.settle()
            let after = try await three.container.held()
            #expect(after == before)
            #expect(before.filter { !$0.conflicts.isEmpty }.count == 2 && before.filter(\.hasTrash).count == 2)
            let conflicts = before.flatMap(\.conflicts)
            #expect(Set(before.map(\.made.deviceID) + conflicts.map(\.deviceID)).count == 2)
        }
    }

    /// Another device has offered the folder's deletion before.
    @Test func whatWasLostInATrashedFolderComesBackIntoTheTrash() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "f/old", makesFolders: true)
            try await one.container.put(Data("0".utf8), at: "moved")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.put(Data("1".utf8), at: "f/g/new", makesFolders: true)
            try await one.container.put(Data("1".utf8), at: "f/old")
            try await one.container.move("moved", to: "f/g/moved")
            try await one.container.trash(["f"])
            try await one.settle()
            let before = try await one.container.held()
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            two.setOffline(false)
            // It was not there while the others did that, and deletes the folder as it was.
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await two.container.trash(["f"])
            try await two.settle()
            one.setOffline(false)
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            let three = try await cloud.open()
            try await three.settle()
            #expect(try await three.paths().isEmpty)
            let after = try await three.container.held()
            #expect(after.map(\.parent) == before.map(\.parent))
            #expect(after.map(\.content) == before.map(\.content))
            #expect(after.filter(\.hasTrash).count == 1)
        }
    }
}

extension UbiquityContainer {
    /// Everything, with all that is said of it; conflicts in no order.
    fileprivate func held() async throws -> [WireDocumentItem] {
        try handle.read { documents in
            try documents.all().sorted { $0.id < $1.id }.map { item in
                var wire = item.wire
                wire.conflicts.sort { $0.version.lexicographicallyPrecedes($1.version) }
                return wire
            }
        }
    }

    fileprivate func setAttributes(_ path: String) async throws {
        let path = try DocumentPath(path)
        try await handle.change { draft in
            let item = try draft.documents.item(at: path)
            var set = WireSetAttributes()
            set.executable = true
            set.favouriteRank = 7
            set.tags.tags = ["red"]
            var attribute = WireExtendedAttribute()
            attribute.name = Data("user.colour".utf8)
            attribute.value = Data([1, 2])
            set.extended = [attribute]
            draft.add(WireDocumentChange(item.id, .attributes(set)))
        }
    }
}
