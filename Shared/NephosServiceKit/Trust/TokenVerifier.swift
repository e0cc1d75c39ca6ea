internal import Crypto
internal import Foundation
internal import NephosBus
public import NephosCore

/// Verifies access tokens, and remembers what it has verified for as long as
/// connection and token stay the same.
struct TokenVerifier {
    /// Tokens longer than this are refused unread.
    static let bytesMax = 4096
    /// Tokens remembered for one connection: a device uses one for each app.
    private static let tokensPerConnection = 4

    private struct Verified {
        var token: String
        var digest: TokenDigest
        var caller: Caller
    }

    /// What a connection has carried.
    private struct Connection {
        /// Whose it is. Should its number come again for another key, nothing of this is that one's.
        var key: PublicKey
        var tokens: [Verified] = []
    }

    private let deployment: String
    private(set) var directory = Directory()

    // Two generations instead of an order of use: when the young one is full,
    // the old one is forgotten. Who is still there is promoted at its next request.
    private let generationMax: Int
    private var young: [UInt64: Connection] = [:]
    private var old: [UInt64: Connection] = [:]

    /// - Throws: ``CloudError`` `.configurationInvalid` for a token key that is not one.
    init(roster: Roster, rememberedConnectionsMax: Int = 20_000) throws(CloudError) {
        deployment = roster.deployment
        generationMax = max(1, rememberedConnectionsMax / 2)
        for (id, text) in roster.tokenKeys {
            guard let raw = Data(base64Encoded: text),
                let key = try? Curve25519.Signing.PublicKey(rawRepresentation: raw)
            else {
                throw CloudError(
                    .configurationInvalid, "A token key in the roster is not an Ed25519 key in base64.",
                    details: ["key_id": id])
            }
            directory.learn(.tokenKey(DirectoryFact.TokenKey(id: id, key: key)))
        }
    }

    /// Heeds from now on what identity has said.
    mutating func learn(_ fact: DirectoryFact) {
        directory.learn(fact)
        // Whom it concerns is looked for here, which is rare, and not with every request.
        switch fact {
        case .ended(let device, _): forget { $0.caller.device == device }
        case .account(let account, .locked, _), .account(let account, .closed, _):
            forget { $0.caller.account == account }
        case .app(let app, _): forget { $0.caller.app == app }
        case .appTokenEnded(let token): forget { $0.caller.appToken == token }
        case .tokenKey(let key): if key.retires != nil { forget { $0.caller.keyID == key.id } }
        case .account(_, .active, _), .forgotten, .container, .recall: break
        }
    }

    private mutating func forget(where concerns: (Verified) -> Bool) {
        for (number, connection) in young where connection.tokens.contains(where: concerns) { young[number] = nil }
        for (number, connection) in old where connection.tokens.contains(where: concerns) { old[number] = nil }
    }

    /// Who the request's bearer is, by its token or by the digest of one that this connection has carried.
    ///
    /// - Throws: as ``verify(_:of:now:)``, or ``CloudError`` `.accessTokenUnknown`.
    mutating func verify(
        _ envelope: RequestEnvelope, of peer: Peer, now: Timestamp
    ) throws(CloudError) -> Caller {
        guard envelope.accessToken.isEmpty, let digest = envelope.accessTokenDigest else {
            return try verify(envelope.accessToken, of: peer, now: now)
        }
        guard let known = remembered(peer)?.tokens.first(where: { $0.digest == digest }) else {
            throw CloudError(
                .accessTokenUnknown, "This connection has not carried that access token. Send the token itself.")
        }
        return try caller(of: known, peer, now: now)
    }

    /// Who the token's bearer is.
    ///
    /// - Throws: ``CloudError`` `.notAuthenticated`, `.tokenExpired`, `.tokenNotBound` or `.deviceRevoked`.
    mutating func verify(_ token: String, of peer: Peer, now: Timestamp) throws(CloudError) -> Caller {
        // By their bytes: what only looks like a token to Swift is none.
        if let known = remembered(peer)?.tokens.first(where: { $0.token.hasSameBytes(as: token) }) {
            return try caller(of: known, peer, now: now)
        }
        return try verifyAnew(token, of: peer, now: now)
    }

    private mutating func caller(of known: Verified, _ peer: Peer, now: Timestamp) throws(CloudError) -> Caller {
        known.caller.expires > now ? known.caller : try verifyAnew(known.token, of: peer, now: now)
    }

    private mutating func verifyAnew(_ token: String, of peer: Peer, now: Timestamp) throws(CloudError) -> Caller {
        let verified = try check(token, of: peer, now: now)
        var connection = remembered(peer) ?? Connection(key: peer.publicKey)
        connection.tokens.removeAll { $0.token.hasSameBytes(as: token) }
        if connection.tokens.count >= Self.tokensPerConnection { connection.tokens.removeFirst() }
        connection.tokens.append(verified)
        remember(connection, under: peer.connection)
        return verified.caller
    }

    private mutating func remembered(_ peer: Peer) -> Connection? {
        if let connection = young[peer.connection] { return connection.key == peer.publicKey ? connection : nil }
        guard let connection = old.removeValue(forKey: peer.connection), connection.key == peer.publicKey else {
            return nil
        }
        remember(connection, under: peer.connection)
        return connection
    }

    private mutating func remember(_ connection: Connection, under number: UInt64) {
        if young.count >= generationMax, young[number] == nil {
            old = young
            young = [:]
        }
        young[number] = connection
    }

    // MARK: The check itself

