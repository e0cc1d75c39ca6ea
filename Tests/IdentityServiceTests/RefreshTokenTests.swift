import NephosCore
import NephosStorage
import NephosWire
import Testing

@testable import NephosIdentity

@Suite struct RefreshTokenTests {
    @Test func aRefreshTokenIsExchangedForANewOne() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        house.now = house.now.advanced(by: .seconds(900))
        let before = house.now
        let second = try house.refresh(first, by: key)
        #expect(second.refreshToken != first)
        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: second.accessToken.token)
        #expect(before.milliseconds...house.now.milliseconds ~= me.device.lastSeenAt)
        #expect(code { _ = try house.refresh(second.refreshToken, by: key) } == nil)
    }

    @Test func aRepeatOfTheSameExchangeGetsTheSameToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let id = house.newOperation()
        let reply = try house.refresh(first, by: key, id: id)
        #expect(try house.refresh(first, by: key, id: id).refreshToken == reply.refreshToken)
        #expect(code { _ = try house.refresh(reply.refreshToken, by: key) } == nil)
    }

    @Test func aReusedTokenEndsItsFamily() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let second = try house.refresh(first, by: key).refreshToken
        // Whoever comes first, and whoever comes later, is told what happened.
        for token in [first, second, first] {
            let told = failure { _ = try house.refresh(token, by: key) }
            #expect(told?.code == .deviceRevoked && told?.details["reason"] == "copied")
        }
        #expect(try house.counter("refresh_tokens_reused") == 1)
        // The copy has the key too.
        #expect(failure { _ = try house.signIn("ada", by: key) }?.details["reason"] == "copied")
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    @Test func aRepeatThatComesLateGetsNothingAndEndsNothing() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        var tokens = [try house.signIn("ada", by: key).refreshToken]
        let ids = (0..<4).map { _ in house.newOperation() }
        for (token, id) in zip(0..., ids) {
            tokens.append(try house.refresh(tokens[token], by: key, id: id).refreshToken)
        }
        // Copies of requests that were answered, and whose answers were used since.
        for (token, id) in zip(tokens, ids.dropLast()) {
            let told = failure { _ = try house.refresh(token, by: key, id: id) }
            #expect(told?.code == .notAuthenticated && told?.details["reason"] == nil)
        }
        #expect(try house.counter("refresh_tokens_reused") == 0)
        let reply = try house.refresh(try #require(tokens.last), by: key)
        let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: reply.accessToken.token)
        // Also the one that has just become old.
        #expect(code { _ = try house.refresh(tokens[3], by: key, id: ids[3]) } == .notAuthenticated)
        #expect(code { _ = try house.refresh(reply.refreshToken, by: key) } == nil)
    }

    /// Of a home whose exchange was waiting: the copy has it answered and goes on, the owner repeats it days later.
    @Test func aCopiedExchangeThatWasWaitingIsNoticed() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let waiting = house.newOperation()
        let second = try house.refresh(first, by: key, id: waiting).refreshToken
        house.now = house.now.advanced(by: .seconds(900))
        let third = try house.refresh(second, by: key).refreshToken
        house.now = house.now.advanced(by: .seconds(3600))
        for _ in 0..<2 {
            let told = failure { _ = try house.refresh(first, by: key, id: waiting) }
            #expect(told?.code == .deviceRevoked && told?.details["reason"] == "copied")
        }
        #expect(code { _ = try house.refresh(third, by: key) } == .deviceRevoked)
        #expect(try house.counter("refresh_tokens_reused") == 1)
    }

    @Test func anAnswerThatWasLostIsGivenAgainDaysLater() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key).refreshToken
        let id = house.newOperation()
        let lost = try house.refresh(first, by: key, id: id)
        house.now = house.now.advanced(by: .seconds(3 * 86_400))
        let again = try house.refresh(first, by: key, id: id)
        #expect(again.refreshToken == lost.refreshToken)
        let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: again.accessToken.token)
        #expect(try house.counter("refresh_tokens_reused") == 0)
        #expect(code { _ = try house.refresh(again.refreshToken, by: key) } == nil)
    }

    @Test func aDatabaseFromYesterdayTakesNobodyForAThief() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        var tokens = [try house.signIn("ada", by: key).refreshToken]
        func family() throws -> RefreshFamily {
            let id = try #require(RefreshSecret(text: tokens[0])).family
            return try #require(try RefreshFamilyStore(transaction: house.transaction()).family(id))
        }
        let old = try family()
        for _ in 0..<3 { tokens.append(try house.refresh(try #require(tokens.last), by: key).refreshToken) }
        try RefreshFamilyStore(transaction: house.transaction()).replace(with: old)
        let next = try house.refresh(tokens[3], by: key).refreshToken
        #expect(try family().generation == 5)
        // What was used before that is as old as ever.
        #expect(failure { _ = try house.refresh(tokens[2], by: key) }?.details["reason"] == "copied")
        #expect(code { _ = try house.refresh(next, by: key) } == .deviceRevoked)
    }

    @Test func aTokenThatIdentityNeverMadeEndsNothing() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let token = try house.signIn("ada", by: key).refreshToken
        var bytes = try #require(Base64URL.decode(token))
        for place in [20, 23, 30, 55] {
            var forged = bytes
            forged[place] ^= 1
            #expect(code { _ = try house.refresh(Base64URL.encode(forged), by: key) } == .notAuthenticated)
        }
        bytes.replaceSubrange(16..<24, with: [UInt8](repeating: 255, count: 8))
        #expect(code { _ = try house.refresh(Base64URL.encode(bytes), by: key) } == .notAuthenticated)
        #expect(code { _ = try house.refresh(token, by: key) } == nil)
    }

    @Test func anotherKeyCannotUseTheToken() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let token = try house.signIn("ada", by: key).refreshToken
        #expect(code { _ = try house.refresh(token, by: house.newKey()) } == .tokenNotBound)
        #expect(code { _ = try house.refresh(token, by: key) } == nil)
    }

    @Test func aTokenEndsAfterNinetyDays() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
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
        let key = try house.newKey()
        let token = try #require(RefreshSecret(text: try house.signIn("ada", by: key).refreshToken))
        let families = try house.engine.write { try RefreshFamilyStore(transaction: $0).family(token.family) }
        let family = try #require(families)
        for column in [family.id, family.tokenHash, family.previousHash ?? []] { #expect(column != token.secret) }
        #expect(family.tokenHash == token.hash)
    }
}
