import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// The service's clock is a hundred days ahead for an hour, and is put right again: nothing has gone for its age.
@Suite struct LeapTests {
    private func count(_ table: String, in house: KeyValueHouse) throws -> Int64 {
        let statement = SQL("SELECT COUNT(*) FROM \(table)")
        return try house.engine.write { try $0.first(statement) { $0.integer(0) } ?? 0 }
    }

    @Test func forgetsNothing() throws {
        let house = try KeyValueHouse()
        let (a, b) = (house.caller("dev_a"), house.caller("dev_b"))
        for (index, caller) in [a, b, a, b].enumerated() {
            try house.push(house.write("k", .integer(Int64(index)), after: .milliseconds(index)), by: caller)
        }
        let (id, write) = (house.newOperation(), house.write("gone", 1, after: .seconds(1)))
        let first = try house.push(write, by: a, id: id)
        try house.push(house.write("gone", nil, after: .seconds(2)), by: a)
        let history = try house.history(a)
        let replies = try count("feed_operations", in: house)
        #expect(history.count > 2 && replies > 0)

        let now = house.now
        house.now = now.advanced(by: .seconds(100 * 86_400))
        house.pass(.seconds(3600))
        house.now = now.advanced(by: .seconds(3600))
        house.pass(.seconds(700))
        #expect(try house.history(a) == history)
        #expect(try house.pull(b, after: first.token).items.map(\.key) == ["gone"])
        #expect(try house.push(write, by: a, id: id) == first)
        #expect(try count("feed_operations", in: house) == replies)

        house.skip(.seconds(100 * 86_400))
        house.pass(.seconds(700))
        #expect(try house.history(a).isEmpty)
        #expect(failure { _ = try house.pull(b, after: first.token) }?.code == .changeTokenExpired)
        #expect(try count("feed_operations", in: house) == 0)
    }
}
