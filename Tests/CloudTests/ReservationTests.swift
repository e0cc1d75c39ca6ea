import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import Testing

/// A service that does with its ledger what a test says.
// Unchecked: a simulation has one thread.
private final class Keeper: CloudService, @unchecked Sendable {
    let name = ServiceName.records
    private weak var runtime: (any ServiceRuntime)?

    func register(on router: inout Router) {}
    func start(_ host: any ServiceRuntime) throws { runtime = host }

    /// Runs the body in the next group, again for as long as room is being asked for.
    func run(
        on cloud: TestCloud, _ body: @escaping (StorageLedger, any HandlerTransaction) throws -> Void
    ) throws {
        for _ in 0..<100 {
            var outcome: Result<Void, CloudError>?
            runtime?.submit { [unowned self] in
                guard let runtime else { return }
                try body(runtime.storage, $0)
            } then: {
                outcome = $0.map { .failure($0) } ?? .success(())
            }
            cloud.network.run(within: .seconds(1)) { outcome != nil }
            if case .failure(let error) = outcome, error.code == .serviceBusy {
                cloud.network.run(for: error.retryAfter ?? .milliseconds(50))
                continue
            }
            return try #require(outcome).get()
        }
    }
}

@Suite struct ReservationTests {
    private let keeper = Keeper()
    private let owner: Owner
    private let cloud: TestCloud
    private let hour: Duration = .seconds(3600)

    init() throws {
        let keeper = keeper
        cloud = try TestCloud(seed: 3, factories: [.records: { _ in keeper }])
        owner = Owner(try cloud.createAccount("keeper"))
    }

    private var now: Timestamp { SimulatedNetwork.epoch.advanced(by: cloud.network.now) }
    private func id(_ number: UInt8) throws -> ReservationID {
        try #require(ReservationID(bytes: [UInt8](repeating: number, count: 16)))
    }

    private func reserve(_ bytes: UInt64, _ number: UInt8 = 1) throws -> Reservation {
        var made: Reservation?
        let (owner, now, hour) = (owner, now, hour)
        let id = try id(number)
        try keeper.run(on: cloud) {
            made = try $0.reserve(
                bytes, under: id, for: owner, app: AppID("app"), device: DeviceID("dev"),
                until: now.advanced(by: hour), in: $1)
        }
        return try #require(made)
    }

    private func find(_ number: UInt8 = 1) throws -> Reservation? {
        var found: Reservation?
        let (owner, id) = (owner, try id(number))
        try keeper.run(on: cloud) { found = try $0.reservation(id, of: owner, in: $1) }
        return found
    }

    private func used() throws -> UInt64 {
        var used: UInt64 = 0
        let owner = owner
        try keeper.run(on: cloud) { used = try $0.usage(of: owner, in: $1).reduce(0) { $0 + $1.bytes } }
        return used
    }

    /// That it became smaller is told once.
    @Test func aPlanThatBecomesSmallerIsHeededByAServiceThatDiesMeanwhile() throws {
        try cloud.savePlan("large", bytes: 1 << 30)
        let owner = Owner(try cloud.createAccount("large", plan: "large"))
        func charge(_ bytes: UInt64) throws {
            try keeper.run(on: cloud) {
                try $0.charge(bytes, to: owner, app: AppID("app"), device: DeviceID("dev"), in: $1)
            }
        }
        // It has got more than it has asked for.
        try charge(1 << 20)
        cloud.network.run(for: .seconds(10))
        try cloud.faults.leaveHalfDone("records.commit")
        try cloud.savePlan("large", bytes: 2 << 20)
        cloud.network.run(for: .seconds(20))
        #expect(try cloud.faults.count("records.commit") == 1)
        let error = #expect(throws: CloudError.self) { try charge(3 << 20) }
        #expect(error?.code == .quotaExceeded)
        try charge(1 << 20)
    }

    /// What is used is told by the same question that asks for room. One that was on its way already, and asked for none,
    /// refuses nobody.
    @Test func whoWantsRoomWhileWhatIsUsedIsToldIsNotRefused() throws {
        try cloud.savePlan("large", bytes: 1 << 40)
        let owner = Owner(try cloud.createAccount("large", plan: "large"))
        cloud.network.faults = Faults(latency: .milliseconds(40)...(.milliseconds(40)))
        for step in 0..<40 {
            // A service that starts tells what is used.
            cloud.crash(.records)
            try cloud.start(.records)
            cloud.network.run(for: .milliseconds(5 * step))
            // More than a service gets beyond what it asks for.
            try keeper.run(on: cloud) {
                try $0.charge(100 << 20, to: owner, app: AppID("app"), device: DeviceID("dev"), in: $1)
            }
        }
    }

