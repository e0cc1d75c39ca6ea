import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import Testing

@testable import NephosIdentity

@Suite struct SignInTests {
    /// To scrypt a password is an HMAC key, which zeros fill up.
    @Test func aPasswordEndsWhereItEnds() throws {
        let cost = ScryptCost(rounds: 1 << 10, blockSize: 8, parallelism: 1)
        let salt = [UInt8](repeating: 1, count: PasswordHash.saltByteCount)
        for (right, wrong) in [("password-one", "password-one\0"), ("\0\0\0\0\0\0\0\0", "")] {
            let hash = try PasswordHash(of: right, salt: salt, cost: cost)
            #expect(try hash.matches(right) && !hash.matches(wrong))
        }
    }

    @Test func aDeviceSignsInAndIsWhoItSaysItIs() throws {
        let house = try IdentityHouse()
        let account = try house.createAccount("ada@cloud.example")
        let key = try house.newKey()
        let reply = try house.signIn("Ada@Cloud.example", by: key)
        #expect(reply.accountID == account.rawValue)
        #expect(reply.accessToken.lifetimeMilliseconds == 900_000)
        #expect(reply.services.first?.requestEndpoints == ["tcp://127.0.0.1:7400"])

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
        let sixth = failure { _ = try house.signIn("ada", by: house.newKey()) }
        #expect(sixth?.code == .requestRateLimited)
        #expect(Duration.milliseconds(900)...(.seconds(1)) ~= sixth?.retryAfter ?? .zero)
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
        let own = try house.newKey()
        _ = try house.signIn("ada", by: own)
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        #expect(code { _ = try house.signIn("ada", by: own) } == nil)
    }

