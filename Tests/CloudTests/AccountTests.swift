import Foundation
import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What the operator, or a person, does to an account takes effect in every
/// service, and on every device.
@Suite struct AccountTests {
    /// A cloud with all five services, two devices of "demo", and one of "guest".
    private func house() throws -> TestCloud {
        let cloud = try TestCloud(seed: 11, factories: Warehouses.idle)
        try cloud.createAccount("guest")
        try cloud.addDevice()
        try cloud.addDevice()
        try cloud.addDevice(to: "guest")
        try cloud.devices[0].store?.set("mine", forKey: "secret-key")
        try cloud.devices[2].store?.set("theirs", forKey: "guest-key")
        cloud.network.run(for: .seconds(5))
        return cloud
    }

    private func signIn(
        _ client: TestClient, as account: String = TestCloud.accountName, app: String = "",
        password: String = TestCloud.password
    ) throws -> WireSignInReply {
        var request = WireSignIn()
        request.accountName = account
        request.password = password
        request.deviceName = "bare"
        request.appID = app
        return try client.call("SignIn", request, at: .requests(.identity))
    }

    private func pull(_ client: TestClient, _ token: WireAccessToken) throws -> WireReadChangesReply {
        var request = WireReadChanges()
        request.scope = token.app.storeID
        return try client.call("ReadChanges", request, at: .requests(.keyValue), accessToken: token.token)
    }

    private func subscribe(_ client: TestClient, _ token: WireAccessToken) throws {
        var scope = WireSubscribedScope()
        scope.service = ServiceName.keyValue.rawValue
        scope.scope = token.app.storeID
        var request = WireSubscribe()
        request.scopes = [scope]
        try client.call(
            "Subscribe", request, at: .subscriptions, accessToken: token.token, as: WireSubscribeReply.self)
    }

    private func lock(_ cloud: TestCloud, _ locked: Bool) throws {
        var request = WireLockAccount()
        request.accountName = TestCloud.accountName
        request.locked = locked
        try cloud.operate("LockAccount", request, as: WireLockAccountReply.self)
    }

    /// Why the client's subscription ended last.
    private func lastEnding(_ client: TestClient) -> CloudError.Code? {
        client.deliveries.last { $0.hasEnded }.map { CloudError($0.ended).code }
    }

    private func code(of body: () throws -> Void) -> CloudError.Code? { failure(of: body)?.code }

    private func failure(of body: () throws -> Void) -> CloudError? {
        do { try body() } catch { return error as? CloudError }
        return nil
    }

    @Test func aLockedAccountIsRefusedEverywhereAndComesBackAsItWas() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        try subscribe(client, session.accessToken)
        #expect(try pull(client, session.accessToken).items.map(\.key) == ["secret-key"])

