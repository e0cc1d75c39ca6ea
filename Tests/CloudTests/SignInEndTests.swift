import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

/// What ends a sign-in ends all that came from it, everywhere; and nothing else does.
@Suite struct SignInEndTests {
    private static let secondApp = "T.second"

    /// A cloud with two apps, and one device of "demo" that has written "mine".
    private func house() throws -> TestCloud {
        let cloud = try TestCloud(seed: 12, budgets: BudgetConfiguration())
        var app = WireApp()
        app.appID = Self.secondApp
        try cloud.createApp(app)
        try cloud.addDevice()
        try cloud.devices[0].store?.set("mine", forKey: "key")
        guard cloud.settle() else { throw CloudError(.deadlineExceeded, "The device did not settle.") }
        return cloud
    }

    private func signIn(_ client: TestClient) throws -> WireSignInReply {
        var request = WireSignIn()
        request.accountName = TestCloud.accountName
        request.password = TestCloud.password
        request.deviceName = "bare"
        return try client.call("SignIn", request, at: .requests(.identity))
    }

    private func refresh(_ client: TestClient, _ token: String) throws -> WireRefreshTokenReply {
        var request = WireRefreshToken()
        request.refreshToken = token
        return try client.call("RefreshToken", request, at: .requests(.identity))
    }

    private func issue(_ client: TestClient, _ token: String) throws -> WireAccessToken {
        var request = WireIssueToken()
        request.appID = Self.secondApp
        let reply: WireIssueTokenReply = try client.call(
            "IssueToken", request, at: .requests(.identity), accessToken: token)
        return reply.accessToken
    }

    /// What whoever has the signing key makes of a device's token: one for a day.
    private func lasting(_ session: WireSignInReply, of client: TestClient, _ cloud: TestCloud) throws
        -> WireAccessToken
    {
        var token = session.accessToken
        token.token = try cloud.makeToken(
            account: AccountID(session.accountID), device: DeviceID(session.device.deviceID),
            app: AppID(token.app.appID),
            entitlements: Entitlements(store: StoreID(token.app.storeID), containers: []),
            key: client.keys.publicKey, lifetime: .seconds(86_400))
        return token
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

    private func journal(_ cloud: TestCloud) throws -> [String] {
        var request = WireListAudit()
        request.accountName = TestCloud.accountName
        return try cloud.operate("ListAudit", request, as: WireListAuditReply.self).entries.map(\.event)
    }

    private func failure(of body: () throws -> Void) -> CloudError? {
        do { try body() } catch { return error as? CloudError }
        return nil
    }

    private func isCopied(_ error: CloudError?) -> Bool {
        error?.code == .deviceRevoked && error?.details["reason"] == "copied"
    }

    @Test func aCopiedHomeIsNoticedAndBothCopiesAreToldInEveryService() throws {
        let cloud = try house()
        defer { cloud.close() }
        let own = try cloud.makeClient()
        let session = try signIn(own)
        let copy = cloud.makeClient(copying: own)
        let stolen = try issue(copy, session.accessToken.token)
        try subscribe(own, session.accessToken)
        try subscribe(copy, stolen)
        #expect(try pull(copy, session.accessToken).items.count == 1)

        let renewed = try refresh(own, session.refreshToken)
        #expect(isCopied(failure { _ = try refresh(copy, session.refreshToken) }))
        cloud.network.run(for: .seconds(2))
        for (client, token) in [(own, renewed.accessToken), (copy, session.accessToken), (copy, stolen)] {
            #expect(isCopied(failure { _ = try pull(client, token) }))
            #expect(isCopied(failure { _ = try issue(client, token.token) }))
            #expect(isCopied(failure { try subscribe(client, token) }))
            #expect(client.deliveries.last.map { isCopied(CloudError($0.ended)) } == true)
        }
        #expect(isCopied(failure { _ = try refresh(own, renewed.refreshToken) }))
        // The key is in other hands too: only a new one signs in.
        #expect(isCopied(failure { _ = try signIn(copy) }))
        #expect(failure { _ = try signIn(cloud.makeClient()) } == nil)
        #expect(try journal(cloud).filter { $0 == "token.reused" }.count == 1)
        #expect(cloud.devices[0].isSettled)
    }

    @Test func aDeviceThatWasCopiedSaysSoAndSignsInWithANewKey() throws {
        let cloud = try house()
        defer { cloud.close() }
        let device = cloud.devices[0]
        let copy = try cloud.makeCopy(of: device)
        // The copy renews first; the device finds out when its own turn comes: within one token's life.
        _ = try refresh(copy.client, copy.refreshToken)
        let noticed = cloud.network.run(within: .seconds(15 * 60)) {
            (try? device.store?.status().problem).map { isCopied($0) } ?? false
        }
        #expect(noticed)
        #expect(try journal(cloud).contains("token.reused"))
        try device.store?.set("kept", forKey: "unsent")
        try cloud.signInAgain(device)
        #expect(cloud.network.run(within: .seconds(60)) { device.isSettled })
        #expect(device.values["key"] == "mine" && device.values["unsent"] == "kept")
    }

    @Test func noTokenOutlivesTheOneThatItWasAskedForWith() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        cloud.network.run(for: .seconds(14 * 60))
        let token = try issue(client, session.accessToken.token)
        #expect(token.lifetimeMilliseconds <= 60_000)
        let next = try issue(client, token.token)
        #expect(failure { _ = try pull(client, next) } == nil)
        cloud.network.run(for: .seconds(61))
        #expect(failure { _ = try issue(client, next.token) }?.code == .tokenExpired)
        #expect(failure { _ = try pull(client, next) }?.code == .tokenExpired)
    }

