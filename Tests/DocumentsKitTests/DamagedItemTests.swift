import Foundation
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// A row that does not open at the server stops no device, and what it had comes back from whoever has it, without anybody's
/// doing.
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

    private func counters(_ cloud: ContainerCloud) throws -> [String: UInt64] {
        try cloud.simulation.use { cloud in
            let health: WireCheckHealthReply = try cloud.makeClient().call(
                "CheckHealth", WireCheckHealth(), at: .requests(.documents))
            return health.counters
        }
    }

    /// Two devices have it, a third finds it: a file, or a folder and what is in it.
    @Test(arguments: ["/Documents/folder/f", "/Documents/folder"], [true, false])
    func whatADeviceHasComesBackByItself(_ path: String, _ isRestarted: Bool) async throws {
        try await withContainers { cloud in
            var devices = try await devices(cloud)
            try await cloud.damage(path, of: devices[0], isRestarted: isRestarted)
            for device in devices { device.setOffline(true) }
            devices.append(try await cloud.open())
            try await devices[2].settle()
            #expect(try await devices[2].paths().contains("/Documents/folder/f") == false)
            cloud.simulation.advance(by: .seconds(5))
            #expect(try counters(cloud)["quarantine.now"] == 1)
            for device in devices { device.setOffline(false) }
            pass(cloud)
            try await expectAlike(devices, ["/Documents/folder", "/Documents/folder/f", "/Documents/g"])
            #expect(try await devices[2].text("folder/f") == "text")
            #expect(try await devices[2].container.versions.list(of: "folder/f").count == 1)
            #expect(try counters(cloud)["quarantine.now"] == 0 && counters(cloud)["items.quarantined"] == 1)
        }
    }

    /// The device reads everything, and is the last that has the file.
    @Test func anExpiredTokenDropsNoFileInQuarantine() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            devices[0].setOffline(true)
            try await devices[1].container.trash.remove(try await devices[1].container.trash(["g"]))
            try await devices[1].settle()
            try await cloud.damage("/Documents/folder/f", of: devices[1])
            devices[1].setOffline(true)
            let third = try await cloud.open()
            try await third.settle()
            #expect(try await third.paths() == ["/Documents/folder"])
            third.setOffline(true)
            pass(cloud)
            try cloud.simulation.use { try $0.forgetDeletions(of: .documents) }
            devices[0].setOffline(false)
            pass(cloud)
            for device in [devices[1], third] { device.setOffline(false) }
            try await expectAlike(devices + [third], ["/Documents/folder", "/Documents/folder/f"])
        }
    }

    enum Change: CaseIterable { case edit, rename, trash, attributes }

    /// It is made, or listed, or what it was made to is there again as it was: nothing is lost without a word.
    @Test(arguments: Change.allCases, ["/Documents/folder/f", "/Documents/folder"])
    func aChangeOfWhatIsInQuarantineHoldsNothingUp(_ change: Change, _ path: String) async throws {
        guard change != .edit || path.hasSuffix("f") else { return }
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await damage(path, of: devices[0], cloud)
            let container = devices[0].container
            switch change {
            case .edit: try await container.put(Data("another".utf8), at: "folder/f")
            case .rename: try await container.move(path, to: path + "2")
            case .trash: try await container.trash([path])
            case .attributes: try await container.setAttributes([.tags(["red"])], of: path)
            }
            // Behind it.
            try await container.put(Data("more".utf8), at: "h")
            pass(cloud)
            for device in devices { try await device.settle() }
            let refused = try await container.status().refused.map(\.error.code)
            #expect(refused == (change == .edit ? [] : [.unknownItem]))
            var paths = ["/Documents/folder", "/Documents/folder/f", "/Documents/g", "/Documents/h"]
            if change == .edit { paths.insert("/Documents/folder/f 2", at: 2) }
            for device in devices {
                #expect(try await device.paths() == paths)
                if change == .edit {
                    let texts = [try await device.text("folder/f"), try await device.text("folder/f 2")]
                    #expect(Set(texts) == ["text", "another"])
                }
                #expect(try await device.container.scope.verify().agrees)
            }
        }
    }

    @Test func somethingIsPutIntoAFolderInQuarantine() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await damage("/Documents/folder", of: devices[0], cloud)
            try await devices[0].container.put(Data("new".utf8), at: "folder/new")
            pass(cloud)
            for device in devices { try await device.settle() }
            // The folder that took its place was made first.
            for device in devices {
                #expect(try await device.text("folder/new") == "new")
                #expect(try await device.text("folder 2/f") == "text")
                #expect(try await device.container.scope.verify().agrees)
            }
        }
    }

    /// Conflicts that nobody has resolved, and further contents, are the item's again.
    @Test func whatElseThereIsOfItIsWholeAgainToo() async throws {
        try await withContainers { cloud in
            let devices = try await devices(cloud)
            try await makeConflict(devices)
            try await devices[0].container.renditions.set(Data("s".utf8), named: "small", of: "g")
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
