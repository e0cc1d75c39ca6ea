import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosIdentity

@Suite struct AdministrationTests {
    private func createApp(_ house: IdentityHouse, _ id: String, store: String = "", containers: [String] = []) throws
        -> WireApp
    {
        var request = WireCreateApp()
        request.app.appID = id
        request.app.storeID = store
        request.app.containerIds = containers
        return try house.call(request, by: house.operatorKey, replying: WireCreateAppReply.self).app
    }

    @Test func theDefaultAppExistsFromTheStart() throws {
        let house = try IdentityHouse()
        let apps: WireListAppsReply = try house.call(WireListApps(), by: house.operatorKey)
        #expect(apps.apps.map(\.appID) == ["default"])
        var read = WireReadChanges()
        read.scope = directoryScope.path.rawValue
        read.owner = directoryScope.owner.rawValue
        let feed: WireReadChangesReply = try house.cloud.makeClient(asService: .keyValue).call(
            "ReadChanges", read, at: .requests(.identity))
        #expect(feed.changes.first?.item == "app/default")
    }

    @Test func anAppsStoreIsItsOwnUnlessItNamesAnother() throws {
        let house = try IdentityHouse()
        #expect(try createApp(house, "TEAM1.com.example.notes").storeID == "TEAM1.com.example.notes")
        let app = try createApp(
            house, "TEAM1.com.example.tasks", store: "TEAM1.com.example.notes", containers: ["TEAM1.b", "TEAM1.a"])
        #expect(app.storeID == "TEAM1.com.example.notes")
        let apps: WireListAppsReply = try house.call(WireListApps(), by: house.operatorKey)
        #expect(apps.apps.first { $0.appID == "TEAM1.com.example.tasks" }?.containerIds == ["TEAM1.b", "TEAM1.a"])
        #expect(code { _ = try createApp(house, "TEAM1.com.example.notes") } == .alreadyExists)
    }

    @Test func anUpdateChangesWhatItNamesAndNothingElse() throws {
        let house = try IdentityHouse()
        var create = WireCreateApp()
        create.app.appID = "T.notes"
        create.app.name = "Notes"
        create.app.storeID = "T.shared"
        create.app.containerIds = ["T.first", "T.second"]
        create.app.capabilities = [.keyValue, .documents]
        var expected = try house.call(create, by: house.operatorKey, replying: WireCreateAppReply.self).app
        func update(_ change: (inout WireUpdateApp) -> Void) throws {
            var request = WireUpdateApp()
            request.appID = "T.notes"
            change(&request)
            _ = try house.call(request, by: house.operatorKey, replying: WireUpdateAppReply.self)
            let apps: WireListAppsReply = try house.call(WireListApps(), by: house.operatorKey)
            let app = try #require(apps.apps.first { $0.appID == "T.notes" })
            expected.version = app.version
            #expect(app == expected)
        }
        expected.name = "Jottings"
        try update { $0.name = "Jottings" }
        expected.storeID = "T.other"
        try update { $0.storeID = "T.other" }
        expected.containerIds = []
        try update { $0.containers.ids = [] }
        expected.capabilities = [.keyValue]
        try update { $0.capabilities.values = [.keyValue] }
    }

