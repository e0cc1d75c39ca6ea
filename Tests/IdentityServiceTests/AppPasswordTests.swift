import NephosCore
import NephosSimulation
import NephosWire
import SwiftProtobuf
import Testing

@testable import NephosIdentity

@Suite struct AppPasswordTests {
    private let house: IdentityHouse
    private let account: AccountID
    private let key: PublicKey
    private let token: String

    init() throws {
        house = try IdentityHouse()
        account = try house.createAccount("ada")
        key = try house.newKey()
        token = try house.signIn("ada", by: key).accessToken.token
    }

    private func create(
        _ name: String = "Phone", id: OperationID? = nil
    ) throws -> (password: WireAppPassword, secret: String) {
        var request = WireCreateAppPassword()
        request.name = name
        request.scope = .webdav
        let reply: WireCreateAppPasswordReply = try house.call(request, by: key, token: token, id: id)
        return (reply.appPassword, reply.secret)
    }

    private func list() throws -> [WireAppPassword] {
        try house.call(WireListAppPasswords(), by: key, token: token, replying: WireListAppPasswordsReply.self)
            .appPasswords
    }

    private func revoke(_ id: String, by key: PublicKey? = nil, token: String? = nil) throws {
        var request = WireRevokeAppPassword()
        request.passwordID = id
        let _: WireRevokeAppPasswordReply = try house.call(request, by: key ?? self.key, token: token ?? self.token)
    }

    private func devices() throws -> [WireDevice] {
        try house.call(WireListDevices(), by: key, token: token, replying: WireListDevicesReply.self).devices
    }

    @Test func aProgramSignsInForDocumentsAlone() throws {
        let (password, secret) = try create()
        #expect(try secret.count == 29 && list() == [password] && password.lastUsedAt == 0)
        let program = try house.newKey()
        let reply = try house.signIn("ada", secret.lowercased().replacing("-", with: " "), by: program)
        #expect(reply.accountID == account.rawValue && reply.accessToken.app.capabilities == [.documents])
        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: program, token: reply.accessToken.token)
        #expect(me.device.appPassword == "Phone" && me.app.capabilities == [.documents])
        #expect(try devices().map(\.appPassword) == ["", "Phone"])
        #expect(try list().first?.lastUsedAt ?? 0 > 0)

