import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosRecords

/// A record of a public database whose row does not open: what it was nobody can say, whose it was neither.
@Suite struct PublicQuarantineTests {
    /// Of a type that nobody changes once it is saved, too.
    @Test(arguments: [true, false]) func onlyWhoMadeItBringsItBack(isWrittenOnce: Bool) throws {
        let house = try PublicHouse()
        let (ann, bert) = (try house.device(), try house.device(PublicHouse.other))
        if isWrittenOnce { _ = try house.setRoles(of: "Note", creator: .reading()) }
        #expect(try ann.modify([.save("ballot", ["n": .integer(1)])]).codes == [nil])
        let record = try #require(try ann.fetch(["ballot"])["ballot"])
        let count = try house.cloud.storage(of: .records).write {
            try $0.execute(SQL("UPDATE feed_items SET body = ?1 WHERE name = 'ballot'"), [.blob([1, 2, 3])])
        }
        #expect(count == 1)
        // Else it remembers the row as it was.
        house.cloud.crash(.records)
        try house.cloud.start(.records)
        house.cloud.network.run(for: .seconds(1))
        for device in [ann, bert] {
            for policy in [WireSavePolicy.ifServerRecordUnchanged, .allKeys] {
                let change = WireRecordChange.save("ballot", ["n": .integer(2)], policy: policy)
                #expect(try device.modify([change]).codes == [.constraintViolation])
            }
        }
        _ = try bert.modify([.offer("ballot", record)])
        #expect(try ann.fetch(["ballot"]).isEmpty)
        #expect(try ann.modify([.offer("ballot", record)]).codes == [nil])
        #expect(try bert.fetch(["ballot"])["ballot"] == record)
    }
}
