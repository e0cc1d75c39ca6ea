import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What one device does in a container the others have, and what is done offline is seen at once and sent later.
@Suite struct ContainerTests {
    @Test func whatOneDevicePutsTheOtherHas() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.makeFolder(at: "Letters")
            try await one.container.put(Data("dear".utf8), at: "Letters/a.txt")
            #expect(try await one.paths() == ["/Documents/Letters", "/Documents/Letters/a.txt"])
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/Letters", "/Documents/Letters/a.txt"])
            #expect(try await two.text("Letters/a.txt") == "dear")
            let (here, there) = (try await one.container.scope.status(), try await two.container.scope.status())
            #expect(here.digest == there.digest && here.isInSync && there.isInSync)
            #expect(try await two.container.scope.verify().agrees)
        }
    }

    @Test func whatIsDoneOfflineIsSeenAtOnceAndSentInOrder() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            try await one.container.makeFolder(at: "a/b", makesParents: true)
            try await one.container.put(Data("1".utf8), at: "a/b/x")
            try await one.container.put(Data("2".utf8), at: "a/b/x")
            try await one.container.move("a/b", to: "c")
            #expect(try await one.paths() == ["/Documents/a", "/Documents/c", "/Documents/c/x"])
            #expect(try await one.text("c/x") == "2")
            #expect(try await one.container.item(at: "c/x")?.pending == .waiting)
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/a", "/Documents/c", "/Documents/c/x"])
            #expect(try await two.text("c/x") == "2")
            #expect(try await two.container.item(at: "c/x")?.conflictCount == 0)
            #expect(try await one.container.item(at: "c/x")?.pending == DocumentEntry.PendingState.none)
        }
    }

    @Test func nothingOvertakesWhatItRestsOn() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            one.setOffline(true)
            try await one.container.makeFolder(at: "f")
            try await one.container.put(Data("1".utf8), at: "f/x")
            cloud.simulation.use { $0.setCommitsFail(of: .documents, true) }
            one.setOffline(false)
            try? await one.container.scope.waitUntilSent(timeout: .seconds(2))
            cloud.simulation.use { $0.setCommitsFail(of: .documents, false) }
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await one.paths() == ["/Documents/f", "/Documents/f/x"])
        }
    }

    /// The server's clock was ahead when it was made: it is deleted after that, and nobody reads of a time to come.
    @Test func nothingIsDeletedInTheFuture() async throws {
        try await withContainers { cloud in
            func setClocks(ahead duration: Duration) {
                for service in [ServiceName.identity, .documents] {
                    cloud.simulation.use { $0.setClockOffset(of: service, duration) }
                }
            }
            let one = try await cloud.open()
            try await one.settle()
            setClocks(ahead: .seconds(300))
            try await one.container.put(Data("a".utf8), at: "a")
            try await one.settle()
            setClocks(ahead: .zero)
            try await one.container.trash(["a"])
            try await one.settle()
            let trashed = try #require(try await one.container.trash.list().first?.trashed)
            #expect(trashed <= one.session.engine.stamp.now)
        }
    }

    @Test func whatIsDeletedComesBackAsOne() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.container.put(Data("2".utf8), at: "y")
            let batch = try await one.container.trash(["f", "y"])
            #expect(try await one.paths().isEmpty)
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths().isEmpty)
            let deleted = try await two.container.trash.list()
            #expect(deleted.map(\.batch) == [batch])
            #expect(deleted.first?.items.map(\.path).sorted() == ["/Documents/f", "/Documents/y"])
            try await two.container.trash.restore()
            try await two.settle()
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/f", "/Documents/f/x", "/Documents/y"])
            try await one.container.trash.remove(try await one.container.trash(["y"]))
            try await one.settle()
            try await two.settle()
            #expect(try await two.paths() == ["/Documents/f", "/Documents/f/x"])
            #expect(try await two.container.trash.list().isEmpty)
            #expect(try await two.container.scope.verify().agrees)
        }
    }

    /// What was deleted last comes back first, also while the server has heard of none of it.
    @Test func whatIsDeletedOfflineComesBackInItsOrder() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let names = (1...8).map { "\($0)" }
            for name in names { try await one.container.put(Data(name.utf8), at: name) }
            try await one.settle()
            one.setOffline(true)
            for name in names { try await one.container.trash([name]) }
            #expect(try await one.container.trash.list().flatMap(\.items).map(\.name) == names.reversed())
            for name in names.reversed() {
                #expect(try await one.container.trash.restore().map(\.name) == [name])
            }
        }
    }

    @Test func ofTwoContentsNoneIsLost() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("first".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.put(Data("of two".utf8), at: "x")
            try await one.container.put(Data("of one".utf8), at: "x")
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.text("x") == "of one")
            #expect(try await two.container.item(at: "x")?.conflictCount == 1)
            let conflict = try #require(try await two.container.scope.conflicts().first)
            #expect(conflict.name == "/Documents/x" && conflict.outcome == .lost)
            let version = try #require(try await two.container.versions.list(of: "x").first)
            #expect(version.size == 6)
        }
    }

    @Test func unequalFilesOfOneNameAreVersionsOfOneItem() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await two.settle()
            one.setOffline(true)
            two.setOffline(true)
            try await one.container.put(Data("1".utf8), at: "x")
            try await two.container.put(Data("2".utf8), at: "x")
            one.setOffline(false)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
            for device in [one, two] {
                #expect(try await device.paths() == ["/Documents/x"])
                #expect(try await device.text("x") == "1")
                #expect(try await device.container.item(at: "x")?.conflictCount == 1)
            }
        }
    }

    /// Runs something on one device while the other is offline, which then changes something and comes back.
    private func whileOffline(
        _ begin: (ContainerCloud.Device) async throws -> Void,
        here: (ContainerCloud.Device) async throws -> Void, there: (ContainerCloud.Device) async throws -> Void,
        then: (ContainerCloud.Device) async throws -> Void
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

    /// Nobody who deletes a folder means what they have not seen.
    @Test(arguments: [false, true]) func whatIsPutIntoADeletedFolderMakesItAgain(isRemoved: Bool) async throws {
        try await whileOffline {
            try await $0.container.put(Data("old".utf8), at: "f/g/old", makesFolders: true)
        } here: { one in
            let batch = try await one.container.trash(["f"])
            if isRemoved { try await one.container.trash.remove(batch) }
        } there: { two in
            try await two.container.put(Data("1".utf8), at: "f/g/x")
            try await two.container.put(Data("2".utf8), at: "f/y")
            try await two.container.put(Data("3".utf8), at: "f/h/z", makesFolders: true)
        } then: { two in
            let expected = ["f", "f/g", "f/g/x", "f/h", "f/h/z", "f/y"]
            let paths = try await two.paths()
            #expect(paths == expected.map { "/Documents/" + $0 })
            #expect(try await two.text("f/g/x") == "1")
            #expect(try await two.text("f/h/z") == "3")
            let refused = try await two.container.scope.status().refused
            #expect(refused.isEmpty)
            let deleted = try await two.container.trash.list()
            #expect(deleted.count == (isRemoved ? 0 : 1))
        }
    }

    enum Deletion: CaseIterable { case file, folder, fileForGood, folderForGood }

    @Test(arguments: Deletion.allCases) func whatIsWrittenToADeletedFileIsFoundAgain(_ deletion: Deletion) async throws
    {
        try await whileOffline {
            try await $0.container.put(Data("old".utf8), at: "f/x", makesFolders: true)
        } here: { one in
            let isFolder = deletion == .folder || deletion == .folderForGood
            let batch = try await one.container.trash([isFolder ? "f" : "f/x"])
            if deletion == .fileForGood || deletion == .folderForGood { try await one.container.trash.remove(batch) }
        } there: { two in
            try await two.container.put(Data("new".utf8), at: "f/x")
        } then: { two in
            #expect(try await two.paths() == ["/Documents/f", "/Documents/f/x"])
            #expect(try await two.text("f/x") == "new")
            let refused = try await two.container.scope.status().refused
            #expect(refused.isEmpty)
        }
    }

    @Test func aChangeThatIsRefusedLeavesTheOthersAlone() async throws {
        try await whileOffline { one in
            for name in ["a", "b", "c"] { try await one.container.put(Data(name.utf8), at: name) }
        } here: { one in
            try await one.container.put(Data("changed".utf8), at: "b")
        } there: { two in
            try await two.container.trash(["a", "b", "c"])
        } then: { two in
            #expect(try await two.paths() == ["/Documents/b"])
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/b"] && refused.first?.error.code == .constraintViolation)
            let dismissed = try await two.container.scope.dismissRefused()
            #expect(dismissed == ["/Documents/b"])
            let isInSync = try await two.container.scope.status().isInSync
            #expect(isInSync)
        }
    }

    /// Also of a short one, which has waited in its request.
    @Test func theBytesOfWhatIsRefusedAreKept() async throws {
        try await whileOffline { one in
            try await one.container.put(Data("0".utf8), at: "x")
        } here: { one in
            try await one.container.put(Data("newest".utf8), at: "x")
        } there: { two in
            for number in 0...DocumentLimits.conflictsMax {
                try await two.container.conflict("x", Data("\(number)".utf8))
            }
        } then: { two in
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/x"] && refused.first?.error.code == .limitExceeded)
            let file = try #require(refused.first?.keptFile)
            #expect(
                try Data(contentsOf: URL(fileURLWithPath: file)) == Data("\(DocumentLimits.conflictsMax)".utf8))
            _ = try await two.container.scope.dismissRefused()
            _ = try await two.container.scope.status()
            try await two.settle()
            #expect(!FileManager.default.fileExists(atPath: file))
        }
    }

    /// A plan that is full keeps contents away, and nothing else: what fits later lies where it was put.
    @Test func aFullPlanKeepsOnlyContentsAway() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try cloud.setPlan(bytes: 40_000)
            one.setOffline(true)
            try await one.container.put(
                [.folder(at: "p"), .data(Data(repeating: 7, count: 60_000), at: "p/large")], makesFolders: true)
            try await one.container.put(Data("small".utf8), at: "p/small")
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/p", "/Documents/p/small"])
            let refused = try await one.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/p/large"] && refused.first?.error.code == .quotaExceeded)
        }
    }

    /// What was made from a content that was refused is the newest all the same, and no conflict.
    ///
    /// - Parameter bytes: Of what was made: it is sent with the request, or has an upload of its own, that is on its
    ///   way when the first is refused.
    @Test(arguments: [1, 10_000]) func whatWasMadeFromARefusedContentIsNoConflict(bytes: Int) async throws {
        let made = String(repeating: "2", count: bytes)
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("0".utf8), at: "x")
            try await one.settle()
            try cloud.setPlan(bytes: 50_000)
            one.setOffline(true)
            for path in ["x", "new"] {
                try await one.container.put(Data(repeating: 7, count: 60_000), at: path)
                try await one.container.put(Data(made.utf8), at: path)
            }
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            for path in ["x", "new"] {
                #expect(try await two.text(path) == made)
                let item = try await two.container.item(at: path)
                #expect(item?.conflictCount == 0)
            }
            #expect(try await two.paths() == ["/Documents/new", "/Documents/x"])
            let refused = try await one.container.scope.status().refused
            #expect(refused.map(\.key.rawValue).sorted() == ["/Documents/new", "/Documents/x"])
        }
    }

    /// Nor what was made from bytes that another device has committed meanwhile.
    @Test func whatWasMadeFromBytesThatSomebodyElseHasCommittedIsNoConflict() async throws {
        try await whileOffline {
            try await $0.container.put(Data("0".utf8), at: "x")
        } here: { one in
            try await one.container.put(Data("1".utf8), at: "x")
        } there: { two in
            try await two.container.put(Data("1".utf8), at: "x")
            try await two.container.put(Data("2".utf8), at: "x")
        } then: { two in
            #expect(try await two.text("x") == "2")
            let item = try await two.container.item(at: "x")
            #expect(item?.conflictCount == 0)
        }
    }

    /// What follows a file that had to be made again follows it.
    @Test func whatIsWrittenTwiceToARemovedFileIsOneFile() async throws {
        try await whileOffline {
            try await $0.container.put(Data("old".utf8), at: "x")
        } here: { one in
            try await one.container.trash.remove(try await one.container.trash(["x"]))
        } there: { two in
            try await two.container.put(Data("1".utf8), at: "x")
            try await two.container.put(Data("2".utf8), at: "x")
        } then: { two in
            let paths = try await two.paths()
            #expect(paths == ["/Documents/x"])
            #expect(try await two.text("x") == "2")
        }
    }

    /// A name leads where the container would not take it beside what is there.
    @Test func namesThatClashAreOneName() async throws {
        try await withContainers { cloud in
            try cloud.define { $0.names = .folded }
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "Fotos/e\u{301}.txt", makesFolders: true)
            let first = try await one.container.put(Data("2".utf8), at: "fotos/\u{e9}.TXT", makesFolders: true)
            try await one.settle()
            try await one.container.put(Data("3".utf8), at: "FOTOS/\u{e9}.txt")
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/Fotos", "/Documents/Fotos/e\u{301}.txt"])
            let same = try await one.container.item(at: "/documents/fotos/\u{c9}.txt")
            #expect(same?.id == first.id)
            #expect(try await one.text("Fotos/e\u{301}.txt") == "3")
            try await one.container.move("Fotos", to: "fotos")
            try await one.settle()
            #expect(try await one.paths() == ["/Documents/fotos", "/Documents/fotos/e\u{301}.txt"])
        }
    }

    @Test func aHandleIsOneAccounts() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try cloud.simulation.use { _ = try $0.createAccount("other") }
            try await one.session.signOut()
            let connection = try cloud.simulation.use { try $0.connection }.description
            try await one.session.signIn(
                connection: ConnectionString(connection), account: "other", password: TestCloud.password,
                deviceName: one.name)
            let theirs = try await one.session.container(app: ContainerCloud.app)
            try await theirs.scope.waitUntilCurrent(timeout: .seconds(60))
            await #expect(throws: CloudError.self) { try await one.container.put(Data("1".utf8), at: "x") }
            let items = try await theirs.items()
            #expect(items.isEmpty)
        }
    }

    @Test func nothingIsChangedOrGuessedBeforeTheNamesAreHere() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let other = try await one.session.container(ContainerCloud.container + ".other", app: ContainerCloud.app)
            one.setOffline(true)
            await #expect(throws: CloudError.self) {
                _ = try await one.session.container("T.files.none", app: ContainerCloud.app)
            }
            _ = other
        }
    }

    @Test func aWayThatLeadsNowhereIsRefused() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let container = one.container
            try await container.makeFolder(at: "a/b", makesParents: true)
            await #expect(throws: CloudError.self) { try await container.makeFolder(at: "no/where") }
            await #expect(throws: CloudError.self) { try await container.move("a", to: "a/b/c") }
            await #expect(throws: CloudError.self) { try await container.put(Data(), at: "a") }
            await #expect(throws: CloudError.self) { try await container.put(Data(), at: "..") }
            await #expect(throws: CloudError.self) { try await container.trash(["/Documents"]) }
            await #expect(throws: CloudError.self) {
                try await container.put(Data(), at: String(repeating: "x", count: 256))
            }
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/b"])
            #expect(try await container.children(of: "/").map(\.name) == ["Documents"])
        }
    }

    @Test func whatTheServerHasLostIsOfferedAgainAsItWas() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("kept".utf8), at: "f/x", makesFolders: true)
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.put(Data("lost".utf8), at: "f/g/y", makesFolders: true)
            try await one.container.put(Data("newer".utf8), at: "f/x")
            try await one.settle()
            let ids = try await one.container.items().map(\.id)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            #expect(try await one.text("f/x") == "newer")
            #expect(try await one.text("f/g/y") == "lost")
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.text("f/x") == "newer")
            #expect(try await two.text("f/g/y") == "lost")
            #expect(try await two.container.items().map(\.id) == ids)
        }
    }
}

extension UbiquityContainer {
    /// Commits a content over a base that nobody knows.
    func conflict(_ path: String, _ data: Data) async throws {
        let path = try DocumentPath(path)
        try await handle.change { draft in
            let item = try draft.documents.item(at: path)
            var replace = WireReplaceContent()
            replace.content.version = draft.makeID().wire
            replace.content.base = draft.makeID().wire
            replace.content.inline = data
            replace.content.length = UInt64(data.count)
            draft.add(WireDocumentChange(item.id, .replace(replace)))
        }
    }
}
