import NephosCore
import NephosSimulation
import NephosStorage
import Testing

@testable import NephosKit

/// The key-value service comes back two or three times, from copies that cross: one that was taken before another comes
/// back after it, and knows nothing of what there was between. Devices come when all of that has begun.
///
/// `NEPHOS_SEEDS=N` sets how many histories are tried, `NEPHOS_FIRST_SEED=S` where they begin, `NEPHOS_SEED=S` tries one.
@Suite struct CrossingRestoreTests {
    @Test func noHistoryWithCopiesThatCrossLosesWhatADeviceHas() async {
        let failures = await CrossingRestoreHistory.failures(
            of: 12, suite: "noHistoryWithCopiesThatCrossLosesWhatADeviceHas")
        for failure in failures.prefix(10) { Issue.record("\(failure)") }
        #expect(failures.isEmpty, "\(failures.count) histories went wrong")
    }
}

/// One seeded history: what happens between two copies or restores is that of any history with restores, but for homes
/// and other services, which stay as they are.
final class CrossingRestoreHistory: RestoreHistory {
    private enum Turn {
        case copy
        /// A copy by its number, or nothing.
        case restore(Int?)
        case join
    }

    /// What happens besides, each at its step.
    private var turns: [Int: [Turn]] = [:]
    private var stepNumber = 0

    override func begin() throws {
        try super.begin()
        hasSwitches = false
        plan()
    }

    /// Copies are taken before the first restore, after it, or both; each restore takes another one. A device comes
    /// between the restores, or after them.
    private func plan() {
        // The first was taken when everything began.
        var copyCount = 1
        var unused: [Int?] = [0]
        var steps = 1...6
        func add(_ turn: Turn) { turns[Int.random(in: steps, using: &generator), default: []].append(turn) }
        for _ in 0..<Int.random(in: 1...2, using: &generator) {
            add(.copy)
            unused.append(copyCount)
            copyCount += 1
        }
        for _ in 0..<Int.random(in: 2...3, using: &generator) {
            steps = (steps.upperBound + 1)...(steps.upperBound + 4)
            let next = flip(0.1) ? nil : unused.randomElement(using: &generator) ?? 0
            unused.removeAll { $0 == next }
            add(.restore(next))
            steps = (steps.upperBound + 1)...(steps.upperBound + 5)
            if flip(0.5) { add(.join) }
            if flip(0.5) {
                add(.copy)
                unused.append(copyCount)
                copyCount += 1
            }
        }
    }

    override func step() throws {
        stepNumber += 1
        for turn in turns.removeValue(forKey: stepNumber) ?? [] {
            switch turn {
            case .copy: copyAll()
            case .restore(let number?): try restore(.keyValue, from: number)
            case .restore(nil): try lose(.keyValue)
            case .join: try join()
            }
        }
        guard let device = cloud.devices.randomElement(using: &generator) else { return }
        if hasWrongClocks, flip(0.05) {
            device.setClockOffset(flip(0.3) ? .zero : Self.wrongClocks.randomElement(using: &generator) ?? .zero)
        }
        if hasWrongServerClocks, flip(0.05) { setServerClock() }
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<45: try write(device, deleting: false)
        case ..<62: try write(device, deleting: true)
        case ..<76:
            note("\(device.name) offline")
            device.setOffline(true)
        case ..<90:
            note("\(device.name) online")
            device.setOffline(false)
        default:
            note("\(device.name) restarts")
            device.stop()
            try device.start()
        }
    }

    /// One that comes late. It may be cut off from then on.
    private func join() throws {
        let device = try cloud.addDevice()
        note("\(device.name) comes")
        if flip(0.3) {
            cloud.network.run(for: .seconds(5))
            device.setOffline(true)
        }
    }

    override func look(afterPause: Bool) throws {
        try super.look(afterPause: afterPause)
        let server = try storedHead()
        for device in cloud.devices {
            // Between its place and what it says another process of the home may have come.
            guard !device.isShared, let status = try device.store?.status(), status.isInSync,
                status.head.isSamePlace(as: server.token)
            else { continue }
            guard status.digest == server.digest else {
                throw Violation("\(device.name) says that it is in sync, and is not; \(state())")
            }
        }
    }

    override func checkEnd() throws {
        try super.checkEnd()
        let server = try storedHead()
        for device in cloud.devices where device.digest != server.digest {
            throw Violation("\(device.name) has another content than the service; \(state())")
        }
    }

    /// Where the service's disk has the account's store.
    private func storedHead() throws -> ScopeHead {
        guard let session = cloud.devices.first?.session, let scope = session.scope(of: session.defaultApp)
        else { throw Violation("Nobody is signed in: \(state())") }
        let name = ScopeName(session.accountID, ItemName(scope.store.rawValue))
        return try cloud.storage(of: .keyValue).write { try Feed(over: $0).head(name) }
    }
}