        try lock(cloud, true)
        cloud.network.run(for: .seconds(5))
        #expect(code { _ = try pull(client, session.accessToken) } == .accountTemporarilyUnavailable)
        #expect(lastEnding(client) == .accountTemporarilyUnavailable)
        var refresh = WireRefreshToken()
        refresh.refreshToken = session.refreshToken
        #expect(
            code {
                try client.call(
                    "RefreshToken", refresh, at: .requests(.identity), as: WireRefreshTokenReply.self)
            } == .accountTemporarilyUnavailable)
        let other = try cloud.makeClient()
        #expect(code { _ = try signIn(other) } == .accountTemporarilyUnavailable)
        // Whoever does not know the password does not learn that it is locked.
        #expect(code { _ = try signIn(other, password: "wrong password") } == .wrongCredentials)
        #expect(cloud.devices[2].isSettled)

        try cloud.devices[1].store?.set("kept", forKey: "while-locked")
        try lock(cloud, false)
        #expect(cloud.network.run(within: .seconds(300)) { cloud.devices[0].values["while-locked"] == .string("kept") })
        #expect(try pull(client, session.accessToken).items.count == 2)
    }

    @Test func aClosedAccountLeavesNothingThatCanBeRead() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        try subscribe(client, session.accessToken)
        let disk = try cloud.storage(of: .keyValue)
        #expect(try rows(of: session.accountID, on: disk) > 0)
        let endings = client.deliveries.count { $0.hasEnded }
        // One of the services is away, and learns of it later.
        cloud.crash(.keyValue)

        var request = WireCloseAccount()
        request.accountName = TestCloud.accountName
        let closed: WireCloseAccountReply = try cloud.operate("CloseAccount", request)
        cloud.network.run(for: .seconds(5))
        var read = WireReadClosure()
        read.accountID = closed.accountID
        func unfinished() throws -> [String] {
            let reply: WireReadClosureReply = try cloud.operate("ReadClosure", read)
            return reply.services.filter { $0.doneAt == 0 }.map(\.service)
        }
        #expect(try unfinished() == ["keyvalue"])
        #expect(client.deliveries.count { $0.hasEnded } == endings + 1)
        #expect(try rows(of: session.accountID, on: disk) > 0)
        try cloud.start(.keyValue)
        cloud.network.run(for: .seconds(10))
        #expect(try unfinished() == [])

        #expect(try rows(of: session.accountID, on: disk) == 0)
        #expect(try rows(of: session.accountID, on: cloud.storage(of: .identity)) == 0)
        #expect(code { _ = try pull(client, session.accessToken) } == .notAuthenticated)
        #expect(code { _ = try signIn(cloud.makeClient()) } == .wrongCredentials)
        // Nobody else has lost anything, and the name is free again.
        #expect(cloud.devices[2].isSettled && cloud.devices[2].values["guest-key"] == .string("theirs"))
        try cloud.createAccount()
        let again = try cloud.makeClient()
        #expect(try pull(again, signIn(again).accessToken).items.isEmpty)
    }

    /// Rows of any table that name the account, but for those that say that it was closed.
    private func rows(of account: String, on disk: SQLiteEngine) throws -> Int {
        try disk.write { transaction in
            let tables = try transaction.all(
                SQL(
                    """
                    SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
                    WHERE m.type = 'table' AND c.name IN ('account', 'account_id', 'owner', 'owner_id')
                        AND m.name NOT IN ('closures', 'closure_reports')
                    """)
            ) { ($0.text(0), $0.text(1)) }
            #expect(!tables.isEmpty)
            return try tables.reduce(0) { sum, place in
                sum
                    + (try transaction.first(
                        SQL("SELECT COUNT(*) FROM \(place.0) WHERE \(place.1) = ?1"), [.text(account)]
                    ) { Int($0.integer(0)) } ?? 0)
            }
        }
    }

    @Test func aChangedEntitlementTakesEffectInRunningServices() throws {
        let cloud = try house()
        defer { cloud.close() }
        let app = try cloud.createApp("T.notes", store: "T.shared")
        let client = try cloud.makeClient()
        let token = try signIn(client, app: app.appID).accessToken
        try subscribe(client, token)
        #expect(code { _ = try pull(client, token) } == nil)

        var update = WireUpdateApp()
        update.appID = app.appID
        update.storeID = "T.other"
        try cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        cloud.network.run(for: .seconds(2))
        // Under the same token, and in both directions.
        #expect(code { _ = try pull(client, token) } == .missingEntitlement)
        var moved = token
        moved.app.storeID = "T.other"
        #expect(code { _ = try pull(client, moved) } == nil)
        #expect(lastEnding(client) == .tokenExpired)

        update.clearStoreID()
        update.capabilities.values = [.documents]
        try cloud.operate("UpdateApp", update, as: WireUpdateAppReply.self)
        cloud.network.run(for: .seconds(2))
        #expect(code { _ = try pull(client, moved) } == .missingEntitlement)
        // The service remembers it when it starts alone.
        cloud.crash(.identity)
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        #expect(code { _ = try pull(client, moved) } == .missingEntitlement)
    }

    @Test func aRemovedAppHasNoEntitlements() throws {
        let cloud = try house()
        defer { cloud.close() }
        var app = WireApp()
        app.appID = "T.notes"
        try cloud.createApp(app)
        let client = try cloud.makeClient()
        let token = try signIn(client, app: app.appID).accessToken
        var remove = WireRemoveApp()
        remove.appID = app.appID
        try cloud.operate("RemoveApp", remove, as: WireRemoveAppReply.self)
        cloud.network.run(for: .seconds(2))
        #expect(code { _ = try pull(client, token) } == .missingEntitlement)
        #expect(code { _ = try signIn(client, app: app.appID) } == .missingEntitlement)
        // Registered again, it is heeded although tokens of its first life are newer than nothing.
        try cloud.createApp(app)
        let again = try signIn(client, app: app.appID).accessToken
        cloud.network.run(for: .seconds(2))
        #expect(code { _ = try pull(client, again) } == nil)
    }

    @Test func signingKeysAreRotatedWhileDevicesStaySignedIn() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        let old = session.accessToken
        let reply: WireRotateSigningKeyReply = try cloud.operate("RotateSigningKey", WireRotateSigningKey())
        // The old key signs, and is believed, until everybody knows the new one.
        #expect(code { _ = try pull(client, old) } == nil)
        cloud.network.run(for: .seconds(40))
        let new = try signIn(client).accessToken
        #expect(keyID(new) == reply.keyID && keyID(old) != reply.keyID)
        #expect(code { _ = try pull(client, new) } == nil)
        #expect(code { _ = try pull(client, old) } == nil)

        // Everything starts again, and the rotated key is still the one.
        for service in [ServiceName.identity, .keyValue] {
            cloud.crash(service)
            try cloud.start(service)
        }
        let later = try signIn(client).accessToken
        #expect(keyID(later) == reply.keyID)
        #expect(code { _ = try pull(client, later) } == nil)
        // A token of the old key is worth nothing once the key's time is over, however long it says it lives.
        var lasting = old
        lasting.token = try cloud.makeToken(
            account: AccountID(session.accountID), device: DeviceID(session.device.deviceID), app: AppID(old.app.appID),
            entitlements: Entitlements(store: StoreID(old.app.storeID), containers: []), key: client.keys.publicKey,
            lifetime: .seconds(86_400))
        #expect(code { _ = try pull(client, lasting) } == nil)
        cloud.network.run(for: .seconds(15 * 60))
        let refusal = failure { _ = try pull(client, lasting) }
        #expect(refusal?.code == .notAuthenticated && refusal?.details["reason"] == "key retired")
        for device in cloud.devices { #expect(device.isSettled) }
        try cloud.devices[0].store?.set(1, forKey: "after")
        #expect(cloud.network.run(within: .seconds(60)) { cloud.devices[1].values["after"] == .integer(1) })
    }

    @Test func servicesChangeTheirKeysWhileDevicesStaySignedIn() throws {
        let cloud = try house()
        defer { cloud.close() }
        try cloud.changeKeys { try KeyRotation.announce(&$0, &$1, $2, at: SimulatedNetwork.epoch) }
        // Devices renew their tokens, and learn the next keys with them.
        cloud.network.run(for: .seconds(15 * 60))
        try cloud.changeKeys { roster, secrets, _ in
            try KeyRotation.makeCurrent(&roster, &secrets, at: SimulatedNetwork.epoch, forced: true)
        }
        try cloud.devices[0].store?.set(1, forKey: "after")
        #expect(cloud.network.run(within: .seconds(60)) { cloud.devices[1].values["after"] == .integer(1) })
        // And once more, from the keys that they have now, over a renewal of all tokens.
        try cloud.changeKeys { try KeyRotation.announce(&$0, &$1, $2, at: SimulatedNetwork.epoch) }
        cloud.network.run(for: .seconds(15 * 60))
        try cloud.changeKeys { roster, secrets, _ in
            try KeyRotation.makeCurrent(&roster, &secrets, at: SimulatedNetwork.epoch, forced: true)
        }
        cloud.network.run(for: .seconds(20 * 60))
        try cloud.devices[0].store?.set(2, forKey: "after")
        #expect(cloud.network.run(within: .seconds(60)) { cloud.devices[1].values["after"] == .integer(2) })
        #expect(cloud.devices.allSatisfy { $0.session?.signedIn == true })
    }

    @Test func masterKeysAreReplacedAndTheOldOneIsNotNeededAnyMore() throws {
        let cloud = try house()
        defer { cloud.close() }
        var newest: [String] = []
        try cloud.changeKeys { _, secrets, _ in
            for index in secrets.indices {
                let key = Data((0..<32).map { _ in UInt8.random(in: 0...255) }).base64EncodedString()
                newest.append(key)
                secrets[index].masterKeys.insert(key, at: 0)
            }
        }
        cloud.network.run(for: .seconds(5))
        try cloud.changeKeys { _, secrets, _ in
            for index in secrets.indices { secrets[index].masterKeys = [newest[index]] }
        }
        let client = try cloud.makeClient()
        #expect(try pull(client, signIn(client).accessToken).items.first?.value.string == "mine")
        #expect(cloud.network.run(within: .seconds(60)) { cloud.devices.allSatisfy(\.isSettled) })
    }

    private func keyID(_ token: WireAccessToken) -> String? {
        struct Header: Decodable { var kid: String }
        let text = String(token.token.prefix { $0 != "." }).replacing("-", with: "+").replacing("_", with: "/")
        let padded = text + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Data(base64Encoded: padded).flatMap { try? JSONDecoder().decode(Header.self, from: $0).kid }
    }
}
