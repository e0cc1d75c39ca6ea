import NephosCore
import NephosServiceKit
import NephosSimulation
import Testing

@Suite struct AccountClosureTests {
    @Test func anAccountThatCannotBeRemovedHoldsUpNoOther() throws {
        let house = try TestHouse()
        let names = ["acc_a", "acc_b", "acc_c"].map { AccountID($0) }
        house.identity.stuck = names[0]
        let host = house.identityHost
        host.submit { transaction in
            for name in names { try host.closeAccount(name, in: transaction) }
        }
        house.bus.settle()
        house.bus.run(for: .seconds(5))
        #expect(Set(house.identity.closing) == Set(names))
        // It is tried again, about once a second, and goes once it can.
        let tries = house.identity.closing.filter { $0 == names[0] }.count
        #expect((2...12).contains(tries))
        house.identity.stuck = nil
        house.bus.run(for: .seconds(3))
        let after = house.identity.closing.count
        house.bus.run(for: .seconds(10))
        #expect(house.identity.closing.count == after)
    }

    @Test func anAccountWhoseClosingIdentityRefusesHoldsUpNoOther() throws {
        let house = try TestHouse()
        let names = ["acc_a", "acc_b"].map { AccountID($0) }
        house.identity.refusedReport = names[0]
        let host = house.identityHost
        host.submit { transaction in
            for name in names { try host.closeAccount(name, in: transaction) }
        }
        house.bus.run(for: .seconds(5))
        #expect(Set(house.identity.closing) == Set(names))
        house.identity.refusedReport = nil
        house.bus.run(for: .seconds(3))
        let after = house.identity.closing.count
        house.bus.run(for: .seconds(10))
        #expect(house.identity.closing.count == after)
    }
}