    @Test(arguments: ["", "*", "T.com.example.*", "T.a b", "T.a/b", "T." + String(repeating: "a", count: 127), "T.é"])
    func malformedNamesAndWildcardsAreRefused(_ name: String) throws {
        let house = try IdentityHouse()
        #expect(code { _ = try createApp(house, name) } == .invalidArguments)
        #expect(code { _ = try createApp(house, "T.app", containers: [name]) } == .invalidArguments)
        if !name.isEmpty { #expect(code { _ = try createApp(house, "T.app", store: name) } == .invalidArguments) }
    }

    /// In a list they would make two apps look alike, and in a terminal be commands.
    @Test(arguments: ["\u{200D}", "\u{200E}", "\u{FEFF}", "\u{E0041}", "\u{AD}", "\u{3164}", "\u{1B}", "\n"])
    func anAppsNameHasNothingThatCannotBeSeen(_ unseen: String) throws {
        let house = try IdentityHouse()
        var create = WireCreateApp()
        create.app.appID = "T.notes"
        create.app.name = "No\(unseen)tes"
        #expect(code { let _: WireCreateAppReply = try house.call(create, by: house.operatorKey) } == .invalidArguments)
        create.app.name = "Notes \u{1F4D3} für alle"
        let _: WireCreateAppReply = try house.call(create, by: house.operatorKey)
        var update = WireUpdateApp()
        update.appID = "T.notes"
        update.name = "\(unseen)Notes"
        #expect(code { let _: WireUpdateAppReply = try house.call(update, by: house.operatorKey) } == .invalidArguments)
        let apps: WireListAppsReply = try house.call(WireListApps(), by: house.operatorKey)
        #expect(apps.apps.first { $0.appID == "T.notes" }?.name == create.app.name)
    }

    @Test func aTokenForAnotherAppCarriesThatAppsEntitlements() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        _ = try createApp(house, "T.notes", store: "T.shared", containers: ["T.first", "T.second"])
        let key = try house.newKey()
        let token = try house.signIn("ada", by: key).accessToken.token
        var request = WireIssueToken()
        request.appID = "T.notes"
        let reply: WireIssueTokenReply = try house.call(request, by: key, token: token)
        #expect(reply.accessToken.app.storeID == "T.shared")
        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: reply.accessToken.token)
        #expect(me.app.containerIds == ["T.first", "T.second"])
    }

    @Test func accountsAreListedWithTheirDevices() throws {
        let house = try IdentityHouse()
        try house.createAccount("bob")
        try house.createAccount("ada")
        _ = try house.signIn("ada", by: house.newKey())
        let reply: WireListAccountsReply = try house.call(WireListAccounts(), by: house.operatorKey)
        #expect(reply.accounts.map(\.accountName) == ["ada", "bob", TestCloud.accountName])
        #expect(reply.accounts.map(\.deviceCount) == [1, 0, 0])
    }

    @Test func anAccountNameIsTakenOnce() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        #expect(code { try house.createAccount("ADA") } == .alreadyExists)
        #expect(code { try house.createAccount("a b") } == .invalidArguments)
        #expect(code { try house.createAccount("eve", "short") } == .invalidArguments)
    }
}

/// What apps may list.
@Suite struct EntitlementTests {
    private func check(_ id: String, store: String = "", containers: [String] = []) -> CloudError.Code? {
        var app = WireApp()
        app.appID = id
        app.storeID = store
        app.containerIds = containers
        return code { _ = try EntitlementRule.app(app, version: 1) }
    }

    @Test func anAppListsWhatIsItsOwnTeams() {
        #expect(check("A1.notes", store: "A1.shared", containers: ["A1.one", "A1.two"]) == nil)
        #expect(check("A1.notes", store: "B2.shared") == .invalidArguments)
        #expect(check("A1.notes", containers: ["A1.one", "A12.two"]) == .invalidArguments)
        #expect(check("A1.notes", containers: ["one"]) == .invalidArguments)
        #expect(check("A1.notes", containers: ["A1.one", "A1.one"]) == .invalidArguments)
        #expect(check("A1.notes", containers: (0..<17).map { "A1.c\($0)" }) == .invalidArguments)
    }

    @Test(arguments: ["notes", "a1.notes", ".notes", "A1.", "A-1.notes", String(repeating: "A", count: 33) + ".notes"])
    func anAppIDHasATeamsPrefix(_ id: String) { #expect(check(id) == .invalidArguments) }

    @Test func changedEntitlementsHaveAHigherVersion() throws {
        let house = try IdentityHouse()
        var create = WireCreateApp()
        create.app.appID = "T.notes"
        let first: WireCreateAppReply = try house.call(create, by: house.operatorKey)
        var update = WireUpdateApp()
        update.appID = create.app.appID
        update.capabilities.values = [.keyValue]
        let second: WireUpdateAppReply = try house.call(update, by: house.operatorKey)
        #expect(second.app.version == first.app.version + 1 && second.app.capabilities == [.keyValue])
        var remove = WireRemoveApp()
        remove.appID = "T.notes"
        let _: WireRemoveAppReply = try house.call(remove, by: house.operatorKey)
        let apps: WireListAppsReply = try house.call(WireListApps(), by: house.operatorKey)
        #expect(apps.apps.map(\.appID) == ["default"])
        let again: WireCreateAppReply = try house.call(create, by: house.operatorKey)
        #expect(again.app.version == second.app.version + 2)
        remove.appID = "default"
        #expect(
            code { let _: WireRemoveAppReply = try house.call(remove, by: house.operatorKey) }
                == .constraintViolation)
    }
}
