import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosKit

/// Whatever happens on the way, all devices end with the same content, and no
/// write is lost but to a newer one.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED=S` where they begin, `NEPHOS_SEED=S` tries one.
@Suite struct ConvergenceTests {
    @Test func everyHistoryConverges() async {
        let failures = await History.failures(of: 60, suite: "ConvergenceTests")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func historiesConvergeOverStorageThatCompletesLater() async {
        let failures = await LateHistory.failures(of: 20, suite: "historiesConvergeOverStorageThatCompletesLater")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func theSameSeedGivesTheSameHistory() throws {
        for seed: UInt64 in [3, 14, 159] {
            let first = try History(seed: seed).run()
            let second = try History(seed: seed).run()
            #expect(first == second)
        }
    }
}

/// The same, over storage that completes its groups later.
final class LateHistory: History {
    required convenience init(seed: UInt64) throws { try self.init(seed: seed, .later(upTo: .milliseconds(10))) }
}

/// One seeded history: devices write, lose their connection, restart, have wrong clocks (in some from the start) that
/// are put right or wronger, and pass from one account to another; some homes have two processes; services crash, and
/// their clocks are set back; messages are lost, repeated and overtaken. Then everything heals.
class History: SeededHistory {
    static let steps = 20...60
    static let pauses: ClosedRange<Int64> = 0...300
    private static let keys: [ItemName] = ["a", "b", "鍵", "\u{e9}", "e\u{301}"]
    private static let accounts = [TestCloud.accountName, "other"]
    /// Of devices.
    private static let wrongClocks: [Duration] = [
        .seconds(-3 * 86_400), .seconds(-2 * 3600), .seconds(-1200), .seconds(300), .seconds(2 * 3600),
        .seconds(3 * 86_400),
    ]

    /// A write that a device accepted.
    private struct Written {
        var item: KeyValueItem
        /// The true time.
        var at: Timestamp
        /// It was given up with the account it was for, and may have been sent before.
        var isGivenUp = false
    }

    let cloud: TestCloud
    var generator: SplitMix64
    /// By account and key.
    private var written: [AccountID: [ItemName: [Written]]] = [:]
    /// How far services' clocks were set back, at most.
    private var setBack = Duration.zero
    private var hasSwitches = false
    private var groups: [[ItemName: String]] = []
    private var heads: [String: ChangeToken] = [:]
    private var down: ServiceName?
    private var counter = 0
    private var hasWrongClocks = false
    private var setsBack = false

    required convenience init(seed: UInt64) throws { try self.init(seed: seed, .ofEnvironment) }

    init(seed: UInt64, _ storageTurns: StorageTurns) throws {
        generator = SplitMix64(seed: seed)
        cloud = try TestCloud(seed: seed, storageTurns: storageTurns)
    }

    func begin() throws {
        if flip(0.5) { cloud.pageItemsMax = .random(in: 1...3, using: &generator) }
        let deviceCount = 2 + Int.random(in: 0..<4, using: &generator)
        hasSwitches = flip(0.3)
        if hasSwitches { try cloud.createAccount(Self.accounts[1]) }
        let beginsWithWrongClocks = flip(0.2)
        for _ in 0..<deviceCount {
            let isShared = flip(0.15)
            let isWrong = beginsWithWrongClocks && flip(0.6)
            let device = try cloud.addDevice(
                clockOffset: isWrong ? Self.wrongClocks.randomElement(using: &generator) ?? .zero : .zero,
                isShared: isShared, isJoined: isShared && flip(0.7))
            if isShared { try cloud.addProcess(of: device) }
        }
        cloud.network.faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: chance(0.05), duplication: chance(0.05),
            reordering: chance(0.1))
        for device in cloud.devices where !beginsWithWrongClocks && flip(0.3) {
            device.setClockOffset(.milliseconds(Int64.random(in: -30_000...30_000, using: &generator)))
        }
        hasWrongClocks = beginsWithWrongClocks || flip(0.25)
        setsBack = flip(0.2)
    }

    // MARK: What happens

    private var now: Timestamp { SimulatedNetwork.epoch.advanced(by: cloud.network.now) }

    private func setClock() {
        let offset = flip(0.3) ? .zero : Self.wrongClocks.randomElement(using: &generator)
        cloud.devices.randomElement(using: &generator)?.setClockOffset(offset ?? .zero)
    }

    private func setServerClockBack() {
        let offset = Duration.seconds(flip(0.3) ? 0 : Int64.random(in: 30...600, using: &generator))
        let service = flip(0.7) ? .keyValue : flip(0.5) ? ServiceName.identity : .notifications
        // It alone stamps what is written.
        if service == .keyValue { setBack = max(setBack, offset) }
        cloud.setClockOffset(of: service, .zero - offset)
    }

    func step() throws {
        if hasWrongClocks, flip(0.05) { setClock() }
        if setsBack, flip(0.03) { setServerClockBack() }
        guard let device = cloud.devices.randomElement(using: &generator) else { return }
        if hasSwitches, flip(0.03) { return try switchAccount(device) }
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<45: try write(device, keyCount: 1)
        case ..<55: try write(device, keyCount: 3)
        case ..<65: try write(device, keyCount: 1, deleting: true)
        case ..<75: device.setOffline(true)
        case ..<88: device.setOffline(false)
        case ..<94:
            device.stop()
            try device.start()
        default:
            if let service = down {
                try cloud.start(service)
                down = nil
            } else {
                let service = TestCloud.services.randomElement(using: &generator) ?? .keyValue
                cloud.crash(service)
                down = service
            }
        }
    }

