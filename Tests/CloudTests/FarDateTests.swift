import NephosBus
import NephosCore
import NephosSimulation
import Testing

import struct Foundation.Date

/// Far from 1970 a `Date` cannot tell each microsecond from the next.
@Suite struct FarDateTests {
    @Test(arguments: [-5_342_494_321.827312, -5_356_096_813.694471, 4_500_000_000.123457])
    func aDateFarAwayIsOneDateToAll(_ seconds: Double) throws {
        let cloud = try TestCloud(seed: 61)
        defer { cloud.close() }
        let devices = try (0..<2).map { _ in try cloud.addDevice() }
        #expect(cloud.settle())
        try devices[0].set("k", .date(Date(timeIntervalSinceReferenceDate: seconds)))
        #expect(cloud.settle(within: .seconds(60)))
        cloud.network.run(for: .seconds(30))
        #expect(cloud.settle(within: .seconds(10)))
        #expect(devices[0].values == devices[1].values)
        #expect(devices[1].changes.count <= 2)
    }
}
