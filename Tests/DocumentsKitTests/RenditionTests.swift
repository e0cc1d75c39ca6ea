import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Further contents of items, as an app uses them.
@Suite struct RenditionTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

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

    @Test func aFurtherContentIsSetWithoutAConnectionAndReadElsewhere() async throws {
        try await withDevices { cloud, one, two in
            let (photo, large, small) = (bytes(500_000, seed: 1), bytes(300_000, seed: 2), Data("small".utf8))
            one.setOffline(true)
            try await one.container.put(photo, at: "photo")
            try await one.container.renditions.set(large, named: "preview", of: "photo")
            let entry = try await one.container.renditions.set(small, named: "icon", of: "photo")
            #expect(entry.renditionNames == ["icon", "preview"] && entry.pending != .none)
            #expect(try await one.container.renditions.read(named: "preview", of: "photo") == large)
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            let found = try await two.container.renditions.list(of: "photo")
            #expect(found.map(\.name) == ["icon", "preview"] && found.map(\.size) == [5, 300_000])
            #expect(found.allSatisfy { $0.isCurrent && $0.madeFrom == entry.version && $0.device != nil })
            #expect(try await two.container.renditions.read(named: "icon", of: "photo") == small)
            #expect(try await two.container.renditions.read(named: "preview", of: "photo") == large)
            // It stays here as other contents do, and says nothing of where the item's own is.
            #expect(try await two.container.item(at: "photo")?.download.status == .notDownloaded)
            two.setOffline(true)
            #expect(try await two.container.renditions.read(named: "preview", of: "photo") == large)
            try await two.container.renditions.get(named: "preview", of: "photo", to: cloud.root + "/preview")
            #expect(try Data(contentsOf: URL(fileURLWithPath: cloud.root + "/preview")) == large)
            let error = await #expect(throws: CloudError.self) {
                try await two.container.renditions.read(named: "none", of: "photo")
            }
            #expect(error?.code == .unknownItem)
        }
    }

    /// It may be nowhere but here.
    @Test(arguments: [5, 300_000]) func aFurtherContentOfWhatSomebodyHasDeletedIsKept(count: Int) async throws {
        try await withDevices { _, one, two in
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.renditions.set(bytes(count, seed: 1), named: "icon", of: "x")
            try await one.container.trash(["x"])
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            let refused = try await two.container.status().refused
            #expect(refused.map(\.key) == ["/Documents/x"] && refused.first?.error.code == .unknownItem)
            #expect(
                refused.first?.recovery?.hasSuffix(" /Documents/x") == true && two.contentFiles.count == 1)
            _ = try await two.container.scope.dismissRefused()
            try await two.settle()
            #expect(two.contentFiles.isEmpty)
        }
    }

    /// What it belongs to was never made.
    @Test func aFurtherContentOfWhatWasRefusedIsKept() async throws {
        try await withDevices { cloud, one, _ in
            try cloud.setPlan(bytes: 20_000)
            one.setOffline(true)
            try await one.container.put(bytes(300_000, seed: 1), at: "x")
            try await one.container.renditions.set(bytes(5, seed: 2), named: "icon", of: "x")
            one.setOffline(false)
            try await one.settle()
            let refused = try await one.container.status().refused
            #expect(refused.count == 2 && refused.allSatisfy { $0.recovery != nil } && one.contentFiles.count == 2)
        }
    }

    @Test func theLastOneStandsAndSaysWhatItWasMadeFrom() async throws {
        try await withDevices { _, one, two in
            try await one.container.put(Data("first".utf8), at: "x")
            try await one.container.renditions.set(Data("of first".utf8), named: "t", of: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.renditions.set(Data("of two".utf8), named: "t", of: "x")
            try await one.container.put(Data("second".utf8), at: "x")
            try await one.settle()
            #expect(try await one.container.renditions.list(of: "x").map(\.isCurrent) == [false])
            #expect(try await one.container.renditions.read(named: "t", of: "x") == Data("of first".utf8))
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            #expect(try await one.container.renditions.read(named: "t", of: "x") == Data("of two".utf8))
            #expect(try await one.container.item(at: "x")?.conflictCount == 0)
            try await one.container.renditions.set(Data("of second".utf8), named: "t", of: "x")
            #expect(try await one.container.renditions.list(of: "x").map(\.isCurrent) == [true])
            try await one.container.renditions.remove(named: "t", of: "x")
            for device in [one, two] { try await device.settle() }
            #expect(try await two.container.item(at: "x")?.renditionNames == [])
            await #expect(throws: CloudError.self) { try await two.container.renditions.remove(named: "t", of: "x") }
        }
    }

    /// What was put with the bytes that the server had makes no version: it was made from the one that has them.
    @Test func whatWasMadeFromBytesThatWereThereIsMadeFromThose() async throws {
        try await withDevices { _, one, two in
            try await one.container.put(Data("base".utf8), at: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.put(Data("same".utf8), at: "x")
            try await two.container.renditions.set(Data("t".utf8), named: "t", of: "x")
            try await one.container.put(Data("same".utf8), at: "x")
            try await one.settle()
            two.setOffline(false)
            for device in [two, one] { try await device.settle() }
            let found = try await one.container.renditions.list(of: "x")
            #expect(found.map(\.isCurrent) == [true])
            #expect(try await one.container.item(at: "x")?.conflictCount == 0)
        }
    }

    @Test func whatTheServerHasLostOfThemIsOfferedAgain() async throws {
        try await withDevices { cloud, one, two in
            try await one.container.put(Data("kept".utf8), at: "x")
            try await one.container.renditions.set(Data("older".utf8), named: "t", of: "x")
            try await one.settle()
            let copy = try cloud.simulation.use { try $0.copyStorage(of: .documents) }
            try await one.container.renditions.set(Data("newer".utf8), named: "t", of: "x")
            try await one.container.put(Data("lost".utf8), at: "y")
            try await one.container.renditions.set(Data("of y".utf8), named: "u", of: "y")
            try await one.settle()
            try cloud.simulation.use { try $0.restore(copy, of: .documents) }
            try await one.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await one.settle()
            try await two.container.scope.waitUntilCurrent(timeout: .seconds(120))
            try await two.settle()
            #expect(try await two.container.renditions.read(named: "t", of: "x") == Data("newer".utf8))
            #expect(try await two.container.renditions.read(named: "u", of: "y") == Data("of y".utf8))
        }
    }

    /// But of a content, which may be nowhere but here.
    @Test(arguments: [true, false]) func ofWhatIsGoneNobodyIsTold(isContent: Bool) async throws {
        try await withDevices { _, one, two in
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.container.renditions.set(Data("s".utf8), named: "t", of: "x")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            if isContent {
                try await two.container.renditions.set(Data("t".utf8), named: "t", of: "x")
            } else {
                try await two.container.renditions.remove(named: "t", of: "x")
            }
            try await one.container.trash.remove(try await one.container.trash(["x"]))
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.container.scope.status().refused.count == (isContent ? 1 : 0))
            #expect(try await two.paths().isEmpty)
        }
    }

    // MARK: With copies

    @Test func copiesAndWhatIsMovedOutHaveThemAndNoBytesAreSent() async throws {
        try await withDevices { cloud, one, two in
            let (photo, large, small) = (bytes(500_000, seed: 1), bytes(300_000, seed: 2), Data("small".utf8))
            try await one.container.put(photo, at: "f/photo", makesFolders: true)
            try await one.container.renditions.set(large, named: "preview", of: "f/photo")
            try await one.container.put(bytes(400_000, seed: 3), at: "f/photo")
            try await one.container.renditions.set(small, named: "icon", of: "f/photo")
            try await one.settle()
            try await two.settle()
            let other = try await two.openOther()
            try cloud.forbidBytes()
            // Nothing of them is on this device.
            let copy = try await two.container.copy("f", to: "g")
            #expect(copy.itemCount == 2)
            try await two.settle()
            #expect(try await two.container.copy("g", to: "h", in: other).itemCount == 2)
            try await two.container.move("f", to: "i", in: other)
            for container in [other, two.container, other] {
                try await container.scope.waitUntilSent(timeout: .seconds(60))
                try await container.scope.waitUntilCurrent(timeout: .seconds(60))
                #expect(try await container.scope.status().refused.isEmpty)
                #expect(try await container.scope.verify().agrees)
            }
            #expect(try await two.container.item(at: "f") == nil)
            let there = try await one.openOther()
            try await one.settle()
            for (container, folder) in [(one.container, "g"), (there, "h"), (there, "i")] {
                let found = try await container.renditions.list(of: "\(folder)/photo")
                #expect(found.map(\.name) == ["icon", "preview"], "\(folder)")
                // Of the item's content as it is now, and not.
                #expect(found.map(\.isCurrent) == [true, false], "\(folder)")
                #expect(try await container.renditions.read(named: "preview", of: "\(folder)/photo") == large)
                #expect(try await container.renditions.read(named: "icon", of: "\(folder)/photo") == small)
            }
        }
    }

    @Test func aCopyOverAFileTakesThePlaceOfThoseOfTheirNamesAlone() async throws {
        try await withDevices { _, one, _ in
            let container = one.container
            for name in ["x", "y"] {
                try await container.put(Data("of \(name)".utf8), at: name)
                try await container.renditions.set(Data("t of \(name)".utf8), named: "t", of: name)
                try await container.renditions.set(Data("of \(name)".utf8), named: name, of: name)
            }
            try await container.copy("x", to: "y", replaces: true)
            try await one.settle()
            func texts() async throws -> [String] {
                var texts: [String] = []
                for found in try await container.renditions.list(of: "y") {
                    let text = String(
                        decoding: try await container.renditions.read(named: found.name, of: "y"), as: UTF8.self)
                    texts.append("\(found.name): \(text)" + (found.isCurrent ? "" : ", of another version"))
                }
                return texts
            }
            #expect(try await texts() == ["t: t of x", "x: of x", "y: of y, of another version"])
            // The same again changes nothing.
            try await container.copy("x", to: "y", replaces: true)
            #expect(try await container.item(at: "y")?.pending == DocumentEntry.PendingState.none)
            for number in 0..<6 {
                try await container.renditions.set(Data("\(number)".utf8), named: "\(number)", of: "x")
            }
            let error = await #expect(throws: CloudError.self) {
                try await container.copy("x", to: "y", replaces: true)
            }
            #expect(error?.code == .limitExceeded)
            #expect(try await texts().count == 3)
        }
    }

    @Test func whatNoneCanBeIsRefusedHere() async throws {
        try await withDevices { _, one, _ in
            let container = one.container
            try await container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            func refusal(_ name: String, _ path: String = "f/x") async -> CloudError.Code? {
                do { try await container.renditions.set(Data("t".utf8), named: name, of: path) } catch {
                    return error.code
                }
                return nil
            }
            #expect(await refusal("") == .invalidArguments)
            #expect(await refusal("a\0") == .invalidArguments)
            #expect(await refusal(String(repeating: "é", count: 33)) == .invalidArguments)
            #expect(await refusal("t", "f") == .invalidArguments)
            #expect(await refusal("t", "none") == .unknownItem)
            for number in 0..<8 { #expect(await refusal("\(number)") == nil) }
            #expect(await refusal("8") == .limitExceeded)
            #expect(await refusal("7") == nil)
            // Nothing of what was refused is left.
            #expect(
                (try? FileManager.default.contentsOfDirectory(atPath: one.session.home.path + "/content"))?.filter {
                    !$0.hasPrefix(".")
                } ?? [] == [])
            try await one.settle()
            #expect(try await container.item(at: "f/x")?.renditionNames.count == 8)
        }
    }
}
