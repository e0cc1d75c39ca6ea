import CNephosFiles
import Foundation
import NephosCore
import NephosFiles
import NephosSimulation
import Testing

@testable import NephosKit

/// What is said of items beside their contents, as an app sets and reads it.
@Suite struct AttributeTests {
    private func withDevices(
        _ body: (_ cloud: ContainerCloud, _ one: ContainerCloud.Device, _ two: ContainerCloud.Device) async throws ->
            Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            try await body(cloud, one, two)
        }
    }

    private func settle(_ devices: ContainerCloud.Device...) async throws {
        for device in devices + devices { try await device.settle() }
    }

    /// Sets one of a file on disk.
    ///
    /// - Returns: False: its file system has none.
    private func set(_ name: String, to value: String, of file: String) throws -> Bool {
        let descriptor = open(file, O_RDONLY | O_CLOEXEC)
        defer { close(descriptor) }
        do { try ExtendedAttributes.set(Array(name.utf8), to: Array(value.utf8), of: descriptor) } catch {
            try #require(error.number == ENOTSUP)
            return false
        }
        return true
    }

    private func attributes(of file: String) throws -> [String: String] {
        let found = try ExtendedAttributes.read(file)
        return Dictionary(
            found.map { (String(decoding: $0.name, as: UTF8.self), String(decoding: $0.value, as: UTF8.self)) }
        ) { $1 }
    }

    @Test func theyAreSetWithoutAConnectionAndSeenElsewhere() async throws {
        try await withDevices { _, one, two in
            one.setOffline(true)
            let version = try await one.container.put(Data("x".utf8), at: "f/x", makesFolders: true).version
            let entry = try await one.container.setAttributes(
                [
                    .tag("red"), .tag("blue"), .tag("red"), .favouriteRank(3),
                    .extended("user.mark", Data([0, 1, 0xff])),
                    .excludedFromBackup(true), .created(DocumentDate(nanoseconds: 5_000_000)),
                ], of: "f/x")
            #expect(entry.tags == ["blue", "red"] && entry.favouriteRank == 3 && entry.isExcludedFromBackup)
            #expect(entry.pending != .none && entry.created == DocumentDate(nanoseconds: 5_000_000))
            try await one.container.setAttributes([.tags(["a", "a", "b"])], of: "f")
            one.setOffline(false)
            try await settle(one, two)
            let there = try await two.container.attributes(of: "f/x")
            #expect(there == (try await one.container.attributes(of: "f/x")))
            #expect(there.tags == ["blue", "red"] && there.favouriteRank == 3 && there.isExcludedFromBackup)
            #expect(there.extended(named: "user.mark") == Data([0, 1, 0xff]))
            #expect(there.extended.count == 2 && there.created == DocumentDate(nanoseconds: 5_000_000))
            #expect(try await two.container.attributes(of: "f").tags == ["a", "b"])
            // No content was sent for it, and none is another version.
            #expect(try await two.container.item(at: "f/x")?.version == version)
            try await two.container.setAttributes(
                [.untag("blue"), .favouriteRank(0), .removeExtended("user.mark"), .excludedFromBackup(false)],
                of: "f/x")
            try await settle(two, one)
            let rest = try await one.container.attributes(of: "f/x")
            #expect(rest.tags == ["red"] && rest.favouriteRank == 0 && rest.extended.isEmpty)
            let error = await #expect(throws: CloudError.self) { try await one.container.attributes(of: "none") }
            #expect(error?.code == .unknownItem)
            let fixed = await #expect(throws: CloudError.self) {
                try await one.container.setAttributes([.tag("x")], of: "/Documents")
            }
            #expect(fixed?.code == .invalidArguments)
        }
    }

    @Test func ofTwoDevicesThatSetDifferentOnesBothHaveSetTheirs() async throws {
        try await withDevices { _, one, two in
            try await one.container.put(Data("x".utf8), at: "x")
            try await settle(one, two)
            for device in [one, two] { device.setOffline(true) }
            try await one.container.setAttributes([.tag("red"), .extended("user.one", Data("1".utf8))], of: "x")
            try await two.container.setAttributes([.favouriteRank(7), .extended("user.two", Data("2".utf8))], of: "x")
            for device in [one, two] { device.setOffline(false) }
            try await settle(one, two)
            for device in [one, two] {
                let both = try await device.container.attributes(of: "x")
                #expect(both.tags == ["red"] && both.favouriteRank == 7)
                #expect(
                    both.extended == [
                        Data("user.one".utf8): Data("1".utf8), Data("user.two".utf8): Data("2".utf8),
                    ])
                #expect(try await device.container.item(at: "x")?.conflictCount == 0)
            }
        }
    }

    @Test func whatTheServiceWouldRefuseIsRefusedBeforeItIsKept() async throws {
        try await withDevices { cloud, one, _ in
            try await one.container.put(Data("x".utf8), at: "x")
            try await settle(one)
            let tags = (0..<DocumentLimits.tagCountMax).map { "\($0)" }
            try await one.container.setAttributes([.tags(tags)], of: "x")
            let refused: [[DocumentAttributeChange]] = [
                [.tag("one more")], [.tags([String(repeating: "x", count: DocumentLimits.tagBytesMax + 1)])],
                [.tags([""])], [.extended("", Data("x".utf8))], [.extended("a\0b", Data("x".utf8))],
                [.extended("user.long", Data(count: DocumentLimits.attributeBytesMax))],
                (0...DocumentLimits.attributeCountMax).map { .extended("\($0)", Data("x".utf8)) },
            ]
            for changes in refused {
                let error = await #expect(throws: CloudError.self) {
                    try await one.container.setAttributes(changes, of: "x")
                }
                #expect(error?.code == .limitExceeded && error?.details["path"] == "/Documents/x")
            }
            try await settle(one)
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await one.container.attributes(of: "x").tags == tags)
            // The same of what a file brings.
            let file = cloud.root + "/many"
            try Data("y".utf8).write(to: URL(fileURLWithPath: file))
            for number in 0...DocumentLimits.attributeCountMax {
                guard try set("user.\(number)", to: "x", of: file) else { return }
            }
            for path in ["x", "new"] {
                let error = await #expect(throws: CloudError.self) {
                    try await one.container.put(file: file, at: path)
                }
                #expect(error?.code == .limitExceeded)
            }
            // Of several it is this one alone, and it stays as it was.
            let results = try await one.container.localFiles.imports.putEach(
                [.file(file, at: "x"), .data(Data("z".utf8), at: "z")], makesFolders: false, basis: .newest)
            #expect((try? results[0].get()) == nil && (try? results[1].get()) != nil)
            #expect(try await one.text("x") == "x")
            #expect(try await one.text("z") == "z")
            try await settle(one)
            #expect(try await one.container.scope.status().refused.isEmpty)
        }
    }

    @Test func aFilesExtendedAttributesGoWithItAndComeBack() async throws {
        try await withDevices { cloud, one, two in
            let (file, got) = (cloud.root + "/file", cloud.root + "/got")
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            guard try set("user.colour", to: "red", of: file), try set("user.size", to: "big", of: file) else { return }
            let made = try await one.container.put(file: file, at: "x")
            #expect(made.created != nil)
            try await settle(one, two)
            #expect(try await two.container.get("x", to: got).isEmpty)
            #expect(try attributes(of: got) == ["user.colour": "red", "user.size": "big"])

            // What a file has not stays with the item, and so does when it was made; no version comes of it.
            try await one.container.setAttributes([.extended("user.mark", Data("1".utf8))], of: "x")
            try FileManager.default.removeItem(atPath: file)
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            #expect(try set("user.colour", to: "blue", of: file))
            let again = try await one.container.put(file: file, at: "x")
            #expect(again.version == made.version && again.created == made.created)
            try await settle(one, two)
            try await two.container.get("x", to: got)
            #expect(try attributes(of: got) == ["user.colour": "blue", "user.size": "big", "user.mark": "1"])

            // A further content is another file.
            try await one.container.renditions.set(Data("small".utf8), named: "icon", of: "x")
            try await one.container.renditions.get(named: "icon", of: "x", to: cloud.root + "/icon")
            #expect(try attributes(of: cloud.root + "/icon").isEmpty)
        }
    }

    /// A file that is moved away is the only one that has what was set since it was sent.
    @Test func aFileStaysOfWhichSomethingWasSetSinceItWasPut() async throws {
        try await withDevices { cloud, one, _ in
            let file = cloud.root + "/file"
            try Data("x".utf8).write(to: URL(fileURLWithPath: file))
            guard try set("user.colour", to: "red", of: file) else { return }
            let made = try await one.container.put(file: file, at: "x")
            try await settle(one)
            for (name, value) in [("user.colour", "blue"), ("user.size", "big")] {
                #expect(try set(name, to: value, of: file))
                #expect(
                    try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: made.id) == .changed)
                #expect(FileManager.default.fileExists(atPath: file))
                // Put once more it is all there.
                _ = try await one.container.put(file: file, at: "x")
                try await settle(one)
            }
            #expect(try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: made.id) == .removed)
            #expect(!FileManager.default.fileExists(atPath: file))
            #expect(try await one.container.attributes(of: "x").extended.count == 2)
        }
    }

    /// A device that was away brings back what a restored server has lost, and undoes nothing that was set since.
    @Test func whatWasSetSinceARestoreIsNotUndoneByWhoOffersAgain() async throws {
        try await withDevices { cloud, one, two in
            try await one.container.put(Data("x".utf8), at: "x")
            try await settle(one, two)
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.setAttributes(
                [
                    .tag("lost"), .favouriteRank(3), .extended("user.mark", Data("old".utf8)),
                    .extended("user.lost", Data("1".utf8)),
                ], of: "x")
            try await settle(one, two)
            for device in [one, two] { device.setOffline(true) }
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            let three = try await cloud.open()
            try await settle(three)
            try await three.container.setAttributes(
                [.tag("new"), .favouriteRank(7), .extended("user.mark", Data("new".utf8))], of: "x")
            try await settle(three)
            for device in [one, two] {
                device.setOffline(false)
                try await settle(device, three)
                let now = try await three.container.attributes(of: "x")
                #expect(now.tags.sorted() == ["lost", "new"] && now.favouriteRank == 7)
                #expect(
                    now.extended == [
                        Data("user.mark".utf8): Data("new".utf8), Data("user.lost".utf8): Data("1".utf8),
                    ])
                #expect(try await device.container.attributes(of: "x") == now)
            }
        }
    }

    @Test func whatTheDiskDoesNotTakeIsSaidAndTheFileIsThere() async throws {
        try await withDevices { cloud, one, _ in
            let file = cloud.root + "/got"
            try await one.container.put(Data("x".utf8), at: "x")
            // No disk takes the first; the others are not for whoever sends a file to set.
            try await one.container.setAttributes(
                [
                    .extended("user.", Data("x".utf8)), .extended("security.capability", Data("x".utf8)),
                    .extended("trusted.x", Data("x".utf8)), .extended("user.mark", Data("x".utf8)),
                ], of: "x")
            let unkept = try await one.container.get("x", to: file)
            #expect(unkept.first?.name == "user." && unkept.first?.file == file && unkept.first?.reason != "")
            #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == Data("x".utf8))
            let taken = try attributes(of: file)
            #expect(taken == (unkept.count == 1 ? ["user.mark": "x"] : [:]))
            var buffer = [UInt8](repeating: 0, count: 100)
            #expect(getxattr(file, "security.capability", &buffer, 100) < 0 && errno == ENODATA || errno == ENOTSUP)
            #expect(getxattr(file, "trusted.x", &buffer, 100) < 0)
        }
    }

    @Test func aQueryFindsByTagsAndSeesThemComeAndGo() async throws {
        try await withDevices { _, one, two in
            for name in ["a", "b", "c"] { try await one.container.put(Data(name.utf8), at: name) }
            try await one.container.setAttributes([.tag("red")], of: "a")
            try await settle(one, two)
            let reader = QueryReader(try two.container.query("ANY tags ==[c] 'RED'"))
            #expect(await reader.wait { $0.isGathered })
            #expect(reader.now.items.values.map(\.name) == ["a"])
            try await one.container.setAttributes([.tag("red"), .tag("old")], of: "b")
            try await settle(one, two)
            #expect(await reader.wait { Set($0.items.values.map(\.name)) == ["a", "b"] })
            try await one.container.setAttributes([.untag("red")], of: "a")
            try await settle(one, two)
            #expect(await reader.wait { $0.items.values.map(\.name) == ["b"] })
            #expect(reader.now.contradictions.isEmpty)
        }
    }
}
