import Foundation
import NephosCore
import NephosSimulation
import Testing

@testable import NephosKit

/// Which of two contents stays is decided by a small change that sends no bytes, and nothing is lost by it.
@Suite struct VersionTests {
    /// Both devices have changed `x.txt`: `first` is what the file has, `second` has lost.
    private func withConflict(
        _ first: Data = Data("of one".utf8), _ second: Data = Data("of two".utf8),
        _ body: (ContainerCloud, ContainerCloud.Device, ContainerCloud.Device) async throws -> Void
    ) async throws {
        try await withContainers { cloud in
            let (one, two) = (try await cloud.open(), try await cloud.open())
            try await one.settle()
            try await one.container.put(Data("base".utf8), at: "x.txt")
            try await one.settle()
            try await two.settle()
            two.setOffline(true)
            try await two.container.put(second, at: "x.txt")
            try await one.container.put(first, at: "x.txt")
            try await one.settle()
            two.setOffline(false)
            try await two.settle()
            try await one.settle()
            #expect(try await one.container.conflicts.versions(of: "x.txt").map(\.standing) == [.current, .conflict])
            try await body(cloud, one, two)
        }
    }

    private func bytes(_ count: Int, seed: UInt64) -> Data {
        var random = SplitMix64(seed: seed)
        return Data(
            (0..<(count + 7) / 8).flatMap { _ in withUnsafeBytes(of: random.next()) { [UInt8]($0) } }.prefix(count))
    }

    @Test func ofAConflictEitherIsKept() async throws {
        for keepsCurrent in [true, false] {
            try await withConflict { _, one, two in
                let versions = try await one.container.conflicts.versions(of: "x.txt")
                #expect(versions.map(\.size) == [6, 6] && versions.allSatisfy { $0.device != nil })
                let kept = keepsCurrent ? versions[0] : versions[1]
                try await one.container.conflicts.resolve("x.txt", keeping: kept.id)
                #expect(try await one.container.item(at: "x.txt")?.conflictCount == 0)
                try await one.settle()
                try await two.settle()
                #expect(try await two.text("x.txt") == (keepsCurrent ? "of one" : "of two"))
                #expect(try await two.container.item(at: "x.txt")?.conflictCount == 0)
                // What was not kept is not lost.
                let all = try await two.container.versions.list(of: "x.txt")
                #expect(all.count == (keepsCurrent ? 3 : 4) && all.allSatisfy { $0.standing != .conflict })
                await #expect(throws: CloudError.self) { try await two.container.conflicts.resolve("x.txt") }
                #expect(try await two.container.scope.verify().agrees)
            }
        }
    }

    @Test func withoutTheServerAFileIsNamedByTheDeviceThatIsKnown() async throws {
        try await withConflict(Data("1".utf8), Data("2".utf8)) { _, _, two in
            two.setOffline(true)
            let made = try await two.container.conflicts.resolve("x.txt", keepsOthers: true)
            #expect(made.last?.name.hasPrefix("x (device-2's conflicted copy ") == true, "\(made)")
        }
    }

