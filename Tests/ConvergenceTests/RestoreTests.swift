import Bus
import Core
import Foundation
import TestKit
import Testing
import Wire

@testable import NephosKit

/// Services and homes come back from old copies at any moment. What some device
/// still has is not lost, what was deleted stays deleted, and everybody ends
/// with the same content.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_SEED=S` tries one.
@Suite struct RestoreTests {
    @Test func noHistoryWithRestoresLosesWhatADeviceHas() async {
        let failures = await RestoreHistory.failures(of: 40, suite: "RestoreTests")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func noHistoryOverStorageThatCompletesLaterLosesWhatADeviceHas() async {
        let failures = await LateRestoreHistory.failures(
            of: 20, suite: "noHistoryOverStorageThatCompletesLaterLosesWhatADeviceHas")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func theSameSeedGivesTheSameHistory() throws {
        for seed: UInt64 in [2, 71] {
            let first = try RestoreHistory(seed: seed).run()
            let second = try RestoreHistory(seed: seed).run()
            #expect(first == second)
        }
    }
}

/// The same, over storage that completes its groups later.
final class LateRestoreHistory: RestoreHistory {
    required convenience init(seed: UInt64) throws { try self.init(seed: seed, .later(upTo: .milliseconds(10))) }
}

/// One seeded history of writes, deletions, copies and restores.
class RestoreHistory: SeededHistory {
    static let steps = 20...50
    static let pauses: ClosedRange<Int64> = 0...400
    private static let keys: [ItemName] = ["a", "b", "e\u{301}", "\u{e9}"]

    let cloud: TestCloud
    var generator: SplitMix64
    private var copies: [ServiceName: [StorageCopy]] = [:]
    private var homes: [String: [HomeCopy]] = [:]
    /// The newest state of each key that some device has held since the last restore.
    private var held: [ItemName: KeyValueItem] = [:]
    /// The newest deletion of each key that the service was seen to have since it was last restored: whatever is older
    /// stays deleted, also when the home that deleted it comes back from a copy.
    private var deleted: [ItemName: KeyValueItem] = [:]
    private var counter = 0

    required convenience init(seed: UInt64) throws { try self.init(seed: seed, .ofEnvironment) }

    init(seed: UInt64, _ storageTurns: StorageTurns) throws {
        generator = SplitMix64(seed: seed)
        cloud = try TestCloud(seed: seed, storageTurns: storageTurns)
    }

    func begin() throws {
        if flip(0.5) { cloud.pageItemsMax = .random(in: 1...3, using: &generator) }
        for _ in 0..<Int.random(in: 2...4, using: &generator) { try cloud.addDevice() }
        guard cloud.settle() else { throw Violation("The devices did not begin: \(state())") }
        cloud.network.faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: flip(0.3) ? 0.03 : 0, duplication: 0,
            reordering: flip(0.3) ? 0.05 : 0)
        copyAll()
    }

    func heal() throws {
        cloud.network.faults = .none
        for device in cloud.devices { device.setOffline(false) }
        // Two heartbeats: whoever believes to be in sync has heard of the services as they are.
        cloud.network.run(for: .seconds(15))
    }

    // MARK: What happens

    func step() throws {
        guard let device = cloud.devices.randomElement(using: &generator) else { return }
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<45: try write(device, deleting: false)
        case ..<58: try write(device, deleting: true)
        case ..<66: device.setOffline(true)
        case ..<78: device.setOffline(false)
        case ..<82:
            device.stop()
            try device.start()
        case ..<87: copyAll()
        case ..<90: homes[device.name, default: []].append(try device.copyHome())
        case ..<93: try restoreHome(of: device)
        case ..<96: try restore(.keyValue)
        case ..<97: try restore(.identity)
        case ..<98: try restore(nil)
        default: try lose()
        }
    }

    private func write(_ device: TestDevice, deleting: Bool) throws {
        guard let store = device.store else { return }
        counter += 1
        let count = flip(0.2) ? 2 : 1
        let keys = Self.keys.shuffled(using: &generator).prefix(count).sorted()
        let text = "\(device.name)/\(counter)"
        try store.write(keys.map { LocalWrite(key: $0, value: deleting ? nil : .string(text)) })
    }

    private func copyAll() {
        for service in TestCloud.services {
            guard let copy = try? cloud.copyStorage(of: service) else { continue }
            copies[service, default: []].append(copy)
        }
    }

    /// One service, or all together as they were at one time.
    private func restore(_ service: ServiceName?) throws {
        guard let count = copies[.keyValue]?.count, count > 0 else { return }
        let number = Int.random(in: 0..<count, using: &generator)
        for restored in service.map({ [$0] }) ?? TestCloud.services {
            guard let copy = copies[restored]?[number] else { continue }
            if restored == .keyValue { deleted = [:] }
            try cloud.restore(copy, of: restored)
        }
    }

    /// The key-value service's database is gone, and it starts with an empty one.
    private func lose() throws {
        deleted = [:]
        try cloud.restore(nil, of: .keyValue)
    }

    /// What only this home had is gone with it.
    private func restoreHome(of device: TestDevice) throws {
        guard let copy = homes[device.name]?.randomElement(using: &generator) else { return }
        try device.restoreHome(copy)
        held = [:]
    }

    // MARK: What must hold

    /// Notes the state of each key as a device has it. (What a restored server has and no device is no promise.) What
    /// was written just now may be gone from its device after the pause: a listing leaves deletions out.
    func look(afterPause: Bool) throws {
        for device in cloud.devices {
            for item in try items(device) {
                if held[item.key].map({ item.wins(over: $0) }) ?? true { held[item.key] = item }
                guard item.value == nil, item.sequence > 0 else { continue }
                if deleted[item.key].map({ item.wins(over: $0) }) ?? true { deleted[item.key] = item }
            }
        }
    }

    func checkEnd() throws {
        guard let first = cloud.devices.first else { return }
        for device in cloud.devices {
            guard device.digest == first.digest, device.values == first.values else {
                throw Violation("Contents differ: \(state()); \(try items(first)) and \(try items(device))")
            }
        }
        let last = Dictionary(try cloud.devices.flatMap(items).map { ($0.key, $0) }) { $1.wins(over: $0) ? $1 : $0 }
        for (key, item) in held.sorted(by: { $0.key < $1.key }) {
            guard let now = last[key], now.value != nil else {
                // Which of two deletions is remembered makes no difference.
                guard item.value == nil || [deleted[key], last[key]].contains(where: { $0?.wins(over: item) == true })
                else { throw Violation("\(key) is gone, but a device had \(item)") }
                continue
            }
            guard !item.wins(over: now) else { throw Violation("\(key) is \(now), but a device had \(item)") }
        }
    }

    private func items(_ device: TestDevice) throws -> [KeyValueItem] {
        guard let store = device.store, let scope = device.session?.scope(of: store.app) else { return [] }
        return try device.local.read { database in
            let store = StoreTransaction(database, scope)
            return try store.items() + store.pending().flatMap(\.writes)
        }
    }

    func state() -> String {
        cloud.devices.map { device in
            let status = try? device.store?.status()
            let pending = status?.pending.map { "\($0.keys):\($0.reason)" } ?? []
            return "\(device.name) \(device.head?.description ?? "-") \(device.digest?.short ?? "-") "
                + "agrees \(status?.agrees ?? false) pending \(pending) "
                + "problem \(status?.problem?.description ?? "none")"
        }.joined(separator: "; ")
    }
}
