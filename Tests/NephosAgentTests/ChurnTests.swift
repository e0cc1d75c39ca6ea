import Foundation
import NephosAgent
import NephosCore
import NephosKit
import NephosTestKit
import Testing

/// Random work on several devices at once, also with files whose contents are evicted. All folders become equal, and each
/// content that an agent has ever seen is still a file, a version or in the trash.
@Suite struct ChurnTests {
    @Test(arguments: Seeds.of(12)) func nothingIsLost(seed: UInt64) async throws {
        var random = SeededRandom(seed)
        let house = try await Household(Int.random(in: 2...3, using: &random), seed: seed)
        var churn = Churn(random: random)
        if churn.chance(3) {
            try house[1].store.setPolicy(RoomPolicy(isOnDemand: true), of: house[1].folder)
            try await house[1].restart()
        }
        for _ in 0..<6 {
            for number in house.devices.indices {
                let device = house[number]
                let isOffline = churn.chance(4)
                if isOffline { house.cloud.disconnect(device.session) }
                for _ in 0..<Int.random(in: 0...6, using: &churn.random) { try churn.step(device, number) }
                if churn.chance(2) {
                    // Events may be late; a scan is not.
                    try await device.sync.scanAll()
                    try await device.sync.pass()
                    churn.noteSeen(try device.tree())
                }
                if isOffline { house.cloud.connect(device.session) }
            }
            // Contents are evicted once all is in sync.
            if churn.chance(3) { try await house.settle() } else if churn.chance(3) { try await house.cloud.settle() }
            if churn.chance(5) { try await house[0].restart() }
        }
        try await house.settle()
        // Once everything is settled, all contents come back.
        for device in house.devices { _ = try device.store.request([], evicts: false, in: device.folder) }
        try await house.settle()
        let tree = try house[0].tree()
        for device in house.devices {
            #expect(try device.tree() == tree, "seed \(seed)")
            #expect(try device.store.blocked(in: device.folder).isEmpty, "seed \(seed)")
            let parked = try FileManager.default.contentsOfDirectory(atPath: device.path + "/.nephos/parked")
            #expect(parked.isEmpty, "seed \(seed)")
        }
        let kept = try await Self.contents(house)
        let lost = churn.seen.subtracting(kept)
        #expect(lost.isEmpty, "seed \(seed)")
        if try !lost.isEmpty || house.devices.contains(where: { try $0.tree() != tree }) { try await house.describe() }
    }

    /// All contents of a container: of files and versions. Deleted items are restored first.
    private static func contents(_ house: Household) async throws -> Set<String> {
        let container = house[0].container
        for batch in try await container.trash.list() { try await container.trash.restore(batch.batch) }
        try await house.cloud.settle()
        var found: Set<String> = []
        for item in try await container.items(in: "Documents") where item.kind == .file {
            for version in try await container.versions.list(of: item.id) {
                let data = try await container.read(item.id, version: version.id)
                found.insert(String(decoding: data, as: UTF8.self))
            }
        }
        return found
    }
}

/// Seeds of a test; `NEPHOS_SEEDS` sets how many.
enum Seeds {
    static func of(_ count: Int) -> [UInt64] {
        let count = ProcessInfo.processInfo.environment["NEPHOS_SEEDS"].flatMap { Int($0) } ?? count
        let first = ProcessInfo.processInfo.environment["NEPHOS_FIRST_SEED"].flatMap { UInt64($0) } ?? 1
        return (0..<UInt64(count)).map { first + $0 }
    }
}

struct SeededRandom: RandomNumberGenerator {
    private var state: UInt64

    init(_ seed: UInt64) { state = seed &* 0x9e37_79b9_7f4a_7c15 }

    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ z >> 30) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ z >> 27) &* 0x94d0_49bb_1331_11eb
        return z ^ z >> 31
    }
}

