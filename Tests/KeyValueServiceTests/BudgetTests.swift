import Bus
import Core
import Testing
import Wire

@testable import KeyValueService

struct BudgetTests {
    private func house(capacity: Int) throws -> KeyValueHouse {
        var configuration = KeyValueConfiguration()
        configuration.budgetCapacity = capacity
        configuration.budgetRefillPerSecond = 10
        return try KeyValueHouse(configuration)
    }

    @Test func budgetRunsOutAndRefills() throws {
        let house = try house(capacity: 3)
        let caller = house.caller("dev_a")
        var remaining: [Int?] = []
        for index in 0..<3 {
            let push = house.push([house.write("k\(index)", 1)])
            remaining.append(house.run([try house.item(push, by: caller)])[0].budget?.remaining)
        }
        #expect(remaining == [2, 1, 0])
        let refused = house.run([try house.item(house.push([house.write("x", 1)]), by: caller)])[0]
        let error = failure { _ = try refused.result.get() }
        #expect(error?.code == .requestRateLimited && error?.retryAfter == .milliseconds(100))
        #expect(refused.budget?.remaining == 0)
        try house.push(house.write("x", 1), by: house.caller("dev_b"))
        house.clock.advance(by: .milliseconds(100))
        try house.push(house.write("x", 2), by: caller)
        house.clock.advance(by: .seconds(60))
        let full = house.run([try house.item(house.push([house.write("x", 3)]), by: caller)])[0]
        #expect(full.budget?.remaining == 2)
    }

    @Test func zeroMeansNoLimit() throws {
        let house = try house(capacity: 0)
        for index in 0..<100 {
            try house.push(house.write("k\(index)", 1), by: house.caller("dev_a"))
        }
        let push = try house.item(house.push([house.write("x", 1)]), by: house.caller("dev_a"))
        #expect(house.run([push])[0].budget == nil)
    }
}