    private func write(_ device: TestDevice, keyCount: Int, deleting: Bool = false) throws {
        guard let store = device.store, let session = try device.local.read({ try Facts($0).session }),
            session.signedIn, let scope = session.scope(of: store.app)
        else { return }
        counter += 1
        let keys = Self.keys.shuffled(using: &generator).prefix(keyCount).sorted()
        let text = "\(device.name)/\(counter)"
        try store.write(keys.map { LocalWrite(key: $0, value: deleting ? nil : .string(text)) })
        for key in keys {
            let pending = try device.local.read { try StoreTransaction($0, scope).pendingWrite(key) }
            guard let pending else { throw Violation("An accepted write is not in the queue") }
            written[session.accountID, default: [:]][key, default: []].append(Written(item: pending, at: now))
        }
        if keyCount > 1 { groups.append(Dictionary(keys.map { ($0, text) }) { $1 }) }
    }

    /// Signs the device in to another account, or the same, or tries to: what was never sent is kept or given up.
    private func switchAccount(_ device: TestDevice) throws {
        guard let session = try device.local.read({ try Facts($0).session }) else { return }
        let unsent = try device.local.read { database in
            try StoreTransaction(database, try requireScope(session)).pending().flatMap(\.writes)
        }
        if flip(0.3) { try? device.signOut(keepsUnsent: flip(0.5)) }
        let account = Self.accounts.randomElement(using: &generator) ?? Self.accounts[0]
        // What it may be refused for: nobody answers, or something is unsent.
        try? device.signIn(as: account, discardsUnsent: flip(0.5))
        let next = try device.local.read { try Facts($0).session }
        // Who signs out or passes to another account begins at nothing.
        heads = heads.filter { !$0.key.hasPrefix("\(device.home) ") }
        guard next?.accountID != session.accountID else { return }
        for item in unsent {
            let places = written[session.accountID]?[item.key]?.indices.filter {
                written[session.accountID]?[item.key]?[$0].item.timestamp == item.timestamp
            }
            for place in places ?? [] { written[session.accountID]?[item.key]?[place].isGivenUp = true }
        }
    }

    private func requireScope(_ session: SessionRecord) throws -> StoreScope {
        guard let scope = session.scope(of: session.defaultApp) else { throw Violation("The store is not known") }
        return scope
    }

    func heal() throws {
        cloud.network.faults = .none
        if let service = down { try cloud.start(service) }
        for device in cloud.devices { device.setOffline(false) }
        cloud.network.run(for: .seconds(1))
        for device in cloud.devices where device.session?.signedIn != true {
            guard let account = device.session?.accountName else { continue }
            try device.signIn(as: account)
        }
        for account in Self.accounts.prefix(hasSwitches ? 2 : 1) { try cloud.addDevice(to: account) }
    }

    // MARK: What must hold

    func look(afterPause: Bool) throws {
        guard afterPause else { return }
        for device in cloud.devices {
            // Who has signed out has no place; another process of the home learns of that a moment later.
            guard device.session?.signedIn == true, let head = device.head else { continue }
            let place = "\(device.home) \(device.name) \(device.session?.accountID.rawValue ?? "")"
            if let before = heads[place], head < before {
                throw Violation("\(device.name) went back from \(before) to \(head)")
            }
            heads[place] = head
            try checkGroups(device)
        }
    }

