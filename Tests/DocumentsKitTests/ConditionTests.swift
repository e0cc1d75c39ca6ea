import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What an app takes for granted when it changes something still holds when the server does it, or nothing is done.
@Suite struct ConditionTests {
    private typealias Device = ContainerCloud.Device

    /// Two devices that have `f/x` and `y`; the second goes offline, does something there while the first does something
    /// else, and comes back.
    private func meanwhile(
        _ here: (Device) async throws -> Void, there: (Device) async throws -> Void,
        then: (Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.container.put(Data("1".utf8), at: "y")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await there(two)
            try await here(one)
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await then(two)
        }
    }

    @Test func whatRestsOnAnItemThatHasChangedIsRefusedAsAWhole() async throws {
        try await meanwhile {
            try await $0.container.put(Data("2".utf8), at: "y")
        } there: { two in
            let other = try #require(try await two.container.item(at: "y"))
            let conditions = DocumentCondition.asRead(other)
            try await two.container.put(
                [.data(Data("3".utf8), at: "f/x"), .data(Data("3".utf8), at: "f/new")], conditions: conditions)
            #expect(try await two.text("f/x") == "3")
        } then: { two in
            #expect(try await two.text("f/x") == "1")
            let paths = try await two.paths()
            #expect(paths == ["/Documents/f", "/Documents/f/x", "/Documents/y"])
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key).sorted() == ["/Documents/f/new", "/Documents/f/x"])
            #expect(refused.filter { $0.error.code == .constraintViolation && $0.recovery != nil }.count == 2)
        }
    }

    /// A pause gives what it keeps here a request of its own.
    @Test func aPauseLeavesWhatWasTakenForGranted() async throws {
        try await meanwhile {
            try await $0.container.put(Data("2".utf8), at: "y")
        } there: { two in
            let conditions = DocumentCondition.asRead(try #require(try await two.container.item(at: "y")))
            try await two.container.put(Data("3".utf8), at: "f/x", conditions: conditions)
            try await two.container.pauses.pause("f/x")
            try await two.container.put(
                [
                    .data(Data("3".utf8), at: "f/a"), .data(Data("3".utf8), at: "f/b"),
                ], conditions: conditions)
            // What holds for both is not divided.
            let error = await #expect(throws: CloudError.self) { try await two.container.pauses.pause("f/a") }
            #expect(error?.code == .constraintViolation)
        } then: { two in
            try await two.container.pauses.resume("f/x")
            try await two.settle()
            #expect(try await two.text("f/x") == "1")
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key).sorted() == ["/Documents/f/a", "/Documents/f/b", "/Documents/f/x"])
        }
    }

    /// The bytes that were to be the file's are there as something else of it: so they were not taken.
    @Test func bytesThatAreThereAsSomethingElseAreRefusedAllTheSame() async throws {
        let bytes = SplitMix64.bytes(200_000, seed: 1)
        try await meanwhile {
            try await $0.container.put(Data("2".utf8), at: "y")
            try await $0.container.renditions.set(bytes, named: "preview", of: "f/x")
        } there: { two in
            let other = try #require(try await two.container.item(at: "y"))
            try await two.container.put(bytes, at: "f/x", conditions: DocumentCondition.asRead(other))
        } then: { two in
            let refused = try await two.container.status().refused
            #expect(refused.map(\.key) == ["/Documents/f/x"])
            let text = try await two.text("f/x")
            #expect(text == "1")
        }
    }

    /// Also what it has not sent yet, a content that takes its time among it.
    @Test func whatADeviceHasDoneItselfBreaksNoneOfItsConditions() async throws {
        try await meanwhile {
            try await $0.container.put(Data("2".utf8), at: "y")
        } there: { two in
            let head = try await two.container.head()
            let folder = try #require(try await two.container.item(at: "f"))
            try await two.container.put(Data("own".utf8), at: "f/x")
            try await two.container.put(Data(repeating: 1, count: 300_000), at: "f/long")
            try await two.container.put(Data("gone".utf8), at: "f/gone")
            try await two.container.trash(["f/gone"])
            try await two.container.move("f/x", to: "f/z", conditions: [.unchanged(folder.id, since: head)])
            try await two.container.trash(["f"], conditions: [.unchanged(folder.id, since: head)])
            try await two.container.put(Data("after".utf8), at: "z")
        } then: { two in
            let refused = try await two.container.scope.status().refused
            #expect(refused.isEmpty)
            let paths = try await two.paths()
            #expect(paths == ["/Documents/y", "/Documents/z"])
        }
    }

    @Test func aFolderThatOthersHaveChangedKeepsWhatRestsOnIt() async throws {
        try await meanwhile {
            try await $0.container.put(Data("2".utf8), at: "f/x")
        } there: { two in
            let head = try await two.container.head()
            let folder = try #require(try await two.container.item(at: "f"))
            try await two.container.move("y", to: "z", conditions: [.unchanged(folder.id, since: head)])
        } then: { two in
            let paths = try await two.paths()
            #expect(paths == ["/Documents/f", "/Documents/f/x", "/Documents/y"])
            let refused = try await two.container.scope.status().refused
            #expect(refused.map(\.key) == ["/Documents/z"])
        }
    }

    @Test func whatIsOtherwiseHereAlreadyIsNotEvenTried() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let file = try await one.container.put(Data("1".utf8), at: "x")
            let read = DocumentCondition.asRead(file)
            try await one.container.put(Data("2".utf8), at: "x", conditions: read)
            for conditions in [read, [.absent(file.id)]] {
                await #expect(throws: CloudError.self) {
                    try await one.container.put(Data("3".utf8), at: "x", conditions: conditions)
                }
            }
            let many = (0..<500).map { DocumentSource.data(Data(), at: "\($0)") }
            let place = try #require(file.placeVersion)
            await #expect(throws: CloudError.self) {
                try await one.container.put(many, conditions: [.place(file.id, version: place)])
            }
            #expect(try await one.paths() == ["/Documents/x"])
            #expect(try await one.text("x") == "2")
        }
    }
}
