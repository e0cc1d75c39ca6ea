internal import Foundation
public import NephosCore
internal import NephosFiles

/// The settings that a deployment keeps: the file `settings` in its folder, one `NAME=VALUE` on each line.
///
/// The names are those of the environment variables in `docs/settings.md`. A variable in a service's own environment
/// takes precedence over the file. Empty lines, and lines that begin with `#`, are comments; they are kept.
public struct SettingsFile: Sendable, Equatable {
    private var lines: [String] = []

    /// A file without settings.
    public init() {}

    /// - Throws: ``CloudError`` `.configurationInvalid` with the number of the first line that has no `NAME=VALUE`.
    public init(_ text: String) throws(CloudError) {
        // By bytes: to Swift a carriage return and a line feed are one character. An editor may end lines with both.
        lines = text.utf8.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false).map { line in
            String(Substring(line.last == UInt8(ascii: "\r") ? line.dropLast() : line))
        }
        if lines.last?.isEmpty == true { lines.removeLast() }
        for (index, line) in lines.enumerated() {
            guard Self.isComment(line) || Self.entry(line) != nil else {
                throw CloudError(
                    .configurationInvalid,
                    "A line of the deployment's settings is not NAME=VALUE. Correct it, or begin it with # as a comment.",
                    details: ["line": "\(index + 1)"])
            }
        }
    }

    /// What the file contains, as it is written to the disk.
    public var text: String { lines.map { $0 + "\n" }.joined() }

    /// All settings by name. Of a name that stands twice, the last value counts.
    public var values: [String: String] {
        Dictionary(lines.compactMap(Self.entry)) { $1 }
    }

    /// Sets a value, or removes the setting.
    ///
    /// - Parameters:
    ///   - name: A name such as `NEPHOS_KEYVALUE_HEALTH_PORT`.
    ///   - value: One line of text; nil removes the setting.
    /// - Throws: ``CloudError`` `.invalidArguments` for a name or value that no line can hold.
    public mutating func set(_ name: String, to value: String?) throws(CloudError) {
        let line = "\(name)=\(value ?? "")"
        let isText = line.unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 }
        guard isText, let entry = Self.entry(line), entry.0 == name, value == nil || entry.1 == value else {
            throw CloudError(
                .invalidArguments, "A setting is NAME=VALUE on one line, without blanks around the value.",
                details: ["name": name])
        }
        let index = lines.lastIndex { Self.entry($0)?.0 == name }
        lines.removeAll { Self.entry($0)?.0 == name }
        guard value != nil else { return }
        lines.insert(line, at: min(index ?? lines.count, lines.count))
    }

    private static func isComment(_ line: String) -> Bool {
        let text = line.trimmingCharacters(in: .whitespaces)
        return text.isEmpty || text.hasPrefix("#")
    }

    private static func entry(_ line: String) -> (String, String)? {
        guard !isComment(line), !line.contains("\0"), !line.contains("\n"),
            let equals = line.firstIndex(of: "=")
        else { return nil }
        let name = line[..<equals].trimmingCharacters(in: .whitespaces)
        let isName =
            name.hasPrefix("NEPHOS_")
            && name.utf8.allSatisfy { byte in
                byte == UInt8(ascii: "_") || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            }
        guard isName else { return nil }
        return (name, line[line.index(after: equals)...].trimmingCharacters(in: .whitespaces))
    }
}

extension DeploymentFiles {
    public var settingsPath: String { "\(directory)/settings" }

    /// The deployment's settings; none where there is no such file.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid`, also when other users may write the file.
    public func settings() throws(CloudError) -> SettingsFile {
        guard access(settingsPath, F_OK) == 0 else {
            guard errno == ENOENT else { throw unreadableSettings }
            return SettingsFile()
        }
        try requirePermissions(settingsPath, isSecret: false)
        guard let data = FileManager.default.contents(atPath: settingsPath),
            let text = String(validating: data, as: UTF8.self)
        else { throw unreadableSettings }
        do { return try SettingsFile(text) } catch {
            var error = error
            error.details["file"] = settingsPath
            throw error
        }
    }

    /// Replaces the deployment's settings.
    ///
    /// - Throws: ``CloudError`` `.configurationInvalid` when the file cannot be written; the old one stays.
    public func write(_ settings: SettingsFile) throws(CloudError) {
        do { try AtomicFile.write(Data(settings.text.utf8), to: settingsPath, mode: 0o644) } catch {
            throw CloudError(
                .configurationInvalid, "A deployment file cannot be written. Check the folder's owner and space.",
                details: ["file": settingsPath])
        }
    }

    private var unreadableSettings: CloudError {
        CloudError(
            .configurationInvalid, "The deployment's settings cannot be read. Check the file's owner and content.",
            details: ["file": settingsPath])
    }
}

/// The settings that services have, by name. `docs/settings.md` explains each.
public enum SettingNames {
    /// Settings that may be given once for all services, or for one, as `NEPHOS_HEALTH_PORT` or
    /// `NEPHOS_KEYVALUE_HEALTH_PORT`.
    static let common = ["LISTEN_HOST", "LOG_LEVEL", "LOG_FORMAT", "MEMORY_BYTES_MAX", "HEALTH_PORT", "HEALTH_HOST"]

    /// Settings that every service has, each for itself.
    static let each =
        ["BUDGET", "ACCOUNT_BUDGET", "STRANGER_BUDGET"].flatMap { ["\($0)_CAPACITY", "\($0)_REFILL_PER_SECOND"] }
        + ["BUDGET_SPARE_PERCENT"]

    /// Settings of one service.
    static let own: [ServiceName: [String]] = [
        .identity: ["ACCESS_TOKEN_LIFETIME_SECONDS", "REFRESH_TOKEN_LIFETIME_DAYS", "SCRYPT_ROUNDS"],
        .keyValue: ["PROFILE"],
        .documents: [
            "STREAM_BYTES_MAX", "LIBRARY_BYTES_MAX", "PUBLISH_URL", "PUBLISH_LINKS_MAX", "PUBLISH_DAYS_MAX",
        ],
        .notifications: [
            "HEARTBEAT_MILLISECONDS", "CONNECTIONS_MAX", "CONNECTIONS_PER_DEVICE_MAX", "SUBSCRIBER_QUEUE_MAX",
        ],
        .web: ["PORT", "HOST", "BEHIND_PROXY", "CERTIFICATE", "KEY"],
    ]

    /// The services that read a setting; empty for a name that no service knows.
    public static func services(of name: String) -> [ServiceName] {
        if common.contains(where: { name == "NEPHOS_\($0)" }) { return ServiceName.all }
        return ServiceName.programs.filter { service in
            let names = common + (service == .web ? [] : each) + own[service, default: []]
            return names.contains { name == "NEPHOS_\(service.rawValue.uppercased())_\($0)" }
        }
    }

    /// Every name there is.
    public static var all: [String] {
        common.map { "NEPHOS_\($0)" }
            + ServiceName.programs.flatMap { service in
                (common + (service == .web ? [] : each) + own[service, default: []]).map {
                    "NEPHOS_\(service.rawValue.uppercased())_\($0)"
                }
            }
    }
}