    /// A transaction that another device has received is received whole: a key
    /// may hold something newer, never something older.
    private func checkGroups(_ device: TestDevice) throws {
        guard let store = device.store, let scope = device.session?.scope(of: store.app) else { return }
        let items = try device.local.read { try StoreTransaction($0, scope).items() }
        let held = Dictionary(items.map { ($0.key, $0) }) { $1 }
        for group in groups {
            guard let seen = group.first(where: { held[$0.key]?.value == .string($0.value) }),
                let stamp = held[seen.key]
            else { continue }
            for key in group.keys.sorted() {
                // A key that is not held was deleted later; a complete fetch leaves its tombstone out, and an older one
                // stays.
                guard let other = held[key], other.value != nil, other.timestamp != stamp.timestamp,
                    stamp.wins(over: other), other.value != group[key].map({ .string($0) })
                else {
                    continue
                }
                throw Violation("\(device.name) holds half of a transaction: \(other) is older than \(stamp)")
            }
        }
    }

    func checkEnd() throws {
        for service in [ServiceName.identity, .keyValue] {
            let count = try cloud.storage(of: service).repreparations
            guard count == 0 else { throw Violation("\(service) has prepared statements anew, \(count) times") }
        }
        for (account, devices) in Dictionary(grouping: cloud.devices, by: { $0.session?.accountID }) {
            guard let account, let witness = devices.last else { throw Violation("Nobody is signed in: \(state())") }
            for device in devices {
                guard device.digest == witness.digest, device.values == witness.values else {
                    throw Violation("Contents differ: \(state()); \(try items(witness)) and \(try items(device))")
                }
            }
            let held = Dictionary(try items(witness).map { ($0.key, $0) }) { $1 }
            for (key, writes) in written[account] ?? [:] { try check(key, holds: held[key], after: writes) }
        }
    }

    /// What a key holds is one of the writes, and none that is certain to be newer was lost.
    ///
    /// A timestamp that no server can have cut back counts as it is. One that ran ahead counts at least as much as
    /// the time when it was written, since it arrived later.
    private func check(_ key: ItemName, holds item: KeyValueItem?, after writes: [Written]) throws {
        let text = "\(key) holds \(String(describing: item)), after \(writes)"
        let isUntouched = item == nil && writes.allSatisfy(\.isGivenUp)
        guard isUntouched || writes.contains(where: { $0.item.value == item?.value }) else { throw Violation(text) }
        for (place, write) in writes.enumerated() where !write.isGivenUp {
            // What a device wrote later itself is newer than this, whatever its clock said either time.
            let replaced = writes[(place + 1)...].contains {
                $0.item.deviceID == write.item.deviceID && $0.item.value == item?.value
                    && (item?.value == nil || item?.deviceID == write.item.deviceID)
            }
            if replaced { continue }
            let limit = HybridTimestamp(write.at.advanced(by: .seconds(60) - setBack))
            let certain = min(
                write.item.timestamp,
                write.item.timestamp <= limit
                    ? write.item.timestamp : HybridTimestamp(write.at.advanced(by: .zero - setBack)))
            if let item, item.value != nil {
                let isSame = item.timestamp == write.item.timestamp && item.deviceID == write.item.deviceID
                guard isSame ? item.value == write.item.value : item.timestamp >= certain else {
                    throw Violation("\(text): \(write) was lost")
                }
            } else {
                // Whoever deleted it did so later.
                guard writes.contains(where: { $0.item.value == nil && $0.item.timestamp >= certain }) else {
                    throw Violation("\(text): \(write) was lost")
                }
            }
        }
    }

    private func items(_ device: TestDevice) throws -> [KeyValueItem] {
        guard let store = device.store, let scope = device.session?.scope(of: store.app) else { return [] }
        return try device.local.read { try StoreTransaction($0, scope).items() }
    }

    func state() -> String {
        cloud.devices.map { device in
            let status = try? device.store?.status()
            let key = device.session?.scope(of: AppID("default")).flatMap { scope in
                try? device.local.read { try StoreTransaction($0, scope).state().digestKey.prefix(3) }
            }
            let pending = status?.pending.map { "\($0.keys):\($0.reason)" } ?? []
            return "\(device.name) \(device.head?.description ?? "-") \(device.digest?.short ?? "-") "
                + "key \(key ?? []) pending \(pending) problem \(status?.problem?.description ?? "none")"
        }.joined(separator: "; ")
    }

    /// Half of the histories are without this fault.
    private func chance(_ most: Double) -> Double { flip(0.5) ? Double.random(in: 0...most, using: &generator) : 0 }
}
