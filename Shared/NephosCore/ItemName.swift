/// The name that an account gives to something it stores: a key, an entry of a
/// dictionary, a scope of the feed.
public struct ItemName: ByteName, ExpressibleByStringInterpolation {
    public let rawValue: String

    public init(rawValue: String) { self.rawValue = rawValue }
    public init(stringLiteral value: String) { rawValue = value }

    public var utf8: String.UTF8View { rawValue.utf8 }
    public var isEmpty: Bool { rawValue.isEmpty }

    /// Checks that the name can be kept by everybody who has to.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` for an empty name, and for one
    ///   with the character NUL, at which SQL and C end a text.
    public func check() throws(CloudError) {
        guard !isEmpty else {
            throw CloudError(.invalidArguments, "A name must not be empty.", details: ["argument": "key"])
        }
        guard !rawValue.hasByte(0) else {
            throw CloudError(
                .invalidArguments, "A name must not have the character NUL.", details: ["argument": "key"])
        }
    }
}
