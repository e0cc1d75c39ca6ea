import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosIdentity

@Suite struct EnrolmentTests {
    @Test func theSameKeyWithTheSameAccountIsTheSameDevice() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key)
        let published = house.events.count
        #expect(try house.signIn("ada", by: key).device.deviceID == first.device.deviceID)
        #expect(house.events.count == published)
    }

    @Test func aKeyThatMovesToAnotherAccountEndsItsFirstEnrolment() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        try house.createAccount("bob")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key)
        let second = try house.signIn("bob", by: key)
        #expect(second.device.deviceID != first.device.deviceID)
        let event = try #require(house.events.last)
        let states = try house.deviceStates(in: event)
        // Of the new one nobody has to hear.
        #expect(states.map(\.deviceID) == [first.device.deviceID])
        #expect(states.map(\.revoked) == [true])
        #expect(code { _ = try house.refresh(first.refreshToken, by: key) } == .notAuthenticated)
        #expect(
            code { let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: key, token: first.accessToken.token) }
                == .deviceRevoked)
    }

    @Test func signingOutEndsTheDeviceButNotTheKey() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let first = try house.signIn("ada", by: key)
        let _: WireSignOutReply = try house.call(WireSignOut(), by: key, token: first.accessToken.token)
        let states = try house.deviceStates(in: try #require(house.events.last))
        #expect(states.map(\.revoked) == [true])
        #expect(code { _ = try house.refresh(first.refreshToken, by: key) } == .notAuthenticated)

        let second = try house.signIn("ada", by: key)
        #expect(second.device.deviceID != first.device.deviceID)
        let devices: WireListDevicesReply = try house.call(
            WireListDevices(), by: key, token: second.accessToken.token)
        #expect(devices.devices.map(\.deviceID) == [second.device.deviceID])
    }

    @Test func aRevokedKeyNeverSignsInAgain() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        try house.createAccount("bob")
        let lost = try house.newKey()
        let desk = try house.newKey()
        let lostReply = try house.signIn("ada", by: lost)
        let token = try house.signIn("ada", by: desk).accessToken.token
        var request = WireRevokeDevice()
        request.deviceID = lostReply.device.deviceID
        let reply: WireRevokeDeviceReply = try house.call(request, by: desk, token: token)
        #expect(reply.device.revoked)
        let states = try house.deviceStates(in: try #require(house.events.last))
        #expect(states.map(\.deviceID) == [lostReply.device.deviceID])
        #expect(states.map(\.revoked) == [true])

        #expect(code { _ = try house.signIn("ada", by: lost) } == .deviceRevoked)
        #expect(code { _ = try house.signIn("bob", by: lost) } == .deviceRevoked)
        #expect(code { _ = try house.refresh(lostReply.refreshToken, by: lost) } == .deviceRevoked)
        let whoAmI = {
            let _: WireWhoAmIReply = try house.call(
                WireWhoAmI(), by: lost, token: lostReply.accessToken.token)
        }
        #expect(code(whoAmI) == .deviceRevoked)
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == nil)
    }

    /// Else a device that was lost fills its account's journal.
    @Test func attemptsOfARevokedKeyAreCounted() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let (lost, desk) = (try house.newKey(), try house.newKey())
        var request = WireRevokeDevice()
        request.deviceID = try house.signIn("ada", by: lost).device.deviceID
        let token = try house.signIn("ada", by: desk).accessToken.token
        let _: WireRevokeDeviceReply = try house.call(request, by: desk, token: token)
        for _ in 0..<20 { #expect(code { _ = try house.signIn("ada", by: lost) } == .deviceRevoked) }
        house.cloud.network.run(for: .seconds(1))
        let journal: WireListAuditReply = try house.call(WireListAudit(), by: desk, token: token)
        #expect(journal.entries.count { $0.event == "sign-in.refused" } == 5)
    }

    @Test func anotherAccountsDeviceAnswersLikeNone() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        try house.createAccount("bob")
        let adas = try house.signIn("ada", by: house.newKey())
        let key = try house.newKey()
        let token = try house.signIn("bob", by: key).accessToken.token
        var request = WireRevokeDevice()
        request.deviceID = adas.device.deviceID
        #expect(
            code { let _: WireRevokeDeviceReply = try house.call(request, by: key, token: token) } == .unknownItem)
    }

    @Test func aRevocationDuringSignInWins() throws {
        let house = try IdentityHouse()
        try house.createAccount("ada")
        let key = try house.newKey()
        let desk = try house.newKey()
        let device = try house.signIn("ada", by: key).device.deviceID
        let token = try house.signIn("ada", by: desk).accessToken.token
        var signIn = WireSignIn()
        signIn.accountName = "ada"
        signIn.password = "correct horse"
        signIn.deviceName = "phone"
        house.cloud.network.offloadTime = .seconds(1)
        let attempt = try house.client(key).begin("SignIn", signIn, at: .requests(.identity))
        house.cloud.network.run(for: .milliseconds(100))
        var revoke = WireRevokeDevice()
        revoke.deviceID = device
        let _: WireRevokeDeviceReply = try house.call(revoke, by: desk, token: token)
        #expect(attempt.result == nil)
        house.cloud.network.run(for: .seconds(1))
        #expect(code { _ = try attempt.result?.get() } == .deviceRevoked)
    }
}
