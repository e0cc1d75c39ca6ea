import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosWire
import Testing

/// A device that is alone is not held to its budget, and holds up nobody who comes.
struct SpareTimeTests {
    private let house: TestHouse

    init() throws {
        var configuration = BudgetConfiguration()
        configuration.device = .init(capacity: 10, refillPerSecond: 1)
        configuration.sparePercent = 50
        house = try TestHouse(budgets: configuration)
        house.bus.run(for: .seconds(5))
    }

    /// A device, and what it was answered.
    private final class Device {
        let house: TestHouse
        let client: RequestClient
        let token: String
        var replies: [ReplyEnvelope] = []

        init(_ house: TestHouse, account: String = "acc_one", device: String = "dev_one") throws {
            self.house = house
            let keys = try KeysOnly().makeKeyPair()
            client = try house.client(keys)
            token = try house.token(for: keys, account: account, device: device)
        }

        var served: Int { replies.count { $0.result.code == nil } }

        func send(timeout: Duration = .milliseconds(1)) {
            client.call("WhoAmI", body: Frame(encoding: WireWhoAmI()), accessToken: token, timeout: timeout) {
                self.replies.append($0)
            }
        }

        /// - Returns: The answer; whoever is refused does not wait.
        func ask() throws -> ReplyEnvelope {
            send()
            house.bus.settle()
            house.bus.run(for: .milliseconds(1))
            return try #require(replies.last)
        }

        func useUpBudget() throws {
            for _ in 0..<10 { #expect(try ask().result.code == nil) }
        }
    }

    @Test func aDeviceThatIsAloneIsServedAndNothingIsTaken() throws {
        let device = try Device(house)
        for _ in 0..<40 { #expect(try device.ask().result.code == nil) }
        #expect(device.replies.last?.budget?.remaining == 0)
        // There are two again two seconds later, of which this takes one.
        house.bus.run(for: .seconds(2))
        #expect(try device.ask().budget?.remaining == 1)
    }

    /// Of what comes at one time, and finds nothing left, one is served.
    @Test func aBatchOfOneWithoutBudgetHoldsUpNobody() throws {
        let device = try Device(house)
        try device.useUpBudget()
        let before = device.served
        for _ in 0..<500 { device.send() }
        house.bus.settle()
        #expect(device.served == before + 1)
        // The others come back soon, by themselves.
        device.send(timeout: .seconds(1))
        house.bus.run(for: .milliseconds(500))
        #expect(device.served >= before + 2)
    }

    /// What its requests have cost beyond their price ends its turn in a group, spare time or not.
    @Test func nobodyIsSparedWithinTheOverdraftOfItsOwnGroup() throws {
        let device = try Device(house)
        house.identity.rows = 320
        for _ in 0..<10 { device.send() }
        house.bus.settle()
        #expect(device.served == 1)
    }

    @Test func whileOthersWantSomethingABudgetIsAllThereIs() throws {
        let (device, other) = (try Device(house), try Device(house, account: "acc_two", device: "dev_two"))
        try device.useUpBudget()
        #expect(try device.ask().result.code == nil)
        #expect(try other.ask().result.code == nil)
        let refusal = try device.ask()
        #expect(refusal.result.code == .requestRateLimited)
        house.bus.run(for: .milliseconds(500))
        #expect(try device.ask().result.code == .requestRateLimited)
        #expect(try other.ask().result.code == nil)
        house.bus.run(for: .milliseconds(900))
        #expect(try device.ask().result.code == nil)
        house.bus.run(for: .milliseconds(200))
        let before = device.served
        for _ in 0..<3 { device.send() }
        house.bus.settle()
        #expect(device.served > before)
    }

    /// One request at a time, and as long as each took nothing.
    @Test func halfOfTheTimeIsNobodys() throws {
        let device = try Device(house)
        try device.useUpBudget()
        house.identityEngine.holds = true
        device.send(timeout: .seconds(1))
        house.bus.run(for: .milliseconds(100))
        let before = device.served
        // It waits for the disk: nobody is spared anything beside it.
        #expect(try device.ask().result.code == .requestRateLimited)
        house.identityEngine.holds = false
        house.identityEngine.goOn()
        house.bus.settle()
        #expect(device.served == before + 1)
        #expect(try device.ask().result.code == .requestRateLimited)
        house.bus.run(for: .milliseconds(120))
        #expect(try device.ask().result.code == nil)
    }

    @Test func withoutSpareTimeNobodyIsSparedAnything() throws {
        var configuration = BudgetConfiguration()
        configuration.device = .init(capacity: 10, refillPerSecond: 1)
        let house = try TestHouse(budgets: configuration)
        let device = try Device(house)
        for _ in 0..<20 { device.send() }
        house.bus.settle()
        #expect(device.served == 10)
    }
}