    @Test func aDeviceWhoseRefreshWasLostComesBackByItselfDaysLater() throws {
        let cloud = try house()
        defer { cloud.close() }
        let device = cloud.devices[0]
        let storage = try cloud.storage(of: .identity)
        func generation() -> Int64? {
            try? storage.write { transaction in
                try transaction.first(SQL("SELECT MAX(generation) FROM refresh_families")) { $0.integer(0) }
            }
        }
        cloud.network.run(for: .seconds(9 * 60))
        let before = generation()
        // It is switched off between the exchange and its answer, and asleep for three days.
        #expect(cloud.network.run(within: .seconds(5 * 60)) { generation() != before })
        device.stop()
        for loop in [ServiceName.identity, .keyValue, .notifications] {
            cloud.network.setClockOffset(loop.rawValue, .seconds(3 * 86_400))
        }
        try device.start()
        device.setClockOffset(.seconds(3 * 86_400))
        try device.store?.set("awake", forKey: "key")
        #expect(cloud.network.run(within: .seconds(300)) { device.isSettled && generation() == before.map { $0 + 1 } })
        #expect(device.values["key"] == "awake")
        #expect(try !journal(cloud).contains("token.reused"))
        // And it goes on renewing.
        cloud.network.run(for: .seconds(20 * 60))
        #expect(device.isSettled)
    }

