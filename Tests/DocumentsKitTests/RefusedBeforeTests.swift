import Foundation
import GRDB
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// What rests on a change that was refused, and what is kept of that.
@Suite struct RefusedBeforeTests {
    /// Nobody but this device has changed the file: what was to be its content is refused, and is no reason to keep it.
    @Test(arguments: [true, false]) func aDeletionGoesThoughTheContentBeforeItIsRefused(isInFolder: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "f/x", makesFolders: true)
            try await one.settle()
            try cloud.setPlan(bytes: 1000)
            one.setOffline(true)
            try await one.container.put(SplitMix64.bytes(300_000, seed: 1), at: "f/x")
            try await one.container.trash([isInFolder ? "f" : "f/x"])
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.status().refused.map(\.error.code) == [.quotaExceeded])
            try await two.settle()
            #expect(try await two.paths() == (isInFolder ? [] : ["/Documents/f"]))
        }
    }

    /// It was never made, so there is nothing to be deleted.
    @Test(arguments: [true, false]) func whatWasNeverMadeIsNotDeleted(isFolder: Bool) async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try cloud.setPlan(bytes: 100)
            one.setOffline(true)
            if isFolder {
                try await one.container.makeFolder(at: "x")
            } else {
                try await one.container.put(Data("1".utf8), at: "x")
            }
            let batch = try await one.container.trash(["x"])
            try await one.container.trash.remove(batch)
            one.setOffline(false)
            try await one.settle()
            let status = try await one.container.status()
            #expect(status.refused.map(\.error.code) == [.quotaExceeded] && status.scope.pending.isEmpty)
            #expect(try await one.container.trash.list().isEmpty)
        }
    }

    /// What another device has brought back, and deleted anew, is another deletion.
    @Test func whatWasDeletedAnewIsNotRemovedByWhoMeantTheFirstDeletion() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            let first = try await one.container.trash(["x"])
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.trash.remove(first)
            #expect(try await two.container.trash.list().isEmpty)
            try await one.container.trash.restore(first)
            let second = try await one.container.trash(["x"])
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            #expect(try await two.container.status().refused.map(\.error.code) == [.constraintViolation])
            for device in [one, two] {
                try await device.settle()
                #expect(try await device.container.trash.list().map(\.batch) == [second])
            }
            try await two.container.trash.restore(second)
            #expect(try await two.text("x") == "1")
        }
    }

    /// Two devices delete the same: what the second removes for good goes, though it lies there with what the first one
    /// deleted.
    ///
    /// - Parameter isFolder: With something in it.
    @Test(arguments: [false, true]) func whatTwoHaveDeletedIsRemovedByTheSecond(isFolder: Bool) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: isFolder ? "x/in" : "x", makesFolders: true)
            try await one.container.put(Data("2".utf8), at: "other")
            for device in [one, two] { try await device.settle() }
            two.setOffline(true)
            try await one.container.trash(["x"])
            try await one.settle()
            let batch = try await two.container.trash(["x", "other"])
            try await two.container.trash.remove(batch)
            two.setOffline(false)
            for device in [two, one, two] { try await device.settle() }
            for device in [one, two] {
                #expect(try await device.container.trash.list().isEmpty)
                #expect(try await device.container.status().refused.isEmpty)
            }
        }
    }

    // MARK: What is kept

    private func refuse(_ count: Int, at path: (Int) -> String, _ device: ContainerCloud.Device) throws {
        try device.session.local.write { database in
            let documents = try device.container.handle.documents(database)
            for number in 0..<count {
                var replace = WireReplaceContent()
                replace.content.version = device.session.engine.makeDocumentID().wire
                let id = device.session.engine.makeDocumentID()
                try documents.recordRefusal(
                    of: id.name, at: path(number), bringing: WireDocumentChange(id, .replace(replace)), isHere: true,
                    CloudError(.quotaExceeded, "No room."), now: device.session.engine.stamp.now)
            }
        }
    }

    @Test func ofTwoRefusalsOfOnePathOneIsSettledAlone() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try refuse(2, at: { _ in "/Documents/x" }, one)
            try one.session.local.write { database in
                let documents = try one.container.handle.documents(database)
                let refusals = try documents.refusals()
                try documents.removeRefusal(refusals[0])
                #expect(try documents.refusals().map(\.brought) == [refusals[1].brought])
            }
        }
    }

    /// A home may have very many. What one of them brought is on the server: it is looked at once that is told, and with
    /// nothing else.
    @Test func whatOthersChangeCostsNothingForWhatDoesNotConcernIt() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            let there = try await one.container.put(Data("there".utf8), at: "there")
            try await one.settle()
            try await two.settle()
            try refuse(200, at: { "/Documents/refused \($0)" }, one)
            try one.session.local.write { database in
                let documents = try one.container.handle.documents(database)
                var replace = WireReplaceContent()
                replace.content = try #require(try documents.document(there.id)).wire.content
                try documents.recordRefusal(
                    of: there.id.name, at: there.path, bringing: WireDocumentChange(there.id, .replace(replace)),
                    CloudError(.quotaExceeded, "No room."), now: one.session.engine.stamp.now)
            }
            func count() throws -> Int { try one.container.handle.read { try $0.refusals().count } }
            try await two.container.put(Data("other".utf8), at: "other")
            try await two.settle()
            try await one.settle()
            #expect(try count() == 201)
            try await two.container.move("there", to: "elsewhere")
            try await two.settle()
            try await one.settle()
            #expect(try count() == 200)
            try one.session.local.read { database in
                let documents = try one.container.handle.documents(database)
                let refusal = try #require(try documents.refusals().first)
                #expect(try documents.refusals(of: refusal.brought, at: nil).map(\.number) == [refusal.number])
                var changed = SettlingItems()
                changed.addAll()
                #expect(try documents.refusals(concernedBy: changed).count == 200)
            }
        }
    }

    // MARK: Little room

    @Test(.enabled(if: SmallDisk.isAvailable, "Only the superuser may mount a small disk."))
    func onANearlyFullDiskWhatWasRefusedHoldsNothingUp() async throws {
        let disk = try SmallDisk(megabytes: 40)
        defer { disk.remove() }
        try await withContainers { cloud in
            let one = try await cloud.open(disk.folder + "/home")
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            try await one.settle()
            try cloud.setPlan(bytes: 1000)
            one.setOffline(true)
            try await one.container.put(Data(repeating: 1, count: 3000), at: "y")
            try await one.container.trash(["x"])
            let space = try #require(try ContentFolder(home: disk.folder).disk(of: disk.folder))
            try Data(count: Int(space.free - space.reserve / 2)).write(to: URL(fileURLWithPath: disk.folder + "/junk"))
            one.setOffline(false)
            try await one.settle()
            let status = try await one.container.status()
            #expect(status.waiting.isEmpty && status.refused.map(\.error.code) == [.quotaExceeded])
            #expect(status.refused.first?.recovery != nil)
            #expect(try await one.paths().isEmpty)
        }
    }
}

extension ContentFolder {
    /// Its own is made with the first content.
    fileprivate func disk(of folder: String) -> LocalDisk? {
        mkdir(path, 0o700)
        return disk
    }
}
