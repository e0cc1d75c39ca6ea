/// What one key-value store may hold. The same check runs in the SDK and in the service.
///
/// A value's size is the length of its canonical encoding (`PropertyValue` in
/// `Protos/nephos/values.proto`). Key names do not count toward the total
/// (`NSUbiquitousKeyValueStore` class reference).
public struct KeyValueLimits: Hashable, Sendable {
    /// The profile's name.
    public var name: String
    /// Bytes of all values together.
    public var totalBytesMax: Int
    /// Bytes of one value.
    public var valueBytesMax: Int
    /// Number of keys.
    public var keyCountMax: Int
    /// UTF-8 bytes of a key's name. (Apple's current class page says 128 UTF-16
    /// characters instead; the archived Design Guide says 64 bytes.)
    public var keyBytesMax: Int

    /// 1 MB in all, 1 MB a value, 1024 keys, names of 64 bytes: the limits since iOS 7.
    public static let standard = KeyValueLimits(
        name: "standard", totalBytesMax: 1 << 20, valueBytesMax: 1 << 20, keyCountMax: 1024, keyBytesMax: 64)

    /// 64 KB in all and a value: the limits of iOS 5.
    public static let original = KeyValueLimits(
        name: "original", totalBytesMax: 64 << 10, valueBytesMax: 64 << 10, keyCountMax: 1024, keyBytesMax: 64)

    /// The profile with this name, or nil.
    public static func named(_ name: String) -> KeyValueLimits? {
        [standard, original].first { $0.name == name }
    }
}

extension KeyValueLimits {
    /// Checks a key's name and its value's size, which do not depend on the rest of the store.
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded`; details name the limit, by how
    ///   much it is passed, and the key's length. Store less under the key.
    public func check(keyBytes: Int, valueBytes: Int) throws(CloudError) {
        if keyBytes > keyBytesMax {
            throw exceeded("key_bytes", keyBytesMax, keyBytes, "The key's name is too long. Nothing was stored.")
        }
        if valueBytes > valueBytesMax {
            throw exceeded("value_bytes", valueBytesMax, valueBytes, "The value is too large. Nothing was stored.")
        }
    }

    /// Checks what a store would hold after a change.
    ///
    /// A change that makes the store smaller, or keeps it as it is, is never
    /// refused, even above a limit (limits may have been lowered).
    ///
    /// - Throws: ``CloudError`` `.quotaExceeded`; delete something and try again.
    public func check(
        keyCount: Int, totalBytes: Int, previousKeyCount: Int, previousTotalBytes: Int
    ) throws(CloudError) {
        if keyCount > keyCountMax, keyCount > previousKeyCount {
            throw exceeded("key_count", keyCountMax, keyCount, "The store has too many keys. Nothing was stored.")
        }
        if totalBytes > totalBytesMax, totalBytes > previousTotalBytes {
            throw exceeded("total_bytes", totalBytesMax, totalBytes, "The store is full. Nothing was stored.")
        }
    }

    private func exceeded(_ limit: String, _ maximum: Int, _ actual: Int, _ message: String) -> CloudError {
        CloudError(
            .quotaExceeded, message,
            details: [
                "limit": limit, "maximum": "\(maximum)", "actual": "\(actual)", "over_by": "\(actual - maximum)",
                "profile": name,
            ])
    }
}
