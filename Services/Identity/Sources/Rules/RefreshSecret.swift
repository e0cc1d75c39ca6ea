internal import Crypto
private import Foundation
internal import NephosCore

/// A refresh token: the id of its family, which of its generations it is, and a secret.
///
/// The secret is derived from these two and a key outside of the database. So
/// the database holds no token, and yet a repeated request can be answered with
/// the first reply, and a token can be told from an invented one when the
/// database, brought back from a copy, knows nothing of it yet.
struct RefreshSecret: Hashable, Sendable {
    static let familyByteCount = 16
    private static let generationByteCount = 8
    private static let secretByteCount = 32

    let family: [UInt8]
    /// Rises by one with each exchange.
    let generation: UInt64
    let secret: [UInt8]

    /// What the database keeps of it.
    var hash: [UInt8] { [UInt8](SHA256.hash(data: Self.place(family, generation) + secret)) }

    /// The form that devices hold.
    var text: String { Base64URL.encode(Self.place(family, generation) + secret) }

    /// The token in this text, or nil if it is none.
    init?(text: String) {
        guard let bytes = Base64URL.decode(text),
            bytes.count == Self.familyByteCount + Self.generationByteCount + Self.secretByteCount
        else { return nil }
        family = Array(bytes.prefix(Self.familyByteCount))
        generation = bytes.dropFirst(Self.familyByteCount).prefix(Self.generationByteCount)
            .reduce(0) { $0 << 8 | UInt64($1) }
        secret = Array(bytes.suffix(Self.secretByteCount))
    }

    init(family: [UInt8], generation: UInt64, key: SymmetricKey) {
        self.family = family
        self.generation = generation
        secret = [UInt8](HMAC<SHA256>.authenticationCode(for: Self.place(family, generation), using: key))
    }

    /// Whether one of these keys made it.
    func isGenuine(_ keys: [SymmetricKey]) -> Bool {
        keys.contains {
            ConstantTime.equal(RefreshSecret(family: family, generation: generation, key: $0).secret, secret)
        }
    }

    private static func place(_ family: [UInt8], _ generation: UInt64) -> [UInt8] {
        family + withUnsafeBytes(of: generation.bigEndian) { [UInt8]($0) }
    }

    /// The family's newest token, by whichever of the keys it was made; nil if that key is gone.
    init?(newestOf family: RefreshFamily, keys: [SymmetricKey]) {
        let candidates = keys.lazy.map { RefreshSecret(family: family.id, generation: family.generation, key: $0) }
        guard let match = candidates.first(where: { $0.hash == family.tokenHash }) else { return nil }
        self = match
    }

    /// The keys that secrets are derived with, from the service's master keys; newest first.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` when there is none, or one has not 32 bytes.
    static func keys(from masterKeys: [String]) throws(CloudError) -> [SymmetricKey] {
        let decoded = masterKeys.map { Data(base64Encoded: $0) ?? Data() }
        guard !decoded.isEmpty, decoded.allSatisfy({ $0.count == 32 }) else {
            throw CloudError(.configurationInvalid, "A master key is missing, or is not 32 bytes in base64.")
        }
        return decoded.map {
            HKDF<SHA256>.deriveKey(
                inputKeyMaterial: SymmetricKey(data: $0), info: Data("nephos refresh token".utf8), outputByteCount: 32)
        }
    }
}

/// Base 64 for names and tokens (RFC 4648, section 5), without padding.
enum Base64URL {
    static func encode(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString()
            .replacingOccurrences(of: "+", with: "-")
            .replacingOccurrences(of: "/", with: "_")
            .replacingOccurrences(of: "=", with: "")
    }

    static func decode(_ text: String) -> [UInt8]? {
        let standard = text.replacingOccurrences(of: "-", with: "+").replacingOccurrences(of: "_", with: "/")
        let padding = String(repeating: "=", count: (4 - standard.utf8.count % 4) % 4)
        return Data(base64Encoded: standard + padding).map { [UInt8]($0) }
    }
}
