import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What waits is told item by item, with its bytes and what is in its way.
@Suite struct ContainerStatusTests {
    @Test func whatWaitsIsToldWithItsBytesAndItsReason() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.container.put(Data("12".utf8), at: "gone")
            try await one.settle()
            var status = try await one.container.status()
            #expect(status.inStepCount == 3 && status.fileCount == 2 && status.fileBytes == 3)
            #expect(status.folderCount == 1 && status.waiting.isEmpty && status.waitingBytes == 0)
            one.setOffline(true)
            try await one.container.put(Data(count: 300_000), at: "f/long")
            try await one.container.put(Data("2".utf8), at: "y")
            try await one.container.put(Data("22".utf8), at: "f/x")
            try await one.container.trash(["gone"])
            try? await one.container.scope.waitUntilSent(timeout: .seconds(30))
            status = try await one.container.status()
            #expect(
                status.waiting.map(\.item.path)
                    == ["/Documents/f/long", "/Documents/y", "/Documents/f/x", "/Documents/gone"])
            #expect(status.waiting.map(\.bytes) == [300_000, 0, 0, 0] && status.waitingBytes == 300_000)
            #expect(status.waiting.map(\.item.isTrashed) == [false, false, false, true])
            let reasons = status.waiting.map { "\($0.blocker) \($0.reason)" }
            #expect(status.waiting.allSatisfy { $0.blocker == .network }, "\(reasons)")
            #expect(status.inStepCount == 1 && status.trashCount == 1 && !status.scope.isInSync)
            let part = try await one.container.status(of: "f")
            #expect(part.waiting.count == 2 && part.fileCount == 2 && part.folderCount == 1 && part.inStepCount == 1)
            #expect(part.trashCount == 0)
            let file = try await one.container.status(of: "y")
            #expect(file.waiting.count == 1 && file.fileCount == 1 && file.inStepCount == 0)
            await #expect(throws: CloudError.self) { try await one.container.status(of: "no") }
            one.setOffline(false)
            try await one.settle()
            status = try await one.container.status()
            #expect(status.waiting.isEmpty && status.inStepCount == 4 && status.scope.isInSync)
            // Until the server has removed it, what is to go for good waits, too.
            one.setOffline(true)
            try await one.container.trash.remove(try #require(try await one.container.trash.list().first).batch)
            #expect(try await one.container.status().waiting.map(\.item.path) == ["/Documents/gone"])
        }
    }

    /// As people read it, such a name is longer than one may be.
    @Test func aLongNameThatIsNoTextIsTold() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let path = try DocumentPath("f").appending(Data(repeating: 0xFF, count: 200))
            try await one.container.makeFolder(at: "f")
            try await one.settle()
            one.setOffline(true)
            for result in try await one.container.localFiles.imports.putEach(
                [DocumentSource(path, .data(Data(repeating: 7, count: 60_000)))], makesFolders: false)
            { _ = try result.get() }
            for place in ["/", "f"] {
                #expect(try await one.container.status(of: place).waiting.count == 1)
            }
            #expect(try await one.container.status(of: "/Documents/f").inStepCount == 1)
            try cloud.setPlan(bytes: 1000)
            one.setOffline(false)
            try await one.settle()
            for place in ["/", "f"] { #expect(try await one.container.status(of: place).refused.count == 1) }
            try await one.container.makeFolder(at: "g")
            #expect(try await one.container.status(of: "g").refused.isEmpty)
        }
    }

    @Test func whatWasRefusedAndWhatConflictsIsTold() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.container.put(Data("1".utf8), at: "c")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.put(Data(repeating: 7, count: 60_000), at: "f/y")
            try await two.container.put(Data("2".utf8), at: "c")
            try await one.container.put(Data("3".utf8), at: "c")
            try await one.settle()
            try cloud.setPlan(bytes: 40_000)
            two.setOffline(false)
            try await two.settle()
            let status = try await two.container.status()
            #expect(status.refused.map(\.key) == ["/Documents/f/y"])
            #expect(status.conflicts.map(\.path) == ["/Documents/c"] && status.conflictCount == 1)
            let part = try await two.container.status(of: "c")
            #expect(part.refused.isEmpty && part.conflictCount == 1)
        }
    }
}
