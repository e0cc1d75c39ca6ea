public import Configuration
public import NephosCore

/// Every key of the key-value service: type, default, unit.
public struct KeyValueConfiguration: Sendable {
    /// `keyvalue.profile`: `standard` or `original`.
    public var limits = KeyValueLimits.standard

    /// The defaults.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value out of range; `details` name the key.
    public init(_ reader: ConfigReader) throws(CloudError) {
        let profile = reader.string(forKey: "keyvalue.profile", default: limits.name)
        guard let named = KeyValueLimits.named(profile) else { throw Self.invalid("keyvalue.profile") }
        limits = named
    }

    private static func invalid(_ key: String) -> CloudError {
        CloudError(.configurationInvalid, "A configuration value is out of range.", details: ["key": key])
    }
}
