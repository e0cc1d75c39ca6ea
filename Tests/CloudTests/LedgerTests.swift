import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// A service that stores things of some size for owners, with the real ledger.
final class Warehouse: CloudService {
    let name: ServiceName
    private weak var runtime: (any ServiceRuntime)?

    init(_ name: ServiceName) { self.name = name }

    let migrations = [
        Migration(
            name: "warehouse",
            statements: ["CREATE TABLE things (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, bytes BIGINT NOT NULL)"])
    ]

    private static let insert = SQL("INSERT INTO things (id, owner, bytes) VALUES (?1, ?2, ?3)")
    private static let delete = SQL("DELETE FROM things WHERE id = ?1")
    private static let select = SQL("SELECT owner, bytes FROM things WHERE id = ?1")
    private static let sum = SQL("SELECT COALESCE(SUM(bytes), 0) FROM things WHERE owner = ?1")

    func register(on router: inout Router) {}
    func start(_ host: any ServiceRuntime) throws { runtime = host }

    /// Stores a thing; as often as a client would come back, for as long as it is told to.
    func store(_ id: Int64, _ bytes: UInt64, for owner: Owner, _ done: @escaping (CloudError?) -> Void) {
        attempt(id, bytes, owner, triesLeft: 100, done)
    }

    private func attempt(
        _ id: Int64, _ bytes: UInt64, _ owner: Owner, triesLeft: Int, _ done: @escaping (CloudError?) -> Void
    ) {
        guard let runtime else { return }
        runtime.submit { [weak self] transaction in
            do {
                try runtime.storage.charge(
                    bytes, to: owner, app: AppID("app"), device: DeviceID("dev"), in: transaction)
                try transaction.execute(
                    Self.insert, [.integer(id), .text(owner.rawValue), .integer(Int64(bytes))])
                done(nil)
            } catch let error as CloudError where error.code == .serviceBusy && triesLeft > 0 {
                runtime.loop.schedule(after: error.retryAfter ?? .milliseconds(50)) {
                    self?.attempt(id, bytes, owner, triesLeft: triesLeft - 1, done)
                }
            } catch { done(CloudError(wrapping: error)) }
        }
    }

    func remove(_ id: Int64) {
        guard let runtime else { return }
        runtime.submit { transaction in
            let thing = try transaction.first(Self.select, [.integer(id)]) {
                (owner: Owner($0.text(0)), bytes: UInt64($0.integer(1)))
            }
            guard let thing else { return }
            try runtime.storage.release(
                thing.bytes, of: thing.owner, app: AppID("app"), device: DeviceID("dev"), in: transaction)
            try transaction.execute(Self.delete, [.integer(id)])
        }
    }

    static func stored(for owner: Owner, on disk: SQLiteEngine) throws -> UInt64 {
        try disk.write { try $0.first(sum, [.text(owner.rawValue)]) { UInt64($0.integer(0)) } ?? 0 }
    }
}

/// The warehouses that run now, for a test on one thread to reach them.
// Unchecked: a simulation has one thread.
final class Warehouses: @unchecked Sendable {
    static let names: [ServiceName] = [.documents, .records]
    private var running: [ServiceName: Warehouse] = [:]

    subscript(_ name: ServiceName) -> Warehouse? { running[name] }

    var factories: [ServiceName: TestCloud.ServiceFactory] {
        var factories: [ServiceName: TestCloud.ServiceFactory] = [:]
        for name in Self.names {
            factories[name] = { [unowned self] _ in
                let made = Warehouse(name)
                running[name] = made
                return made
            }
        }
        return factories
    }

    /// Such services where a test needs that they run, and no more.
    static var idle: [ServiceName: TestCloud.ServiceFactory] {
        var factories: [ServiceName: TestCloud.ServiceFactory] = [:]
        for name in names { factories[name] = { _ in Warehouse(name) } }
        return factories
    }

    func crashed(_ name: ServiceName) { running[name] = nil }
}

/// What is stored never exceeds the plan, and no space is lost for good,
/// whatever crashes between a grant and its use.
@Suite struct LedgerTests {
    @Test func devicesAreWarnedBeforeThePlanIsFull() throws {
        let warehouses = Warehouses()
        let cloud = try TestCloud(seed: 5, factories: warehouses.factories)
        defer { cloud.close() }
        try cloud.savePlan("small", bytes: 1000)
        let owner = Owner(try cloud.createAccount("ann", plan: "small"))
        let device = try cloud.addDevice(to: "ann")
        cloud.network.run(for: .seconds(2))

        func store(_ id: Int64, _ bytes: UInt64, in service: ServiceName) -> CloudError? {
            var result: CloudError??
            warehouses[service]?.store(id, bytes, for: owner) { result = .some($0) }
            cloud.network.run(within: .seconds(60)) { result != nil }
            cloud.network.run(for: .seconds(10))
            return result ?? CloudError(.deadlineExceeded, "No answer.")
        }
        #expect(store(1, 700, in: .documents) == nil)
        #expect(device.storageNotices.isEmpty)
        #expect(store(2, 150, in: .records) == nil)
        #expect(device.storageNotices.map(\.level) == [80])
        #expect(device.storageNotices.last?.usedBytes == 850 && device.storageNotices.last?.planBytes == 1000)
        #expect(store(3, 100, in: .documents) == nil)
        #expect(device.storageNotices.map(\.level) == [80, 95])
        let refusal = store(4, 51, in: .records)
        #expect(refusal?.code == .quotaExceeded && refusal?.details["plan_bytes"] == "1000")
        #expect(store(5, 50, in: .records) == nil)
        #expect(device.storageNotices.map(\.level) == [80, 95, 100])

        // A device that starts now is told how it stands.
        let late = try cloud.addDevice(to: "ann")
        cloud.network.run(for: .seconds(5))
        #expect(late.storageNotices.map(\.level) == [100])

        // Deletes are never refused, and room comes back by itself.
        warehouses[.documents]?.remove(1)
        cloud.network.run(for: .seconds(10))
        #expect(device.storageNotices.map(\.level) == [80, 95, 100, 0])
        #expect(store(6, 700, in: .records) == nil)
    }

