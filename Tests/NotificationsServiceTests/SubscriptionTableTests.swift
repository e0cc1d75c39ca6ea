import Bus
import Core
import ServiceKit
import Testing

import struct Foundation.Data

@testable import NotificationsService

@Suite struct SubscriptionTableTests {
    private func peer(_ connection: UInt64) throws -> Peer {
        Peer(connection: connection, publicKey: try #require(PublicKey(bytes: [UInt8](repeating: 1, count: 32))))
    }

    private func caller(_ device: String, expires: UInt64 = 1000) -> Caller {
        Caller(
            account: AccountID("acct_1"), device: DeviceID(device), app: AppID("app"),
            entitlements: Entitlements(store: StoreID("store"), containers: []),
            expires: Timestamp(milliseconds: expires))
    }

    private func key(_ scope: ItemName) -> ScopeKey {
        ScopeKey(account: AccountID("acct_1"), service: .keyValue, scope: scope)
    }

    @Test func aSecondSubscribeAddsToTheFirstAndRenewsIt() throws {
        var table = SubscriptionTable()
        let limits = NotificationsConfiguration()
        _ = try table.subscribe(try peer(1), as: caller("a"), to: [key("x")], limits: limits)
        let again = try table.subscribe(
            try peer(1), as: caller("a", expires: 2000), to: [key("x"), key("y")], limits: limits)
        #expect(again.scopes == [key("x"), key("y")])
        #expect(again.expires == Timestamp(milliseconds: 2000))
        #expect(table.count == 1)
        #expect(table.subscribers(to: key("x")).count == 1)
    }

    @Test func endingADeviceLeavesItsSisters() throws {
        var table = SubscriptionTable()
        let limits = NotificationsConfiguration()
        for (connection, device) in [(1, "a"), (2, "a"), (3, "b")] {
            _ = try table.subscribe(try peer(UInt64(connection)), as: caller(device), to: [key("x")], limits: limits)
        }
        for subscriber in table.all where subscriber.device == DeviceID("a") { table.remove(subscriber) }
        #expect(table.subscribers(to: key("x")).map(\.device) == [DeviceID("b")])
        #expect(!table.all.contains { $0.device == DeviceID("a") })
    }

    @Test func limitsRefuseAndChangeNothing() throws {
        var table = SubscriptionTable()
        var limits = NotificationsConfiguration()
        limits.scopesPerConnectionMax = 1
        limits.connectionsPerDeviceMax = 1
        _ = try table.subscribe(try peer(1), as: caller("a"), to: [key("x")], limits: limits)
        let other = try peer(2)
        let first = try peer(1)
        #expect(throws: CloudError.self) {
            try table.subscribe(first, as: caller("a"), to: [key("y")], limits: limits)
        }
        #expect(throws: CloudError.self) {
            try table.subscribe(other, as: caller("a"), to: [key("x")], limits: limits)
        }
        #expect(table.count == 1)
        #expect(table.subscribers(to: key("y")).isEmpty)
    }

    @Test func theHeadCacheNeverGoesBackAndStaysBounded() {
        var cache = HeadCache(limit: 4)
        cache.note(HeadCache.Head(token: ChangeToken(epoch: 1, sequence: 5), digest: Data()), of: key("x"))
        cache.note(HeadCache.Head(token: ChangeToken(epoch: 1, sequence: 4), digest: Data()), of: key("x"))
        #expect(cache[key("x")]?.token == ChangeToken(epoch: 1, sequence: 5))
        for number in 0..<20 {
            cache.note(HeadCache.Head(token: ChangeToken(epoch: 1, sequence: 1), digest: Data()), of: key("\(number)"))
        }
        #expect(cache[key("x")] == nil)
        #expect(cache[key("19")] != nil)
    }
}