    @Test func aRestartForgivesNoGuess() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        try house.restart()
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
    }

    @Test func aFloodOfNamesAndKeysForgetsNoGuess() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        var guesses = 0
        // An hour of guessing at one account, each guess with a fresh key and amid fresh names.
        let end = house.now.advanced(by: .seconds(3600))
        while house.now < end {
            for _ in 0..<3 { _ = try? house.signIn("name-\(house.now.milliseconds)", "wrong", by: house.newKey()) }
            if code({ _ = try house.signIn("ada", "wrong horse", by: house.newKey()) }) == .wrongCredentials {
                guesses += 1
            }
            house.now = house.now.advanced(by: .seconds(20))
        }
        // Five at once, eight while the wait grows to five minutes, and twelve an hour from then on.
        #expect(guesses <= 5 + 8 + 12)
        #expect(guesses > 12)
        house.now = end.advanced(by: .seconds(3600 + 300))
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
        // What was counted for names that are nobody's goes in time.
        for _ in 0..<200 { _ = try? house.signIn("later-\(house.now.milliseconds)", "wrong", by: house.newKey()) }
        let rows = try house.transaction().first(SQL("SELECT COUNT(*) FROM attempts")) { $0.integer(0) }
        #expect(rows == 200)
    }

    @Test func aNameThatIsNobodysIsSlowedDownAlike() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        func limit(_ name: String) throws -> CloudError? {
            for _ in 0..<5 { _ = try? house.signIn(name, "wrong horse", by: house.newKey()) }
            return failure { _ = try house.signIn(name, "wrong horse", by: house.newKey()) }
        }
        let (known, unknown) = try (limit("ada"), limit("nobody"))
        #expect(known?.code == .requestRateLimited && unknown?.code == .requestRateLimited)
        #expect(known?.message == unknown?.message && known?.details == unknown?.details)
    }

    @Test func aCodeLetsTheOwnersNewDevicePastAGuesser() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        try house.createAccount("bob")
        let desk = try house.newKey()
        let token = try house.signIn("ada", by: desk).accessToken.token
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)

        /// One guess more, after which strangers wait for a second at least.
        func guess() {
            house.now = house.now.advanced(by: AttemptRule.delayMax)
            _ = try? house.signIn("ada", "wrong horse", by: house.newKey())
        }
        let made: WireAllowSignInReply = try house.call(WireAllowSignIn(), by: desk, token: token)
        guess()
        // Only with the code, for its account, and once.
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: "00000-00000") } == .requestRateLimited)
        for _ in 0..<5 { _ = try? house.signIn("bob", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("bob", by: house.newKey(), code: made.code) } == .requestRateLimited)
        let typed = made.code.lowercased().replacing("-", with: " ")
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: typed) } == nil)
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: made.code) } == .requestRateLimited)

        // The operator makes one too. It does not stand for the password, and a wrong one spends it.
        var request = WireAllowSignIn()
        request.accountName = "ada"
        var other: WireAllowSignInReply = try house.call(request, by: house.operatorKey)
        guess()
        #expect(
            code { _ = try house.signIn("ada", "wrong horse", by: house.newKey(), code: other.code) }
                == .wrongCredentials)
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: other.code) } == .requestRateLimited)
        other = try house.call(request, by: house.operatorKey)
        house.now = house.now.advanced(by: SignInCodeStore.lifetime)
        guess()
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: other.code) } == .requestRateLimited)
    }

    /// Whoever has a device of the account makes as many codes as there are guesses.
    @Test func codesDoNotMakeGuessingFaster() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let desk = try house.newKey()
        let token = try house.signIn("ada", by: desk).accessToken.token
        func guess(_ password: String) throws -> CloudError.Code? {
            let made: WireAllowSignInReply = try house.call(WireAllowSignIn(), by: desk, token: token)
            return code { _ = try house.signIn("ada", password, by: house.newKey(), code: made.code) }
        }
        for _ in 0..<AttemptRule.free { #expect(try guess("wrong horse") == .wrongCredentials) }
        #expect(try guess("wrong horse") == .requestRateLimited)
        // Not even the right one, until it has waited; and who guessed without a code is another matter.
        #expect(try guess("correct horse") == .requestRateLimited)
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
        house.now = house.now.advanced(by: AttemptRule.delayMax)
        #expect(try guess("correct horse") == nil)
        #expect(try guess("wrong horse") == .wrongCredentials)
    }

    /// Whoever has a device of the account neither uses up the operator's codes nor takes their place.
    @Test func theOperatorsCodeLetsInWhateverDevicesCodesAreUsedFor() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let desk = try house.newKey()
        let token = try house.signIn("ada", by: desk).accessToken.token
        func guess() throws -> String {
            let made: WireAllowSignInReply = try house.call(WireAllowSignIn(), by: desk, token: token)
            return failure { _ = try house.signIn("ada", "wrong horse", by: house.newKey(), code: made.code) }?.message
                ?? ""
        }
        for _ in 0..<AttemptRule.free { _ = try guess() }
        // What helps is said.
        #expect(try guess().contains("have the operator make a code"))
        var request = WireAllowSignIn()
        request.accountName = "ada"
        let made: WireAllowSignInReply = try house.call(request, by: house.operatorKey)
        _ = try guess()
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: made.code) } == nil)
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: made.code) } == .requestRateLimited)
    }

    @Test func aClockThatWasAheadLocksNobodyOutOnceItIsRight() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let desk = try house.newKey()
        let right = house.now
        house.now = right.advanced(by: .seconds(365 * 86_400))
        let token = try house.signIn("ada", by: desk).accessToken.token
        let made: WireAllowSignInReply = try house.call(WireAllowSignIn(), by: desk, token: token)
        for _ in 0..<5 { _ = try? house.signIn("ada", "wrong horse", by: house.newKey()) }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        house.now = right
        // A guess is free, and counts; and a code of that time is good for nothing.
        #expect(code { _ = try house.signIn("ada", "wrong horse", by: house.newKey()) } == .wrongCredentials)
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        #expect(code { _ = try house.signIn("ada", by: house.newKey(), code: made.code) } == .requestRateLimited)
        house.now = house.now.advanced(by: AttemptRule.delayMax)
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    @Test func newDevicesOfAClockThatWasAheadKeepNobodyOut() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let right = house.now
        house.now = right.advanced(by: .seconds(365 * 86_400))
        for _ in 0..<EnrolmentRule.enrolmentsPerHour {
            let key = try house.newKey()
            let token = try house.signIn("ada", by: key).accessToken.token
            let _: WireSignOutReply = try house.call(WireSignOut(), by: key, token: token)
        }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        house.now = right
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    /// An account that is full of browsers takes another device; one that is full of devices does not.
    @Test(arguments: [("browser", true), ("Desk", false)])
    func aNewDeviceTakesThePlaceOfTheBrowserThatWasSeenLongestAgo(model: String, hasRoom: Bool) throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let desk = try house.newKey()
        _ = try house.signIn("ada", by: desk)
        var keys: [PublicKey] = []
        for _ in 1..<EnrolmentRule.devicesMax {
            house.skip(.seconds(1))
            keys.append(try house.newKey())
            var request = house.signInRequest("ada")
            request.deviceModel = model
            let _: WireSignInReply = try house.call(request, by: keys.last!)
        }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .limitExceeded, "All were seen today.")
        house.skip(EnrolmentRule.browserRest)
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == (hasRoom ? nil : .limitExceeded))
        func state(of key: PublicKey) throws -> DeviceRecord.State? {
            try DeviceStore(transaction: house.transaction()).enrolments(of: key).first?.state
        }
        #expect(try state(of: desk) == .active)
        #expect(try state(of: keys[0]) == (hasRoom ? .signedOut : .active))
        #expect(try state(of: keys[1]) == .active)
    }

    @Test func aPasswordThatIsReplacedWhileItIsCheckedLetsNobodyIn() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        house.cloud.network.offloadTime = .seconds(1)
        var change = WireChangePassword()
        change.accountName = "ada"
        change.newPassword = "another horse"
        let changing = try house.client(house.operatorKey).begin(
            "ChangePassword", change, at: .requests(.identity), id: house.newOperation())
        house.cloud.network.run(for: .milliseconds(500))
        let signingIn = try house.client(house.newKey()).begin(
            "SignIn", house.signInRequest("ada"), at: .requests(.identity), id: house.newOperation())
        house.cloud.network.run(for: .seconds(2))
        #expect(code { _ = try changing.result?.get() } == nil && changing.result != nil)
        #expect(code { _ = try signingIn.result?.get() } == .wrongCredentials)
    }

    @Test func strangersDoNotKeepThePasswordCheckToThemselves() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let (desk, phone) = (try house.newKey(), try house.newKey())
        let token = try house.signIn("ada", by: desk).accessToken.token
        let made: WireAllowSignInReply = try house.call(WireAllowSignIn(), by: desk, token: token)
        house.cloud.network.offloadTime = .milliseconds(500)
        var flood: [TestClient.Answer] = []
        for number in 0..<200 {
            flood.append(
                try house.client(house.newKey()).begin(
                    "SignIn", house.signInRequest("name-\(number)"), at: .requests(.identity)))
        }
        house.cloud.network.run(for: .milliseconds(100))
        let refused = flood.filter { answer in code { _ = try answer.result?.get() } == .serviceBusy }
        #expect(refused.count == 200 - PasswordGate.strangersMax)
        // The account's own device, and the owner with a code, are let in at once.
        let started = house.cloud.network.now
        _ = try house.signIn("ada", by: desk)
        _ = try house.signIn("ada", by: phone, code: made.code)
        #expect(house.cloud.network.now - started < .milliseconds(1200))
        // And a stranger as soon as there is a place.
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    @Test func oneStrangerHasOnePlaceBeforeThePasswordCheckAndOneAccountTwo() throws {
        let house = try IdentityHouse()
        for name in ["ada", "bob"] { try house.createAccount(name) }
        let (desk, other) = (try house.newKey(), try house.newKey())
        _ = try house.signIn("ada", by: desk)
        _ = try house.signIn("bob", by: other)
        house.cloud.network.offloadTime = .milliseconds(500)
        func begin(_ key: PublicKey, _ count: Int, _ name: (Int) -> String) throws -> [TestClient.Answer] {
            try (0..<count).map { number in
                try house.client(key).begin(
                    "SignIn", house.signInRequest(name(number)), at: .requests(.identity), id: house.newOperation())
            }
        }
        func refused(_ answers: [TestClient.Answer]) -> Int {
            answers.count { answer in code { _ = try answer.result?.get() } == .serviceBusy }
        }
        let stranger = try begin(house.newKey(), 20) { "name-\($0)" }
        let known = try begin(desk, 50) { _ in "ada" }
        house.cloud.network.run(for: .milliseconds(100))
        #expect(refused(stranger) == 19)
        #expect(known.count { $0.result == nil } == 2)
        // There is room for other strangers, and for other accounts' devices.
        let others = try begin(house.newKey(), 1) { _ in "bob" } + begin(other, 1) { _ in "bob" }
        house.cloud.network.run(for: .seconds(2))
        #expect(others.allSatisfy { answer in code { _ = try answer.result?.get() } == nil && answer.result != nil })
    }

    @Test func aRepeatOfASignInThatIsBeingCheckedIsNoSecondAttempt() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        house.cloud.network.offloadTime = .seconds(1)
        let key = try house.newKey()
        let id = house.newOperation()
        let request = house.signInRequest("ada", "wrong horse")
        // Other connections under the key, as after breaks of the line.
        let clients = try (0..<8).map { _ in house.cloud.makeClient(copying: try house.client(key)) }
        let answers = try clients.map { client in
            defer { house.cloud.network.run(for: .milliseconds(50)) }
            return try client.begin("SignIn", request, at: .requests(.identity), id: id)
        }
        house.cloud.network.run(for: .milliseconds(1200))
        let told = answers.compactMap { answer in code { _ = try answer.result?.get() } }
        #expect(told == [.wrongCredentials])
        let attempts = try house.transaction().first(SQL("SELECT attempts FROM attempts")) { $0.integer(0) }
        #expect(attempts == 1)
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
        let key = try house.newKey()
        let id = house.newOperation()
        let first = try house.signIn("ada", by: key, id: id)
        let second = try house.signIn("ada", by: key, id: id)
        #expect(first.refreshToken == second.refreshToken)
        #expect(first.device.deviceID == second.device.deviceID)
    }
}
