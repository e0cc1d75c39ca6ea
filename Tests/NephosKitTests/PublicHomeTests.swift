import Foundation
import NephosBus
import NephosCore
import NephosWire
import Testing

@testable import NephosKit

/// A home that begins to read a public database without an account.
@Suite struct PublicHomeTests {
    private static let identity = SessionRecord.Service(
        service: "identity", publicKey: Z85.encode(Array(repeating: 1, count: 32)), requests: ["tcp://identity"],
        subscriptions: [])

    private func issuePublicTokens(_ cloud: ScriptedCloud) {
        cloud.overrides["IssuePublicToken"] = { _ in
            var reply = WireIssuePublicTokenReply()
            reply.accessToken.token = "public"
            reply.accessToken.lifetimeMilliseconds = 3_600_000
            reply.accessToken.app.appID = "app.one"
            return .success(Frame(encoding: reply))
        }
    }

    /// While the server is asked for its token.
    @Test(arguments: [false, true])
    func itTakesNoAccountsPlaceThatHasSignedInMeanwhile(isOtherProcess: Bool) throws {
        let name = "nephos-public-\(UUID().uuidString)"
        let secrets = MemorySecrets()
        let device = try Device(local: try LocalStore(inMemory: name), secrets: secrets)
        issuePublicTokens(device.cloud)
        let other = try Device(
            cloud: device.cloud, name: "other", local: try LocalStore(inMemory: name),
            secrets: MemorySecrets(sharing: secrets))
        let signing = isOtherProcess ? other : device
        var (signedIn, result): (Result<SessionRecord, CloudError>?, Result<SessionRecord, CloudError>?)
        signing.engine.signIn(
            SignInRequest(identity: Self.identity, accountName: "anna", password: "", deviceName: "here")
        ) { signedIn = $0 }
        device.engine.usePublic(Self.identity, appToken: "token", timeout: .seconds(10)) { result = $0 }
        device.network.run(for: .seconds(1))
        #expect(try signedIn?.get().accountName == "anna")
        let refusal = #expect(throws: CloudError.self) { try #require(result).get() }
        #expect(refusal?.code == .constraintViolation && refusal?.details["account"] == "anna")
        device.engine.checkForeign()
        let session = try device.local.read { try Facts($0).session }
        #expect(session?.accountID == AccountID("acc_one") && session?.signedIn == true)
        #expect(device.engine.session == session)
        #expect(try signing.engine.loadSecrets().hasTokens)
    }

    @Test func whoHasSignedOutIsToldThatItsCopyIsGone() throws {
        let device = try Device.ready()
        issuePublicTokens(device.cloud)
        device.engine.signOut { _ in }
        device.network.run(for: .seconds(1))
        device.accountEvents = []
        device.engine.usePublic(Self.identity, appToken: "token", timeout: .seconds(10)) { _ in }
        device.network.run(for: .seconds(1))
        #expect(device.engine.session?.isPublic == true)
        #expect(device.accountEvents == [nil])
        #expect(device.changes.last?.reason == .accountChange)
    }
}
