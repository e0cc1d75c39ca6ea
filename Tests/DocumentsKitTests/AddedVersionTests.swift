import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// What is kept of a file besides its content; and what leaves one side only once it is whole on the other.
@Suite struct AddedVersionTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    @Test func aVersionIsAddedAndNobodySeesItAsTheContent() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("current".utf8), at: "x")
            try await one.settle()
            let current = try await one.container.item(at: "x")?.version
            let long = bytes(200_000, seed: 1)
            let added = try await one.container.versions.add(long, of: "x")
            try await one.container.versions.add(Data("short".utf8), of: "x")
            // What the file has already makes none.
            try await one.container.versions.add(Data("current".utf8), of: "x")
            #expect(try await one.text("x") == "current")
            try await one.settle()
            try await two.settle()
            for device in [one, two] {
                #expect(try await device.text("x") == "current")
                #expect(try await device.container.item(at: "x")?.version == current)
                #expect(try await device.container.item(at: "x")?.conflictCount == 0)
            }
            #expect(try await one.container.scope.status().refused.isEmpty)
            let versions = try await two.container.versions.list(of: "x")
            #expect(versions.map(\.standing) == [.former, .former, .current])
            #expect(try await two.container.read("x", version: added) == long)
            try await two.container.versions.restore(added, of: "x")
            try await two.settle()
            try await one.settle()
            #expect(try await one.container.read("x") == long)
            await #expect(throws: CloudError.self) {
                try await one.container.versions.add(Data(), of: "/Documents")
            }
        }
    }

    @Test func aLocalFileGoesOnceTheServerHasItsBytesAndNoOthers() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            for content in [Data("short".utf8), bytes(300_000, seed: 1), bytes(3_000_000, seed: 2)] {
                let file = cloud.root + "/local"
                try content.write(to: URL(fileURLWithPath: file))
                one.setOffline(true)
                let item = try await one.container.put(file: file, at: "x")
                #expect(
                    try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: item.id) == .unsent)
                one.setOffline(false)
                try await one.settle()
                // Somebody writes to it once more, as many bytes.
                var other = content
                other[other.count - 1] ^= 1
                try other.write(to: URL(fileURLWithPath: file))
                #expect(
                    try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: item.id) == .changed)
                #expect(try Data(contentsOf: URL(fileURLWithPath: file)) == other)
                try content.write(to: URL(fileURLWithPath: file))
                #expect(
                    try await one.container.localFiles.records.removeFile(LocalPath(file), sentAs: item.id) == .removed)
                #expect(!FileManager.default.fileExists(atPath: file))
                // What was put is what a link leads to: neither goes.
                try content.write(to: URL(fileURLWithPath: file))
                let link = cloud.root + "/link"
                try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: file)
                #expect(
                    try await one.container.localFiles.records.removeFile(LocalPath(link), sentAs: item.id) == .link)
                #expect(FileManager.default.fileExists(atPath: link))
                for path in [link, file] { try FileManager.default.removeItem(atPath: path) }
            }
        }
    }

    @Test func whatWasChangedSinceItWasGotStays() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            try await one.container.put(Data("1".utf8), at: "x")
            let got = try #require(try await one.container.item(at: "x"))
            try await one.container.put(Data("2".utf8), at: "x")
            await #expect(throws: CloudError.self) {
                _ = try await one.container.trash.add(got.id, ifVersion: got.version)
            }
            let item = try #require(try await one.container.item(at: "x"))
            let batch = try await one.container.trash.add(item.id, ifVersion: item.version)
            #expect(try await one.paths().isEmpty)
            try await one.container.trash.restore(batch)
            #expect(try await one.text("x") == "2")
        }
    }
}
