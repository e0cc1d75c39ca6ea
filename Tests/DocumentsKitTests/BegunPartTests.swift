import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Parts of long contents that were left before they were whole.
@Suite struct BegunPartTests {
    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        var data = Data(capacity: count + 8)
        while data.count < count { withUnsafeBytes(of: random.next()) { data.append(contentsOf: $0) } }
        return data.prefix(count)
    }

    private func withFolder(_ body: (_ home: String, _ folder: String) throws -> Void) throws {
        let folder = NSTemporaryDirectory() + "/nephos-parts-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: folder + "/home", withIntermediateDirectories: true)
        try FileManager.default.createDirectory(atPath: folder + "/files", withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        try body(folder + "/home", folder + "/files")
    }

    private func names(_ folder: String) -> [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []).sorted()
    }

    private func target(_ file: String) throws -> LocalTarget {
        try LocalTarget.file(LocalPath(file), followsLinks: true)
    }

    @Test func whatNobodyGoesOnWithIsRemovedAfterAWeekAndNothingElse() throws {
        try withFolder { home, folder in
            let parts = try #require(BegunParts(home: home))
            let root = Data(count: 32)
            for name in ["a", "b"] {
                let part = try #require(parts.open(root, for: target(folder + "/" + name), isExecutable: false))
                LocalParts.leave(part.part)
            }
            #expect(names(folder).count == 2 && names(home + "/parts").count == 2)
            let held = try #require(parts.open(root, for: target(folder + "/c"), isExecutable: false))
            // Notes of what is nobody's part: they go, and what they name stays.
            try Data("x".utf8).write(to: URL(fileURLWithPath: folder + "/mine"))
            try Data((folder + "/mine").utf8).write(to: URL(fileURLWithPath: home + "/parts/0123456789abcdef"))
            let now = Int(Date().timeIntervalSince1970)
            parts.sweep(at: now + BegunParts.lifetime - 60)
            #expect(names(folder).count == 4 && names(home + "/parts").count == 4)
            parts.sweep(at: now + BegunParts.lifetime + 60)
            // The one that is written stays, and can be found.
            #expect(Set(names(folder)) == ["mine", String(decoding: held.part.name, as: UTF8.self)])
            #expect(names(home + "/parts").count == 1)
            LocalParts.remove(held.part)
        }
    }

    @Test func aPartIsOfOneContentForOnePlaceAndOneWriter() throws {
        try withFolder { home, folder in
            let parts = try #require(BegunParts(home: home))
            let (one, two) = (Data(count: 32), Data([1]) + Data(count: 31))
            let first = try #require(parts.open(one, for: target(folder + "/a"), isExecutable: false))
            #expect(first.before == nil)
            // Another writes it in this moment.
            #expect(try parts.open(one, for: target(folder + "/a"), isExecutable: false) == nil)
            let others = [
                try #require(parts.open(two, for: target(folder + "/a"), isExecutable: false)),
                try #require(parts.open(one, for: target(folder + "/b"), isExecutable: false)),
                try #require(parts.open(one, for: target(folder + "/a"), isExecutable: true)),
            ]
            #expect(Set((others + [first]).map(\.part)).count == 4)
            #expect(names(folder).allSatisfy { LocalParts.isPart($0.utf8) })
            for part in others + [first] { LocalParts.remove(part.part) }
        }
    }

    /// Whoever goes on with it may have given it its place by then, where a person has changed it.
    @Test func whatIsLateWritesNothingToAPartThatAnotherGoesOnWith() throws {
        try withFolder { home, folder in
            let parts = try #require(BegunParts(home: home))
            let root = Data(count: 32)
            func begin() throws -> (part: PartFile, sink: EndingSink) {
                let target = try target(folder + "/a")
                let part = PartFile(try #require(parts.open(root, for: target, isExecutable: false)), for: target)
                return (part, EndingSink(FileSink(file: part.file, name: part.name)))
            }
            func write(_ text: String, to sink: EndingSink) throws {
                try Array(text.utf8).withUnsafeBytes { try sink.write($0, at: 0) }
            }
            var first: (part: PartFile, sink: EndingSink)? = try begin()
            let late = try #require(first?.sink)
            try write("begun", to: late)
            first?.part.leave()
            first = nil
            // As long as it may be written nobody else has it.
            #expect(try parts.open(root, for: target(folder + "/a"), isExecutable: false) == nil)
            late.end()
            let second = try begin()
            #expect(second.part.before != nil)
            try second.part.takePlace()
            #expect(throws: CloudError.self) { try write("late!", to: late) }
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/a")) == Data("begun".utf8))
        }
    }

    @Test func whatSomebodyElseHasPutInItsPlaceIsNotWrittenTo() throws {
        try withFolder { home, folder in
            let parts = try #require(BegunParts(home: home))
            let root = Data(count: 32)
            let part = try #require(parts.open(root, for: target(folder + "/a"), isExecutable: false)).part.text
            for make in [
                { symlink(folder + "/elsewhere", part) }, { mkdir(part, 0o700) }, { mkfifo(part, 0o600) },
                {
                    _ = FileManager.default.createFile(atPath: folder + "/linked", contents: Data("x".utf8))
                    return link(folder + "/linked", part)
                },
            ] as [() -> Int32] {
                #expect(remove(part) == 0 && make() == 0)
                #expect(try parts.open(root, for: target(folder + "/a"), isExecutable: false) == nil)
            }
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/linked")) == Data("x".utf8))
            #expect(!names(folder).contains("elsewhere"))
        }
    }

    @Test func whatCameIsGoneOnWithAfterTheConnectionWasLost() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let content = bytes(Int(BegunParts.bytesMin) + 1_000_000, seed: 1)
            try await one.container.put(content, at: "film")
            for device in [one, two] { try await device.settle() }
            let folder = cloud.root + "/files"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            // It goes offline once some has come.
            let error = await #expect(throws: CloudError.self) {
                try await two.container.get("film", to: folder + "/film", timeout: .seconds(5)) { done, _ in
                    if done > 4_000_000 { two.setOffline(true) }
                }
            }
            #expect(error?.keepsPart == true, "\(String(describing: error))")
            #expect(names(folder).count == 1 && names(two.session.home.path + "/parts").count == 1)
            two.setOffline(false)
            try await two.container.get("film", to: folder + "/film")
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/film")) == content)
            #expect(names(folder) == ["film"] && names(two.session.home.path + "/parts").isEmpty)
            // All of it stays here too, also what was found.
            two.setOffline(true)
            #expect(try await two.container.read("film") == content)

            // What somebody gives up is gone.
            two.setOffline(false)
            _ = try await two.container.downloads.evict("film")
            let task = Task { try await two.container.get("film", to: folder + "/other") }
            task.cancel()
            _ = await task.result
            #expect(names(folder) == ["film"])
        }
    }

    /// What lies in a part is believed by its hash alone, chunk by chunk.
    @Test func whatWasDamagedInAPartIsFetchedAnew() async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            for device in [one, two] { try await device.settle() }
            let content = bytes(Int(BegunParts.bytesMin) + 1_000_000, seed: 2)
            try await one.container.put(content, at: "film")
            for device in [one, two] { try await device.settle() }
            let folder = cloud.root + "/files"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            await #expect(throws: CloudError.self) {
                try await two.container.get("film", to: folder + "/film", timeout: .seconds(5)) { done, _ in
                    if done > 4_000_000 { two.setOffline(true) }
                }
            }
            let part = try #require(names(folder).first)
            let file = try FileHandle(forUpdating: URL(fileURLWithPath: folder + "/" + part))
            try file.write(contentsOf: bytes(500_000, seed: 3))
            try file.close()
            two.setOffline(false)
            try await two.container.get("film", to: folder + "/film")
            #expect(try Data(contentsOf: URL(fileURLWithPath: folder + "/film")) == content)
        }
    }
}
