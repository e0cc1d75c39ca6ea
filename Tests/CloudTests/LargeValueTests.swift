import NephosCore
import NephosKit
import NephosSimulation
import NephosStorage
import Testing

@Suite struct LargeValueTests {
    /// A large value's body lies in a row of its own.
    @Test func aLargeValueThatIsLostIsNamedAloneAndHeals() throws {
        let cloud = try TestCloud(seed: 63)
        defer { cloud.close() }
        let device = try cloud.addDevice()
        let large = PropertyValue.string(String(repeating: "x", count: 20_000))
        try device.store?.set(large, forKey: "large")
        try device.store?.set("1", forKey: "small")
        #expect(cloud.settle())
        let database = try cloud.storage(of: .keyValue)
        func bodies() throws -> Int64? {
            try database.write { try $0.first(SQL("SELECT COUNT(*) FROM feed_bodies")) { $0.integer(0) } }
        }
        #expect(try bodies() == 1)
        try database.write { _ = try $0.execute(SQL("DELETE FROM feed_bodies"), []) }
        let other = try cloud.addDevice()
        #expect(cloud.settle())
        #expect(other.values == device.values && other.values.count == 2)
        #expect(try bodies() == 1)
        // Replaced by a small one, and by nothing.
        try device.store?.set(.string(String(repeating: "y", count: 5000)), forKey: "large")
        try other.store?.set(large, forKey: "other")
        #expect(cloud.settle())
        #expect(try bodies() == 2)
        try device.store?.set("short", forKey: "large")
        try device.store?.set(nil, forKey: "other")
        #expect(cloud.settle())
        #expect(try bodies() == 0)
    }
}
