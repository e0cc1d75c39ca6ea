import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// One row that the disk has lost stops no device, and is whole again by whoever has it, without anybody's doing.
@Suite struct DamagedItemTests {
    private func damage(_ path: String, of device: ContainerCloud.Device, _ cloud: ContainerCloud) async throws {
        try await cloud.damage(path, of: device)
    }

    private func pass(_ cloud: ContainerCloud) { cloud.simulation.advance(by: .seconds(120)) }

    /// Two devices that have the same; the file lies in a folder.
    private func devices(_ cloud: ContainerCloud) async throws -> [ContainerCloud.Device] {
        let devices = [try await cloud.open(), try await cloud.open()]
        try await devices[0].container.makeFolder(at: "folder")
        try await devices[0].container.put(Data("text".utf8), at: "folder/f")
        try await devices[0].container.put(Data("other".utf8), at: "g")
        for device in devices { try await device.settle() }
        return devices
    }

    /// Both have written the file `g`, neither knowing of the other.
    private func makeConflict(_ devices: [ContainerCloud.Device]) async throws {
        devices[1].setOffline(true)
        try await devices[0].container.put(Data("here".utf8), at: "g")
        try await devices[1].container.put(Data("there".utf8), at: "g")
        try await devices[0].settle()
        devices[1].setOffline(false)
        for device in [devices[1], devices[0]] { try await device.settle() }
    }

    private func expectAlike(
        _ devices: [ContainerCloud.Device], _ paths: [String], _ location: SourceLocation = #_sourceLocation
    ) async throws {
        for device in devices {
            try await device.settle()
            #expect(try await device.paths() == paths, sourceLocation: location)
            #expect(try await device.container.status().refused.isEmpty, sourceLocation: location)
            #expect(try await device.container.status().conflicts.isEmpty, sourceLocation: location)
            #expect(try await device.container.scope.verify().agrees, sourceLocation: location)
        }
    }

    enum Change: CaseIterable { case edit, rename, trash, attributes }

    @Test(arguments: Change.allCases, ["/Documents/folder/f", "/Documents/folder"])
    func aChangeOfADamagedItemHoldsNothingUp(_ change: Change, _ path: String) async throws {
        guard change != .edit || path.hasSuffix("f") else { return }
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await damage(path, of: devices[0], cloud)
            let container = devices[0].container
            var paths = ["/Documents/folder", "/Documents/folder/f", "/Documents/g", "/Documents/h"]
            switch change {
            case .edit: try await container.put(Data("another".utf8), at: "folder/f")
            case .rename:
                try await container.move(path, to: path + "2")
                paths = paths.map { $0.hasPrefix(path) ? path + "2" + $0.dropFirst(path.count) : $0 }
            case .trash:
                try await container.trash([path])
                paths.removeAll { $0.hasPrefix(path) }
            case .attributes:
                try await container.setAttributes([.tags(["red"])], of: path)
            }
            // Behind it.
            try await container.put(Data("more".utf8), at: "h")
            pass(cloud)
            try await expectAlike(devices, paths)
            if change == .edit { #expect(try await devices[1].text("folder/f") == "another") }
        }
    }

