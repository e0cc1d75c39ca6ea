import Foundation
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Former versions that a person is rid of, also while nobody is there to ask which there are.
@Suite struct RemovedVersionTests {
    /// Puts these texts at `x`, one after the other, and has the server take each.
    private func put(_ texts: [String], on device: ContainerCloud.Device) async throws {
        for text in texts {
            try await device.container.put(Data(text.utf8), at: "x")
            try await device.settle()
        }
    }

    private func texts(on device: ContainerCloud.Device) async throws -> [String] {
        var texts: [String] = []
        for version in try await device.container.versions.list(of: "x") {
            texts.append(String(decoding: try await device.container.read("x", version: version.id), as: UTF8.self))
        }
        return texts
    }

    @Test func someAreRemovedByName() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await put(["1", "2", "3"], on: one)
            let versions = try await one.container.versions.list(of: "x")
            try await one.container.versions.remove([versions[2].id], of: "x")
            try await one.settle()
            #expect(try await texts(on: one) == ["3", "2"])
            // What is current is refused here already.
            await #expect(throws: CloudError.self) {
                try await one.container.versions.remove([versions[0].id], of: "x")
            }
            await #expect(throws: CloudError.self) { try await one.container.versions.removeOthers(of: "/Documents") }
            #expect(try await one.container.scope.status().refused.isEmpty)
        }
    }

    /// It waits behind what was put before it, and touches nothing that another has put meanwhile.
    @Test func offlineItWaitsBehindWhatWasPutBefore() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await put(["1", "2"], on: one)
            try await two.settle()
            one.setOffline(true)
            try await one.container.put(Data("3".utf8), at: "x")
            try await one.container.versions.removeOthers(of: "x")
            #expect(try await one.container.item(at: "x")?.pending == .waiting)
            one.setOffline(false)
            try await one.settle()
            #expect(try await texts(on: one) == ["3"])

            one.setOffline(true)
            try await one.container.put(Data("4".utf8), at: "x")
            try await one.container.versions.removeOthers(of: "x")
            try await two.settle()
            try await two.container.put(Data("of two".utf8), at: "x")
            try await two.settle()
            one.setOffline(false)
            try await one.settle()
            try await two.settle()
            // The two are a conflict, and both are there; what was before them is not.
            #expect(try await two.container.item(at: "x")?.conflictCount == 1)
            #expect(try await Set(texts(on: two)) == ["4", "of two"])
        }
    }

    /// What was put was refused: nothing is removed for it.
    @Test func whereTheContentIsRefusedTheOthersStay() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await put(["1", "2"], on: one)
            try cloud.setPlan(bytes: 100)
            try await one.container.put(Data(repeating: 7, count: 3000), at: "x")
            try await one.container.versions.removeOthers(of: "x")
            try await one.settle()
            #expect(try await one.container.scope.status().refused.count == 1)
            #expect(try await texts(on: one) == ["2", "1"])
            // Without it they go, also on a plan that is full.
            try await one.container.versions.removeOthers(of: "x")
            try await one.settle()
            #expect(try await texts(on: one) == ["2"])
        }
    }

    /// Bytes that the server has already make no version: what was before the one that has them goes.
    @Test func bytesThatMakeNoVersionStandForTheOneThatHasThem() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await put(["1", "2"], on: one)
            try await two.settle()
            one.setOffline(true)
            try await one.container.put(Data("3".utf8), at: "x")
            try await one.container.versions.removeOthers(of: "x")
            try await two.container.put(Data("3".utf8), at: "x")
            try await two.settle()
            one.setOffline(false)
            try await one.settle()
            #expect(try await texts(on: two) == ["3"])
        }
    }

    /// The service bounds a batch by the items that it is about, and so does the device.
    @Test func whatIsAboutLargeItemsIsDivided() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try cloud.simulation.use { try Self.makeLarge(375, in: $0) }
            try await one.settle()
            let items = try await one.container.children()
            #expect(items.count == 375)
            let batch = try await one.container.trash(items.map(\.id))
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            #expect(try await one.container.children().isEmpty)
            #expect(try await one.container.trash.restore(batch).count == 375)
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
        }
    }

    /// Files of about 50 KB, in attributes and conflicts.
    private static func makeLarge(_ count: Int, in cloud: TestCloud) throws {
        let device = try TestBulk(of: cloud, app: ContainerCloud.app.rawValue)
        func id() -> Data {
            var generator = SystemRandomNumberGenerator()
            return Data(DocumentID.random(using: &generator).bytes)
        }
        func content(_ number: Int) -> WireDocumentContent {
            var content = WireDocumentContent()
            content.version = id()
            content.base = number > 0 ? id() : Data()
            content.inline = Data(repeating: UInt8(number), count: 4096)
            content.length = 4096
            return content
        }
        for start in stride(from: 0, to: count, by: 75) {
            var request = WireApplyChanges()
            request.container = ContainerCloud.container
            for number in start..<min(count, start + 75) {
                let item = id()
                var create = WireDocumentChange()
                create.item = item
                create.create.kind = .file
                create.create.parent = Data(DocumentID.documents.bytes)
                create.create.name = Data("\(number)".utf8)
                create.create.placeVersion = id()
                create.create.content = content(0)
                var attribute = WireExtendedAttribute()
                attribute.name = Data("x".utf8)
                attribute.value = Data(count: 32_000)
                create.create.attributes.extended = [attribute]
                request.changes.append(create)
                for conflict in 1...4 {
                    var replace = WireDocumentChange()
                    replace.item = item
                    replace.replace.content = content(conflict)
                    request.changes.append(replace)
                }
            }
            let _: WireApplyChangesReply = try device.client.call(
                "ApplyChanges", request, at: .requests(.documents), accessToken: device.accessToken)
        }
    }

    /// Where too much waits it waits until there is room, and it ends where nothing moves.
    @Test func allOfAContainerGoInStepsWhereTooMuchWaits() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for number in 0..<12 {
                for text in ["a", "b"] { try await one.container.put(Data(text.utf8), at: "y\(number)") }
            }
            try await one.settle()
            one.setOffline(true)
            for number in 0..<5 { try await one.container.makeFolder(at: "f\(number)") }
            let error = await #expect(throws: CloudError.self) {
                try await one.container.versions.removeOthers(stepMax: 5, pendingMax: 4, patience: .seconds(2))
            }
            #expect(error?.code == .serviceBusy && error?.details["pending_max"] == "4")
            one.setOffline(false)
            #expect(
                try await one.container.versions.removeOthers(stepMax: 5, pendingMax: 4, patience: .seconds(600)) == 12)
            try await one.settle()
            #expect(try await one.container.usage(timeout: .seconds(10)).versionBytes == 0)
            #expect(try await one.container.versions.list(of: "y7").count == 1)
        }
    }

    @Test func allOfAContainerGoAtOnce() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await put(["1", "2", "3"], on: one)
            for number in 0..<40 {
                for text in ["a", "b"] { try await one.container.put(Data(text.utf8), at: "y\(number)") }
            }
            try await one.settle()
            let before = try await one.container.usage(timeout: .seconds(10))
            #expect(try await one.container.versions.removeOthers() == 41)
            try await one.settle()
            let after = try await one.container.usage(timeout: .seconds(10))
            #expect(before.versionBytes > 0 && after.versionBytes == 0, "\(before), \(after)")
            #expect(try await one.container.versions.list(of: "y7").count == 1)
            #expect(try await one.container.scope.status().refused.isEmpty)
        }
    }
}
