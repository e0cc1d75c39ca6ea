public import Configuration
public import Core

/// Every key of the key-value service: type, default, unit.
public struct KeyValueConfiguration: Sendable {
    /// `keyvalue.profile`: `standard` or `original`.
    public var limits = KeyValueLimits.standard
    /// `keyvalue.budget_capacity`: pushes that a device may make at once. 0: no limit.
    public var budgetCapacity = 1000
    /// `keyvalue.budget_refill_per_second`: pushes that become available each second.
    public var budgetRefillPerSecond = 100

    /// How long until one more push becomes available.
    var budgetRefill: Duration { .seconds(1) / max(1, budgetRefillPerSecond) }

    /// The defaults.
    public init() {}

    /// The defaults, with what the configuration says instead.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for a value out of range; `details` name the key.
    public init(_ reader: ConfigReader) throws(CloudError) {
        let profile = reader.string(forKey: "keyvalue.profile", default: limits.name)
        guard let named = KeyValueLimits.named(profile) else { throw Self.invalid("keyvalue.profile") }
        limits = named
        budgetCapacity = reader.int(forKey: "keyvalue.budget_capacity", default: budgetCapacity)
        guard 0...1_000_000_000 ~= budgetCapacity else { throw Self.invalid("keyvalue.budget_capacity") }
        budgetRefillPerSecond = reader.int(
            forKey: "keyvalue.budget_refill_per_second", default: budgetRefillPerSecond)
        guard 1...1_000_000 ~= budgetRefillPerSecond else { throw Self.invalid("keyvalue.budget_refill_per_second") }
    }

    private static func invalid(_ key: String) -> CloudError {
        CloudError(.configurationInvalid, "A configuration value is out of range.", details: ["key": key])
    }
}
