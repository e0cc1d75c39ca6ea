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
    }

    private func speaker(_ cloud: TestCloud, _ account: String, app: String = "") throws -> Speaker {
        let client = try cloud.makeClient()
        var request = WireSignIn()
        request.accountName = account
        request.password = TestCloud.password
        request.deviceName = "bare"
        request.appID = app
        let reply: WireSignInReply = try client.call("SignIn", request, at: .requests(.identity))
        return Speaker(client: client, token: reply.accessToken)
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

        // Back in their places they open again.
        cloud.crash(.keyValue)
        try swap(first, second, on: disk)
        try cloud.start(.keyValue)
        #expect(values(own)["a"] == "first" && values(other)[otherKey] == "second")
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
            INSERT INTO key_history (store_id, own, number, item, written, device, mark, lost_conflict, winner_written,
                winner_device, recorded_at, size, sealed)
            VALUES (1, 0, ?1, 'key', ?1, 'dev_a', 0, 0, 0, 'dev_b', ?1, 0, NULL)
            """)
        let insertStore = SQL(
            """
            INSERT INTO key_history_stores (id, account, store, bytes, next, packed, packed_bytes, oldest)
            VALUES (1, 'acct_gone', 'default', 435200, 1, 0, 0, ?1)
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
