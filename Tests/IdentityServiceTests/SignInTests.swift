import Core
import Testing
import Wire

@testable import IdentityService

@Suite struct SignInTests {
    @Test func aDeviceSignsInAndIsWhoItSaysItIs() throws {
        let house = try IdentityHouse()
        let account = try house.createAccount("ada@cloud.example")
        let key = house.newKey()
        let reply = try house.signIn("Ada@Cloud.example", by: key)
        #expect(reply.accountID == account.rawValue)
        #expect(reply.accessToken.lifetimeMilliseconds == 900_000)
        #expect(reply.services.first?.requestEndpoints == ["tcp://cloud.example:7411"])

        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: reply.accessToken.token)
        #expect(me.accountName == "ada@cloud.example")
        #expect(me.device.publicKey == key.z85)
        #expect(me.app.appID == "default")
    }

    @Test func wrongPasswordAndUnknownAccountAnswerAlike() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        func error(_ name: String) -> CloudError? {
            do { _ = try house.signIn(name, "wrong horse", by: house.newKey()) } catch {
                return CloudError(wrapping: error)
            }
            return nil
        }
        #expect(error("ada") == error("nobody"))
        #expect(error("ada")?.code == .wrongCredentials)
    }

    @Test func anUnknownAccountTakesAsLongAsAKnownOne() throws {
        let house = try IdentityHouse(IdentityConfiguration())
        try house.createAccount("ada")
        func time(_ name: String) -> Duration {
            let clock = ContinuousClock()
            return (0..<2).map { _ in
                clock.measure { _ = try? house.signIn(name, "wrong horse", by: house.newKey()) }
            }.min() ?? .zero
        }
        let known = time("ada")
        let unknown = time("nobody")
        // Generous: two cores are shared with other tests. Without the hash it is a hundred times less.
        #expect(unknown > known / 4 && known > unknown / 4)
    }

    @Test func guessingIsSlowedDownMoreAndMore() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        for _ in 0..<5 {
            #expect(code { _ = try house.signIn("ada", "wrong horse", by: house.newKey()) } == .wrongCredentials)
        }
        do {
            _ = try house.signIn("ada", by: house.newKey())
            Issue.record("the sixth attempt must wait")
        } catch let error as CloudError {
            #expect(error.code == .requestRateLimited)
            #expect(error.retryAfter == .seconds(1))
        }
        house.now = house.now.advanced(by: .seconds(1))
        #expect(code { _ = try house.signIn("ada", "wrong horse", by: house.newKey()) } == .wrongCredentials)
        house.now = house.now.advanced(by: .seconds(1))
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        house.now = house.now.advanced(by: .seconds(1))
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    @Test func aGuesserDoesNotLockOutTheAccountsOwnDevice() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let own = house.newKey()
        _ = try house.signIn("ada", by: own)
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        #expect(code { _ = try house.signIn("ada", by: own) } == nil)
    }

    @Test func oneKeyCannotGuessAtManyAccounts() throws {
        let house = try IdentityHouse()
        let key = house.newKey()
        for number in 0..<5 { _ = try? house.signIn("name\(number)", "wrong horse", by: key) }
        #expect(code { _ = try house.signIn("another", "wrong horse", by: key) } == .requestRateLimited)
    }

    @Test func identityTokensTellAccountsApart() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        try house.createAccount("bob")
        let first = try house.signIn("ada", by: house.newKey()).identityToken
        #expect(try house.signIn("ada", by: house.newKey()).identityToken == first)
        #expect(try house.signIn("bob", by: house.newKey()).identityToken != first)
    }

    @Test func anUnknownAppIsRefused() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), app: "none") } == .missingEntitlement)
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), app: "*") } == .missingEntitlement)
    }

    @Test func aRepeatedSignInGetsTheSameDeviceAndRefreshToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let id = house.newOperation()
        let first = try house.signIn("ada", by: key, id: id)
        let second = try house.signIn("ada", by: key, id: id)
        #expect(first.refreshToken == second.refreshToken)
        #expect(first.device.deviceID == second.device.deviceID)
    }
}
