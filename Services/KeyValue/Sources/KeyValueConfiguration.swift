public import NephosCore
public import NephosServiceKit

/// Every key of the key-value service: type, default, unit.
public struct KeyValueConfiguration: Sendable {
    /// `keyvalue.profile`: `standard` or `original`.
    public var limits = KeyValueLimits.standard

    /// The defaults.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value that cannot be; `details` name the key.
    public init(_ settings: Settings) throws(CloudError) {
        guard let named = KeyValueLimits.named(settings.text("profile") ?? limits.name) else {
            throw settings.invalid("profile", "It is standard or original.")
        }
        limits = named
    }
}
