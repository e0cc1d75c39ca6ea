import Foundation
import NephosCore
import NephosKit
import NephosSimulation
import NephosWire
import Testing

/// What a container is, and what it takes, as a device knows it.
@Suite struct DefinitionTests {
    @Test func aDeviceHeedsWhatTheContainerIs() async throws {
        try await withContainers { cloud in
            try cloud.define { ($0.containerClass, $0.names) = (.backup, .bytes) }
            let one = try await cloud.open()
            try await one.settle()
            let definition = try one.container.definition
            #expect(definition.containerClass == .backup && !definition.foldsNames && !definition.isReadOnly)
            #expect(definition.classBytesMax == nil)
            try await one.container.put(Data("1".utf8), at: "/a")
            try await one.container.put(Data("2".utf8), at: "/A")
            do {
                try await one.container.put(Data("3".utf8), at: "b")
                Issue.record("It was taken.")
            } catch { #expect((error as? CloudError)?.code == .constraintViolation) }
            try await one.settle()
            #expect(try await one.paths().filter { $0 != "/Documents" } == ["/A", "/a"])
        }
    }

    @Test func whatAnotherAppAloneChangesIsRefusedHereAtOnce() async throws {
        try await withContainers { cloud in
            let writer = "T.writer"
            try cloud.simulation.use { cloud in
                var app = WireApp()
                app.appID = writer
                try cloud.createApp(app)
            }
            try cloud.define { $0.writerApp = writer }
            let one = try await cloud.open()
            try await one.settle()
            #expect(try one.container.definition.isReadOnly)
            do {
                try await one.container.put(Data("3".utf8), at: "b")
                Issue.record("It was taken.")
            } catch { #expect((error as? CloudError)?.code == .permissionFailure) }
            #expect(try await one.container.status().refused.isEmpty)
        }
    }

    @Test func aContentThatAStreamDoesNotTakeIsNotKeptHere() async throws {
        try await withContainers { cloud in
            try cloud.define { $0.containerClass = .stream }
            let one = try await cloud.open()
            try await one.settle()
            #expect(try one.container.definition.classBytesMax == 5 << 30)
            try await one.container.put(Data(repeating: 7, count: 200_000), at: "a")
            try await one.settle()
            let two = try await cloud.open()
            try await two.settle()
            #expect(try await two.container.read("a").count == 200_000)
            #expect(try await two.session.storage(timeout: .seconds(10)).usedBytes == 0)
            do {
                try await one.container.put(Data(repeating: 7, count: 50_000_001), at: "b")
                Issue.record("It was taken.")
            } catch { #expect((error as? CloudError)?.code == .limitExceeded) }
        }
    }

    @Test func whatAContainerTakesIsAddedUpByWhereItLies() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data(repeating: 1, count: 1000), at: "f/a", makesFolders: true)
            try await one.container.put(Data(repeating: 2, count: 2000), at: "/hidden/b", makesFolders: true)
            try await one.container.put(Data(repeating: 3, count: 3000), at: "g/c", makesFolders: true)
            try await one.settle()
            try await one.container.trash(["g"])
            try await one.container.put(Data(repeating: 4, count: 1500), at: "f/a")
            try await one.settle()
            let usage = try await one.container.usage(timeout: .seconds(10))
            #expect(usage.documents.itemCount == 2 && (1500 + 1024..<1500 + 1112).contains(Int(usage.documents.bytes)))
            #expect(usage.hidden.itemCount == 2 && (2000 + 1024..<2000 + 1112).contains(Int(usage.hidden.bytes)))
            #expect(usage.trash.itemCount == 2 && (3000 + 1024..<3000 + 1112).contains(Int(usage.trash.bytes)))
            #expect(usage.versionBytes == 1512 && usage.containerClass == .documents)
            // A further content is no former version: nobody makes room by removing those.
            try await one.container.renditions.set(Data(repeating: 5, count: 3500), named: "icon", of: "f/a")
            try await one.settle()
            #expect(try await one.container.usage(timeout: .seconds(10)).versionBytes == 1512)
        }
    }
}
