import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// Services and homes come back from old copies at any moment. What some device
/// still has is not lost, what was deleted stays deleted, and everybody ends
/// with the same content.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED=S` where they begin, `NEPHOS_SEED=S` tries one.
@Suite struct RestoreTests {
    @Test func noHistoryWithRestoresLosesWhatADeviceHas() async {
        let failures = await RestoreHistory.failures(of: 18, suite: "RestoreTests")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func noHistoryOverStorageThatCompletesLaterLosesWhatADeviceHas() async {
        let failures = await LateRestoreHistory.failures(
            of: 10, suite: "noHistoryOverStorageThatCompletesLaterLosesWhatADeviceHas")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }

    @Test func theSameSeedGivesTheSameHistory() throws {
        for seed: UInt64 in [71, 235] {
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

/// One seeded history of writes, deletions, copies and restores; in some, devices or the service have wrong clocks, or
/// begin with them, devices pass from one account to another, or have two processes.
class RestoreHistory: SeededHistory {
    static let steps = 20...50
    static let pauses: ClosedRange<Int64> = 0...400
    private static let keys: [ItemName] = ["a", "b", "e\u{301}", "\u{e9}"]

    let cloud: TestCloud
    var generator: SplitMix64
    var copies: [ServiceName: [StorageCopy]] = [:]
    private var homes: [String: [HomeCopy]] = [:]
    /// By account, the newest state of each key that some device has held since the last restore.
    private var held: [AccountID: [ItemName: KeyValueItem]] = [:]
    /// The newest deletion of each key that the service was seen to have since it was last restored: whatever is older
    /// stays deleted, also when the home that deleted it comes back from a copy.
    private var deleted: [AccountID: [ItemName: KeyValueItem]] = [:]
    /// The deletions that devices accepted.
    private var deletions: [AccountID: [ItemName: [KeyValueItem]]] = [:]
    private var counter = 0
    /// What has happened, for whoever looks at one history.
    private var trace: [String] = []
    private static let isTraced = ProcessInfo.processInfo.environment["NEPHOS_SEED"] != nil
    var hasWrongClocks = false
    var hasWrongServerClocks = false
    var hasSwitches = false
    /// How far services' clocks are ahead.
    private var serverClocks: [ServiceName: Duration] = [:]
    /// The service does not know any more how far its clock had come.
    private var hasLostClock = false
    private static let accounts = [TestCloud.accountName, "other"]
    /// Of devices.
    static let wrongClocks: [Duration] = [
        .seconds(-3 * 86_400), .seconds(-1200), .seconds(300), .seconds(2 * 3600), .seconds(3 * 86_400),
    ]

    /// Of services.
    private static let wrongServerClocks: [Duration] = [
        .seconds(-600), .seconds(-120), .seconds(-30), .seconds(300), .seconds(2 * 86_400),
    ]

    required convenience init(seed: UInt64) throws { try self.init(seed: seed, .ofEnvironment) }

    init(seed: UInt64, _ storageTurns: StorageTurns) throws {
        generator = SplitMix64(seed: seed)
        cloud = try TestCloud(seed: seed, storageTurns: storageTurns)
    }

    func begin() throws {
        if flip(0.5) { cloud.pageItemsMax = .random(in: 1...3, using: &generator) }
        let beginsWithWrongClocks = flip(0.2)
        hasWrongClocks = beginsWithWrongClocks || flip(0.15)
        hasWrongServerClocks = flip(0.25)
        hasSwitches = flip(0.3)
        if hasSwitches { try cloud.createAccount(Self.accounts[1]) }
        for _ in 0..<Int.random(in: 2...4, using: &generator) {
            let isShared = flip(0.2)
            let isWrong = beginsWithWrongClocks && flip(0.6)
            let device = try cloud.addDevice(
                clockOffset: isWrong ? Self.wrongClocks.randomElement(using: &generator) ?? .zero : .zero,
                isShared: isShared, isJoined: isShared && flip(0.7))
            if isShared { try cloud.addProcess(of: device) }
        }
        guard cloud.settle() else { throw Violation("The devices did not begin: \(state())") }
        if beginsWithWrongClocks, hasWrongServerClocks { setServerClock() }
        cloud.network.faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: flip(0.3) ? 0.03 : 0, duplication: 0,
            reordering: flip(0.3) ? 0.05 : 0)
        copyAll()
    }

    func heal() throws {
        cloud.network.faults = .none
        for device in cloud.devices { device.setOffline(false) }
        serverClocks = [:]
        for service in TestCloud.services { cloud.setClockOffset(of: service, .zero) }
        dropUncertain()
        // Two heartbeats: whoever believes to be in sync has heard of the services as they are.
        cloud.network.run(for: .seconds(15))
        guard hasSwitches || hasWrongClocks || hasWrongServerClocks else { return }
        // Whom an old copy of identity does not know, and who has signed out. And whose home came back from a copy
        // after it had renewed its sign-in, which both seem to have then. Only wrong clocks make that due so early: a
        // device's own, or a service's that takes its token for one that has run out.
        for device in cloud.devices {
            let problem = try device.store?.status().problem?.code
            guard device.session?.signedIn != true || problem == .notAuthenticated || problem == .deviceRevoked,
                let account = device.session?.accountName
            else { continue }
            try device.signIn(as: account)
        }
        for account in Self.accounts.prefix(hasSwitches ? 2 : 1) { try cloud.addDevice(to: account) }
        cloud.network.run(for: .seconds(15))
    }

    // MARK: What happens

    func step() throws {
        guard let device = cloud.devices.randomElement(using: &generator) else { return }
        if hasWrongClocks, flip(0.05) {
            device.setClockOffset(flip(0.3) ? .zero : Self.wrongClocks.randomElement(using: &generator) ?? .zero)
        }
        if hasWrongServerClocks, flip(0.07) { setServerClock() }
        if hasSwitches, flip(0.04) { return switchAccount(device) }
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<45: try write(device, deleting: false)
        case ..<58: try write(device, deleting: true)
        case ..<66:
            note("\(device.name) offline")
            device.setOffline(true)
        case ..<78:
            note("\(device.name) online")
            device.setOffline(false)
        case ..<82:
            note("\(device.name) restarts")
            device.stop()
            try device.start()
        case ..<87: copyAll()
        case ..<90:
            homes[device.home, default: []].append(try device.copyHome())
        case ..<93: try restoreHome(of: device)
        case ..<95: try restore(.keyValue)
        case ..<96: try restore(.identity)
        case ..<97: try restore(.notifications)
        case ..<98: try restore(nil)
        case ..<99: try lose(.keyValue)
        // Others find it again where they follow it.
        default: try lose(.notifications)
        }
    }

    func write(_ device: TestDevice, deleting: Bool) throws {
        guard let store = device.store, device.session?.signedIn == true else { return }
        counter += 1
        let count = flip(0.2) ? 2 : 1
        let keys = Self.keys.shuffled(using: &generator).prefix(count).sorted()
        let text = "\(device.name)/\(counter)"
        note(
            "\(device.name) of \(device.session?.accountName ?? "-") \(deleting ? "deletes" : "writes \(text)") \(keys)"
        )
        try store.write(keys.map { LocalWrite(key: $0, value: deleting ? nil : .string(text)) })
        guard deleting, let account = device.session?.accountID else { return }
        for item in try items(device).pending where keys.contains(item.key) && item.value == nil {
            deletions[account, default: [:]][item.key, default: []].append(item)
        }
    }

    /// It is found wrong, or put right.
    func setServerClock() {
        let offset = flip(0.3) ? .zero : Self.wrongServerClocks.randomElement(using: &generator) ?? .zero
        let service = flip(0.5) ? .keyValue : flip(0.5) ? ServiceName.identity : .notifications
        note("the clock of \(service) is \(offset) ahead")
        serverClocks[service] = offset
        cloud.setClockOffset(of: service, offset)
    }

    /// The greatest timestamp that the service surely takes as it is.
    ///
    /// Its clock never goes back, but how far it had come is in its database: one that came back from an old copy, or
    /// empty, knows only its wall clock. If that is behind by more than a minute, or has been put right since it was
    /// ahead, what devices hold comes from the future to it. It cannot tell that from the writes of a clock that runs
    /// ahead, and cuts it back to the time of its arrival; so the order of such states is lost.
    private var certain: HybridTimestamp {
        guard hasLostClock else { return HybridTimestamp(rawValue: .max) }
        return HybridClock.limit(
            now: SimulatedNetwork.epoch.advanced(by: cloud.network.now + (serverClocks[.keyValue] ?? .zero)))
    }

    private func dropUncertain() {
        guard hasLostClock else { return }
        let certain = certain
        held = held.mapValues { $0.filter { $0.value.timestamp <= certain } }
        deleted = deleted.mapValues { $0.filter { $0.value.timestamp <= certain } }
    }

    func note(_ text: @autoclosure () -> String) {
        guard Self.isTraced else { return }
        trace.append("\(cloud.network.now): \(text())")
    }

    func copyAll() {
        note("copy")
        for service in TestCloud.services {
            guard let copy = try? cloud.copyStorage(of: service) else { continue }
            copies[service, default: []].append(copy)
        }
    }

    /// One service, or all together as they were at one time.
    private func restore(_ service: ServiceName?) throws {
        guard let count = copies[.keyValue]?.count, count > 0 else { return }
        try restore(service, from: Int.random(in: 0..<count, using: &generator))
    }

    func restore(_ service: ServiceName?, from number: Int) throws {
        note("restore \(service?.rawValue ?? "all") \(number)")
        for restored in service.map({ [$0] }) ?? TestCloud.services {
            guard let copy = copies[restored]?[number] else { continue }
            if restored == .keyValue { forgetServer() }
            try cloud.restore(copy, of: restored)
        }
    }

    /// The service's database is gone, and it starts with an empty one.
    func lose(_ service: ServiceName) throws {
        note("lose \(service)")
        if service == .keyValue { forgetServer() }
        try cloud.restore(nil, of: service)
    }

    private func forgetServer() {
        deleted = [:]
        hasLostClock = hasWrongServerClocks
    }

    /// What only this home had is gone with it.
    private func restoreHome(of device: TestDevice) throws {
        guard let copy = homes[device.home]?.randomElement(using: &generator) else { return }
        note("restore home of \(device.home)")
        try device.restoreHome(copy)
        held = [:]
    }

    /// Signs the device in to another account, or the same, or tries to. What only this home had of the one it leaves
    /// goes with it.
    private func switchAccount(_ device: TestDevice) {
        if flip(0.3) { try? device.signOut(keepsUnsent: flip(0.5)) }
        try? device.signIn(
            as: Self.accounts.randomElement(using: &generator) ?? Self.accounts[0], discardsUnsent: flip(0.5))
        note("\(device.name) is \(device.session?.accountName ?? "-") now")
        held = [:]
    }

    // MARK: What must hold

    /// Notes the state of each key as a device has it. (What a restored server has and no device is no promise.) What
    /// was written just now may be gone from its device after the pause: a listing leaves deletions out.
    func look(afterPause: Bool) throws {
        dropUncertain()
        let certain = certain
        for device in cloud.devices {
            guard let account = device.session?.accountID, device.session?.signedIn == true else { continue }
            let (stored, pending) = try items(device)
            // What the server has not seen may be cut back by it, or given up with its account. What was only seen to
            // be gone gives way to what it was inferred from.
            let known = stored.filter { $0.sequence > 0 || $0.value != nil }
            let mayGive = hasWrongClocks || hasWrongServerClocks || hasSwitches
            for item in mayGive ? known.filter({ $0.sequence > 0 }) : known + pending
            where item.timestamp <= certain {
                if held[account]?[item.key].map({ item.wins(over: $0) }) ?? true {
                    held[account, default: [:]][item.key] = item
                }
                guard item.value == nil, item.sequence > 0 else { continue }
                if deleted[account]?[item.key].map({ item.wins(over: $0) }) ?? true {
                    deleted[account, default: [:]][item.key] = item
                }
            }
        }
    }

    func checkEnd() throws {
        for (account, devices) in Dictionary(grouping: cloud.devices, by: { $0.session?.accountID }) {
            guard let account, let first = devices.first else { throw Violation("Nobody is signed in: \(state())") }
            for device in devices {
                guard device.digest == first.digest, device.values == first.values else {
                    throw Violation(
                        "Contents differ: \(state()); \(try items(first).stored) and \(try items(device).stored)")
                }
            }
            let all = try devices.flatMap { try items($0).stored + items($0).pending }
            let last = Dictionary(all.map { ($0.key, $0) }) { $1.wins(over: $0) ? $1 : $0 }
            for (key, item) in (held[account] ?? [:]).sorted(by: { $0.key < $1.key }) {
                guard let now = last[key], now.value != nil else {
                    // Which of two deletions is remembered makes no difference.
                    let later =
                        (deletions[account]?[key] ?? []) + [deleted[account]?[key], last[key]].compactMap(\.self)
                    guard item.value == nil || later.contains(where: { $0.wins(over: item) })
                    else { throw Violation("\(key) is gone, but a device had \(item); \(state())") }
                    continue
                }
                guard !item.wins(over: now) else {
                    throw Violation("\(key) is \(now), but a device had \(item); \(state())")
                }
            }
        }
    }

    private func items(_ device: TestDevice) throws -> (stored: [KeyValueItem], pending: [KeyValueItem]) {
        guard let store = device.store, let scope = device.session?.scope(of: store.app) else { return ([], []) }
        return try device.local.read { database in
            let store = StoreTransaction(database, scope)
            return (try store.items(), try store.pending().flatMap(\.writes))
        }
    }

    func state() -> String {
        cloud.devices.map { device in
            let status = try? device.store?.status()
            let pending = status?.pending.map { "\($0.keys):\($0.reason)" } ?? []
            return "\(device.name) \(device.head?.description ?? "-") \(device.digest?.short ?? "-") "
                + "agrees \(status?.agrees ?? false) pending \(pending) "
                + "problem \(status?.problem?.description ?? "none")"
        }.joined(separator: "; ") + trace.map { "\n\($0)" }.joined()
    }
}
