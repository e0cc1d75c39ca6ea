import Bus
import Core
import Crypto
import Foundation
import ServiceKit
import Testing
import Wire

/// Who is let in with an access token.
struct TokenTests {
    let house: TestHouse
    let keys: KeyPair
    let client: RequestClient

    init() throws {
        house = try TestHouse()
        keys = try KeysOnly().makeKeyPair()
        client = try house.client(keys)
    }

    private func code(_ token: String) -> CloudError.Code? {
        guard let result = client.ask(WireWhoAmI(), on: house.bus, token: token) else { return .networkFailure }
        return result.code
    }

    @Test func validTokenNamesTheCaller() throws {
        let token = try house.token(for: keys)
        // The second comes from what the host remembers of the connection.
        for _ in 0..<2 {
            let body = try #require(client.ask(WireWhoAmI(), on: house.bus, token: token)).get()
            #expect(try body.decode(WireWhoAmIReply.self).accountID == "acc_one")
        }
    }

    @Test func noTokenIsRefused() { #expect(code("") == .notAuthenticated) }

    @Test func expiredTokenIsToldApart() throws {
        #expect(code(try house.token(for: keys, issued: .seconds(-1000))) == .tokenExpired)
        let token = try house.token(for: keys)
        #expect(code(token) == nil)
        house.bus.run(for: .seconds(901))
        #expect(code(token) == .tokenExpired)
    }

    @Test func tokenOfTheFutureIsRefusedBeyondTheTolerance() throws {
        #expect(code(try house.token(for: keys, issued: .seconds(20))) == nil)
        #expect(code(try house.token(for: keys, issued: .seconds(60))) == .notAuthenticated)
    }

    @Test func tokenOfAnotherDeploymentIsRefused() throws {
        #expect(code(try house.token(for: keys, deployment: "dep_other")) == .notAuthenticated)
    }

    @Test func tokenOfAnotherDeviceIsRefused() throws {
        #expect(code(try house.token(for: try KeysOnly().makeKeyPair())) == .tokenNotBound)
    }

    @Test func tokenRememberedForOneConnectionIsNotValidOnAnother() throws {
        let token = try house.token(for: keys)
        #expect(code(token) == nil)
        let thief = try house.client()
        #expect(thief.ask(WireWhoAmI(), on: house.bus, token: token)?.code == .tokenNotBound)
    }

    @Test func tokenSignedByAnyoneElseIsRefused() throws {
        let forger = try Deployment(host: "127.0.0.1", basePort: 7000, transport: KeysOnly())
        var secrets = forger.secrets[0]
        secrets.tokenSigningKeyID = house.roster.tokenKeys.keys.first
        let token = try house.token(for: keys, signer: TokenSigner(secrets: secrets))
        #expect(code(token) == .notAuthenticated)
    }

    @Test func changedClaimsAreRefused() throws {
        let parts = try house.token(for: keys).split(separator: ".")
        let other = try house.token(for: keys, device: "dev_two").split(separator: ".")
        #expect(code("\(parts[0]).\(other[1]).\(parts[2])") == .notAuthenticated)
    }

    @Test(arguments: ["none", "HS256", "eddsa", ""])
    func otherAlgorithmIsRefused(_ algorithm: String) throws {
        let parts = try house.token(for: keys).split(separator: ".")
        let kid = try #require(house.roster.tokenKeys.keys.first)
        let header = Data(#"{"alg":"\#(algorithm)","kid":"\#(kid)"}"#.utf8).base64EncodedString()
            .replacing("=", with: "")
        #expect(code("\(header).\(parts[1]).") == .notAuthenticated)
        #expect(code("\(header).\(parts[1]).\(parts[2])") == .notAuthenticated)
    }

    @Test(arguments: ["a", "..", "a.b.c", "....", String(repeating: "x", count: 10_000)])
    func garbageIsRefused(_ token: String) { #expect(code(token) == .notAuthenticated) }

    @Test func revokedDeviceIsRefusedAtOnceAndAfterARestart() throws {
        let token = try house.token(for: keys)
        #expect(code(token) == nil)
        var request = WireRevokeDevice()
        request.deviceID = "dev_one"
        let administration = try house.client(house.operatorKeys)
        _ = try #require(administration.ask(request, on: house.bus)).get()
        #expect(code(token) == .deviceRevoked)
        house.identityHost.close()
        let again = try ServiceHost(
            loop: house.bus, service: NotebookService(.identity), roster: house.roster,
            secrets: house.identityHost.secrets, engine: house.identityEngine, logger: .quiet)
        #expect(code(token) == .deviceRevoked)
        again.close()
    }
}