    @Test func noHistoryExceedsThePlanOrLosesSpace() async {
        let failures = await LedgerHistory.failures(of: 30, suite: "LedgerTests")
        for failure in failures.prefix(5) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }
}

private final class LedgerHistory: SeededHistory {
    static let steps = 50...150
    static let pauses: ClosedRange<Int64> = 0...400
    private static let plan: UInt64 = 1_000_000

    private let warehouses = Warehouses()
    let cloud: TestCloud
    fileprivate var owners: [Owner] = []
    var generator: SplitMix64
    private var nextID: Int64 = 1
    private var stored: [(id: Int64, service: ServiceName)] = []
    private var down: Set<ServiceName> = []
    private var refusals = 0
    private var successes = 0

    required init(seed: UInt64) throws {
        generator = SplitMix64(seed: seed &* 77)
        cloud = try TestCloud(seed: seed, factories: warehouses.factories)
        try cloud.savePlan("small", bytes: Self.plan)
        owners = [Owner(try cloud.createAccount("ann", plan: "small"))]
        var app = WireApp()
        app.appID = "T.app"
        try cloud.createApp(app)
        var set = WireSetPlan()
        set.planID = "small"
        set.appID = app.appID
        try cloud.operate("SetPlan", set, as: WireSetPlanReply.self)
        owners.append(Owner(AppID(app.appID)))
    }

    func begin() throws {
        cloud.network.faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: chance(0.1), duplication: chance(0.1),
            reordering: chance(0.2))
    }

    func look(afterPause: Bool) throws {
        if afterPause { try checkSums() }
    }

    func state() -> String { "\(stored.count) stored, down: \(down.sorted())" }

    func step() throws {
        let service = Warehouses.names.randomElement(using: &generator) ?? .documents
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<55: store(service)
        case ..<80:
            // It stays on the list, since a crash may hide that it was not removed.
            guard let thing = stored.randomElement(using: &generator) else { return }
            warehouses[thing.service]?.remove(thing.id)
        default:
            let any = Warehouses.names + [.identity, .identity]
            let victim = any.randomElement(using: &generator) ?? .identity
            if down.remove(victim) != nil {
                try cloud.start(victim)
            } else {
                cloud.crash(victim)
                warehouses.crashed(victim)
                down.insert(victim)
            }
        }
    }

    private func store(_ service: ServiceName, bytes: UInt64? = nil, for owner: Owner? = nil) {
        guard let warehouse = warehouses[service], let any = owners.randomElement(using: &generator) else { return }
        let id = nextID
        nextID += 1
        let most = Int.random(in: 0..<4, using: &generator) == 0 ? Self.plan : Self.plan / 10
        // Noted before it is known to be stored: a crash may hide that it was.
        stored.append((id, service))
        warehouse.store(id, bytes ?? UInt64.random(in: 1...most, using: &generator), for: owner ?? any) { [weak self] in
            if $0 == nil { self?.successes += 1 } else { self?.refusals += 1 }
        }
    }

    private func checkSums() throws {
        for owner in owners {
            let sums = try Warehouses.names.map { try Warehouse.stored(for: owner, on: cloud.storage(of: $0)) }
            guard sums.reduce(0, +) <= Self.plan else {
                throw Violation("\(owner) has \(sums) stored, more than \(Self.plan)")
            }
        }
    }

    func heal() throws {
        cloud.network.faults = .none
        for service in down.sorted() { try cloud.start(service) }
        cloud.network.run(for: .seconds(60))
    }

    /// When all is well again and everything was removed, either service can fill the whole plan.
    func checkEnd() throws {
        for (id, service) in stored { warehouses[service]?.remove(id) }
        cloud.network.run(for: .seconds(30))
        for owner in owners {
            for service in Warehouses.names {
                guard try Warehouse.stored(for: owner, on: cloud.storage(of: service)) == 0 else {
                    throw Violation("\(service) still stores something for \(owner)")
                }
            }
            guard let service = Warehouses.names.randomElement(using: &generator) else { return }
            (successes, refusals) = (0, 0)
            store(service, bytes: Self.plan, for: owner)
            cloud.network.run(for: .seconds(30))
            try checkSums()
            guard successes == 1 else {
                throw Violation("\(service) could not fill the plan of \(owner): space is lost")
            }
            store(service, bytes: 1, for: owner)
            cloud.network.run(for: .seconds(30))
            guard refusals == 1 else { throw Violation("A byte beyond the plan of \(owner) was not refused") }
        }
    }

    private func chance(_ most: Double) -> Double {
        Bool.random(using: &generator) ? Double.random(in: 0...most, using: &generator) : 0
    }
}