    @Test func bothAreKeptAsFilesWithoutABeingSentAgain() async throws {
        try await withConflict(bytes(300_000, seed: 1), bytes(200_000, seed: 2)) { cloud, one, two in
            one.setOffline(false)
            let sent = cloud.simulation.use { $0.requestCount(.documents) }
            let made = try await one.container.conflicts.resolve("x.txt", keepsOthers: true)
            try await one.settle()
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - sent < 6)
            #expect(made.count == 2)
            try await two.settle()
            let names = try await two.container.items().map(\.name).sorted()
            let copy = try #require(names.first { $0 != "x.txt" })
            #expect(copy.wholeMatch(of: /x \(device-2's conflicted copy \d{4}-\d\d-\d\d\)\.txt/) != nil, "\(copy)")
            #expect(try await two.container.read("x.txt") == bytes(300_000, seed: 1))
            #expect(try await two.container.read(copy) == bytes(200_000, seed: 2))
            #expect(try await two.container.scope.status().refused.isEmpty)
        }
    }

    @Test func whatIsCommittedMeanwhileIsNotLostByADecision() async throws {
        try await withConflict { _, one, two in
            one.setOffline(true)
            let conflict = try #require(try await one.container.conflicts.versions(of: "x.txt").last)
            try await one.container.conflicts.resolve("x.txt", keeping: conflict.id)
            #expect(try await one.text("x.txt") == "of two")
            try await two.container.put(Data("newer".utf8), at: "x.txt")
            try await two.settle()
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.text("x.txt") == "newer")
            let versions = try await one.container.conflicts.versions(of: "x.txt")
            #expect(versions.map(\.standing) == [.current, .conflict])
            let lost = try await one.container.read("x.txt", version: versions.last?.id)
            #expect(String(decoding: lost, as: UTF8.self) == "of two")
        }
    }

    @Test func anOlderVersionIsCurrentAgainWithoutBeingSent() async throws {
        try await withContainers { cloud in
            let one = try await cloud.open()
            try await one.settle()
            let first = bytes(500_000, seed: 3)
            try await one.container.put(first, at: "x")
            try await one.settle()
            try await one.container.put(bytes(400_000, seed: 4), at: "x")
            try await one.settle()
            let old = try #require(try await one.container.versions.list(of: "x").last)
            #expect(old.standing == .former)
            let sent = cloud.simulation.use { $0.requestCount(.documents) }
            let item = try await one.container.versions.restore(old.id, of: "x")
            #expect(item.size == 500_000 && item.pending == .waiting)
            try await one.settle()
            #expect(cloud.simulation.use { $0.requestCount(.documents) } - sent < 6)
            #expect(try await one.container.read("x") == first)
            let versions = try await one.container.versions.list(of: "x")
            #expect(versions.map(\.standing) == [.current, .former, .former])
            // What it has already it is not given again.
            try await one.container.versions.restore(old.id, of: "x")
            try await one.settle()
            #expect(try await one.container.versions.list(of: "x").count == 3)
            await #expect(throws: CloudError.self) {
                try await one.container.versions.restore(try #require(DocumentID(bytes: [UInt8](1...16))), of: "x")
            }
        }
    }

    @Test func aConflictThatIsRestoredIsNoneAnyMore() async throws {
        try await withConflict { _, one, _ in
            let conflict = try #require(try await one.container.conflicts.versions(of: "x.txt").last)
            try await one.container.versions.restore(conflict.id, of: "x.txt")
            try await one.settle()
            #expect(try await one.text("x.txt") == "of two")
            #expect(try await one.container.item(at: "x.txt")?.conflictCount == 0)
        }
    }

    @Test func whatRestsOnAContentThatWaitsDoesNotOvertakeIt() async throws {
        try await withConflict { _, one, two in
            one.setOffline(true)
            let newer = bytes(600_000, seed: 5)
            try await one.container.put(newer, at: "x.txt")
            let conflict = try #require(try await one.container.conflicts.versions(of: "x.txt").last)
            let made = try await one.container.conflicts.resolve("x.txt", keeping: conflict.id, keepsOthers: true)
            one.setOffline(false)
            try await one.settle()
            #expect(try await one.container.scope.status().refused.isEmpty)
            try await two.settle()
            #expect(try await two.text("x.txt") == "of two")
            #expect(try await two.container.read(try #require(made.last).path) == newer)
        }
    }

    @Test func aLostContentIsCalledWhatANameMayBe() {
        let time = Timestamp(milliseconds: 1_700_000_000_000)
        func name(_ name: String, _ device: String?, _ number: Int = 1) -> String {
            String(
                decoding: ConflictName.make(of: Data(name.utf8), device: device, committed: time, number: number),
                as: UTF8.self)
        }
        #expect(name("a.tar.gz", "phone").wholeMatch(of: /a\.tar \(phone's conflicted copy 2023-11-1\d\)\.gz/) != nil)
        #expect(name(".profile", nil).wholeMatch(of: /\.profile \(conflicted copy 2023-11-1\d\)/) != nil)
        #expect(name("a", "x/\u{1b}\u{202e}y", 3).wholeMatch(of: /a \(xy's conflicted copy 2023-11-1\d 3\)/) != nil)
        let long = name(String(repeating: "é", count: 125) + ".txt", String(repeating: "ü", count: 100))
        #expect(long.utf8.count <= 255 && long.hasSuffix(").txt") && !long.contains("\u{fffd}"))
    }
}
