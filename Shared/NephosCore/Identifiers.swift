/// Names one thing of one kind. The kinds do not mix.
public protocol Identifier: ByteName {}

/// A person's account. Random; never the sign-in name.
public struct AccountID: Identifier {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
}

/// One enrolled device of one account.
public struct DeviceID: Identifier {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
}

/// An app, such as `com.example.notes`.
public struct AppID: Identifier {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
}

/// A key-value store's id within an account. Apps that list the same id share the store.
public struct StoreID: Identifier {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
}

/// One of the five services, by its name on the bus.
public struct ServiceName: Identifier {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    public static let identity = ServiceName("identity")
    public static let keyValue = ServiceName("keyvalue")
    public static let documents = ServiceName("documents")
    public static let records = ServiceName("records")
    public static let notifications = ServiceName("notifications")

    /// All five, in the order in which they start.
    public static let all: [ServiceName] = [.identity, .keyValue, .documents, .records, .notifications]
}

extension Identifier {
    /// A fresh id: `prefix_` and 128 random bits in lower-case base 32 (26 characters).
    public static func random(prefix: String, using generator: inout some RandomNumberGenerator) -> Self {
        let alphabet = Array("abcdefghijklmnopqrstuvwxyz234567")
        let characters = (0..<26).map { _ in alphabet[Int.random(in: 0..<32, using: &generator)] }
        return Self(rawValue: prefix + "_" + String(characters))
    }
}

/// What a person or an app may name an app, a container or a store.
public enum NameRule {
    /// At most this many UTF-8 bytes.
    public static let lengthMax = 128

    /// Whether the name is 1 to 128 of letters, digits, `.`, `-` and `_`. Wildcards are refused:
    /// an entitlement names exactly what it grants (iCloud Design Guide: container ids "must not
    /// contain wildcards").
    public static func accepts(_ name: String) -> Bool {
        !name.isEmpty && name.utf8.count <= lengthMax
            && name.utf8.allSatisfy {
                switch $0 {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
                    true
                default: false
                }
            }
    }
}
