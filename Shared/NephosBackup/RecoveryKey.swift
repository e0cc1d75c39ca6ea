internal import CNephosSodium
internal import Crypto
internal import Foundation
public import NephosCore

/// What opens the keys of a backup. It is on paper, and on no host.
///
/// As text it is 30 characters in six groups: 128 random bits and 22 bits of a checksum.
public struct RecoveryKey: Sendable {
    private static let seedBytes = 16
    private static let characters = 30

    private let seed: [UInt8]

    /// A new one.
    public init() {
        var generator = SystemRandomNumberGenerator()
        seed = (0..<Self.seedBytes).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    }

    /// As it was written down.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` that says what is wrong with it.
    public init(_ text: String) throws(CloudError) {
        let length = text.utf8.count { $0 > UInt8(ascii: " ") && $0 != UInt8(ascii: "-") }
        guard length == Self.characters, let bytes = Base32.bytes(text) else {
            throw CloudError(
                .invalidArguments,
                length == PublicRecoveryKey.characters
                    ? "This is the public half, which opens nothing. The recovery key has 30 characters."
                    : "This is no recovery key: it has 30 letters and digits, in six groups of five.",
                details: ["characters": "\(length)"])
        }
        let seed = Array(bytes.prefix(Self.seedBytes))
        guard Base32.canonical(text) == Base32.canonical(Self.text(of: seed)) else {
            throw CloudError(
                .invalidArguments,
                "The recovery key is not as it was written down: its checksum is another. Look at it again.")
        }
        self.seed = seed
    }

    /// `ABCDE-...`, to be written down.
    public var text: String { Self.text(of: seed) }

    private static func text(of seed: [UInt8]) -> String {
        let sum = Array(SHA256.hash(data: Array("nephos recovery key checksum".utf8) + seed))
        // 150 bits: two bits of the third byte are left over.
        let bytes = seed + sum.prefix(2) + [sum[2] & 0xfc]
        return Base32.grouped(String(Base32.text(bytes).prefix(characters)), by: 5)
    }

    private var secret: [UInt8] {
        Array(SHA256.hash(data: Array("nephos recovery key".utf8) + seed))
    }

    /// The half that seals, and opens nothing.
    public var publicKey: PublicRecoveryKey {
        var key = [UInt8](repeating: 0, count: PublicRecoveryKey.byteCount)
        crypto_scalarmult_base(&key, secret)
        return PublicRecoveryKey(bytes: key)
    }

    /// - Throws: ``CloudError`` `.wrongCredentials`: it was sealed to another key, or was changed.
    func open(_ sealed: [UInt8]) throws(CloudError) -> [UInt8] {
        let overhead = crypto_box_sealbytes()
        var opened = [UInt8](repeating: 0, count: max(0, sealed.count - overhead))
        guard sealed.count >= overhead,
            crypto_box_seal_open(&opened, sealed, UInt64(sealed.count), publicKey.bytes, secret) == 0
        else {
            throw CloudError(
                .wrongCredentials,
                "The recovery key does not open the keys of this snapshot. See which one it needs: nephos backup list",
                details: ["given": publicKey.id])
        }
        return opened
    }
}

/// The public half of a ``RecoveryKey``: what is sealed to it only that key opens.
public struct PublicRecoveryKey: Hashable, Sendable {
    static let byteCount = 32
    private static let checksumBytes = 3
    static let characters = 56

    let bytes: [UInt8]

    init(bytes: [UInt8]) { self.bytes = bytes }

    /// As `nephos recovery-key` prints it.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` that says what is wrong with it.
    public init(_ text: String) throws(CloudError) {
        if (try? RecoveryKey(text)) != nil {
            throw CloudError(
                .invalidArguments,
                "This is a recovery key itself, which belongs on no host. Give its public half, which has 56 characters."
            )
        }
        guard let bytes = Base32.bytes(text), bytes.count == Self.byteCount + Self.checksumBytes,
            Array(bytes.suffix(Self.checksumBytes)) == Self.checksum(of: Array(bytes.prefix(Self.byteCount)))
        else {
            throw CloudError(
                .invalidArguments,
                "This is no public half of a recovery key: it has 56 letters and digits, as nephos recovery-key prints it."
            )
        }
        self.bytes = Array(bytes.prefix(Self.byteCount))
    }

    private static func checksum(of bytes: [UInt8]) -> [UInt8] {
        Array(SHA256.hash(data: Array("nephos public recovery key checksum".utf8) + bytes).prefix(checksumBytes))
    }

    public var text: String { Base32.grouped(Base32.text(bytes + Self.checksum(of: bytes)), by: 8) }

    /// A short name, by which a snapshot says which key it needs.
    public var id: String { Base32.text(Array(SHA256.hash(data: bytes).prefix(5))) }

    func seal(_ plain: [UInt8]) -> [UInt8] {
        var sealed = [UInt8](repeating: 0, count: plain.count + crypto_box_sealbytes())
        crypto_box_seal(&sealed, plain, UInt64(plain.count), bytes)
        return sealed
    }
}