        // Of tokens that it gets later the same is true, for any app.
        let renewed = try house.refresh(reply.refreshToken, by: program)
        #expect(renewed.accessToken.app.capabilities == [.documents])
        let other: WireIssueTokenReply = try house.call(
            WireIssueToken(), by: program, token: renewed.accessToken.token)
        #expect(other.accessToken.app.capabilities == [.documents])
    }

    /// A token that was given out keeps to its scope when its app changes.
    @Test func aScopeDoesNotGrowWithItsApp() throws {
        let (_, secret) = try create()
        let program = try house.newKey()
        var create = WireCreateApp()
        create.app.appID = "TEST.app"
        let _: WireCreateAppReply = try house.call(create, by: house.operatorKey)
        let narrow = try house.signIn("ada", secret, by: program, app: "TEST.app").accessToken.token
        var request = WireUpdateApp()
        request.appID = "TEST.app"
        request.name = "Renamed"
        let _: WireUpdateAppReply = try house.call(request, by: house.operatorKey)
        let me: WireWhoAmIReply = try house.call(WireWhoAmI(), by: program, token: narrow)
        #expect(me.app.name == "Renamed" && me.app.capabilities == [.documents])
    }

    @Test func aProgramCannotManageTheAccount() throws {
        let (password, secret) = try create()
        let program = try house.newKey()
        let reply = try house.signIn("ada", secret, by: program)
        let narrow = reply.accessToken.token
        func refused<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
            _ request: Request, _ type: Reply.Type
        ) {
            #expect(
                code { _ = try house.call(request, by: program, token: narrow, replying: type) } == .permissionFailure,
                "\(Request.protoMessageName)")
        }
        refused(WireListDevices(), WireListDevicesReply.self)
        refused(WireListAudit(), WireListAuditReply.self)
        refused(WireAllowSignIn(), WireAllowSignInReply.self)
        refused(WireListAppPasswords(), WireListAppPasswordsReply.self)
        var create = WireCreateAppPassword()
        (create.name, create.scope) = ("Another", .webdav)
        refused(create, WireCreateAppPasswordReply.self)
        var revokeOwn = WireRevokeAppPassword()
        revokeOwn.passwordID = password.passwordID
        refused(revokeOwn, WireRevokeAppPasswordReply.self)
        var revoke = WireRevokeDevice()
        revoke.deviceID = try devices().first?.deviceID ?? ""
        refused(revoke, WireRevokeDeviceReply.self)
        var rename = WireRenameDevice()
        (rename.deviceID, rename.name) = (reply.device.deviceID, "Other")
        refused(rename, WireRenameDeviceReply.self)
        var change = WireChangePassword()
        (change.currentPassword, change.newPassword) = ("correct horse", "battery staple")
        refused(change, WireChangePasswordReply.self)
        var close = WireCloseAccount()
        close.password = "correct horse"
        refused(close, WireCloseAccountReply.self)
        // What it needs it may.
        let _: WireReadStorageReply = try house.call(WireReadStorage(), by: program, token: narrow)
        let _: WireSignOutReply = try house.call(WireSignOut(), by: program, token: narrow)
    }

    @Test func aRevokedOneEndsItsDevices() throws {
        let (password, secret) = try create()
        let (_, otherSecret) = try create("Laptop")
        let (program, other) = (try house.newKey(), try house.newKey())
        let reply = try house.signIn("ada", secret, by: program)
        let otherReply = try house.signIn("ada", otherSecret, by: other)
        try revoke(password.passwordID)
        #expect(
            code {
                let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: program, token: reply.accessToken.token)
            } == .deviceRevoked)
        #expect(code { _ = try house.refresh(reply.refreshToken, by: program) } == .deviceRevoked)
        #expect(code { _ = try house.signIn("ada", secret, by: house.newKey()) } == .wrongCredentials)
        let states = try house.events.flatMap { try house.deviceStates(in: $0) }
        #expect(states.last?.deviceID == reply.device.deviceID)
        #expect(code { try revoke(password.passwordID) } == .unknownItem)
        // The others stay.
        let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: other, token: otherReply.accessToken.token)
        #expect(try list().map(\.name) == ["Laptop"])
    }

    @Test func whoGuessesHoldsNoProgramUp() throws {
        let (_, secret) = try create()
        // A wrong app password is a guess as any other.
        for _ in 0..<5 {
            #expect(
                code { _ = try house.signIn("ada", String(repeating: "7", count: 26), by: house.newKey()) }
                    == .wrongCredentials)
        }
        #expect(code { _ = try house.signIn("ada", by: house.newKey()) } == .requestRateLimited)
        #expect(code { _ = try house.signIn("ada", secret, by: house.newKey()) } == nil)
    }

    /// Else its program would sign in again at once.
    @Test func itIsRevokedWithADeviceOfIt() throws {
        let (password, secret) = try create()
        let program = try house.newKey()
        let signedIn = try house.signIn("ada", secret, by: program)
        let other = try create("Laptop")
        var request = WireRevokeDevice()
        request.deviceID = signedIn.device.deviceID
        let _: WireRevokeDeviceReply = try house.call(request, by: key, token: token)
        #expect(try list() == [other.password])
        #expect(code { _ = try house.signIn("ada", secret, by: house.newKey()) } == .wrongCredentials, "\(password)")
        #expect(code { _ = try house.signIn("ada", other.secret, by: house.newKey()) } == nil)
    }

    /// Request ids are no secrets.
    @Test func anotherAccountsRepeatGetsNoSecret() throws {
        let id = house.newOperation()
        let made = try create(id: id)
        try house.createAccount("mallory")
        let thief = try house.newKey()
        let token = try house.signIn("mallory", by: thief).accessToken.token
        var request = WireCreateAppPassword()
        request.name = "Phone"
        request.scope = .webdav
        #expect(
            code {
                let _: WireCreateAppPasswordReply = try house.call(request, by: thief, token: token, id: id)
            } == .invalidArguments)
        #expect(try list() == [made.password])
    }

    @Test func itIsOfOneAccount() throws {
        let (password, secret) = try create()
        try house.createAccount("bob")
        #expect(code { _ = try house.signIn("bob", secret, by: house.newKey()) } == .wrongCredentials)
        let bob = try house.newKey()
        let token = try house.signIn("bob", by: bob).accessToken.token
        #expect(code { try revoke(password.passwordID, by: bob, token: token) } == .unknownItem)
        #expect(try list() == [password])
    }

    @Test func aRepeatIsAnsweredAsTheFirstWas() throws {
        let id = house.newOperation()
        let first = try create(id: id)
        #expect(try create(id: id) == first)
        #expect(code { _ = try create() } == .alreadyExists)
        for number in 1..<AppPassword.ofAccountMax { _ = try create("\(number)") }
        #expect(code { _ = try create("one more") } == .limitExceeded)
        #expect(code { _ = try create("") } == .invalidArguments)
    }

    /// With the account's own password the key is a device of its own.
    @Test func aKeyIsAnotherDeviceWithAnotherPassword() throws {
        let (_, secret) = try create()
        let program = try house.newKey()
        let narrow = try house.signIn("ada", secret, by: program)
        #expect(try house.signIn("ada", secret, by: program).device.deviceID == narrow.device.deviceID)
        let full = try house.signIn("ada", by: program)
        #expect(full.device.deviceID != narrow.device.deviceID)
        #expect(
            code {
                let _: WireWhoAmIReply = try house.call(WireWhoAmI(), by: program, token: narrow.accessToken.token)
            } != nil)
    }

    @Test func itGoesWithAllThatIsSignedOut() throws {
        let (_, secret) = try create()
        _ = try house.signIn("ada", secret, by: house.newKey())
        var request = WireChangePassword()
        request.currentPassword = "correct horse"
        request.newPassword = "battery staple"
        request.signOutOthers = true
        let reply: WireChangePasswordReply = try house.call(request, by: key, token: token)
        #expect(try reply.signedOut == 1 && list() == [])
        #expect(code { _ = try house.signIn("ada", secret, by: house.newKey()) } == .wrongCredentials)
    }
}