    private func check(_ token: String, of peer: Peer, now: Timestamp) throws(CloudError) -> Verified {
        guard !token.isEmpty else {
            throw CloudError(.notAuthenticated, "The request carries no access token. Sign in.")
        }
        guard token.utf8.count <= Self.bytesMax else { throw Self.invalid("size") }
        let parts = token.split(separator: ".", maxSplits: 3, omittingEmptySubsequences: false)
        guard parts.count == 3, let headerBytes = Base64URL.decode(parts[0]),
            let payloadBytes = Base64URL.decode(parts[1]), let signature = Base64URL.decode(parts[2]),
            let header = try? JSONDecoder().decode(TokenHeader.self, from: headerBytes)
        else { throw Self.invalid("form") }
        // The one algorithm: whatever else the header asks for ("none", a public key used as an HMAC's) is refused.
        guard header.alg == "EdDSA" else { throw Self.invalid("algorithm") }
        guard let signer = directory.tokenKeys[header.kid] else { throw Self.invalid("key") }
        guard signer.retires.map({ $0 > now }) != false else { throw Self.invalid("key retired") }
        let signed = token.utf8.prefix(parts[0].utf8.count + 1 + parts[1].utf8.count)
        guard signer.key.isValidSignature(signature, for: Data(signed)) else { throw Self.invalid("signature") }
        // Signed by identity from here on.
        guard let payload = try? JSONDecoder().decode(TokenPayload.self, from: payloadBytes) else {
            throw Self.invalid("claims")
        }
        guard payload.iss == deployment else { throw Self.invalid("deployment") }
        guard PublicKey(z85: payload.cnf) == peer.publicKey else {
            throw CloudError(
                .tokenNotBound, "The access token belongs to another device's key. Sign in on this device.")
        }
        // When it was issued is not asked: identity signed it, so if that lies ahead, it is our clock that is behind,
        // and whoever is turned away for it can do nothing about it.
        let expires = Self.timestamp(seconds: payload.exp)
        guard expires > now else { throw Self.expired }
        let device = DeviceID(payload.dev)
        let account = AccountID(payload.sub)
        if let refusal = refusal(of: device, account, payload.pub) { throw refusal }
        let app = AppID(payload.app)
        let isNarrow = payload.pub != nil || payload.nar == true
        let entitlements = directory.entitlements(
            of: app,
            inToken: Entitlements(
                version: payload.ver, capabilities: Entitlements.Capabilities(rawValue: payload.cap),
                store: payload.kvs.map { StoreID($0) }, containers: payload.ctr.map { ItemName($0) }),
            isNarrow: isNarrow)
        return Verified(
            token: token, digest: TokenDigest(of: token),
            caller: Caller(
                account: account, device: device, app: app, entitlements: entitlements,
                expires: min(expires, signer.retires ?? expires), keyID: header.kid, appToken: payload.pub,
                isNarrow: isNarrow))
    }

    private func refusal(of device: DeviceID, _ account: AccountID, _ appToken: String?) -> CloudError? {
        // Of whoever has no account: the names of accounts and devices are none of theirs.
        if let appToken { return directory.endedAppTokens.contains(appToken) ? .appTokenRevoked : nil }
        let standing = directory.standing(of: account)
        if standing == .closed { return .accountClosed }
        if let ending = directory.ended[device] { return ending.error }
        return standing == .locked ? .accountLocked : nil
    }

    /// Why the caller may not go on as it was let in, by what was learned since; nil: it may.
    func refusal(of caller: Caller) -> CloudError? {
        if let refusal = refusal(of: caller.device, caller.account, caller.appToken) { return refusal }
        let known = directory.entitlements(
            of: caller.app, inToken: caller.entitlements, isNarrow: caller.isNarrow)
        let isSame = known == caller.entitlements
        return isSame
            ? nil
            : CloudError(
                .serviceBusy, "What the app may do has just changed. Try again.", retryAfter: .milliseconds(10))
    }

    /// Whether what an app has left to run in a scope of the account goes on: the account is neither locked nor closed,
    /// and the app lists the scope.
    func serves(_ scope: ItemName, of account: AccountID, by service: ServiceName, to app: AppID) -> Bool {
        directory.standing(of: account) == .active && directory.serves(scope, of: service, to: app)
    }

    private static func timestamp(seconds: UInt64) -> Timestamp {
        let (milliseconds, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        return Timestamp(milliseconds: overflow ? .max : milliseconds)
    }

    private static let expired = CloudError(.tokenExpired, "The access token has run out. Refresh it.")

    private static func invalid(_ what: String) -> CloudError {
        CloudError(.notAuthenticated, "The access token is not valid. Sign in again.", details: ["reason": what])
    }
}

extension CloudError {
    /// The operator has locked the account.
    public static let accountLocked = CloudError(
        .accountTemporarilyUnavailable, "The account is locked. What is on this device stays; ask the operator.",
        retryAfter: .seconds(60))
    /// What was to be used once was used by two: somebody has a copy of the device's home, or it was an old copy
    /// itself.
    public static let deviceCopied = CloudError(
        .deviceRevoked,
        "This device's sign-in came from two places, so it was ended for both. Sign in again.",
        details: ["reason": "copied"])
    /// What let in whoever has no account counts no more.
    public static let appTokenRevoked = CloudError(
        .notAuthenticated, "The app's token was revoked: without an account nobody reads with it any more.",
        details: ["reason": "app token revoked"])
    /// The account was closed for good.
    public static let accountClosed = CloudError(.notAuthenticated, "The account was closed.")
}
