import Crypto
import Foundation
import NephosBus
import NephosCore
import NephosSimulation
import Testing

@testable import NephosServiceKit

/// Tokens come from anybody: of all that look like one, those are taken that identity has signed, as it wrote them.
struct TokenDecodingTests {
    private let deployment: Deployment
    private let peer: Peer
    private let now = Timestamp(milliseconds: 1_800_000_000_000)

    init() throws {
        deployment = try Deployment(host: "127.0.0.1", basePort: 7000, transport: KeysOnly())
        peer = Peer(connection: 1, publicKey: try KeysOnly().makeKeyPair().publicKey)
    }

    private func token(_ number: Int) throws -> String {
        try TokenSigner(secrets: deployment.secrets[0]).sign(
            AccessClaims(
                deployment: deployment.roster.deployment, account: AccountID("acc_\(number)"),
                device: DeviceID("dev_one"),
                app: AppID("com.example.notes"),
                entitlements: Entitlements(
                    store: number.isMultiple(of: 2) ? StoreID("store") : nil, containers: ["one", "two"]),
                deviceKey: peer.publicKey, issued: now, expires: now.advanced(by: .seconds(900)),
                tokenID: "\(number)"))
    }

    /// What the verifier says of the token; nil: its bearer may come in.
    private func code(_ token: String, _ verifier: inout TokenVerifier) -> CloudError.Code? {
        do { _ = try verifier.verify(token, of: peer, now: now) } catch { return error.code }
        return nil
    }

    @Test func damagedTokensAreRefused() throws {
        var verifier = try TokenVerifier(roster: deployment.roster)
        let good = try (0..<20).map { try token($0) }
        for token in good { #expect(code(token, &verifier) == nil) }
        let known = Set(good.map { Array($0.utf8) })
        for bytes in BadBytes(3000, from: Array(known), seed: 1) where !known.contains(bytes) {
            #expect(code(String(decoding: bytes, as: UTF8.self), &verifier) == .notAuthenticated)
        }
    }

    /// Signed by identity, and all the same not what this version knows.
    @Test func damagedClaimsEndNothing() throws {
        var verifier = try TokenVerifier(roster: deployment.roster)
        let secret = try #require(deployment.secrets[0].tokenSigningKey.flatMap { Data(base64Encoded: $0) })
        let key = try Curve25519.Signing.PrivateKey(rawRepresentation: secret)
        let parts = try (0..<20).map { try token($0).split(separator: ".") }
        var claims = try parts.map { [UInt8](try #require(Base64URL.decode($0[1]))) }
        // That ends when no clock can say it any more.
        let endless = String(decoding: claims[0], as: UTF8.self)
            .replacing("\(now.milliseconds / 1000 + 900)", with: "\(UInt64.max)")
        claims += [Array(endless.utf8), Array(endless.utf8)]
        var codes: [CloudError.Code?: Int] = [:]
        for bytes in BadBytes(400, from: claims, seed: 2) {
            let signed = parts[0][0] + "." + Base64URL.encode(bytes)
            let signature = try key.signature(for: Data(signed.utf8))
            codes[code(signed + "." + Base64URL.encode(signature), &verifier), default: 0] += 1
        }
        #expect(Set(codes.keys).isSubset(of: [nil, .notAuthenticated, .tokenNotBound, .tokenExpired]))
        #expect(codes.values.reduce(0, +) == 400 && codes[.notAuthenticated] ?? 0 > 100)
    }
}
