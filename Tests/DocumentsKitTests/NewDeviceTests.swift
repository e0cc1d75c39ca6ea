import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What an app meets that begins at once, on a device that has downloaded nothing yet.
@Suite struct NewDeviceTests {
    @Test func aPutOnANewDeviceWaitsForTheNames() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.container.put(Data("first".utf8), at: "a.txt")
            try await one.container.waitUntilSent()
            let new = try await cloud.open()
            let error = await #expect(throws: CloudError.self) { try await new.container.item(at: "a.txt") }
            #expect(error?.code == .storeOutOfStep)
            // It is a new version of the file that is there, which nobody here knew of.
            let put = try await new.container.put(Data("second".utf8), at: "a.txt")
            #expect(put.conflictCount == 0 && put.size == 6)
            try await new.container.waitUntilSent()
            try await one.container.waitUntilCurrent()
            #expect(try await one.container.read("a.txt") == Data("second".utf8))
            #expect(try await one.container.conflicts.list().isEmpty)
        }
    }

    @Test func everyChangeWaitsForTheNames() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            for name in ["a", "b", "c", "d"] { try await one.container.put(Data(name.utf8), at: name) }
            try await one.container.waitUntilSent()
            try await cloud.open().container.makeFolder(at: "folder")
            try await cloud.open().container.move("a", to: "moved")
            try await cloud.open().container.trash(["b"])
            try await cloud.open().container.renditions.set(Data("small".utf8), named: "small", of: "c")
            let writer = try await cloud.open().container.streams.makeWriter(at: "written")
            try await writer.write(Data("w".utf8))
            try await writer.finish()
            let copying = try await cloud.open()
            try await copying.container.copy("d", to: "d", in: copying.openOther())
        }
    }

    @Test func aPutThatReachesNobodySaysWhy() async throws {
        try await withContainers { cloud in
            let new = try await cloud.open()
            new.setOffline(true)
            let error = await #expect(throws: CloudError.self) {
                try await new.container.put(Data("x".utf8), at: "a.txt")
            }
            #expect(error?.code == .storeOutOfStep && error?.details["reason"]?.isEmpty == false)
            #expect(new.contentFiles.isEmpty)
            // A session that asks nobody does not wait.
            let away = try await cloud.open(new.session.home.path, isOffline: true)
            let before = cloud.simulation.use { $0.network.now }
            _ = await #expect(throws: CloudError.self) {
                try await away.container.put(Data("x".utf8), at: "a.txt")
            }
            #expect(cloud.simulation.use { $0.network.now } - before < .seconds(1))
            new.setOffline(false)
            try await new.container.put(Data("x".utf8), at: "a.txt")
            try await new.container.waitUntilSent()
        }
    }

    @Test func aContainerIsReadyOnceItsNamesAreHere() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.container.put(Data("x".utf8), at: "a.txt")
            try await one.container.waitUntilSent()
            let new = try await cloud.open()
            try await new.container.ready()
            new.setOffline(true)
            try await new.container.ready(timeout: .zero)
            let entry = try #require(try await new.container.item(at: "a.txt"))
            #expect("\(entry)" == "/Documents/a.txt (file, 1 bytes)")
        }
    }

    @Test func changesAndConflictsOfAContainerAreTold() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            let file = try await one.container.put(Data("base".utf8), at: "a.txt")
            try await one.container.waitUntilSent()
            try await two.container.waitUntilCurrent()
            var changes = two.container.changes.makeAsyncIterator()
            for (device, text) in [(one, "first"), (two, "second")] {
                device.setOffline(true)
                try await device.container.put(Data(text.utf8), at: "a.txt")
            }
            #expect("\(try await one.container.status())".contains("waiting: /Documents/a.txt ("))
            for device in [one, two] {
                device.setOffline(false)
                try await device.container.waitUntilSent()
                try await device.container.waitUntilCurrent()
            }
            let change = try await changes.next()
            #expect(change?.changed.map(\.id) == [file.id] && change?.removed == [])
            #expect(change?.description == "serverChange; changed: /Documents/a.txt")
            #expect(try await two.container.conflicts.list().map(\.path) == ["/Documents/a.txt"])
            try await two.container.conflicts.resolve(file.id)
            #expect(try await two.container.conflicts.list().isEmpty)
        }
    }

    @Test func whatIsNoFileUrlIsRefused() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            let web = try #require(URL(string: "https://example.org/a"))
            for source in [DocumentSource.file(web, at: "a"), .package(web, at: "a")] {
                let error = await #expect(throws: CloudError.self) { try await one.container.put([source]) }
                #expect(error?.code == .invalidArguments)
            }
            let error = await #expect(throws: CloudError.self) {
                try await one.container.localFiles.put(web, at: "a")
            }
            #expect(error?.code == .invalidArguments)
        }
    }
}
