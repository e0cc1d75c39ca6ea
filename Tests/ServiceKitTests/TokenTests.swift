import Crypto
import Foundation
import NephosBus
import NephosCore
import NephosWire
import Testing

@testable import NephosServiceKit

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

    @Test func aServiceWhoseClockIsBehindIdentitysTakesItsTokens() throws {
        #expect(code(try house.token(for: keys, issued: .seconds(20))) == nil)
        #expect(code(try house.token(for: keys, issued: .seconds(3600))) == nil)
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

    /// Asks on a connection of its own who the bearer is, once for each envelope.
    private func codes(
        _ keys: KeyPair, _ make: [(OperationID) -> RequestEnvelope]
    ) throws -> [CloudError.Code?] {
        var codes: [CloudError.Code?] = []
        let entry = try house.roster.entry(of: .identity)
        let options = RequestSocketOptions(
            endpoints: [entry.requests], serverKey: try entry.key, keys: keys)
        let socket = try house.bus.makeRequestSocket(options) { messages in
            for message in messages {
                guard let reply = try? ReplyEnvelope(decoding: message), reply.id != nil else { continue }
                if case .failure(let error) = reply.result { codes.append(error.code) } else { codes.append(nil) }
            }
        }
        defer { socket.close() }
        for envelope in make {
            _ = socket.send(envelope(OperationID(at: house.bus.clock.now)).encoded())
            house.bus.settle()
        }
        return codes
    }

    private func whoAmI(token: String = "", digestOf digested: String? = nil) -> (OperationID) -> RequestEnvelope {
        {
            RequestEnvelope(
                method: "WhoAmI", id: $0, accessToken: token, accessTokenDigest: digested.map { TokenDigest(of: $0) },
                body: Frame([]))
        }
    }

    @Test func aDigestStandsForATokenThatTheConnectionHasCarried() throws {
        let token = try house.token(for: keys)
        let by = whoAmI(digestOf: token)
        #expect(try codes(keys, [by, whoAmI(token: token), by, by]) == [.accessTokenUnknown, nil, nil, nil])
        // Of another token, or of one that was refused.
        let other = try house.token(for: keys, issued: .seconds(1))
        let late = try house.token(for: keys, issued: .seconds(-1000))
        #expect(
            try codes(
                keys, [whoAmI(token: token), whoAmI(digestOf: other), whoAmI(token: late), whoAmI(digestOf: late)])
                == [nil, .accessTokenUnknown, .tokenExpired, .accessTokenUnknown])
    }

    @Test func aDigestIsWorthNothingOnAnotherConnection() throws {
        let token = try house.token(for: keys)
        #expect(code(token) == nil)
        let thief = try KeysOnly().makeKeyPair()
        let thiefsOwn = try house.token(for: thief)
        #expect(
            try codes(thief, [whoAmI(digestOf: token), whoAmI(token: thiefsOwn), whoAmI(digestOf: token)])
                == [.accessTokenUnknown, nil, .accessTokenUnknown])
        #expect(try codes(keys, [whoAmI(digestOf: token)]) == [.accessTokenUnknown])
    }

    /// A service's sockets number their connections; should a number come again, it is another key's.
    @Test func whatAConnectionCarriedIsWorthNothingUnderAnotherKeyOfTheSameNumber() throws {
        var verifier = try TokenVerifier(roster: house.roster)
        let thief = try KeysOnly().makeKeyPair().publicKey
        let token = try house.token(for: keys)
        let now = house.bus.clock.now
        func code(_ key: PublicKey, _ envelope: RequestEnvelope) -> CloudError.Code? {
            do { _ = try verifier.verify(envelope, of: Peer(connection: 7, publicKey: key), now: now) } catch {
                return error.code
            }
            return nil
        }
        let id = OperationID(at: now)
        let (byToken, byDigest) = (whoAmI(token: token)(id), whoAmI(digestOf: token)(id))
        #expect(code(keys.publicKey, byToken) == nil && code(keys.publicKey, byDigest) == nil)
        #expect(code(thief, byDigest) == .accessTokenUnknown)
        #expect(code(thief, byToken) == .tokenNotBound)
        #expect(code(keys.publicKey, byDigest) == nil)
    }

    @Test func aDigestExpiresWithItsTokenAndGoesWithItsDevice() throws {
        let token = try house.token(for: keys)
        #expect(code(token) == nil && code(token) == nil)
        house.bus.run(for: .seconds(901))
        #expect(code(token) == .tokenExpired)
        let fresh = try house.token(for: keys)
        #expect(code(fresh) == nil && code(fresh) == nil)
        var request = WireRevokeDevice()
        request.deviceID = "dev_one"
        _ = try #require(try house.client(house.operatorKeys).ask(request, on: house.bus)).get()
        // The client, told that its digest is unknown, shows the token.
        #expect(code(fresh) == .deviceRevoked)
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

    /// To Swift the Kelvin sign and the letter are one text, also where a connection's tokens are remembered.
    @Test func aTokenThatOnlyLooksLikeOneThatWasCarriedIsRefused() throws {
        var token = try house.token(for: keys)
        while !token.contains("K") {
            token = try house.token(for: keys, device: "dev_\(token.count)\(token.suffix(5))")
        }
        let alike = token.replacing("K", with: "\u{212a}")
        #expect(alike == token)
        #expect(try codes(keys, [whoAmI(token: token), whoAmI(token: alike)]) == [nil, .notAuthenticated])
    }

    /// The last character stands for two bits; its other four say nothing, and decoders drop them.
    @Test func aTokenHasOneSpelling() throws {
        let token = try house.token(for: keys)
        let alphabet = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
        let last = try #require(token.last.flatMap { alphabet.firstIndex(of: $0) })
        #expect(last & 15 == 0)
        for other in last + 1..<last + 16 {
            #expect(code(token.dropLast() + String(alphabet[other])) == .notAuthenticated)
        }
        for more in ["=", "==", "A", " ", "\n"] { #expect(code(token + more) == .notAuthenticated) }
        let standard = token.replacing("-", with: "+").replacing("_", with: "/")
        #expect(standard == token || code(standard) == .notAuthenticated)
        #expect(code(token) == nil)
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
            loop: house.bus.loop("again"), service: NotebookService(.identity), roster: house.roster,
            secrets: house.identityHost.secrets, engine: house.identityEngine, logger: .quiet)
        house.bus.settle()
        #expect(code(token) == .deviceRevoked)
        again.close()
    }
}