    @Test func somethingIsPutIntoADamagedFolder() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await damage("/Documents/folder", of: devices[0], cloud)
            try await devices[0].container.put(Data("new".utf8), at: "folder/new")
            pass(cloud)
            try await expectAlike(
                devices, ["/Documents/folder", "/Documents/folder/f", "/Documents/folder/new", "/Documents/g"])
        }
    }

    /// Nobody changes anything: who has it hears of it, though its copy is as the digest says.
    @Test(arguments: ["/Documents/folder/f", "/Documents/folder"])
    func whatADeviceHasHealsByItself(_ path: String) async throws {
        try await withContainers { cloud in
            var devices = try await devices(cloud)
            try await damage(path, of: devices[0], cloud)
            // Who has nothing yet finds it.
            devices.append(try await cloud.open())
            pass(cloud)
            try await expectAlike(devices, ["/Documents/folder", "/Documents/folder/f", "/Documents/g"])
            #expect(try await devices[2].text("folder/f") == "text")
            #expect(try await devices[2].container.versions(of: "folder/f").count == 1)
            cloud.simulation.advance(by: .seconds(60))
            try cloud.simulation.use { cloud in
                let health: WireCheckHealthReply = try cloud.makeClient().call(
                    "CheckHealth", WireCheckHealth(), at: .requests(.documents))
                #expect(health.counters["damaged.now"] == 0 && health.counters["items.damaged"] ?? 0 > 0)
            }
        }
    }

    @Test func anOlderStateTakesNoDamagedOnesPlace() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            devices[1].setOffline(true)
            try await devices[0].container.move("g", to: "newer")
            try await devices[0].container.put(Data("newer".utf8), at: "newer")
            try await devices[0].settle()
            devices[0].setOffline(true)
            try await damage("/Documents/newer", of: devices[0], cloud)
            devices[1].setOffline(false)
            pass(cloud)
            devices[0].setOffline(false)
            pass(cloud)
            try await expectAlike(devices, ["/Documents/folder", "/Documents/folder/f", "/Documents/newer"])
            #expect(try await devices[1].text("newer") == "newer")
        }
    }

    /// What has lost keeps its row, the newest there is, and has taken nobody's place.
    @Test(arguments: [false, true]) func whatLostAndWasResolvedIsNoNewerState(_ deletes: Bool) async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await makeConflict(devices)
            let entry = try #require(try await devices[0].container.items().first { $0.name == "g" })
            try await devices[0].container.resolve("g", keeping: entry.version)
            for device in devices { try await device.settle() }
            let kept = try await devices[0].text("g")
            try await damage("/Documents/g", of: devices[0], cloud)
            var paths = ["/Documents/folder", "/Documents/folder/f", "/Documents/g"]
            if deletes {
                try await devices[0].container.trash(["g"])
                paths.removeLast()
            }
            let third = try await cloud.open()
            pass(cloud)
            try await expectAlike(devices + [third], paths)
            if !deletes { #expect(try await third.text("g") == kept) }
        }
    }

    /// Nobody else is there to say that it is damaged: whoever deletes it heals it, into the trash.
    @Test(arguments: [1, 2]) func aDamagedItemThatOneDeviceHasIsDeletedFromIt(_ times: Int) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("text".utf8), at: "f")
            try await one.settle()
            try await damage("/Documents/f", of: one, cloud)
            for _ in 0..<times {
                guard try await one.paths().contains("/Documents/f") else { break }
                try await one.container.trash(["f"])
                try await one.settle()
            }
            pass(cloud)
            try await expectAlike([one], [])
            #expect(try await one.container.deletedItems().flatMap(\.items).map(\.name) == ["f"])
            try await one.container.restore()
            try await one.settle()
            #expect(try await one.text("f") == "text")
        }
    }

    /// Conflicts that nobody has resolved, and further contents, are the item's again.
    @Test func whatElseThereIsOfItIsWholeAgainToo() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await makeConflict(devices)
            try await devices[0].container.setRendition(Data("s".utf8), named: "small", of: "g")
            for device in devices { try await device.settle() }
            let before = try #require(try await devices[0].container.items().first { $0.name == "g" })
            try await damage("/Documents/g", of: devices[0], cloud)
            let third = try await cloud.open()
            pass(cloud)
            for device in devices + [third] {
                try await device.settle()
                let entry = try #require(try await device.container.items().first { $0.name == "g" })
                #expect(
                    entry.version == before.version && entry.conflictCount == 1 && entry.renditionNames == ["small"])
                #expect(entry.placeVersion == before.placeVersion && entry.device == before.device)
                #expect(try await device.container.status().conflicts.count == 1)
                #expect(try await device.container.scope.verify().agrees)
            }
        }
    }
}
