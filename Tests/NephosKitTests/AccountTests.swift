import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

@Suite struct AccountTests {
    @Test func anotherAccountDiscardsWhatTheFirstOneHad() throws {
        let device = try Device.ready()
        try device.store.set("secret", forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.cloud.account = "acc_two"
        device.cloud.items = [:]
        device.cloud.head = ChangeToken(epoch: 1, sequence: 0)
        try device.signIn("bert")
        device.network.run(for: .seconds(1))
        #expect(device.changes.map(\.reason) == [.accountChange, .initialSyncChange])
        #expect(try device.store.dictionary().isEmpty)
        #expect(device.engine.session?.identityToken == "identity-acc_two")
    }

    @Test func unsentChangesDoNotVanishBecauseAnotherSignsIn() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.serviceBusy, "Later.")) }
        try device.store.set("unsent", forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.cloud.account = "acc_two"
        #expect(throws: CloudError.self) { try device.signIn("bert") }
        #expect(device.engine.session?.accountName != "bert")
        #expect(try device.store.read("a") == .value("unsent"))
        try device.signIn("bert", discardsUnsent: true)
        device.network.run(for: .seconds(1))
        #expect(device.engine.session?.accountName == "bert")
        #expect(try device.store.status().pending.isEmpty)
    }

    @Test func theIdentityTokenIsKeptWhileOfflineAndGoneAfterSignOut() throws {
        let device = try Device.ready()
        let token = try #require(device.engine.session?.ubiquityIdentityToken)
        let archived = try JSONEncoder().encode([token])
        device.cloud.lossy = ["PushKeys", "ReadChanges", "Subscribe", "RefreshToken", "SignOut"]
        try device.restart()
        #expect(device.engine.session?.ubiquityIdentityToken == token)
        #expect(try JSONDecoder().decode([UbiquityIdentityToken].self, from: archived) == [token])
        device.engine.signOut { _ in }
        device.network.run(for: .seconds(10))
        #expect(device.engine.session?.ubiquityIdentityToken == nil)
        device.cloud.lossy = []
        try device.signIn()
        #expect(device.engine.session?.ubiquityIdentityToken == token)
        device.cloud.account = "acc_two"
        try device.signIn("bert")
        let other = try #require(device.engine.session?.ubiquityIdentityToken)
        #expect(other != token)
        #expect(device.accountEvents == [nil, token, other])
    }

    @Test func contentWrittenWhileSignedOutIsOfferedOnlyWhenTheAppSaysSo() throws {
        let device = try Device()
        try device.store.set("local", forKey: "a")
        #expect(try device.store.read("a") == .value("local"))
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(try device.store.read("a") == .absent)
        #expect(try device.store.adoptSignedOutContent() == ["a"])
        device.network.run(for: .milliseconds(200))
        #expect(device.cloud.items["a"]?.value == "local")
    }

    @Test func unsentChangesDoNotVanishBecauseTheirAccountWasMadeAnewUnderItsName() throws {
        let device = try Device.ready()
        try device.store.set("sent", forKey: "b")
        device.network.run(for: .milliseconds(200))
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.serviceBusy, "Later.")) }
        try device.store.set("unsent", forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.cloud.account = "acc_two"
        let refused = #expect(throws: CloudError.self) { try device.signIn() }
        #expect(refused?.code == .constraintViolation && refused?.details["unsent"] == "1")
        device.network.run(for: .seconds(1))
        // The server has let the device in, and is told that it is not coming.
        #expect(device.cloud.requests("SignOut").count == 1)
        #expect(device.engine.session?.accountID == AccountID("acc_one"))
        #expect(try device.store.dictionary() == ["a": "unsent", "b": "sent"])
        try device.signIn(discardsUnsent: true)
        #expect(device.engine.session?.accountID == AccountID("acc_two"))
        #expect(try device.store.status().pending.isEmpty)
    }

    @Test func anAccountsNameIsOneInAnyCase() throws {
        let device = try Device.ready()
        let keys = try device.engine.loadSecrets().publicKey
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.serviceBusy, "Later.")) }
        try device.store.set("unsent", forKey: "a")
        try device.signIn("ANNA")
        #expect(try device.engine.loadSecrets().publicKey == keys)
        #expect(device.madeKeys == 1)
    }

    @Test func whatWasRefusedIsShownAlsoOnceTheAppHasLostKeyValue() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.quotaExceeded, "Too much.")) }
        try device.store.set("large", forKey: "a")
        device.network.run(for: .seconds(1))
        #expect(try device.store.status().refused.map(\.key) == ["a"])
        var (app, session) = (WireApp(), try #require(device.engine.session))
        app.appID = device.store.app.rawValue
        app.capabilities = [.documents]
        session.setCapabilities(app)
        func shown() throws -> [AppID] {
            try device.local.read { try KeyValueKind().scopes(of: session, in: $0) }.map(\.app)
        }
        #expect(try shown() == [device.store.app])
        try device.local.write { try $0.execute(sql: "DELETE FROM undecided") }
        #expect(try shown().isEmpty)
    }

    @Test func adoptedContentStaysUntilTheServerHasTakenIt() throws {
        let device = try Device()
        for key: ItemName in ["a", "b", "c"] { try device.store.set("local", forKey: key) }
        try device.signIn()
        device.network.run(for: .seconds(1))
        device.cloud.overrides["PushKeys"] = { request in
            guard let push = try? request.body.decode(WirePushKeys.self), push.writes[0].key == "b" else { return nil }
            return .failure(CloudError(.quotaExceeded, "Too much."))
        }
        #expect(try device.store.adoptSignedOutContent() == ["a", "b", "c"])
        #expect(try device.local.signedOutKeys(app: device.store.app) == ["a", "b", "c"])
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items.keys.sorted() == ["a", "c"])
        #expect(try device.local.signedOutKeys(app: device.store.app) == ["b"])
        #expect(try device.store.status().refused.map(\.key) == ["b"])
        // Once there is room; and what waits already is not offered twice.
        device.cloud.overrides = [:]
        #expect(try device.store.adoptSignedOutContent() == ["b"])
        #expect(try device.store.offerSignedOutContent() == ["b": .some("local")])
        #expect(try device.store.status().pending.count == 1)
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["b"]?.value == "local")
        #expect(try device.local.signedOutKeys(app: device.store.app).isEmpty)
        #expect(try device.store.status().refused.isEmpty)
    }

    @Test func whoeverSignsOutWithoutAServerIsToldSoWithinASecond() throws {
        let device = try Device.ready()
        device.cloud.lossy = ["SignOut"]
        var told: Result<SignedOut, CloudError>?
        device.engine.signOut { told = $0 }
        device.network.run(for: .milliseconds(999))
        #expect(try told?.get().isTold == false)
        #expect(device.engine.session?.signedIn == false)
        try device.signIn()
        device.cloud.lossy = []
        device.engine.signOut { told = $0 }
        device.network.run(for: .milliseconds(200))
        #expect(try told?.get().isTold == true)
    }

    @Test func aServerFarAwayIsToldOfASignOutAlsoWhenATokenMustBeRenewedFirst() throws {
        let device = try Device.ready()
        device.cloud.latency = .milliseconds(300)
        device.network.run(for: .seconds(1))
        device.cloud.overrides["SignOut"] = { request in
            request.accessToken == "access-1" ? .failure(CloudError(.tokenExpired, "Old.")) : nil
        }
        var told: Result<SignedOut, CloudError>?
        device.engine.signOut { told = $0 }
        device.network.run(for: .seconds(5))
        #expect(try told?.get().isTold == true)
    }

    @Test func aLockThatAnotherProcessDoesNotLetGoIsNamedAndTriedAgainEverLessOften() throws {
        let device = try Device.ready()
        let secrets = try #require(device.secrets as? MemorySecrets)
        let other = MemorySecrets(sharing: secrets)
        #expect(other.tryLock())
        device.network.run(for: .seconds(4000))
        try device.store.set("kept", forKey: "a")
        device.network.run(for: .seconds(3))
        #expect(device.cloud.requests("RefreshToken").isEmpty)
        let problem = try device.store.status().problem
        #expect(problem?.code == .storageFailure && problem?.message.contains("refresh.lock") == true)
        #expect(try device.store.status().pending.first?.blocker == .thisDevice)
        other.unlock()
        device.network.run(for: .seconds(120))
        #expect(device.cloud.items["a"]?.value == "kept")
        #expect(try device.store.status().isInSync)
    }

    @Test func aServerThatAsksForALongerPauseThanAnHourIsAskedAfterAnHour() throws {
        let device = try Device.ready()
        device.cloud.overrides["RefreshToken"] = { _ in
            .failure(CloudError(.requestRateLimited, "Later.", retryAfter: .seconds(1_000_000)))
        }
        device.network.run(for: .seconds(3700))
        #expect(device.cloud.requests("RefreshToken").count == 1)
        device.cloud.overrides = [:]
        device.network.run(for: .seconds(2 * 3700))
        #expect(device.cloud.requests("RefreshToken").count > 1)
    }

    @Test func signedOutReadsNothingOfTheAccount() throws {
        let device = try Device.ready()
        try device.store.set("secret", forKey: "a")
        device.network.run(for: .milliseconds(200))
        device.engine.signOut { _ in }
        device.network.run(for: .milliseconds(200))
        #expect(try device.store.read("a") == .absent)
        #expect(device.changes.map(\.reason) == [.accountChange])
        #expect(device.cloud.requests("SignOut").count == 1)
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(try device.store.read("a") == .value("secret"))
    }

    @Test func tokenIsRenewedInTimeAndTheSubscriptionWithIt() throws {
        let cloud = try ScriptedCloud()
        cloud.lifetime = 30_000
        let device = try Device.ready(cloud)
        device.network.run(for: .seconds(25))
        #expect(cloud.requests("RefreshToken").count == 1)
        #expect(cloud.requests("Subscribe").last?.accessToken == "access-2")
    }

    @Test func expiredTokenIsRenewedOnceForAllWhoWait() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { request in
            request.accessToken == "access-1" ? .failure(CloudError(.tokenExpired, "Old.")) : nil
        }
        for key in ["a", "b", "c"] as [ItemName] { try device.store.set(1, forKey: key) }
        device.network.run(for: .seconds(1))
        #expect(device.cloud.requests("RefreshToken").count == 1)
        #expect(device.cloud.items.count == 3)
    }

    @Test func refreshWhoseReplyWasLostIsRepeatedUnderItsID() throws {
        let cloud = try ScriptedCloud()
        cloud.lifetime = 30_000
        let device = try Device.ready(cloud)
        cloud.lossy = ["RefreshToken"]
        device.network.run(for: .seconds(25))
        try device.restart()
        cloud.lossy = []
        device.network.run(for: .seconds(60))
        let refreshes = cloud.requests("RefreshToken")
        #expect(refreshes.count > 1)
        let bodies = refreshes.compactMap { try? $0.body.decode(WireRefreshToken.self).refreshToken }
        for (id, body) in zip(refreshes.map(\.id), bodies) where body == "refresh-1" { #expect(id == refreshes[0].id) }
    }

    /// It need not have heard of that: another device, or the operator, has revoked it while it was away.
    @Test func aRevokedDeviceSignsInAgainWithoutKnowingThatItsKeyIsSpent() throws {
        let device = try Device.ready()
        let made = device.madeKeys
        var attempts = 0
        device.cloud.overrides["SignIn"] = { _ in
            attempts += 1
            return attempts == 1 ? .failure(CloudError(.deviceRevoked, "This device was revoked. Sign in again.")) : nil
        }
        try device.signIn()
        #expect(attempts == 2 && device.madeKeys == made + 1)
        // One that was never seen before is spent in any case.
        device.cloud.overrides["SignIn"] = { _ in
            attempts += 1
            return .failure(CloudError(.deviceRevoked, "This device was revoked. Sign in again."))
        }
        #expect(throws: CloudError.self) { try device.signIn() }
        #expect(attempts == 4)
    }

    @Test func revokedDeviceStopsAndSaysWhy() throws {
        let device = try Device.ready()
        device.cloud.deliver { $0.ended = WireFailure(CloudError(.deviceRevoked, "Revoked.")) }
        device.network.run(for: .milliseconds(100))
        device.cloud.requests = []
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(60))
        #expect(device.cloud.requests.isEmpty)
        let pending = try #require(try device.store.status().pending.first)
        #expect(pending.state == .blocked)
        #expect(pending.blocker == .policy)
    }

    @Test func blockedWriteIsSentAfterTheNextSignIn() throws {
        let device = try Device.ready()
        device.cloud.overrides["PushKeys"] = { _ in .failure(CloudError(.missingEntitlement, "Not for this app.")) }
        try device.store.set(1, forKey: "a")
        device.network.run(for: .seconds(120))
        #expect(try device.store.status().pending.first?.state == .blocked)
        #expect(device.cloud.requests("PushKeys").count == 1)
        device.cloud.overrides = [:]
        try device.signIn()
        device.network.run(for: .seconds(1))
        #expect(device.cloud.items["a"]?.value == 1)
    }

    @Test func endedSubscriptionIsMadeAgain() throws {
        let device = try Device.ready()
        device.cloud.deliver { $0.ended = WireFailure(CloudError(.notAuthenticated, "Who are you?")) }
        device.network.run(for: .milliseconds(100))
        // The store, and after it the account.
        #expect(device.cloud.requests("Subscribe").count == 2)
    }

    @Test func missedHeartbeatsMakeANewConnection() throws {
        let device = try Device.ready()
        device.cloud.deliver { $0.heads = [device.cloud.scopeHead] }
        device.network.run(for: .seconds(12))
        #expect(device.cloud.requests("Subscribe").isEmpty)
        device.network.run(for: .seconds(10))
        // The store, and after it the account.
        #expect(device.cloud.requests("Subscribe").count == 2)
        #expect(device.cloud.requests("ReadChanges").isEmpty)
    }
}
