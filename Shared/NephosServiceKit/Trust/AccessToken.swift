internal import Crypto
internal import Foundation
public import NephosCore

// Access tokens are compact JWS with EdDSA (RFC 7519, 7515, 8037). They are
// made and checked here on swift-crypto directly: jwt-kit's key collection is
// an actor, and a request is authorised on the bus loop, which never waits. One
// algorithm is accepted, so what is left of JOSE fits on this page.

/// What an access token claims.
public struct AccessClaims: Hashable, Sendable {
    /// The deployment that issued it (`iss`).
    public var deployment: String
    public var account: AccountID
    public var device: DeviceID
    public var app: AppID
    /// What the app was entitled to when the token was issued.
    public var entitlements: Entitlements
    /// The device's CURVE key, which the token is bound to (`cnf`).
    public var deviceKey: PublicKey
    /// Whole seconds count.
    public var issued: Timestamp
    public var expires: Timestamp
    /// Unique (`jti`).
    public var tokenID: String
    /// ``Caller/appToken`` (`pub`).
    public var appToken: String?
    /// ``Caller/isNarrow`` (`nar`).
    public var isNarrow: Bool

    public init(
        deployment: String, account: AccountID, device: DeviceID, app: AppID, entitlements: Entitlements,
        deviceKey: PublicKey, issued: Timestamp, expires: Timestamp, tokenID: String, appToken: String? = nil,
        isNarrow: Bool = false
    ) {
        self.appToken = appToken
        self.isNarrow = isNarrow
        self.deployment = deployment
        self.account = account
        self.device = device
        self.app = app
        self.entitlements = entitlements
        self.deviceKey = deviceKey
        self.issued = issued
        self.expires = expires
        self.tokenID = tokenID
    }
}

/// The claims by their names in the token.
struct TokenPayload: Codable {
    var iss: String
    var sub: String
    var dev: String
    var app: String
    var kvs: String?
    var ctr: [String]
    /// ``Entitlements/Capabilities``.
    var cap: UInt8
    var ver: UInt64
    var cnf: String
    var iat: UInt64
    var exp: UInt64
    var jti: String
    /// Of whoever has no account: the token of its app's that has let it in.
    var pub: String?
    /// Whether it has less than its app.
    var nar: Bool?
}

struct TokenHeader: Codable {
    var alg: String
    var typ: String?
    var kid: String
}

/// Signs access tokens, with a key that only identity holds.
public struct TokenSigner: Sendable {
    /// What the tokens name the key by.
    public let keyID: String
    private let key: Curve25519.Signing.PrivateKey
    private let header: String

    /// Ed25519, 32 bytes: what the tokens are verified with.
    public var publicKey: [UInt8] { [UInt8](key.publicKey.rawRepresentation) }

    /// A fresh private key, 32 bytes.
    public static func makeKey() -> [UInt8] { [UInt8](Curve25519.Signing.PrivateKey().rawRepresentation) }

    /// The signer of a deployment.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` if the secrets hold no signing key.
    public init(secrets: ServiceSecrets) throws(CloudError) {
        guard let text = secrets.tokenSigningKey, let id = secrets.tokenSigningKeyID,
            let raw = Data(base64Encoded: text)
        else { throw Self.unusable }
        try self.init(key: [UInt8](raw), id: id)
    }

    /// - Throws: ``CloudError`` `.configurationInvalid` if these bytes are no key.
    public init(key bytes: [UInt8], id: String) throws(CloudError) {
        guard let key = try? Curve25519.Signing.PrivateKey(rawRepresentation: bytes),
            let header = try? JSONEncoder().encode(TokenHeader(alg: "EdDSA", typ: "JWT", kid: id))
        else { throw Self.unusable }
        keyID = id
        self.key = key
        self.header = Base64URL.encode(header)
    }

    private static var unusable: CloudError {
        CloudError(.configurationInvalid, "There is no usable token signing key. Identity needs one.")
    }

    /// The signed token.
    public func sign(_ claims: AccessClaims) throws(CloudError) -> String {
        let payload = TokenPayload(
            iss: claims.deployment, sub: claims.account.rawValue, dev: claims.device.rawValue,
            app: claims.app.rawValue, kvs: claims.entitlements.store?.rawValue,
            ctr: claims.entitlements.containers.map(\.rawValue), cap: claims.entitlements.capabilities.rawValue,
            ver: claims.entitlements.version, cnf: claims.deviceKey.z85, iat: claims.issued.milliseconds / 1000,
            exp: claims.expires.milliseconds / 1000, jti: claims.tokenID, pub: claims.appToken,
            nar: claims.isNarrow ? true : nil)
        do {
            let signed = header + "." + Base64URL.encode(try JSONEncoder().encode(payload))
            return signed + "." + Base64URL.encode(try key.signature(for: Data(signed.utf8)))
        } catch {
            throw CloudError(wrapping: error)
        }
    }
}

/// Base64 as JOSE has it (RFC 4648, section 5, no padding).
enum Base64URL {
    static func encode(_ data: some DataProtocol) -> String {
        Data(data).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    static func decode(_ text: Substring) -> Data? {
        guard !text.utf8.contains(where: { $0 == UInt8(ascii: "+") || $0 == UInt8(ascii: "/") }) else { return nil }
        let standard = text.replacing("-", with: "+").replacing("_", with: "/")
        guard let data = Data(base64Encoded: standard + String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)),
            // The last character has bits that say nothing: of the texts that give these bytes only one counts.
            encode(data) == text
        else { return nil }
        return data
    }
}
