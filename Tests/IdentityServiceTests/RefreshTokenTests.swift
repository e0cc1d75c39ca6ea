import Core
import Storage
import Testing
import Wire

@testable import IdentityService

@Suite struct RefreshTokenTests {
    @Test func aRefreshTokenIsExchangedForANewOne() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        house.now = house.now.advanced(by: .seconds(900))
        let second = try house.refresh(first, by: key)
        #expect(second.refreshToken != first)
        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: second.accessToken.token)
        #expect(me.device.lastSeenAt == house.now.milliseconds)
        #expect(code { _ = try house.refresh(second.refreshToken, by: key) } == nil)
    }

    @Test func aRepeatOfTheSameExchangeGetsTheSameToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let id = house.newOperation()
        let reply = try house.refresh(first, by: key, id: id)
        #expect(try house.refresh(first, by: key, id: id).refreshToken == reply.refreshToken)
        #expect(code { _ = try house.refresh(reply.refreshToken, by: key) } == nil)
    }

    @Test func aReusedTokenEndsItsFamily() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let second = try house.refresh(first, by: key).refreshToken
        #expect(code { _ = try house.refresh(first, by: key) } == .notAuthenticated)
        #expect(code { _ = try house.refresh(second, by: key) } == .notAuthenticated)
        #expect(house.runtime.counters["refresh_tokens_reused"] == 1)
        #expect(code { _ = try house.signIn("ada", by: key) } == nil)
    }

    @Test func anotherKeyCannotUseTheToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let token = try house.signIn("ada", by: key).refreshToken
        #expect(code { _ = try house.refresh(token, by: house.newKey()) } == .tokenNotBound)
        #expect(code { _ = try house.refresh(token, by: key) } == nil)
    }

    @Test func aTokenEndsAfterNinetyDays() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let token = try house.signIn("ada", by: key).refreshToken
        house.now = house.now.advanced(by: .seconds(90 * 86_400))
        #expect(code { _ = try house.refresh(token, by: key) } == .notAuthenticated)
    }

    @Test(arguments: ["", "x", "äö", String(repeating: "A", count: 64), String(repeating: "=", count: 64)])
    func malformedTokensAreRefused(_ token: String) throws {
        let house = try IdentityHouse()
        #expect(code { _ = try house.refresh(token, by: house.newKey()) } == .notAuthenticated)
    }

    @Test func theDatabaseHoldsNoToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = house.newKey()
        let token = try #require(RefreshSecret(text: try house.signIn("ada", by: key).refreshToken))
        let families = try house.engine.write { try RefreshFamilyStore(transaction: $0).family(token.family) }
        let family = try #require(families)
        for column in [family.salt, family.tokenHash, family.previousHash ?? []] { #expect(column != token.secret) }
        #expect(family.tokenHash == token.hash)
    }
}
