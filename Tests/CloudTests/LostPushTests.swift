import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// A write of a key has arrived, its answer has not.
@Suite struct LostPushTests {
    /// The clock of its device is ahead, so that its timestamp was cut back: under another id it would be newer than what
    /// was written after it.
    @Test func aWriteThatIsRepeatedAndRefusedForItsRateBeatsNothingNewer() throws {
        var budgets = BudgetConfiguration.unlimited
        budgets.device = .init(capacity: 300, refillPerSecond: 1)
        let cloud = try TestCloud(seed: 71, budgets: budgets)
        defer { cloud.close() }
        for _ in 0..<2 { try cloud.addDevice() }
        #expect(cloud.settle())
        let (ahead, right) = (cloud.devices[0], cloud.devices[1])
        ahead.setClockOffset(.seconds(300))
        cloud.network.faults = Faults(latency: .milliseconds(50)...(.milliseconds(50)))
        func waiting() -> OutboxOperation? { try? ahead.store?.driver.read { try $0.operations().first } }
        try ahead.store?.set(1, forKey: "k")
        #expect(cloud.network.run(within: .seconds(5)) { waiting()?.state == .sent })
        // What is on its way arrives, and is answered to nobody.
        ahead.setOffline(true)
        cloud.network.run(for: .seconds(1))
        cloud.network.faults = .none
        #expect(cloud.network.run(within: .seconds(30)) { right.values["k"] == 1 })
        try right.store?.set(2, forKey: "k")
        cloud.network.run(for: .seconds(30))
        #expect(try right.store?.status().pending.isEmpty == true)
        let engine = try #require(ahead.engine)
        let isOver = cloud.network.run(within: .seconds(60)) {
            engine.scopes.allSatisfy(\.sync.outbox.inFlight.isEmpty)
        }
        #expect(isOver)
        // What comes first once it is back takes all that it may ask for.
        ahead.setOffline(false)
        let app = try #require(ahead.session?.defaultApp)
        for _ in 0..<600 {
            engine.call(.keyValue, WireListUsage(), as: WireListUsageReply.self, app: app) { _, _ in }
        }
        ahead.store?.synchronize()
        #expect(cloud.network.run(within: .seconds(60)) { waiting()?.error?.code == .requestRateLimited })
        #expect(cloud.settle(within: .seconds(1200)))
        #expect(ahead.values["k"] == 2 && right.values["k"] == 2)
    }
}
