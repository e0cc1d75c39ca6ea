private import Foundation
internal import Logging
internal import NephosCore
internal import NephosStorage

/// How a service writes its log: `NEPHOS_LOG_FORMAT`.
public enum LogFormat: String, Sendable {
    /// For people: `2026-03-01T12:00:00.123Z warning keyvalue: A sentence. count=3`.
    case text
    /// For programs: an object on a line of its own.
    case json
}

/// One line of a service's log.
struct LogLine {
    var time: Timestamp
    var level: Logger.Level
    var service: String
    /// A constant sentence.
    var message: String
    /// What it is about, in order. `request.id` and `cause.id` are a request's, and that of the one which caused it.
    var fields: [(name: String, value: String)]

    /// Bytes of a value; what is longer ends with an ellipsis.
    static let valueBytesMax = 1024

    func written(as format: LogFormat) -> [UInt8] {
        switch format {
        case .text: text
        case .json: json
        }
    }

    private var text: [UInt8] {
        var line = "\(Self.describe(time)) \(level.rawValue) \(service): \(Self.plain(message))"
        for (name, value) in fields {
            let value = Self.plain(value)
            line += value.isEmpty || value.contains(" ") ? " \(name)=\"\(value)\"" : " \(name)=\(value)"
        }
        return Array((line + "\n").utf8)
    }

    private var json: [UInt8] {
        var all = [
            ("time", Self.describe(time)), ("level", level.rawValue), ("service", service), ("message", message),
        ]
        // What is said already is not said otherwise: a name that comes twice means another thing to each reader.
        for (name, value) in fields where !all.contains(where: { $0.0 == name }) { all.append((name, value)) }
        return Array(("{" + all.map { "\(Self.quoted($0)):\(Self.quoted($1))" }.joined(separator: ",") + "}\n").utf8)
    }

    private static func quoted(_ text: String) -> String {
        let inner = escaped(bounded(text), ["\\", "\""]) { scalar in
            // As JSON has it: in units of UTF-16.
            String(scalar).utf16.map { "\\u" + digits(String($0, radix: 16), 4) }.joined()
        }
        return "\"\(inner)\""
    }

    private static func plain(_ text: String) -> String {
        escaped(bounded(text), ["\\", "\""]) { "\\u{\(String($0.value, radix: 16))}" }
    }

    private static func bounded(_ text: String) -> String {
        text.utf8.count <= valueBytesMax ? text : String(decoding: text.utf8.prefix(valueBytesMax), as: UTF8.self) + "…"
    }

    /// One line, and no command to a terminal, whatever is in it.
    ///
    /// - Parameters:
    ///   - marks: Characters that get a backslash before them.
    ///   - escape: What stands for a character that is not seen.
    private static func escaped(
        _ text: String, _ marks: Set<Unicode.Scalar>, _ escape: (Unicode.Scalar) -> String
    ) -> String {
        guard text.utf8.contains(where: { $0 < 0x20 || $0 == 0x22 || $0 == 0x5c || $0 >= 0x7f }) else { return text }
        var escaped = ""
        for scalar in text.unicodeScalars {
            switch scalar.properties.generalCategory {
            case .control, .format, .lineSeparator, .paragraphSeparator, .unassigned, .privateUse, .surrogate:
                escaped += escape(scalar)
            default:
                if marks.contains(scalar) { escaped += "\\" }
                escaped.unicodeScalars.append(scalar)
            }
        }
        return escaped
    }

    private static func digits(_ text: String, _ count: Int) -> String {
        String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }

    /// UTC, with milliseconds: the order of lines is that of the texts.
    static func describe(_ time: Timestamp) -> String {
        var seconds = time_t(clamping: time.milliseconds / 1000)
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func digits(_ value: Int, _ count: Int) -> String { Self.digits(String(value), count) }
        let date =
            "\(digits(Int(parts.tm_year) + 1900, 4))-\(digits(Int(parts.tm_mon) + 1, 2))-\(digits(Int(parts.tm_mday), 2))"
        let clock = "\(digits(Int(parts.tm_hour), 2)):\(digits(Int(parts.tm_min), 2)):\(digits(Int(parts.tm_sec), 2))"
        return "\(date)T\(clock).\(digits(Int(time.milliseconds % 1000), 3))Z"
    }
}

/// The log of a process beside the services, in the same form: standard output.
public struct OwnLog: Sendable {
    private let name: String
    private let format: LogFormat

    /// - Parameter name: Stands in the place of a service's.
    public init(_ name: String) {
        self.name = name
        format = ProcessInfo.processInfo.environment["NEPHOS_LOG_FORMAT"].flatMap(LogFormat.init) ?? .text
    }

    /// A line; lost where nobody takes it, and that is all.
    public func write(_ message: String, isError: Bool = false) {
        let line = LogLine(
            time: .ofSystem, level: isError ? .error : .notice, service: name, message: message, fields: []
        ).written(as: format)
        LogOutput.standard.write(line)
    }
}
