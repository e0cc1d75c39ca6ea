import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// The service comes back more than once, from copies of which the later ones know nothing of what there was between.
@Suite struct PartedHistoryTests {
    /// The disk is lost, and the service begins with nothing; days later the old copy is found. Its sequences go further
    /// than those of the days between.
    @Test func whatWasDoneBetweenTwoCopiesIsKept() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            for number in 1...40 {
                try await one.container.put(Data("often \(number)".utf8), at: "often")
                try await one.settle()
            }
            for name in ["1", "2", "3"] { try await one.container.put(Data(name.utf8), at: name) }
            try await one.container.put(Data("deep".utf8), at: "h/deep", makesFolders: true)
            try await one.settle()
            try await two.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try cloud.simulation.use { try $0.restore(nil, of: .documents) }
            try await one.settle()
            try await two.settle()
            try await one.container.put(Data("new".utf8), at: "1")
            _ = try await one.container.move("2", to: "h/moved")
            try await one.container.trash(["3"])
            try await one.settle()
            try await two.settle()
            let paths = try await one.paths()
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            for _ in 0..<3 { try await two.settle() }
            #expect(try await two.text("1") == "new")
            #expect(try await two.paths() == paths)
            one.setOffline(false)
            for _ in 0..<3 { try await one.settle() }
            try await two.settle()
            #expect(try await one.text("1") == "new")
            for device in [one, two] {
                #expect(try await device.paths() == paths)
                let status = try await device.container.scope.status()
                #expect(status.isInSync && status.refused.isEmpty)
            }
        }
    }

    /// Two devices have an item that the service has lost, one of them as it was before: whoever comes first, it ends as it
    /// was last, and who had it otherwise is told.
    @Test(arguments: [["old", "new"], ["new", "old"], ["both"]])
    func ofWhatTwoDevicesOfferTheLaterStateStands(_ order: [String]) async throws {
        try await withContainers { cloud in
            let (new, old) = (try await cloud.open(), try await cloud.open())
            try await new.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await new.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await new.settle()
            try await old.settle()
            let items = Set(try await old.container.items().map(\.id.name))
            old.setOffline(true)
            cloud.simulation.use { $0.network.run(for: .seconds(60)) }
            _ = try await new.container.move("f", to: "g")
            _ = try await new.container.move("g/x", to: "g/y")
            try await new.container.setAttributes([.tag("red")], of: "g/y")
            try await new.settle()
            let paths = try await new.paths()
            new.setOffline(true)
            let position = try old.container.handle.read { try $0.rows.latestNews() }
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            for name in order {
                if name != "old" { new.setOffline(false) }
                if name != "new" { old.setOffline(false) }
                for _ in 0..<2 {
                    if name != "new" { try await old.settle() }
                    if name != "old" { try await new.settle() }
                }
            }
            for device in [old, new] {
                try await device.settle()
                #expect(try await device.paths() == paths)
                #expect(try await device.container.attributes(of: "g/y").tags == ["red"])
                let status = try await device.container.scope.status()
                #expect(status.isInSync && status.refused.isEmpty)
            }
            let told = try old.container.handle.read { try $0.rows.news(after: position) }.entries
            #expect(items.isSubset(of: told.flatMap { $0.notification.changes.map { ItemName($0.item) } }))
        }
    }

    private static let damage = SQL("UPDATE feed_items SET body = ?2 WHERE name = ?1")

    /// A device that was behind brings an item back that the service could not read. The newest content is not lost by that,
    /// nor does the device that has it take the older one for newer without a word.
    @Test func whatADeviceThatWasBehindBringsBackIsInConflictWithTheNewest() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            for text in ["2", "3"] {
                try await one.container.put(Data(text.utf8), at: "x")
                try await one.settle()
            }
            try await one.container.move("x", to: "y")
            try await one.container.setAttributes([.tags(["red"])], of: "y")
            try await one.settle()
            let item = try #require(try await one.container.items().first)
            one.setOffline(true)
            try cloud.simulation.use { cloud in
                _ = try cloud.storage(of: .documents).write {
                    try $0.execute(Self.damage, [.text(item.id.description), .blob([1])])
                }
                cloud.crash(.documents)
                try cloud.start(.documents)
            }
            two.setOffline(false)
            for _ in 0..<2 { try await two.settle() }
            one.setOffline(false)
            for _ in 0..<2 { for device in [one, two] { try await device.settle() } }
            for device in [one, two] {
                #expect(try await device.paths() == ["/Documents/y"])
                #expect(try await device.container.attributes(of: "y").tags == ["red"])
                #expect(try await device.text("y") == "1")
                var texts: [String] = []
                for version in try await device.container.conflicts.versions(of: "y") {
                    texts.append(
                        String(decoding: try await device.container.read("y", version: version.id), as: UTF8.self))
                }
                #expect(texts == ["1", "3"])
            }
        }
    }
}
