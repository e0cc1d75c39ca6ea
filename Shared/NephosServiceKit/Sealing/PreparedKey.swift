internal import CNephosSodium

/// An AES-256-GCM key with its schedule computed, by libsodium.
// Unchecked: the memory is written in `init` alone, and freed when nobody holds it any more.
final class PreparedKey: @unchecked Sendable {
    /// Whether the processor has the instructions that libsodium needs for AES.
    private static let isAvailable = sodium_init() >= 0 && crypto_aead_aes256gcm_is_available() == 1

    private let state: UnsafeMutablePointer<crypto_aead_aes256gcm_state>

    /// Nil where the processor cannot do it.
    ///
    /// - Parameter key: 32 bytes.
    init?(_ key: UnsafeRawBufferPointer) {
        guard Self.isAvailable, key.count == OwnerKey.byteCount, let start = key.baseAddress else { return nil }
        state = .allocate(capacity: 1)
        _ = crypto_aead_aes256gcm_beforenm(state, start.assumingMemoryBound(to: UInt8.self))
    }

    deinit {
        sodium_memzero(state, MemoryLayout<crypto_aead_aes256gcm_state>.size)
        state.deallocate()
    }

    /// Nonce, ciphertext and tag.
    func seal(_ bytes: [UInt8], boundTo context: [UInt8]) throws -> [UInt8] {
        try [UInt8](unsafeUninitializedCapacity: bytes.count + Sealed.overhead) { output, count in
            guard let nonce = output.baseAddress else { return }
            try NonceBatch.fill(UnsafeMutableRawBufferPointer(start: nonce, count: Sealed.nonceBytes))
            var length: UInt64 = 0
            _ = crypto_aead_aes256gcm_encrypt_afternm(
                nonce + Sealed.nonceBytes, &length, bytes, UInt64(bytes.count), context, UInt64(context.count), nil,
                nonce, state)
            count = Sealed.nonceBytes + Int(length)
        }
    }

    /// The bytes; nil when another key or context sealed them, or they are damaged.
    func open(_ sealed: [UInt8], boundTo context: [UInt8]) -> [UInt8]? {
        guard sealed.count >= Sealed.overhead else { return nil }
        var isAuthentic = false
        let opened = sealed.withUnsafeBufferPointer { sealed in
            [UInt8](unsafeUninitializedCapacity: sealed.count - Sealed.overhead) { output, count in
                guard let nonce = sealed.baseAddress else { return }
                var length: UInt64 = 0
                isAuthentic =
                    crypto_aead_aes256gcm_decrypt_afternm(
                        output.baseAddress, &length, nil, nonce + Sealed.nonceBytes,
                        UInt64(sealed.count - Sealed.nonceBytes), context, UInt64(context.count), nonce, state) == 0
                count = isAuthentic ? Int(length) : 0
            }
        }
        return isAuthentic ? opened : nil
    }
}
