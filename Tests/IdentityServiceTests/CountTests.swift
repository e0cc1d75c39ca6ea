import NephosBus
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosIdentity

/// How many there may be of what lies in identity's tables, and how they are listed.
@Suite struct CountTests {
    /// Adds so many rows at once, as if so many requests had: `i` counts from 1.
    private func fill(_ house: IdentityHouse, _ count: Int, _ insert: String) throws {
        let rows = SQL(
            """
            WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ?1)
            \(insert) FROM numbers
            """)
        _ = try house.engine.write { try $0.execute(rows, [.integer(Int64(count))]) }
    }

    @Test func thereAreSoManyPlansAndTheyCanStillBeChanged() throws {
        let house = try IdentityHouse()
        // The standard plan is one of them.
        try fill(house, PlanStore.plansMax - 2, "INSERT INTO plans (plan_id, size_bytes) SELECT 'plan-' || i, 1000")
        func save(_ name: String) -> CloudError.Code? {
            var request = WireSavePlan()
            request.plan.planID = name
            request.plan.sizeBytes = 2000
            return code { let _: WireSavePlanReply = try house.call(request, by: house.operatorKey) }
        }
        #expect(save("last") == nil)
        #expect(save("one-more") == .limitExceeded)
        #expect(save("plan-1") == nil)
        let plans: WireListPlansReply = try house.call(WireListPlans(), by: house.operatorKey)
        #expect(plans.plans.count == 1000)
    }

    /// A group that told all of them would keep every request waiting.
    @Test func thoseWhoHaveAPlanHearOfItsSizeInSteps() throws {
        let house = try IdentityHouse()
        let count = 5000
        func save(_ size: UInt64) throws {
            var request = WireSavePlan()
            request.plan.planID = "team"
            request.plan.sizeBytes = size
            let _: WireSavePlanReply = try house.call(request, by: house.operatorKey)
        }
        func toldCount() throws -> Int64? {
            try house.engine.write { transaction in
                try transaction.first(SQL("SELECT COUNT(*) FROM audit WHERE account_id LIKE 'acct!_team-%' ESCAPE '!'"))
                {
                    $0.integer(0)
                }
            }
        }
        try save(1000)
        try fill(
            house, count,
            """
            INSERT INTO accounts (account_id, name, password_hash, password_salt, scrypt_rounds, scrypt_block_size,
                scrypt_parallelism, created_at, locked, standing_version, plan_id)
            SELECT 'acct_team-' || i, 'name-' || i, x'00', x'00', 2, 1, 1, 0, 0, 0, 'team'
            """)
        try fill(
            house, count,
            """
            INSERT INTO allotments (owner_id, service, revision, allotted, used)
            SELECT 'acct_team-' || i, 'records', 1, 9, 5
            """)
        let before = house.events.count
        try save(2000)
        // The size is in force; who has the plan hears of it later.
        let plans: WireListPlansReply = try house.call(WireListPlans(), by: house.operatorKey)
        #expect(plans.plans.first { $0.planID == "team" }?.sizeBytes == 2000)
        let told = try toldCount()
        #expect((told ?? .max) < 1000)
        // Nobody is forgotten, and nobody is told twice, when it stops in between.
        house.cloud.network.run(for: .milliseconds(100))
        let early = try toldCount() ?? 0
        #expect(early > 0 && early < count)
        try house.restart()
        #expect(house.cloud.network.run(within: .seconds(20)) { (try? toldCount()) == Int64(count) })
        house.cloud.network.run(for: .seconds(3))
        #expect(try toldCount() == Int64(count))
        // What was published when it stopped nobody has heard, and reads later.
        let recalls = house.events.dropFirst(before).map { event in
            event.notification.changes.count { $0.item.hasPrefix("recall/acct_team-") }
        }
        #expect(recalls.max() == IdentityService.ownersPerStep)
        let counts = try house.engine.write { transaction in
            try ["recalls", "plan_changes"].map { table in
                try transaction.first(SQL("SELECT COUNT(*) FROM \(table)")) { $0.integer(0) }
            }
        }
        #expect(counts == [Int64(count), 0])
    }

    @Test func thereAreSoManyAppsAndTheyCanStillBeChanged() throws {
        let house = try IdentityHouse()
        // The default app is one of them.
        try fill(
            house, EntitlementRule.appsMax - 2,
            """
            INSERT INTO apps (app_id, name, store_id, capabilities, version, removed, plan_id)
            SELECT 'T.app-' || i, 'App', 'T.app-' || i, 7, 1, 0, 'standard'
            """)
        func create(_ id: String) -> CloudError.Code? {
            var request = WireCreateApp()
            request.app.appID = id
            return code { let _: WireCreateAppReply = try house.call(request, by: house.operatorKey) }
        }
        #expect(create("T.last") == nil)
        #expect(create("T.one-more") == .limitExceeded)
        // One that was removed keeps its place, and may be made again.
        var remove = WireRemoveApp()
        remove.appID = "T.last"
        let _: WireRemoveAppReply = try house.call(remove, by: house.operatorKey)
        #expect(create("T.one-more") == .limitExceeded)
        #expect(create("T.last") == nil)
    }

