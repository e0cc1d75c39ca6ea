public import Configuration
internal import Foundation
public import NephosCore
internal import Synchronization

/// The settings of one service: those of the deployment's file ``SettingsFile``, and the environment's `NEPHOS_*`, which
/// take precedence.
///
/// `health_port` of key-value is `NEPHOS_KEYVALUE_HEALTH_PORT`, or else, where a setting may be said for all services at
/// once, `NEPHOS_HEALTH_PORT`. An empty value counts as not set, because compose files pass
/// unset variables on as empty ones. `docs/settings.md` has
/// the table of all.
public struct Settings: Sendable {
    /// Whose settings they are.
    public let service: ServiceName
    private let reader: ConfigReader
    /// The names of all variables and settings that were given, those of other programs included.
    private let names: [String]
    private let asked = Asked()

    /// Every key that was read, in the spelling of ``Key/environment``.
    private final class Asked: Sendable {
        let keys = Mutex<Set<String>>([])
    }

    /// Where a setting may be said.
    public enum Reach: Sendable {
        /// For this service alone.
        case own
        /// For all services, and for each by itself, which goes first.
        case all
    }

    /// - Parameters:
    ///   - reader: Has the keys without `nephos.` before them.
    ///   - names: The names of what was given, as the environment spells them.
    public init(_ reader: ConfigReader, of service: ServiceName, names: [String] = []) {
        self.reader = reader
        self.service = service
        self.names = names
    }

    /// The settings of the process's environment alone.
    public static func ofEnvironment(_ service: ServiceName) -> Settings {
        Settings(ProcessInfo.processInfo.environment, of: service)
    }

    /// The deployment's settings, with those of the process's environment in front.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` when the deployment's file cannot be read.
    public static func of(_ service: ServiceName, deployment: String) throws(CloudError) -> Settings {
        let file = try DeploymentFiles(directory: deployment).settings().values
        let environment = ProcessInfo.processInfo.environment
        return Settings(file.merging(environment.filter { !$0.value.isEmpty }) { $1 }, of: service, also: environment)
    }

    /// - Parameter others: Variables of which an empty value hides no setting.
    private init(_ values: [String: String], of service: ServiceName, also others: [String: String] = [:]) {
        let reader = ConfigReader(provider: EnvironmentVariablesProvider(environmentVariables: values))
        self.init(
            reader.scoped(to: "nephos"), of: service, names: Set(values.keys).union(others.keys).sorted())
    }

    /// The settings of another program of the deployment, which were given beside these.
    func of(_ service: ServiceName) -> Settings { Settings(reader, of: service, names: names) }

    // MARK: Values

    /// A text, or nil where none is said.
    public func text(_ key: String, for reach: Reach = .own) -> String? { find(key, reach)?.value }

    /// A whole number, or nil where none is said.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` for one out of range, and for what is none.
    public func integer(
        _ key: String, in range: ClosedRange<Int>, for reach: Reach = .own
    ) throws(CloudError) -> Int? {
        guard let found = find(key, reach) else { return nil }
        guard let value = Int(found.value), range.contains(value) else {
            throw Self.invalid(
                found.key, "It is a whole number from \(range.lowerBound) to \(range.upperBound).", found.value)
        }
        return value
    }

    /// The same, with what holds where nothing is said.
    public func integer(
        _ key: String, default standard: Int, in range: ClosedRange<Int>, for reach: Reach = .own
    ) throws(CloudError) -> Int {
        try integer(key, in: range, for: reach) ?? standard
    }

    /// What a value is refused with that only its user can judge.
    ///
    /// - Parameter cure: What the value has to be: a sentence.
    public func invalid(_ key: String, _ cure: String, for reach: Reach = .own) -> CloudError {
        let found = find(key, reach)
        return Self.invalid(found?.key ?? names(key, reach)[0], cure, found?.value)
    }

    /// Settings for this service that nothing has read: misspelt, or of another version.
    public var unknown: [String] {
        let known = asked.keys.withLock { $0 }
        let prefix = "NEPHOS_\(service.rawValue.uppercased())_"
        return names.filter { $0.hasPrefix(prefix) && !known.contains($0) }
    }

    // MARK: Keys

    private func names(_ key: String, _ reach: Reach) -> [String] {
        switch reach {
        case .own: ["\(service).\(key)"]
        case .all: ["\(service).\(key)", key]
        }
    }

    private func find(_ key: String, _ reach: Reach) -> (key: String, value: String)? {
        let names = names(key, reach)
        asked.keys.withLock { for name in names { $0.insert(Self.environment(name)) } }
        for name in names {
            if let value = reader.string(forKey: ConfigKey(name)), !value.isEmpty { return (name, value) }
        }
        return nil
    }

    /// `keyvalue.health_port` is said by `NEPHOS_KEYVALUE_HEALTH_PORT`.
    private static func environment(_ key: String) -> String {
        "NEPHOS_" + key.uppercased().replacing(".", with: "_")
    }

    private static func invalid(_ key: String, _ cure: String, _ value: String?) -> CloudError {
        var details = ["key": environment(key)]
        details["value"] = value
        return CloudError(.configurationInvalid, "A setting is not what it has to be. \(cure)", details: details)
    }
}
