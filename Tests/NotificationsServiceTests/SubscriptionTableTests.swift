import NephosBus
import NephosCore
import NephosServiceKit
import Testing

import struct Foundation.Data

@testable import NephosNotifications

@Suite struct SubscriptionTableTests {
    private func peer(_ connection: UInt64) throws -> Peer {
        Peer(connection: connection, publicKey: try #require(PublicKey(bytes: [UInt8](repeating: 1, count: 32))))
    }

    private func caller(_ device: String, expires: UInt64 = 1000) -> Caller {
        Caller(
            account: AccountID("acct_1"), device: DeviceID(device), app: AppID("app"),
            entitlements: Entitlements(store: StoreID("store"), containers: []),
            expires: Timestamp(milliseconds: expires), keyID: "key")
    }

    /// One without an account.
    private func stranger(_ device: String) -> Caller {
        Caller(
            account: AccountID("address"), device: DeviceID(device), app: AppID("app"),
            entitlements: Entitlements(store: StoreID("store"), containers: []),
            expires: Timestamp(milliseconds: 1000), keyID: "key", appToken: "token")
    }

    private func key(_ scope: ItemName) -> ScopeKey {
        ScopeKey(service: .keyValue, name: ScopeName(AccountID("acct_1"), scope))
    }

    /// Subscribes, and has it granted.
    private func subscribe(
        _ table: inout SubscriptionTable, _ connection: UInt64, _ caller: Caller, _ keys: [ScopeKey]
    ) throws -> Subscriber {
        _ = try table.subscribe(try peer(connection), as: caller, to: keys, limits: NotificationsConfiguration())
        let subscriber = try #require(table.subscriber(try peer(connection)))
        for key in keys { table.grant(key, to: subscriber, as: caller) }
        return subscriber
    }

    @Test func aSecondSubscribeAddsToTheFirstAndRenewsIt() throws {
        var table = SubscriptionTable()
        _ = try subscribe(&table, 1, caller("a"), [key("x")])
        let again = try subscribe(&table, 1, caller("a", expires: 2000), [key("x"), key("y")])
        #expect(again.scopes == [key("x"), key("y")])
        #expect(again.expires == Timestamp(milliseconds: 2000))
        #expect(table.count == 1)
        #expect(table.subscribers(to: key("x")).count == 1)
    }

    @Test func endingADeviceLeavesItsSisters() throws {
        var table = SubscriptionTable()
        for (connection, device) in [(1, "a"), (2, "a"), (3, "b")] {
            _ = try subscribe(&table, UInt64(connection), caller(device), [key("x")])
        }
        for subscriber in table.all where subscriber.device == DeviceID("a") { table.remove(subscriber) }
        #expect(table.subscribers(to: key("x")).map(\.device) == [DeviceID("b")])
        #expect(!table.all.contains { $0.device == DeviceID("a") })
    }

    /// What an app may use is told more than once, and older things after newer ones.
    @Test func aSubscriptionIsOutdatedByWhatItsTokenDoesNotKnow() throws {
        func entitlements(_ version: UInt64, _ containers: [ItemName] = ["c", "d"]) -> Entitlements {
            Entitlements(version: version, store: nil, containers: containers)
        }
        func caller(_ entitlements: Entitlements, appToken: String? = nil) -> Caller {
            Caller(
                account: AccountID("a"), device: DeviceID("d"), app: AppID("app"), entitlements: entitlements,
                expires: Timestamp(milliseconds: 1), keyID: "key", appToken: appToken)
        }
        var table = SubscriptionTable()
        let own = try subscribe(&table, 1, caller(entitlements(2)), [key("x")])
        func isOutdated(_ subscriber: Subscriber, _ told: Entitlements, _ app: String = "app") -> Bool {
            subscriber.isOutdated(by: told, of: AppID(app))
        }
        #expect(!isOutdated(own, entitlements(1, [])) && !isOutdated(own, entitlements(2)))
        #expect(isOutdated(own, entitlements(3)) && !isOutdated(own, entitlements(3), "other"))
        // After a restore of identity two changes may have one version.
        #expect(isOutdated(own, entitlements(2, ["c"])))
        // A newer token says nothing of what was asked for with the older one.
        _ = try subscribe(&table, 1, caller(entitlements(3)), [key("y")])
        #expect(isOutdated(own, entitlements(3)))
        let stranger = try subscribe(&table, 2, caller(entitlements(2, ["c"]), appToken: "t"), [key("x")])
        #expect(!isOutdated(stranger, entitlements(2)) && isOutdated(stranger, entitlements(3)))
    }

    @Test func halfOfTheSubscriptionsAreForThoseWhoHaveAnAccount() throws {
        var table = SubscriptionTable()
        var limits = NotificationsConfiguration()
        limits.connectionsMax = 6
        func refusal(_ connection: UInt64, _ caller: Caller) throws -> CloudError.Code? {
            let peer = try peer(connection)
            do { _ = try table.subscribe(peer, as: caller, to: [key("x")], limits: limits) } catch { return error.code }
            return nil
        }
        for connection in 1...3 { #expect(try refusal(UInt64(connection), stranger("s\(connection)")) == nil) }
        #expect(try refusal(4, stranger("s4")) == .serviceBusy)
        // One that is there already may ask for more.
        #expect(try refusal(1, stranger("s1")) == nil)
        for connection in 4...6 { #expect(try refusal(UInt64(connection), caller("d\(connection)")) == nil) }
        #expect(try refusal(7, caller("d7")) == .serviceBusy)
        // Whoever leaves makes room for one of their kind.
        table.remove(try #require(table.subscriber(try peer(2))))
        #expect(try refusal(8, stranger("s8")) == nil && table.count == 6)
        table.remove(try #require(table.subscriber(try peer(4))))
        #expect(try refusal(9, stranger("s9")) == .serviceBusy)
        #expect(try refusal(9, caller("d9")) == nil)
    }

    @Test func limitsRefuseAndChangeNothing() throws {
        var table = SubscriptionTable()
        var limits = NotificationsConfiguration()
        limits.scopesPerConnectionMax = 1
        limits.connectionsPerDeviceMax = 1
        _ = try table.subscribe(try peer(1), as: caller("a"), to: [key("x")], limits: limits)
        let other = try peer(2)
        let first = try peer(1)
        limits.connectionsMax = 1
        func refusal(_ peer: Peer, _ device: String, _ scope: ItemName) -> CloudError? {
            do { _ = try table.subscribe(peer, as: caller(device), to: [key(scope)], limits: limits) } catch {
                return error
            }
            return nil
        }
        let scopes = refusal(first, "a", "y")
        #expect(scopes?.code == .limitExceeded && scopes?.details["scopes_max"] == "1")
        #expect(refusal(other, "b", "x")?.code == .serviceBusy)
        limits.connectionsMax = 2
        let connections = refusal(other, "a", "x")
        #expect(connections?.code == .limitExceeded && connections?.details["connections_max"] == "1")
        #expect(table.count == 1)
        #expect(table.subscribers(to: key("y")).isEmpty)
    }

    @Test func whoIsNotGrantedAScopeIsNotAmongItsFollowers() throws {
        var table = SubscriptionTable()
        _ = try table.subscribe(
            try peer(1), as: caller("a"), to: [key("y"), key("x")], limits: NotificationsConfiguration())
        let subscriber = try #require(table.subscriber(try peer(1)))
        #expect(!table.isFollowed(key("x")) && subscriber.scopes.isEmpty && subscriber.waiting == [key("x"), key("y")])
        table.grant(key("y"), to: subscriber, as: caller("a"))
        #expect(table.isFollowed(key("y")) && subscriber.scopes == [key("y")] && subscriber.waiting == [key("x")])
        table.suspend(key("y"), of: subscriber)
        #expect(!table.isFollowed(key("y")) && subscriber.waiting == [key("x"), key("y")])
        table.unsubscribe(try peer(1), from: [key("x"), key("y")])
        #expect(table.count == 0)
    }

    @Test func leavingInAnyOrderLeavesTheOthers() throws {
        var table = SubscriptionTable()
        var generator = SplitMix64(seed: 7)
        var followers: [UInt64: Subscriber] = [:]
        for connection in 1...40 as ClosedRange<UInt64> {
            followers[connection] = try subscribe(&table, connection, caller("d\(connection)"), [key("x"), key("y")])
        }
        for connection in followers.keys.sorted().shuffled(using: &generator) {
            if Bool.random(using: &generator), let follower = followers[connection] {
                table.suspend(key("x"), of: follower)
                if Bool.random(using: &generator) { table.grant(key("x"), to: follower, as: caller("d\(connection)")) }
            } else {
                table.unsubscribe(try peer(connection), from: [key("x"), key("y")])
                followers[connection] = nil
            }
            #expect(
                Set(table.subscribers(to: key("x")).map(\.peer.connection))
                    == Set(followers.filter { $0.value.follows(key("x")) }.keys))
            #expect(Set(table.subscribers(to: key("y")).map(\.peer.connection)) == Set(followers.keys))
        }
        #expect(table.count == followers.count && !followers.isEmpty)
    }

    @Test func anAnswerHoldsForWhomItWasGivenUntilItIsForgotten() {
        var cache = AccessCache(limit: 8)
        func caller(_ account: String, _ app: String = "app", version: UInt64 = 1) -> Caller {
            Caller(
                account: AccountID(account), device: DeviceID("d"), app: AppID(app),
                entitlements: Entitlements(version: version, store: nil, containers: []),
                expires: Timestamp(milliseconds: 1), keyID: "key")
        }
        cache.note(key("x"), caller("a"), .reader)
        #expect(cache.includes(key("x"), caller("a")) && !cache.includes(key("y"), caller("a")))
        #expect(!cache.includes(key("x"), caller("b")) && !cache.includes(key("x"), caller("a", "other")))
        #expect(!cache.includes(key("x"), caller("a", version: 2)))
        cache.note(key("y"), caller("a"), .app)
        #expect(cache.includes(key("y"), caller("b")) && !cache.includes(key("y"), caller("b", "other")))
        cache.forget(key("x"))
        #expect(!cache.includes(key("x"), caller("a")) && cache.includes(key("y"), caller("b")))
        for number in 0..<20 { cache.note(key("z"), caller("\(number)"), .reader) }
        #expect(!cache.includes(key("z"), caller("0")) && cache.includes(key("z"), caller("19")))
        cache.forget(.keyValue)
        #expect(!cache.includes(key("z"), caller("19")) && !cache.includes(key("y"), caller("b")))
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
