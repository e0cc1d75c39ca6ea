import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

@testable import NephosServiceKit

/// How often a device and an account may ask.
struct BudgetTests {
    private func budgets(device: Int, account: Int = 0) -> RequestBudgets {
        var configuration = BudgetConfiguration()
        configuration.device = .init(capacity: device, refillPerSecond: 10)
        configuration.account = .init(capacity: account, refillPerSecond: 20)
        return RequestBudgets(configuration)
    }

    private func caller(_ device: String) -> Caller {
        Caller(
            account: AccountID("acct"), device: DeviceID(device), app: AppID("app"),
            entitlements: Entitlements(store: nil, containers: []), expires: Timestamp(milliseconds: .max), keyID: "key"
        )
    }

    /// Takes one call, as the gate does.
    private func take(_ caller: Caller, from budgets: RequestBudgets, now: Duration) throws -> Budget? {
        if let exhausted = budgets.exhausted(caller, now: now) { throw exhausted }
        return budgets.settle(caller, by: 1, now: now)
    }

    private func refusal(_ body: () throws -> Void) -> CloudError? {
        do { try body() } catch { return (error as? RequestBudgets.Exhausted)?.error }
        return nil
    }

    @Test func aDevicesBudgetRunsOutAndRefills() throws {
        let budgets = budgets(device: 3)
        let remaining = try (0..<3).map { _ in try take(caller("a"), from: budgets, now: .zero)?.remaining }
        #expect(remaining == [2, 1, 0])
        let error = refusal { _ = try take(caller("a"), from: budgets, now: .zero) }
        #expect(error?.code == .requestRateLimited && error?.retryAfter == .milliseconds(100))
        #expect(error?.details["budget"] == "device")
        #expect(try take(caller("b"), from: budgets, now: .zero)?.remaining == 2)
        #expect(try take(caller("a"), from: budgets, now: .milliseconds(100))?.remaining == 0)
        #expect(try take(caller("a"), from: budgets, now: .seconds(60))?.remaining == 2)
    }

    @Test func anAccountsDevicesShareItsBudget() throws {
        let budgets = budgets(device: 3, account: 4)
        for device in ["a", "b", "c", "d"] { _ = try take(caller(device), from: budgets, now: .zero) }
        let error = refusal { _ = try take(caller("e"), from: budgets, now: .zero) }
        #expect(error?.details["budget"] == "account")
        // What its account refused was not taken from the device.
        #expect(try take(caller("e"), from: budgets, now: .milliseconds(50))?.remaining == 0)
        #expect(try take(caller("e"), from: budgets, now: .seconds(10))?.remaining == 2)
    }

    @Test func zeroMeansNoLimit() throws {
        let budgets = budgets(device: 0)
        for _ in 0..<100 { #expect(try take(caller("a"), from: budgets, now: .zero) == nil) }
    }

    /// Each of them has taken one, so that none can be forgotten as one that has a full bucket.
    @Test func freshKeysForgiveNobodysDebts() {
        let buckets = TokenBuckets<Int>(.init(capacity: 10, refillPerSecond: 1))
        _ = buckets.take(-1, 1000, now: .zero)
        for key in 0..<TokenBuckets<Int>.keysMax * 5 / 2 { _ = buckets.take(key, 1, now: .zero) }
        #expect(buckets.count <= TokenBuckets<Int>.keysMax)
        #expect(buckets.wait(-1, now: .zero) == .seconds(991))
        // Nor do as many that have nothing left.
        var strangers = StrangerBudget(.init(capacity: 2, refillPerSecond: 1))
        func key(_ number: UInt32) -> PublicKey? {
            PublicKey(bytes: withUnsafeBytes(of: number, Array.init) + [UInt8](repeating: 0, count: 28))
        }
        guard let first = key(.max) else { return }
        for _ in 0..<100 { strangers.take(first, now: .zero) }
        for number in 0..<UInt32(25_000) {
            guard let key = key(number) else { continue }
            for _ in 0..<2 { strangers.take(key, now: .zero) }
        }
        #expect(throws: StrangerBudget.Refusal.self) { try strangers.check(first, now: .seconds(50)) }
    }

    @Test func everyReplyCarriesWhatRemainsAndARefusalSaysWhenToComeBack() throws {
        var configuration = BudgetConfiguration()
        configuration.device = .init(capacity: 2, refillPerSecond: 10)
        let house = try TestHouse(budgets: configuration)
        let keys = try KeysOnly().makeKeyPair()
        let client = try house.client(keys)
        let token = try house.token(for: keys)
        var replies: [ReplyEnvelope] = []
        for _ in 0..<3 {
            client.call("WhoAmI", body: Frame(encoding: WireWhoAmI()), accessToken: token, timeout: .milliseconds(50)) {
                replies.append($0)
            }
            house.bus.settle()
        }
        // The client waits by itself for what is refused, but not beyond its caller's time.
        #expect(replies.map(\.budget?.remaining) == [1, 0, 0])
        #expect(replies.last?.result.code == .requestRateLimited)
        var patient: ReplyEnvelope?
        client.call("WhoAmI", body: Frame(encoding: WireWhoAmI()), accessToken: token) { patient = $0 }
        house.bus.run(for: .milliseconds(200))
        #expect(patient?.result.code == nil && patient != nil)
        let health = try #require(client.ask(WireCheckHealth(), on: house.bus)).get().decode(WireCheckHealthReply.self)
        #expect(health.deviceBudget.capacity == 2 && health.deviceBudget.refillMicroseconds == 100_000)
    }

    @Test func aStrangersBudgetRunsOutAndOthersAreServed() throws {
        let house = try TestHouse(budgets: BudgetConfiguration())
        let hostile = try house.client(try KeysOnly().makeKeyPair())
        let honest = try house.client(try KeysOnly().makeKeyPair())
        var codes: [CloudError.Code?] = []
        for _ in 0..<300 {
            hostile.call("CheckHealth", body: Frame(encoding: WireCheckHealth()), timeout: .milliseconds(100)) {
                codes.append($0.result.code)
            }
        }
        house.bus.settle()
        // One is told why; for the others nothing is done.
        #expect(codes.count { $0 == nil } == 100)
        let health = try #require(honest.ask(WireCheckHealth(), on: house.bus)).get().decode(WireCheckHealthReply.self)
        #expect(health.counters["requests.ignored"] == 200)
        #expect(health.counters["failures.\(CloudError.Code.requestRateLimited)"] == 1)
        house.bus.run(for: .seconds(10))
        #expect(try #require(hostile.ask(WireCheckHealth(), on: house.bus)).get().count > 0)
    }

    @Test func aTokenThatIsNotGoodCostsAStrangersBudget() throws {
        let house = try TestHouse(budgets: BudgetConfiguration())
        let keys = try KeysOnly().makeKeyPair()
        let hostile = try house.client(keys)
        var codes: [CloudError.Code?] = []
        for _ in 0..<300 {
            hostile.call(
                "WhoAmI", body: Frame(encoding: WireWhoAmI()), accessToken: "forged", timeout: .milliseconds(100)
            ) { codes.append($0.result.code) }
        }
        house.bus.settle()
        #expect(codes == Array(repeating: .notAuthenticated, count: 100))
    }
}
