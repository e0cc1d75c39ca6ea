import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// A copy is new items over the same contents: nothing is sent, and nothing is seen of it before it is whole.
@Suite struct CopyTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    @Test func aFolderIsCopiedWithoutAByteBeingSent() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let long = bytes(2_000_000, seed: 1)
            try await one.container.put(long, at: "a/b/long", makesFolders: true)
            try await one.container.put(Data("short".utf8), at: "a/short")
            try await one.container.put(
                [.link(to: "short", at: "a/link"), .data(Data("#!".utf8), at: "a/trashed")])
            try await one.container.trash(["a/trashed"])
            try await one.settle()
            let sent = cloud.simulation.use { $0.requestCount(.documents) }
            let copy = try await one.container.copy("a", to: "c")
            #expect(copy.itemCount == 5 && copy.stepCount == 1 && copy.item.path == "/Documents/c")
            try await one.settle()
            // An upload takes three requests more, of which one reserves room.
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - sent < 4)
            #expect(try await one.container.scope.status().refused.isEmpty)
            try await two.settle()
            #expect(
                try await two.paths().filter { $0.hasPrefix("/Documents/c") }
                    == [
                        "/Documents/c", "/Documents/c/b", "/Documents/c/b/long", "/Documents/c/link",
                        "/Documents/c/short",
                    ])
            #expect(try await two.container.read("c/b/long") == long)
            #expect(try await two.container.item(at: "c/link")?.kind == .link)
            // The one goes, and the other stays.
            try await one.container.trash.remove(try await one.container.trash(["a"]))
            try await one.settle()
            #expect(try await two.container.read("c/b/long") == long)
            #expect(try await one.container.scope.verify().agrees)
        }
    }

    @Test func moreThanARequestHasGoesInStepsAndSurvivesAnEnd() async throws {
        try await withContainers { cloud in
            var one = try await cloud.open()
            try await one.settle()
            let sources = (0..<1200).map { DocumentSource.data(Data("\($0)".utf8), at: "many/\($0 % 7)/\($0)") }
            try await one.container.put(sources, makesFolders: true)
            try await one.settle()
            one.setOffline(true)
            let copy = try await one.container.copy("many", to: "copy")
            #expect(copy.itemCount == 1208 && copy.stepCount == 4)
            #expect(try await one.container.items(in: "copy").count == 1207)
            one.session.close()
            one = try await cloud.open(one.session.home.path)
            // It is cut off at every step, by a service that cannot commit.
            for _ in 0..<3 {
                cloud.simulation.use { $0.setCommitsFail(of: .documents, true) }
                try? await one.container.scope.waitUntilSent(timeout: .milliseconds(300))
                cloud.simulation.use { $0.setCommitsFail(of: .documents, false) }
                try? await one.container.scope.waitUntilSent(timeout: .milliseconds(300))
            }
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.items(in: "copy").count == 1207)
            #expect(try await two.text("copy/3/1109") == "1109")
        }
    }

    @Test func aCopyOfWhatWaitsHasItsContentHereAndThere() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            one.setOffline(true)
            let content = bytes(900_000, seed: 2)
            try await one.container.put(content, at: "x")
            try await one.container.copy("x", to: "y")
            #expect(try await one.container.read("y") == content)
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            try await two.settle()
            #expect(try await two.container.read("y") == content)
        }
    }

    @Test func whatIsInTheWayIsSaid() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let container = one.container
            try await container.put(Data("1".utf8), at: "a/x", makesFolders: true)
            try await container.put(Data("2".utf8), at: "y")
            await #expect(throws: CloudError.self) { try await container.copy("a", to: "a/b") }
            await #expect(throws: CloudError.self) { try await container.copy("a/x", to: "y") }
            await #expect(throws: CloudError.self) { try await container.copy("a/x", to: "a/x", replaces: true) }
            await #expect(throws: CloudError.self) { try await container.copy("a", to: "y", replaces: true) }
            await #expect(throws: CloudError.self) { try await container.copy("no", to: "z") }
            await #expect(throws: CloudError.self) { try await container.copy("y", to: "no/z") }
            await #expect(throws: CloudError.self) { try await container.copy("/Documents", to: "z") }
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/x", "/Documents/y"])
            try await container.copy("a/x", to: "y", replaces: true)
            try await container.copy("y", to: "a")
            try await one.settle()
            #expect(try await one.text("y") == "1")
            #expect(try await container.versions.list(of: "y").count == 2)
            #expect(try await one.paths() == ["/Documents/a", "/Documents/a/x", "/Documents/a/y", "/Documents/y"])
        }
    }
}
