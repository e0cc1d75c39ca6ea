internal import Crypto
public import NephosCore
private import Synchronization

private import struct Foundation.Data

#if canImport(Glibc)
    private import Glibc
#else
    private import Musl
#endif

/// An owner's data key: seals what lies on disk, and opens it again.
///
/// AES-256-GCM. libsodium prepares the key once, where the processor has
/// instructions for it; swift-crypto, which prepares it for each seal (most of
/// the time that sealing a small value takes), does it elsewhere. The sealed
/// form is the same.
public struct OwnerKey: Sendable {
    static let byteCount = 32
    private let key: SymmetricKey
    private let prepared: PreparedKey?
    private let others = DerivedKeys()

    init(_ key: SymmetricKey) {
        self.key = key
        prepared = key.withUnsafeBytes { PreparedKey($0) }
    }

    /// The same without libsodium. For tests.
    init(unprepared key: SymmetricKey) {
        self.key = key
        prepared = nil
    }

    static func random() -> OwnerKey { OwnerKey(SymmetricKey(size: .bits256)) }

    var bytes: [UInt8] { key.withUnsafeBytes { [UInt8]($0) } }

    /// Another key of the owner, for a purpose of its own: HKDF of this one, with SHA-256. It is as good as destroyed
    /// when the owner's key is. Derived once: that takes as long as to seal ten small values.
    ///
    /// - Parameter purpose: One of a service's few.
    /// - Returns: 32 bytes.
    public func derived(for purpose: String) -> [UInt8] {
        others.key(for: purpose) {
            let derived = HKDF<SHA256>.deriveKey(
                inputKeyMaterial: key, info: [UInt8](purpose.utf8), outputByteCount: Self.byteCount)
            return derived.withUnsafeBytes { [UInt8]($0) }
        }
    }

    /// The bytes, sealed. They open again only with the same context.
    ///
    /// - Parameter context: Where the bytes belong (owner, store, key), so
    ///   that nobody with the database file can move them elsewhere.
    /// - Throws: ``CloudError`` `.internalError`.
    public func seal(_ bytes: [UInt8], boundTo context: [UInt8]) throws(CloudError) -> Sealed {
        do {
            if let prepared { return Sealed(bytes: try prepared.seal(bytes, boundTo: context)) }
            var nonce = [UInt8](repeating: 0, count: Sealed.nonceBytes)
            try nonce.withUnsafeMutableBytes { try NonceBatch.fill($0) }
            let box = try AES.GCM.seal(
                bytes, using: key, nonce: AES.GCM.Nonce(data: nonce), authenticating: context)
            guard let combined = box.combined else { throw Self.failure }
            return Sealed(bytes: [UInt8](combined))
        } catch {
            throw Self.failure
        }
    }

    /// The bytes that were sealed.
    ///
    /// - Throws: ``CloudError`` `.internalError`: another key or context sealed
    ///   them, or the database is damaged. Restore the last backup.
    public func open(_ sealed: Sealed, boundTo context: [UInt8]) throws(CloudError) -> [UInt8] {
        if let prepared {
            guard let bytes = prepared.open(sealed.bytes, boundTo: context) else { throw Self.unopened }
            return bytes
        }
        do {
            let box = try AES.GCM.SealedBox(combined: sealed.bytes)
            return [UInt8](try AES.GCM.open(box, using: key, authenticating: context))
        } catch {
            throw Self.unopened
        }
    }

    /// The same, for a context in words.
    public func seal(_ bytes: [UInt8], boundTo context: String) throws(CloudError) -> Sealed {
        try seal(bytes, boundTo: [UInt8](context.utf8))
    }

    /// The same, for a context in words.
    public func open(_ sealed: Sealed, boundTo context: String) throws(CloudError) -> [UInt8] {
        try open(sealed, boundTo: [UInt8](context.utf8))
    }

    private static var failure: CloudError { CloudError(.internalError, "A value could not be sealed.") }
    private static var unopened: CloudError {
        CloudError(
            .internalError, "A stored value does not open. Check the master key, or restore the last backup.")
    }
}

/// What was derived of an owner's key, by purpose.
private final class DerivedKeys: Sendable {
    private let keys = Mutex<[String: [UInt8]]>([:])

    func key(for purpose: String, _ derive: () -> [UInt8]) -> [UInt8] {
        keys.withLock { keys in
            if let known = keys[purpose] { return known }
            let key = derive()
            keys[purpose] = key
            return key
        }
    }
}

/// Bytes sealed with AES-256-GCM: a nonce of 12 bytes, the ciphertext, a tag of 16 bytes.
public struct Sealed: Hashable, Sendable {
    /// How many bytes longer the sealed form is.
    public static let overhead = nonceBytes + tagBytes
    static let nonceBytes = 12
    static let tagBytes = 16

    public var bytes: [UInt8]

    public init(bytes: [UInt8]) { self.bytes = bytes }
}

/// Random nonces of 96 bits, drawn from the system many at a time: a call to
/// the system for each would cost as much as the sealing.
///
/// With random nonces one key is good for 2^32 seals at a risk of 2^-32 (NIST SP 800-38D).
enum NonceBatch {
    private struct State {
        // The most that `getentropy` gives at once.
        var bytes = [UInt8](repeating: 0, count: 252)
        var used = 252
    }

    private static let state = Mutex(State())

    /// Fills the nonce, which has ``Sealed/nonceBytes``.
    static func fill(_ nonce: UnsafeMutableRawBufferPointer) throws {
        try state.withLock { state in
            if state.used == state.bytes.count {
                guard getentropy(&state.bytes, state.bytes.count) == 0 else {
                    throw CloudError(.internalError, "The system gives no random numbers.")
                }
                state.used = 0
            }
            defer { state.used += Sealed.nonceBytes }
            nonce.copyBytes(from: state.bytes[state.used..<state.used + Sealed.nonceBytes])
        }
    }
}
