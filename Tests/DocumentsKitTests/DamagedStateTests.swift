import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// Of an item that the server cannot read devices have different states: it is whole again as the latest of them, also where
/// an old copy has come back, and no state goes without a word.
@Suite struct DamagedStateTests {
    private func pass(_ cloud: ContainerCloud, _ seconds: Int = 120) {
        cloud.simulation.advance(by: .seconds(seconds))
    }

    /// Two devices that have the same, a file in a folder.
    private func devices(_ cloud: ContainerCloud) async throws -> (ContainerCloud.Device, ContainerCloud.Device) {
        let (one, two) = (try await cloud.open(), try await cloud.open())
        try await one.settle()
        try await one.container.put(Data("text".utf8), at: "d/f", makesFolders: true)
        for device in [one, two] { try await device.settle() }
        pass(cloud)
        return (one, two)
    }

    private func expect(
        _ paths: [String], _ devices: [ContainerCloud.Device], _ location: SourceLocation = #_sourceLocation
    ) async throws {
        for device in devices {
            try await device.settle()
            #expect(try await device.paths() == paths.map { "/Documents/" + $0 }, sourceLocation: location)
            #expect(try await device.container.status().refused.isEmpty, sourceLocation: location)
            #expect(try await device.container.scope.verify().agrees, sourceLocation: location)
        }
    }

    enum Change: CaseIterable { case rename, move, attributes }

