internal import Crypto
internal import CryptoExtras
private import Foundation
internal import NephosCore

/// What one guess costs whoever guesses: scrypt's parameters. Stored with each
/// account, so that they can be raised for new ones.
struct ScryptCost: Hashable, Sendable {
    /// N, a power of two. Memory is `128 * N * r` bytes: 32 MiB for the standard.
    var rounds: Int
    /// r.
    var blockSize: Int
    /// p.
    var parallelism: Int

    static let standard = ScryptCost(rounds: 1 << 15, blockSize: 8, parallelism: 1)
}

/// A password as it is stored.
struct PasswordHash: Hashable, Sendable {
    /// 32 bytes.
    var hash: [UInt8]
    /// 16 bytes.
    var salt: [UInt8]
    var cost: ScryptCost

    static let saltByteCount = 16

    init(hash: [UInt8], salt: [UInt8], cost: ScryptCost) {
        self.hash = hash
        self.salt = salt
        self.cost = cost
    }

    /// Hashes a password. Takes about a tenth of a second: not for the loop.
    init(of password: String, salt: [UInt8], cost: ScryptCost) throws {
        // Composed, so that it does not matter on which keyboard it was typed (RFC 8265).
        // And with an end: scrypt takes it for an HMAC key, to which zeros can be added without a difference.
        let bytes = Data(password.precomposedStringWithCanonicalMapping.utf8) + [1]
        let key = try KDF.Scrypt.deriveKey(
            from: bytes, salt: salt, outputByteCount: 32, rounds: cost.rounds, blockSize: cost.blockSize,
            parallelism: cost.parallelism)
        self.init(hash: key.withUnsafeBytes { [UInt8]($0) }, salt: salt, cost: cost)
    }

    /// What an unknown account's password is compared with, so that the answer
    /// takes as long as for a known one. No password has this hash.
    static func unmatchable(_ cost: ScryptCost) -> PasswordHash {
        PasswordHash(hash: [], salt: [UInt8](repeating: 0, count: saltByteCount), cost: cost)
    }

    /// Whether this is the password's hash. Takes as long as hashing it, whatever the answer.
    func matches(_ password: String) throws -> Bool {
        let other = try PasswordHash(of: password, salt: salt, cost: cost)
        return ConstantTime.equal(other.hash, hash)
    }
}

/// Which passwords are taken for a new account.
enum PasswordRule {
    static let lengthMin = PasswordLimits.lengthMin
    static let lengthMax = PasswordLimits.bytesMax

    static func check(_ password: String) throws(CloudError) {
        guard password.count >= lengthMin, password.utf8.count <= lengthMax else {
            throw CloudError(
                .invalidArguments, "A password is too short or too long.",
                details: ["argument": "password", "length_min": "\(lengthMin)", "length_max": "\(lengthMax)"])
        }
    }
}

/// Comparison of secrets.
enum ConstantTime {
    /// Whether the bytes are equal, in a time that does not tell where they differ.
    static func equal(_ left: [UInt8], _ right: [UInt8]) -> Bool {
        guard left.count == right.count else { return false }
        return zip(left, right).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
    }
}