    @Test func aServiceThatStartsAloneRefusesWhomItRefusedBefore() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        #expect(failure { _ = try pull(client, session.accessToken) } == nil)
        var request = WireRevokeDevice()
        request.deviceID = session.device.deviceID
        request.accountName = TestCloud.accountName
        try cloud.operate("RevokeDevice", request, as: WireRevokeDeviceReply.self)
        cloud.network.run(for: .seconds(2))
        // Identity, who said so, is gone when they come back.
        for service in [ServiceName.identity, .keyValue, .notifications] { cloud.crash(service) }
        try cloud.start(.keyValue)
        try cloud.start(.notifications)
        #expect(failure { _ = try pull(client, session.accessToken) }?.code == .deviceRevoked)
        #expect(failure { try subscribe(client, session.accessToken) }?.code == .deviceRevoked)
    }

    @Test func aLockedAccountsDeviceGetsNoTokensFromIdentityEither() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        #expect(failure { _ = try issue(client, session.accessToken.token) } == nil)
        var lock = WireLockAccount()
        lock.accountName = TestCloud.accountName
        lock.locked = true
        try cloud.operate("LockAccount", lock, as: WireLockAccountReply.self)
        let refused = failure { _ = try issue(client, session.accessToken.token) }
        #expect(refused?.code == .accountTemporarilyUnavailable)
    }

    /// A service that has not heard of it yet does not turn anybody away.
    @Test func aNewSigningKeySignsOnceEverybodyHasHeardOfIt() throws {
        let cloud = try house()
        defer { cloud.close() }
        cloud.crash(.keyValue)
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.network.run(for: .seconds(1))
        let client = try cloud.makeClient()
        let session = try signIn(client)
        cloud.crash(.identity)
        try cloud.start(.keyValue)
        #expect(try pull(client, session.accessToken).items.count == 1)
    }

    /// Also on a connection on which it was looked at while the key still signed.
    @Test func aTokenThatIsInUseEndsWithItsSigningKey() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        let lasting = try lasting(session, of: client, cloud)
        #expect(try pull(client, lasting).items.count == 1)
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.network.run(for: .seconds(14 * 60))
        #expect(try pull(client, lasting).items.count == 1)
        cloud.network.run(for: .seconds(2 * 60))
        let refused = failure { _ = try pull(client, lasting) }
        #expect(refused?.code == .notAuthenticated && refused?.details["reason"] == "key retired")
    }

    /// Whoever had the key signed for years ahead: its connection hears nothing any more once the key has ended.
    @Test func aSubscriptionEndsWithTheKeyThatSignedItsToken() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        let lasting = try lasting(session, of: client, cloud)
        try subscribe(client, lasting)
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        func isTold(_ value: String) throws -> Bool {
            let before = client.notifications.count
            try cloud.devices[0].store?.set(.string(value), forKey: "key")
            cloud.network.run(for: .seconds(5))
            return client.notifications.count > before
        }
        cloud.network.run(for: .seconds(14 * 60))
        #expect(try isTold("still"))
        // Also when it asks anew, with the token that it has.
        try subscribe(client, lasting)
        cloud.network.run(for: .seconds(2 * 60))
        #expect(try !isTold("no more"))
    }

    /// A clock was ahead when a key was replaced: its end is a day away, until the next rotation.
    @Test func aKeyThatWasRetiredByAClockThatWasAheadEndsWithTheNextRotation() throws {
        let cloud = try house()
        defer { cloud.close() }
        let client = try cloud.makeClient()
        let session = try signIn(client)
        let lasting = try lasting(session, of: client, cloud)
        cloud.setClockOffset(of: .identity, .seconds(23 * 3600))
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.setClockOffset(of: .identity, .zero)
        cloud.network.run(for: .seconds(20 * 60))
        #expect(try pull(client, lasting).items.count == 1)
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.network.run(for: .seconds(20 * 60))
        #expect(failure { _ = try pull(client, lasting) }?.code == .notAuthenticated)
        // The one that was to sign a day from now never does.
        for service in TestCloud.services { cloud.skip(.seconds(86_400), of: service) }
        cloud.network.run(for: .seconds(600))
        #expect(failure { _ = try pull(client, signIn(client).accessToken) } == nil)
    }

    @Test func aSigningKeyThatWasNotStoredNeverSigns() throws {
        let cloud = try house()
        defer { cloud.close() }
        cloud.setCommitsFail(of: .identity, true)
        #expect(
            failure {
                try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
            }?
            .code == .storageFailure)
        cloud.setCommitsFail(of: .identity, false)
        cloud.network.run(for: .seconds(60))
        let client = try cloud.makeClient()
        #expect(failure { _ = try pull(client, signIn(client).accessToken) } == nil)
        // One that is stored does.
        try cloud.operate("RotateSigningKey", WireRotateSigningKey(), as: WireRotateSigningKeyReply.self)
        cloud.network.run(for: .seconds(60))
        #expect(failure { _ = try pull(client, signIn(client).accessToken) } == nil)
    }
}
