import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// Somebody who can write a service's database cannot give one value for another.
@Suite struct PlaceTests {
    /// A connection, and the token of an app of an account.
    private struct Speaker {
        var client: TestClient
        var token: WireAccessToken
        var account: String
    }

    private func speaker(_ cloud: TestCloud, _ account: String, app: String = "") throws -> Speaker {
        let client = try cloud.makeClient()
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "bare"
        request.appID = app
        let reply: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
        return Speaker(client: client, token: reply.accessToken, account: reply.accountID)
    }

    private func push(_ values: [String: String], _ speaker: Speaker, at now: Timestamp) throws {
        var request = WirePushKeys()
        request.storeID = speaker.token.app.storeID
        request.writes = values.sorted { $0.key < $1.key }.map { key, value in
            var write = WireKeyWrite()
            write.key = key
            write.value = WirePropertyValue(.string(value))
            write.timestamp = HybridTimestamp(now).rawValue
            return write
        }
        try speaker.client.call(
            "PushKeys", request, at: .requests(.keyValue), accessToken: speaker.token.token, as: WirePushKeysReply.self)
    }

    /// What the store gives out by key; nothing when it gives out nothing.
    private func values(_ speaker: Speaker) -> [String: String] {
        var request = WireReadChanges()
        request.scope = speaker.token.app.storeID
        let reply = try? speaker.client.call(
            "ReadChanges", request, at: .requests(.keyValue), accessToken: speaker.token.token,
            as: WireReadChangesReply.self)
        return (reply?.items ?? []).reduce(into: [:]) { $0[$1.key] = $1.hasValue ? $1.value.string : nil }
    }

