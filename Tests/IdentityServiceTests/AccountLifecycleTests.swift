import NephosBus
import NephosCore
import NephosServiceKit
import NephosWire
import Testing

@testable import NephosIdentity

/// Passwords, devices and the journal.
@Suite struct AccountLifecycleTests {
    private let house: IdentityHouse
    private let key: PublicKey
    private let session: WireSignInReply

    init() throws {
        house = try IdentityHouse()
        try house.createAccount("ada")
        key = try house.newKey()
        session = try house.signIn("ada", by: key)
    }

    private func changePassword(
        _ current: String, _ new: String, signingOut: Bool = false
    ) throws -> WireChangePasswordReply {
        var request = WireChangePassword()
        request.currentPassword = current
        request.newPassword = new
        request.signOutOthers = signingOut
        return try house.call(request, by: key, token: session.accessToken.token)
    }

    private func journal(limit: UInt32 = 0, before: UInt64 = 0) throws -> [WireAuditEntry] {
        var request = WireListAudit()
        request.limit = limit
        request.before = before
        return try house.call(request, by: key, token: session.accessToken.token, replying: WireListAuditReply.self)
            .entries
    }

    @Test func aPasswordIsChangedByWhoKnowsThePresentOne() throws {
        #expect(code { _ = try changePassword("wrong", "a new password") } == .wrongCredentials)
        #expect(code { _ = try changePassword("correct horse", "short") } == .invalidArguments)
        _ = try changePassword("correct horse", "a new password")
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .wrongCredentials)
        _ = try house.signIn("ada", "a new password", by: house.newKey())
        #expect(try journal().map(\.event).contains("password.changed"))
        #expect(try journal().map(\.event).contains("password.refused"))
    }

    @Test func aPasswordChangeIsPaidForByWhatItTakes() throws {
        var changes = 0
        while changes < 50,
            code({ _ = try changePassword("correct horse", "correct horse") }) != .requestRateLimited
        { changes += 1 }
        #expect((5...6).contains(changes))
    }

    @Test func guessingThePresentPasswordIsSlowedDown() throws {
        for _ in 0..<5 { #expect(code { _ = try changePassword("wrong", "a new password") } == .wrongCredentials) }
        #expect(code { _ = try changePassword("correct horse", "a new password") } == .requestRateLimited)
        house.now = house.now.advanced(by: .seconds(2))
        _ = try changePassword("correct horse", "a new password")
    }

    @Test func aPasswordChangeCanSignEveryOtherDeviceOut() throws {
        let other = try house.newKey()
        let second = try house.signIn("ada", by: other)
        #expect(try changePassword("correct horse", "a new password", signingOut: true).signedOut == 1)
        #expect(code { _ = try house.refresh(second.refreshToken, by: other) } == .notAuthenticated)
        #expect(
            code {
                let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: other, token: second.accessToken.token)
            } == .deviceRevoked)
        _ = try house.refresh(session.refreshToken, by: key)
    }

    @Test func theOperatorSetsAPasswordWithoutKnowingOne() throws {
        var request = WireChangePassword()
        request.accountName = "ADA"
        request.newPassword = "from the operator"
        let _: WireChangePasswordReply = try house.call(request, by: house.operatorKey)
        _ = try house.signIn("ada", "from the operator", by: house.newKey())
        let entry = try #require(try journal().first { $0.event == "password.changed" })
        #expect(entry.byOperator && entry.deviceID.isEmpty)
        // A device cannot speak for an account by its name.
        #expect(
            code {
                let _: WireChangePasswordReply = try house.call(request, by: key, token: session.accessToken.token)
            } == .permissionFailure)
    }

    @Test func anOldHashIsRenewedAtTheNextSignIn() throws {
        var costly = IdentityConfiguration.cheapPasswords
        costly.scryptCost.rounds = 1 << 5
        let store = AccountStore(transaction: house.transaction())
        let before = try #require(try store.account(named: "ada"))
        #expect(before.password.cost.rounds == 1 << 4)
        try house.restart(costly)
        _ = try house.signIn("ada", by: house.newKey())
        let after = try #require(try AccountStore(transaction: house.transaction()).account(named: "ada"))
        #expect(after.password.cost.rounds == 1 << 5)
        _ = try house.signIn("ada", by: house.newKey())
    }

    @Test func aDeviceIsRenamed() throws {
        var request = WireRenameDevice()
        request.deviceID = session.device.deviceID
        request.name = "Kitchen"
        let reply: WireRenameDeviceReply = try house.call(request, by: key, token: session.accessToken.token)
        #expect(reply.device.name == "Kitchen")
        let entry = try #require(try journal().first)
        #expect(entry.event == "device.renamed" && entry.details["former_name"] == "Desk")
        let unseen = ["\u{200D}", "\u{200E}", "\u{FEFF}", "\u{E0041}", "\u{AD}", "\u{3164}"].map { "a\($0)b" }
        // Nothing is seen of these, or nothing of what they have that others have not.
        let blank = [
            "", " ", "\u{2800}", "\u{A0} \u{3000}", "\u{FE0F}", "Mac\u{FE0F}", "1\u{FE0E}", "👩‍💻\u{FE0F}\u{FE0F}",
        ]
        for name in unseen + blank + ["a\nb", "\u{1B}[31mred", "abc\u{202E}cba", String(repeating: "n", count: 257)] {
            request.name = name
            #expect(
                code {
                    let _: WireRenameDeviceReply = try house.call(request, by: key, token: session.accessToken.token)
                } == .invalidArguments)
        }
        for name in ["👩‍💻 Büro", "❤️ Mac ©️", "1️⃣", "☎︎", "⠓⠊⠀⠁"] {
            request.name = name
            let _: WireRenameDeviceReply = try house.call(request, by: key, token: session.accessToken.token)
        }
    }

    @Test func aDeviceThatSignsInNeedsAName() throws {
        var request = house.signInRequest("ada")
        request.deviceName = ""
        let guest = try house.newKey()
        let error = failure { let _: WireSignInReply = try house.call(request, by: guest) }
        #expect(error?.code == .invalidArguments && error?.message == "A device needs a name.")
    }

    @Test func whatADeviceSaysOfItselfCanBeSeen() throws {
        for unseen in ["\u{200D}", "\u{200E}", "\u{FEFF}", "\u{E0041}", "\u{AD}", "\u{1B}"] {
            for field in [\WireSignIn.deviceName, \WireSignIn.deviceModel, \WireSignIn.devicePlatform] {
                var request = house.signInRequest("ada")
                request[keyPath: field] = "a\(unseen)b"
                let guest = try house.newKey()
                #expect(code { let _: WireSignInReply = try house.call(request, by: guest) } == .invalidArguments)
            }
        }
    }

    @Test func theJournalTellsWhatHappened() throws {
        _ = code { _ = try house.signIn("ada", "wrong", by: house.newKey()) }
        let phone = try house.newKey()
        let second = try house.signIn("ada", by: phone)
        _ = try house.refresh(second.refreshToken, by: phone)
        // A used refresh token comes back: the device ends, and the person can read of it.
        _ = code { _ = try house.refresh(second.refreshToken, by: phone) }
        let devices: WireListDevicesReply = try house.call(
            WireListDevices(), by: key, token: session.accessToken.token)
        #expect(devices.devices.filter(\.revoked).map(\.deviceID) == [second.device.deviceID])
        _ = code { _ = try house.signIn("ada", by: phone) }
        #expect(
            try journal().map(\.event) == [
                "sign-in.refused", "token.reused", "sign-in", "sign-in.refused", "sign-in",
                "account.created",
            ])
        #expect(try journal(limit: 2).count == 2)
        #expect(try journal(before: 2).map(\.event) == ["account.created"])
        #expect(try journal().first?.details["reason"] == "device revoked")
    }

    @Test func aSignInRefusedForAnUnknownNameIsInNobodysJournal() throws {
        let before = try journal().count
        _ = code { _ = try house.signIn("nobody", by: house.newKey()) }
        #expect(try journal().count == before)
    }

    @Test func theJournalIsBounded() throws {
        let account = AccountID(session.accountID)
        for number in 0..<AuditJournal.entriesMax + 20 {
            try AuditJournal(transaction: house.transaction()).record(
                .signOut, of: account, by: .stranger("\(number)"), at: house.now)
        }
        let entries = try journal(limit: 5000)
        #expect(entries.count == AuditJournal.entriesMax)
        #expect(entries.first?.deviceName == "\(AuditJournal.entriesMax + 19)")
    }

    @Test func aPlanIsChangedAndEveryoneConcernedHearsOfIt() throws {
        var plan = WireSavePlan()
        plan.plan.planID = "family"
        plan.plan.sizeBytes = 200_000_000_000
        let _: WireSavePlanReply = try house.call(plan, by: house.operatorKey)
        var set = WireSetPlan()
        set.planID = "family"
        set.accountName = "ada"
        let _: WireSetPlanReply = try house.call(set, by: house.operatorKey)
        let storage: WireReadStorageReply = try house.call(
            WireReadStorage(), by: key, token: session.accessToken.token)
        #expect(storage.plan.planID == "family" && storage.plan.sizeBytes == 200_000_000_000)
        #expect(try journal().first?.details["plan"] == "family")
        set.planID = "unknown"
        #expect(
            code { let _: WireSetPlanReply = try house.call(set, by: house.operatorKey) } == .unknownItem)
    }
}