    /// What says nothing of a content, too.
    @Test(arguments: Change.allCases, ["d/f", "d"])
    func whoHasAnOlderStateDoesNotHeal(_ change: Change, _ path: String) async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            two.setOffline(true)
            var (now, paths) = (path, ["d", "d/f"])
            switch change {
            case .rename: now = path == "d" ? "e" : "d/g"
            case .move: now = path == "d" ? "x/d" : "f"
            case .attributes: try await one.container.setAttributes([.tags(["red"])], of: path)
            }
            if now == "x/d" { try await one.container.makeFolder(at: "x") }
            if now != path {
                try await one.container.move(path, to: now)
                paths = ["d", "d/f"].map { $0.hasPrefix(path) ? now + $0.dropFirst(path.count) : $0 }
                paths += now == "x/d" ? ["x"] : []
            }
            try await one.settle()
            one.setOffline(true)
            try await cloud.damage("/Documents/" + now, of: one)
            two.setOffline(false)
            pass(cloud)
            #expect(try await two.paths().contains("/Documents/" + path))
            #expect(try await two.container.scope.status().isInSync == false)
            one.setOffline(false)
            pass(cloud)
            try await expect(paths.sorted(), [one, two])
            if change == .attributes { #expect(try await two.container.attributes(of: path).tags == ["red"]) }
        }
    }

    /// It is moved by its rows, and whose it was before is known still.
    @Test func whatSomebodyWithAnOlderStateDeletesIsWholeInTheTrash() async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            two.setOffline(true)
            try await one.container.move("d/f", to: "d/newer")
            try await one.settle()
            one.setOffline(true)
            try await cloud.damage("/Documents/d/newer", of: one)
            try await two.container.trash(["d/f"])
            two.setOffline(false)
            pass(cloud)
            one.setOffline(false)
            pass(cloud)
            try await expect(["d"], [one, two])
            for device in [one, two] {
                #expect(try await device.container.deletedItems().flatMap(\.items).map(\.name) == ["newer"])
            }
        }
    }

    // MARK: Changes that wait

    enum Waiting: CaseIterable { case edit, attributes, rename }

    /// The device has not what was damaged: its change waits, and holds nothing else up, until another device has healed it.
    @Test(arguments: Waiting.allCases) func aChangeWaitsForAnotherDeviceToHealTheItem(_ change: Waiting) async throws {
        try await withContainers { cloud in
            let (one, two) = try await changed(change, cloud)
            try await two.container.put(Data("behind".utf8), at: "behind")
            pass(cloud)
            // What is not about it is not held up.
            let third = try await cloud.open()
            try await third.container.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await third.paths().contains("/Documents/behind"))
            let status = try await two.container.scope.status()
            #expect(status.refused.isEmpty && status.pending.contains { $0.error?.details["reason"] == "damaged" })
            // It is the same still, though each attempt has an id of its own.
            let waiting = status.pending.first { $0.error?.details["reason"] == "damaged" }
            pass(cloud)
            let later = try await two.container.scope.status().pending.first { $0.position == waiting?.position }
            #expect(later != nil && later?.id != waiting?.id)
            one.setOffline(false)
            pass(cloud)
            try await expect(["behind", "d", change == .rename ? "d/g" : "d/f"], [one, two, third])
            let path = change == .rename ? "d/g" : "d/f"
            if change == .edit { #expect(try await third.text(path) == "edited") }
            let tags = try await third.container.attributes(of: path).tags
            #expect(tags == (change == .attributes ? ["blue"] : ["red"]))
        }
    }

    /// The second device has changed what the first one, which is away, had changed before it was damaged.
    private func changed(
        _ change: Waiting, _ cloud: ContainerCloud
    ) async throws -> (one: ContainerCloud.Device, two: ContainerCloud.Device) {
        let (one, two) = try await devices(cloud)
        two.setOffline(true)
        try await one.container.setAttributes([.tags(["red"])], of: "d/f")
        try await one.settle()
        one.setOffline(true)
        try await cloud.damage("/Documents/d/f", of: one)
        two.setOffline(false)
        try await self.change(change, two)
        return (one, two)
    }

    private func change(_ change: Waiting, _ device: ContainerCloud.Device) async throws {
        switch change {
        case .edit: try await device.container.put(Data("edited".utf8), at: "d/f")
        case .attributes: try await device.container.setAttributes([.tags(["blue"])], of: "d/f")
        case .rename: try await device.container.move("d/f", to: "d/g")
        }
    }

    /// Whoever waits, or looks again and again, has it sent anew: for as long as anybody would have to wait.
    @Test func whatIsHastenedIsNotGivenUpSooner() async throws {
        try await withContainers { cloud in
            let (one, two) = try await changed(.rename, cloud)
            for _ in 0..<60 {
                two.container.scope.synchronize()
                pass(cloud, 2)
            }
            #expect(try await two.container.status().refused.isEmpty)
            one.setOffline(false)
            pass(cloud)
            try await expect(["d", "d/g"], [one, two])
        }
    }

    /// Of two items that are damaged another device has the second: it need not wait for the first.
    @Test func aChangeDoesNotWaitForWhatAnotherWaitsFor() async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            try await one.container.put(Data("text".utf8), at: "d/g")
            try await one.settle()
            let third = try await cloud.open()
            for device in [two, third] { try await device.settle() }
            for device in [two, third] { device.setOffline(true) }
            try await one.container.setAttributes([.tags(["red"])], of: "d/f")
            try await one.settle()
            one.setOffline(true)
            try await cloud.damage("/Documents/d/f", of: one)
            third.setOffline(false)
            try await third.container.setAttributes([.tags(["red"])], of: "d/g")
            try await third.container.scope.waitUntilSent(timeout: .seconds(60))
            third.setOffline(true)
            try await cloud.damage("/Documents/d/g", of: third)
            two.setOffline(false)
            for path in ["d/f", "d/g"] { try await two.container.setAttributes([.favouriteRank(7)], of: path) }
            pass(cloud)
            third.setOffline(false)
            pass(cloud)
            #expect(try await third.container.attributes(of: "d/g").favouriteRank == 7)
            #expect(try await third.container.attributes(of: "d/g").tags == ["red"])
            one.setOffline(false)
            pass(cloud)
            try await expect(["d", "d/f", "d/g"], [one, two, third])
            #expect(try await one.container.attributes(of: "d/f").favouriteRank == 7)
        }
    }

    /// However many wait, and though they are all that is looked at first.
    @Test func manyChangesThatWaitHoldNothingElseUp() async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            let names = (0..<50).map { "n\($0)" }
            for name in names { try await one.container.put(Data(name.utf8), at: name) }
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            for name in names { try await one.container.setAttributes([.tags(["red"])], of: name) }
            try await one.settle()
            one.setOffline(true)
            for name in names { try await cloud.damage("/Documents/" + name, of: one) }
            two.setOffline(false)
            for name in names { try await two.container.setAttributes([.favouriteRank(7)], of: name) }
            pass(cloud, 60)
            try await two.container.put(Data("behind".utf8), at: "behind")
            pass(cloud)
            let third = try await cloud.open()
            try await third.container.scope.waitUntilCurrent(timeout: .seconds(60))
            #expect(try await third.paths().contains("/Documents/behind"))
            one.setOffline(false)
            pass(cloud)
            try await expect(["behind", "d", "d/f"] + names.sorted(), [one, two, third])
        }
    }

    /// Nobody comes who could heal it: what was to be changed is told, each of it, and makes no other item.
    @Test(arguments: Waiting.allCases) func whatNobodyHealsIsToldInTheEnd(_ change: Waiting) async throws {
        try await withContainers { cloud in
            let (_, two) = try await changed(change, cloud)
            pass(cloud, 1800)
            let status = try await two.container.status()
            #expect(status.refused.count == 1 && status.refused.first?.error.code == .unknownItem)
            #expect(try await two.paths() == ["/Documents/d", "/Documents/d/f"])
            #expect(try await two.text("d/f") == "text")
        }
    }

    // MARK: Old copies

    /// What one device has done after the copy, and what is damaged: what the copy has, or what was done since.
    @Test(arguments: ["lost first", "other first"])
    func whatCameAfterADamagedStateOfTheCopyIsCurrent(_ order: String) async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            two.setOffline(true)
            try await changeMuch(one, "lost")
            one.setOffline(true)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await cloud.damage("/Documents/d/f", of: two)
            let (first, second) = order == "lost first" ? (one, two) : (two, one)
            first.setOffline(false)
            pass(cloud)
            second.setOffline(false)
            pass(cloud)
            try await expect(["d", "d/lost"] + Self.others, [one, two])
            for device in [one, two] { try await expectSeen("lost", device) }
        }
    }

    @Test func whatIsOfAnotherHistoryThanWhatIsDamagedIsKeptApart() async throws {
        try await withContainers { cloud in
            let (one, two) = try await devices(cloud)
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            two.setOffline(true)
            try await changeMuch(one, "lost")
            one.setOffline(true)
            pass(cloud)
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            two.setOffline(false)
            try await two.settle()
            try await two.container.move("d/f", to: "d/new")
            try await two.container.put(Data("new text".utf8), at: "d/new")
            try await two.settle()
            two.setOffline(true)
            try await cloud.damage("/Documents/d/new", of: two)
            one.setOffline(false)
            pass(cloud)
            // It shows what it has, and says that it is not the server's.
            #expect(try await one.text("d/lost") == "lost text")
            #expect(try await one.container.scope.status().isInSync == false)
            // Read once more, it is not taken for what is damaged either.
            one.setOffline(true)
            pass(cloud, 10)
            one.setOffline(false)
            pass(cloud)
            two.setOffline(false)
            pass(cloud)
            try await expect(["d", "d/new"] + Self.others, [one, two])
            for device in [one, two] {
                #expect(try await device.text("d/new") == "new text")
                try await expectSeen("lost", device)
            }
        }
    }

    private static let others = (1...9).map { "z\($0)" }

    /// Another content and another name, behind much else.
    private func changeMuch(_ device: ContainerCloud.Device, _ name: String) async throws {
        for other in Self.others {
            try await device.container.put(Data(other.utf8), at: other)
            try await device.settle()
        }
        try await device.container.put(Data("\(name) text".utf8), at: "d/f")
        try await device.container.move("d/f", to: "d/\(name)")
        try await device.settle()
    }

    /// Its content is the current one, or in conflict with that.
    private func expectSeen(_ name: String, _ device: ContainerCloud.Device) async throws {
        let file = try #require(try await device.container.items().first { $0.path.hasPrefix("/Documents/d/") })
        let conflicts = try await device.container.conflicts(of: file.path)
        var texts = [try await device.text(file.path)]
        for conflict in conflicts {
            texts.append(
                String(decoding: try await device.container.read(file.path, version: conflict.id), as: UTF8.self))
        }
        #expect(texts.contains("\(name) text"), "\(texts)")
    }
}