    private func id(_ scope: ScopeName, on disk: SQLiteEngine) throws -> Int64 {
        let select = SQL("SELECT id FROM feed_scopes WHERE owner = ?1 AND path = ?2")
        return try #require(
            try disk.write {
                try $0.first(select, [.text(scope.owner.rawValue), .text(scope.path.rawValue)]) { $0.integer(0) }
            })
    }

    /// Exchanges the bodies of two rows of the feed.
    private func swap(_ one: (scope: Int64, key: String), _ other: (scope: Int64, key: String), on disk: SQLiteEngine)
        throws
    {
        let select = SQL("SELECT body FROM feed_items WHERE scope_id = ?1 AND name = ?2")
        let update = SQL("UPDATE feed_items SET body = ?3 WHERE scope_id = ?1 AND name = ?2")
        try disk.write { transaction in
            func body(_ place: (scope: Int64, key: String)) throws -> [UInt8] {
                try #require(try transaction.first(select, [.integer(place.scope), .text(place.key)]) { $0.blob(0) })
            }
            let bodies = (try body(one), try body(other))
            try transaction.execute(update, [.integer(one.scope), .text(one.key), .blob(bodies.1)])
            try transaction.execute(update, [.integer(other.scope), .text(other.key), .blob(bodies.0)])
        }
    }

    @Test(arguments: ["keys", "stores", "accounts"])
    func aSealedValueThatWasMovedDoesNotOpen(_ between: String) throws {
        let cloud = try TestCloud(seed: 3, budgets: BudgetConfiguration())
        defer { cloud.close() }
        try cloud.createAccount("guest")
        var app = WireApp()
        app.appID = "T.other"
        try cloud.createApp(app)
        let now = SimulatedNetwork.epoch
        let own = try speaker(cloud, TestCloud.accountName)
        let other =
            switch between {
            case "stores": try speaker(cloud, TestCloud.accountName, app: app.appID)
            case "accounts": try speaker(cloud, "guest")
            default: own
            }
        // The same key where it is not the keys that differ: nothing else tells the two places apart.
        let otherKey = between == "keys" ? "b" : "a"
        try push(["a": "first"], own, at: now)
        try push([otherKey: "second"], other, at: now)
        try push(["c": "third"], own, at: now)
        #expect(values(own)["a"] == "first" && values(other)[otherKey] == "second")

        cloud.crash(.keyValue)
        let disk = try cloud.storage(of: .keyValue)
        func scope(_ speaker: Speaker, _ account: String) throws -> Int64 {
            let select = SQL("SELECT account_id FROM accounts WHERE name = ?1")
            let account = try #require(
                try cloud.storage(of: .identity).write { try $0.first(select, [.text(account)]) { $0.text(0) } })
            return try id(
                ScopeName(AccountID(account), ItemName(rawValue: speaker.token.app.storeID)), on: disk)
        }
        let first = (try scope(own, TestCloud.accountName), "a")
        let second = (try scope(other, between == "accounts" ? "guest" : TestCloud.accountName), otherKey)
        try swap(first, second, on: disk)
        try cloud.start(.keyValue)
        #expect(values(own)["a"] == nil && values(other)[otherKey] == nil)
        // They are put aside as what they are, and hold up no others.
        #expect(values(own)["c"] == "third")
        cloud.network.run(for: .seconds(1))
        #expect(try cloud.health(of: .keyValue).counters["quarantine.now"] == 2)
    }

    /// What the store's history has of a key: nothing, a value, or that it is damaged.
    private func history(_ speaker: Speaker) throws -> [String: String] {
        var request = WireListKeyHistory()
        request.storeID = speaker.token.app.storeID
        let reply: WireListKeyHistoryReply = try speaker.client.call(
            "ListKeyHistory", request, at: .requests(.keyValue), accessToken: speaker.token.token)
        return Dictionary(
            uniqueKeysWithValues: reply.entries.map {
                ($0.item.key, $0.damaged ? "damaged \($0.item.hasValue)" : $0.item.value.string)
            })
    }

    /// The same of what was overwritten, moved with all that stands beside it but its place.
    @Test(arguments: ["keys", "stores", "accounts"])
    func whatIsKeptOfAKeyAndWasMovedDoesNotOpen(_ between: String) throws {
        let cloud = try TestCloud(seed: 3, budgets: BudgetConfiguration())
        defer { cloud.close() }
        try cloud.createAccount("guest")
        var app = WireApp()
        app.appID = "T.other"
        try cloud.createApp(app)
        let (account, appID) = (
            between == "accounts" ? "guest" : TestCloud.accountName, between == "stores" ? app.appID : ""
        )
        let own = try [speaker(cloud, TestCloud.accountName), speaker(cloud, TestCloud.accountName)]
        let other = try [speaker(cloud, account, app: appID), speaker(cloud, account, app: appID)]
        let otherKey = between == "keys" ? "b" : "a"
        let now = SimulatedNetwork.epoch
        // Overwritten by another device: so it is kept.
        for (writers, key, value) in [(own, "a", "first"), (other, otherKey, "second"), (own, "c", "third")] {
            try push([key: value], writers[0], at: now)
            try push([key: "newer"], writers[1], at: now.advanced(by: .milliseconds(1)))
        }
        #expect(try history(own[0])["a"] == "first" && history(other[0])[otherKey] == "second")

        func move() throws {
            cloud.crash(.keyValue)
            let columns = ["written", "device", "mark", "size", "sealed"]
            let isPlace =
                "item = ?1 AND store_id = (SELECT id FROM key_history_stores WHERE account = ?2 AND store = ?3)"
            let select = SQL("SELECT \(columns.joined(separator: ", ")) FROM key_history WHERE \(isPlace)")
            let update = SQL(
                """
                UPDATE key_history SET written = ?4, device = ?5, mark = ?6, size = ?7, sealed = ?8 WHERE \(isPlace)
                """)
            let places = [(own[0], "a"), (other[0], otherKey)].map { speaker, key in
                [SQLValue.text(key), .text(speaker.account), .text(speaker.token.app.storeID)]
            }
            try cloud.storage(of: .keyValue).write { transaction in
                let rows = try places.map { place in
                    try #require(
                        try transaction.first(select, place) {
                            [
                                SQLValue.integer($0.integer(0)), .text($0.text(1)), .integer($0.integer(2)),
                                .integer($0.integer(3)), .blob($0.blob(4)),
                            ]
                        })
                }
                for (place, row) in zip(places, rows.reversed()) {
                    #expect(try transaction.execute(update, place + row) == 1)
                }
            }
            try cloud.start(.keyValue)
        }
        try move()
        #expect(try history(own[0])["a"] == "damaged false" && history(other[0])[otherKey] == "damaged false")
        #expect(try history(own[0])["c"] == "third")
        try move()
        #expect(try history(own[0])["a"] == "first" && history(other[0])[otherKey] == "second")
    }

    /// With a later time, an old value would win against all newer ones; with another device, it would be somebody
    /// else's.
    @Test(arguments: [1, 4, 8, 14])
    func aSealedValueOpensUnderItsOwnStampAlone(_ index: Int) throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let own = try speaker(cloud, TestCloud.accountName)
        try push(["a": "first"], own, at: SimulatedNetwork.epoch)
        #expect(values(own)["a"] == "first")
        cloud.crash(.keyValue)
        try cloud.storage(of: .keyValue).write { transaction in
            let select = SQL("SELECT body FROM feed_items WHERE name = 'a'")
            var body = try #require(try transaction.first(select) { $0.blob(0) })
            body[index] ^= 1
            // Who does it on purpose knows how to put the check right.
            let end = 10 + Int(body[9])
            let check = body[..<end].reduce(2_166_136_261 as UInt32) { ($0 ^ UInt32($1)) &* 16_777_619 }
            withUnsafeBytes(of: check.bigEndian) { body.replaceSubrange(end..<end + 4, with: $0) }
            try transaction.execute(SQL("UPDATE feed_items SET body = ?1 WHERE name = 'a'"), [.blob(body)])
        }
        try cloud.start(.keyValue)
        #expect(values(own)["a"] == nil)
    }

    @Test func allHistoryThatIsPastItsTimeGoesInOneRound() throws {
        let cloud = try TestCloud(seed: 3)
        defer { cloud.close() }
        let disk = try cloud.storage(of: .keyValue)
        let count = SQL("SELECT COUNT(*) FROM key_history")
        let insert = SQL(
            """
            INSERT INTO key_history (store_id, own, number, item, written, device, mark, lost_conflict, resolved,
                winner_written, winner_device, recorded_at, size, sealed)
            VALUES (1, 0, ?1, 'key', ?1, 'dev_a', 0, 0, 0, 0, 'dev_b', ?1, 0, NULL)
            """)
        let insertStore = SQL(
            """
            INSERT INTO key_history_stores (id, account, store, bytes, next, oldest)
            VALUES (1, 'acct_gone', 'default', 435200, 1, ?1)
            """)
        let old = SimulatedNetwork.epoch.milliseconds - 31 * 86_400_000
        try disk.write { transaction in
            try transaction.execute(insertStore, [.integer(Int64(old))])
            for index in 0..<1700 { try transaction.execute(insert, [.integer(Int64(old) + Int64(index))]) }
        }
        cloud.network.run(for: .seconds(605))
        #expect(try disk.write { try $0.first(count) { $0.integer(0) } } == 0)
    }
}