    @Test func itCountsAsIfItWereUsedUntilItIsSettled() throws {
        defer { cloud.close() }
        _ = try reserve(4_000_000_000)
        #expect(try used() == 4_000_000_000)
        #expect(throws: CloudError.self) { _ = try reserve(2_000_000_000, 2) }
        let reservation = try #require(try find())
        try keeper.run(on: cloud) { try $0.settle(reservation, keeping: 1_500_000_000, in: $1) }
        #expect(try used() == 1_500_000_000)
        #expect(try find() == nil)
        _ = try reserve(2_000_000_000, 2)
    }

    @Test func itGrowsAndShrinksButNeverBelowWhatIsInIt() throws {
        defer { cloud.close() }
        let first = try reserve(1000)
        let later = now.advanced(by: hour)
        try keeper.run(on: cloud) { try $0.fill(first, by: 400, until: later, in: $1) }
        #expect(try reserve(5000).bytes == 5000)
        #expect(try used() == 5000)
        #expect(try reserve(10).bytes == 400)
        #expect(try used() == 400)
        #expect(try find()?.filled == 400)
    }

    @Test func oneThatEndsGivesBackWhatIsEmptyAndTheRestAsItIsEmptied() throws {
        defer { cloud.close() }
        let first = try reserve(1000)
        let later = now.advanced(by: hour)
        try keeper.run(on: cloud) { try $0.fill(first, by: 600, until: later, in: $1) }
        let filled = try #require(try find())
        try keeper.run(on: cloud) { try $0.end(filled, in: $1) }
        #expect(try used() == 600)
        let ended = try #require(try find())
        #expect(ended.hasEnded)
        #expect(throws: CloudError.self) { _ = try reserve(1000) }
        try keeper.run(on: cloud) { try $0.empty(ended, by: 200, isEmpty: false, in: $1) }
        #expect(try used() == 400)
        let rest = try #require(try find())
        try keeper.run(on: cloud) { try $0.empty(rest, by: 100, isEmpty: true, in: $1) }
        #expect(try used() == 0)
        #expect(try find() == nil)
    }

    @Test func itSurvivesARestartAndEndsInTime() throws {
        defer { cloud.close() }
        _ = try reserve(1000)
        cloud.crash(.records)
        try cloud.start(.records)
        #expect(try find()?.bytes == 1000)
        func expired() throws -> Reservation? {
            var found: Reservation?
            let now = now
            try keeper.run(on: cloud) {
                found = try $0.expiredReservation(at: now, latest: now.advanced(by: .seconds(3600)), in: $1)
            }
            return found
        }
        #expect(try expired() == nil)
        cloud.network.run(for: hour)
        #expect(try expired()?.bytes == 1000)
    }

    @Test func ownersTakeTurnsAtThoseThatWereEnded() throws {
        defer { cloud.close() }
        let first = try reserve(1000)
        func ended(after owner: Owner?) throws -> Reservation? {
            var found: Reservation?
            try keeper.run(on: cloud) { found = try $0.endedReservation(after: owner, in: $1) }
            return found
        }
        #expect(try ended(after: nil) == nil)
        try keeper.run(on: cloud) { try $0.end(first, in: $1) }
        #expect(try ended(after: nil)?.id == first.id)
        #expect(try ended(after: first.owner) == nil)
    }

    @Test func anOwnerHasNotAnyNumberOfThem() throws {
        defer { cloud.close() }
        let (owner, now, hour) = (owner, now, hour)
        let ids = (0...1000).map { number in
            ReservationID(bytes: withUnsafeBytes(of: (UInt64(number), UInt64(0))) { [UInt8]($0) })
        }
        try keeper.run(on: cloud) { ledger, transaction in
            for (number, id) in ids.compactMap({ $0 }).enumerated() {
                func reserve(_ device: Int) throws {
                    _ = try ledger.reserve(
                        0, under: id, for: owner, app: AppID("app"), device: DeviceID("dev\(device)"),
                        until: now.advanced(by: hour), in: transaction)
                }
                // A hundred of each device.
                if number % 100 == 0, number > 0 {
                    let error = #expect(throws: CloudError.self) { try reserve(number / 100 - 1) }
                    #expect(error?.code == .serviceBusy)
                }
                guard number < 1000 else {
                    let error = #expect(throws: CloudError.self) { try reserve(number / 100) }
                    #expect(error?.code == .serviceBusy)
                    break
                }
                try reserve(number / 100)
            }
        }
    }
}
