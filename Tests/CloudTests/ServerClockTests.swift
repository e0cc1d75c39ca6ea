import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// The clocks of the services were ahead or behind, and are put right: nobody is locked out, nothing newer loses, and
/// everything goes on.
@Suite struct ServerClockTests {
    private func setClocks(_ cloud: TestCloud, _ offset: Duration) {
        for service in TestCloud.services { cloud.network.setClockOffset(service.rawValue, offset) }
    }

    /// (Further behind than a sign-in lasts, and devices have to sign in again.)
    @Test(arguments: [365, 2, -30])
    func everythingGoesOnWhenTheServersClocksArePutRight(_ days: Int) throws {
        let cloud = try TestCloud(seed: 61)
        defer { cloud.close() }
        setClocks(cloud, .seconds(days * 86_400))
        for _ in 0..<2 { try cloud.addDevice() }
        #expect(cloud.settle())
        let (phone, laptop) = (cloud.devices[0], cloud.devices[1])
        try phone.store?.set("of a wrong time", forKey: "k")
        try phone.store?.set("deleted later", forKey: "gone")
        #expect(cloud.settle(within: .seconds(120)))

        setClocks(cloud, .zero)
        cloud.network.run(for: .seconds(60))
        try laptop.store?.set("of the right time", forKey: "k")
        try laptop.store?.set(nil, forKey: "gone")
        #expect(cloud.settle(within: .seconds(120)))
        #expect(cloud.devices.map { $0.values["k"] } == ["of the right time", "of the right time"])
        #expect(cloud.devices.allSatisfy { $0.values["gone"] == nil })
        // And for a device that has met neither.
        try cloud.addDevice()
        #expect(cloud.settle(within: .seconds(120)))
        #expect(cloud.devices[2].values == cloud.devices[0].values)
        try cloud.devices[2].store?.set("newest", forKey: "k")
        #expect(cloud.settle(within: .seconds(120)))
        #expect(phone.values["k"] == "newest")
        // Tokens are renewed, writes pass, and also after the services begin anew.
        cloud.network.run(for: .seconds(3600))
        for service in TestCloud.services {
            cloud.crash(service)
            try cloud.start(service)
        }
        cloud.network.run(for: .seconds(30))
        try phone.store?.set("last", forKey: "k")
        #expect(cloud.settle(within: .seconds(120)))
        #expect(cloud.devices.allSatisfy { $0.values["k"] == "last" && $0.session?.signedIn == true })
        #expect(try cloud.devices.allSatisfy { try $0.store?.status().isInSync == true })
    }
}
