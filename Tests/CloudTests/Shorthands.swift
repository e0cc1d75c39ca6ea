import Bus
import Core
import NephosKit
import TestKit
import Testing
import Wire

extension TestCloud {
    /// Everybody is in sync, and stays so when the next heartbeats have come.
    func settleForGood() {
        #expect(settle())
        network.run(for: .seconds(15))
        #expect(settle())
    }

    func health(of service: ServiceName) throws -> WireCheckHealthReply {
        try makeClient().call("CheckHealth", WireCheckHealth(), at: .requests(service))
    }
}

extension TestDevice {
    /// Sets a key of the app's store; nil deletes it.
    func set(_ key: ItemName, _ value: PropertyValue?) throws {
        try #require(store).set(value, forKey: key)
    }
}