    @Test func accountsAreListedInPages() throws {
        let house = try IdentityHouse()
        try fill(
            house, 2500,
            """
            INSERT INTO accounts (account_id, name, password_hash, password_salt, scrypt_rounds, scrypt_block_size,
                scrypt_parallelism, created_at, locked, standing_version, plan_id)
            SELECT 'acct_' || i, 'name-' || i, x'00', x'00', 2, 1, 1, 0, 0, 0, 'standard'
            """)
        var names: [String] = []
        var pages: [Int] = []
        while true {
            var list = WireListAccounts()
            list.after = names.last ?? ""
            let reply: WireListAccountsReply = try house.call(list, by: house.operatorKey)
            names += reply.accounts.map(\.accountName)
            pages.append(reply.accounts.count)
            guard reply.more else { break }
        }
        #expect(pages == [1000, 1000, 501])
        #expect(names.count == 2501 && Set(names).count == 2501)
    }

    @Test func containersAreListedInPages() throws {
        let house = try IdentityHouse()
        try fill(
            house, 600,
            """
            INSERT INTO container_definitions (container_id, class, folds_names, writer_app, version, trash_days,
                version_days, owner_app, administrators)
            SELECT 'T.' || (1000 + i), 'documents', 0, '', 1, 0, 0, '', ''
            """)
        var containers: [String] = []
        var pages: [Int] = []
        while true {
            var list = WireListContainers()
            list.after = containers.last ?? ""
            let reply: WireListContainersReply = try house.call(list, by: house.operatorKey)
            containers += reply.definitions.map(\.containerID)
            pages.append(reply.definitions.count)
            guard reply.more, pages.count < 10 else { break }
        }
        // The default app's own comes last.
        #expect(pages == [256, 256, 89])
        #expect(containers == (1...600).map { "T.\(1000 + $0)" } + ["default"])
    }

    @Test func devicesThatSignedOutAreForgottenButForTheNewest() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        func signInAndOut() throws {
            let key = try house.newKey()
            let session = try house.signIn("ada", by: key)
            let _: WireSignOutReply = try house.call(WireSignOut(), by: key, token: session.accessToken.token)
        }
        for _ in 0..<105 { try signInAndOut() }
        // Not before their tokens have run out for certain.
        #expect(try house.engine.write { try $0.first(SQL("SELECT COUNT(*) FROM devices")) { $0.integer(0) } } == 105)
        // Nor by a clock that is ahead, by which they would be good again once it is put right.
        let now = house.now
        house.now = now.advanced(by: .seconds(40 * 86_400))
        try signInAndOut()
        #expect(try house.engine.write { try $0.first(SQL("SELECT COUNT(*) FROM devices")) { $0.integer(0) } } == 106)
        house.now = now
        house.skip(EnrolmentRule.signedOutRetention + .seconds(60))
        try signInAndOut()
        let count = try house.engine.write { transaction in
            try transaction.first(SQL("SELECT COUNT(*) FROM devices")) { $0.integer(0) }
        }
        // When the last one signed in there were that many besides it, and the one whose time is still to come.
        #expect(count == Int64(EnrolmentRule.signedOutMax) + 2)
    }

    @Test func anEndingIsRememberedForAMonthAndThenForgotten() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let session = try house.signIn("ada", by: house.newKey())
        var revoke = WireRevokeDevice()
        revoke.accountName = "ada"
        revoke.deviceID = session.device.deviceID
        let _: WireRevokeDeviceReply = try house.call(revoke, by: house.operatorKey)
        house.cloud.network.run(for: .seconds(5))
        let storage = try house.cloud.storage(of: .keyValue)
        let place = "FROM directory_items WHERE item LIKE 'device/%'"
        let end = try storage.write { try $0.first(SQL("SELECT forget_at \(place)")) { $0.integer(0) } }
        let days = try (#require(end) - Int64(house.now.milliseconds)) / 86_400_000
        #expect((28...31).contains(days))
        // What is old is looked for when a service starts. A clock that is ahead then makes nobody's token good again.
        func restart() throws -> Int64? {
            house.cloud.network.run(for: .seconds(400))
            house.cloud.crash(.keyValue)
            try house.cloud.start(.keyValue)
            return try storage.write { try $0.first(SQL("SELECT COUNT(*) \(place)")) { $0.integer(0) } }
        }
        house.cloud.setClockOffset(of: .keyValue, .seconds(40 * 86_400))
        #expect(try restart() == 1)
        house.cloud.setClockOffset(of: .keyValue, .zero)
        house.cloud.skip(.seconds(31 * 86_400), of: .keyValue)
        #expect(try restart() == 0)
    }
}