/// Random work of a user and their programs in a folder.
private struct Churn {
    var random: SeededRandom
    /// Contents that an agent has seen.
    private(set) var seen: Set<String> = []
    private var count = 0
    private let names = ["a", "b", "c", "d.txt"]

    init(random: SeededRandom) { self.random = random }

    mutating func chance(_ count: Int) -> Bool { Int.random(in: 0..<count, using: &random) == 0 }

    mutating func noteSeen(_ tree: [String: String]) {
        for text in tree.values where text.hasPrefix("text ") { seen.insert(text) }
    }

    private func log(_ number: Int, _ text: String) {
        if ProcessInfo.processInfo.environment["NEPHOS_AGENT_LOG"] != nil { print("(device\(number)) \(text)") }
    }

    /// The differences between two trees, for the log.
    private func difference(_ one: [String: String], _ other: [String: String]) -> String {
        let changed = one.filter { other[$0.key] != $0.value }.sorted { $0.key < $1.key }
        return changed.map {
            "\($0.key): \($0.value.hasPrefix("Neph") ? $0.value.suffix(33).prefix(4) : $0.value.prefix(12))"
        }
        .joined(separator: ", ")
    }

    mutating func step(_ device: Household.Device, _ number: Int) throws {
        let tree = try device.tree()
        let (files, folders) = (
            tree.filter { $0.value != "folder" }.keys.sorted(),
            [""] + tree.filter { $0.value == "folder" }.keys.sorted()
        )
        func path(_ folder: String, _ name: String) -> String { folder.isEmpty ? name : folder + "/" + name }
        let place = path(folders.randomElement(using: &random) ?? "", names.randomElement(using: &random) ?? "a")
        count += 1
        // Every second one is large enough for a placeholder.
        let text = "text \(number) \(count)".padding(toLength: chance(2) ? 9000 : 12, withPad: " .", startingAt: 0)
        let before = try device.tree()
        defer {
            if let after = try? device.tree(), after != before {
                log(number, difference(before, after) + " -> " + difference(after, before))
            }
        }
        switch Int.random(in: 0..<12, using: &random) {
        case 0, 1: if tree[place] == nil { try device.write(place, text) }
        case 2: if let file = files.randomElement(using: &random) { try device.write(file, text) }
        case 3: if let file = files.randomElement(using: &random) { try device.replace(file, text) }
        case 4: if tree[place] == nil, place.count < 12 { try device.makeFolder(place) }
        case 5: if let file = files.randomElement(using: &random), tree[place] == nil { try device.move(file, place) }
        case 6:
            // Over another file.
            if let file = files.randomElement(using: &random), let other = files.randomElement(using: &random) {
                #expect(rename(device.path + "/" + file, device.path + "/" + other) == 0)
            }
        case 7:
            if let folder = folders.dropFirst().randomElement(using: &random), tree[place] == nil,
                !(place + "/").hasPrefix(folder + "/")
            {
                try device.move(folder, place)
            }
        case 8:
            if chance(2), let some = tree.keys.sorted().randomElement(using: &random) { try device.remove(some) }
        case 9, 10:
            // Of a file, or of all in a folder; carried out by a later pass.
            if let path = chance(2) ? files.randomElement(using: &random) : folders.randomElement(using: &random) {
                let names = path.utf8.split(separator: UInt8(ascii: "/")).map { Array($0) }
                let evicts = !chance(3)
                log(number, "\(evicts ? "evict" : "download") \(path)")
                _ = try device.store.request(names, evicts: evicts, in: device.folder)
            }
        default:
            // Two names change places.
            let all = tree.keys.sorted()
            if let one = all.randomElement(using: &random), let other = all.randomElement(using: &random),
                !(one + "/").hasPrefix(other + "/"), !(other + "/").hasPrefix(one + "/")
            {
                try device.move(one, "swap")
                try device.move(other, one)
                try device.move("swap", other)
            }
        }
    }
}
