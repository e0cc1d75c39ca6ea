import Foundation
import NephosCore

/// One line of a log, of a service or of the supervisor.
struct LoggedLine {
    /// As it is written, `2026-03-01T12:00:00.123Z`: the order of texts is that of times. Of what a program cried out at
    /// its end: that of the line before.
    let time: String
    /// `notice` for what says none, `error` for what a program cried out at its end.
    let level: String
    let service: String
    /// In text, with what it is about.
    let message: String
    /// Where it is written as JSON.
    let fields: [String: String]?

    static let levels = ["trace", "debug", "info", "notice", "warning", "error", "critical"]

    /// - Parameter before: The time of the line before.
    init(_ text: String, of service: String, after before: String) {
        if text.hasPrefix("{"), let fields = try? JSONDecoder().decode([String: String].self, from: Data(text.utf8)),
            let time = fields["time"], Self.isTime(time), let level = fields["level"], Self.levels.contains(level)
        {
            self.time = time
            self.level = level
            self.service = fields["service"] ?? service
            message = fields["message"] ?? ""
            self.fields = fields
            return
        }
        self.service = service
        fields = nil
        let words = text.split(separator: " ", maxSplits: 3)
        guard words.count == 4, Self.isTime(words[0]), Self.levels.contains(String(words[1])) else {
            time = before
            level =
                text.hasPrefix("Error") || text.hasPrefix("Fatal error") || text.hasPrefix("*** ") ? "error" : "notice"
            message = text
            return
        }
        time = String(words[0])
        level = String(words[1])
        message = String(words[3])
    }

    private static func isTime(_ word: some StringProtocol) -> Bool {
        word.utf8.count == 24 && word.hasSuffix("Z") && word.utf8.dropFirst(10).first == UInt8(ascii: "T")
    }

    /// For whoever reads objects: also of a line that is none.
    var object: [String: String] {
        fields ?? ["time": time, "level": level, "service": service, "message": message]
    }

    /// For people: also of an object.
    var text: String {
        let rest = (fields ?? [:]).filter { !["time", "level", "service", "message"].contains($0.key) }
        let told = rest.sorted { $0.key < $1.key }.map { " \($0.key)=\($0.value)" }.joined()
        return "\(time) \(level) \(service): \(message)\(told)"
    }

    /// Whether it is about the request, or was caused by it.
    func concerns(_ request: String) -> Bool {
        if let fields { return fields["request.id"] == request || fields["cause.id"] == request }
        return Self.unquoted(message).split(separator: " ").contains {
            $0 == "request.id=\(request)" || $0 == "cause.id=\(request)"
        }
    }

    /// What a program has said at its end of why that is; nil: it is no such line.
    var failure: CloudError? {
        guard level == "critical" else { return nil }
        var details = fields ?? [:]
        for name in ["time", "level", "service", "message"] { details[name] = nil }
        var sentence = message
        if fields == nil, let mark = message.range(of: " code=") {
            sentence = String(message[..<mark.lowerBound])
            details = Self.values(message[mark.lowerBound...])
        }
        guard let name = details.removeValue(forKey: "code"),
            let code = CloudError.Code.all.first(where: { $0.description == name })
        else { return nil }
        return CloudError(code, sentence, details: details)
    }

    /// What `name=value` says, also where the value is quoted.
    private static func values(_ text: Substring) -> [String: String] {
        var values: [String: String] = [:]
        for match in text.matches(of: /([\w.]+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))/) {
            let quoted = match.2.map { String($0.replacing(/\\(.)/) { $0.output.1 }) }
            values[String(match.1)] = quoted ?? match.3.map { String($0) }
        }
        return values
    }

    /// What is not within a value that has spaces: what stands there may look like another field.
    private static func unquoted(_ message: String) -> String {
        var rest = String.UnicodeScalarView()
        var isQuoted = false
        var isEscaped = false
        for scalar in message.unicodeScalars {
            if scalar == "\"", !isEscaped { isQuoted.toggle() } else if !isQuoted { rest.append(scalar) }
            isEscaped = scalar == "\\" && !isEscaped
        }
        return String(rest)
    }
}

/// A log's file, and the part of it that was set aside when it was long (``LogRotation``).
struct LogFile {
    let service: String
    let path: String
    private var offset: UInt64 = 0
    /// Of a line that has no end yet.
    private var rest = Data()
    private var lastTime = ""
    /// Bytes that are read of a file at a time.
    private static let chunk = 1 << 20
    /// Bytes of a line; what is longer is more than one.
    private static let lineBytesMax = 64 << 10
    private static let lineEnd = Data([UInt8(ascii: "\n")])

    init(_ service: String, _ path: String) {
        self.service = service
        self.path = path
    }

    /// The last lines of all that there is.
    mutating func last(_ count: Int, where isWanted: (LoggedLine) -> Bool) -> [LoggedLine] {
        var kept: [LoggedLine] = []
        func keep(_ line: LoggedLine) {
            guard isWanted(line) else { return }
            kept.append(line)
            if kept.count >= 2 * count + 100 { kept.removeFirst(kept.count - count) }
        }
        _ = read(LogRotation.aside(path), from: 0, keep)
        news(keep)
        return kept.suffix(count)
    }

    /// What has come since.
    mutating func news(_ take: (LoggedLine) -> Void) {
        var information = stat()
        guard stat(path, &information) == 0 else { return }
        if information.st_size < offset {
            // It was cut; what came before that stands aside.
            _ = read(LogRotation.aside(path), from: offset, take)
            offset = 0
        }
        offset = read(path, from: offset, take)
    }

    /// - Returns: Where it ended.
    private mutating func read(_ path: String, from start: UInt64, _ take: (LoggedLine) -> Void) -> UInt64 {
        guard let file = FileHandle(forReadingAtPath: path) else { return start }
        defer { try? file.close() }
        guard let end = try? file.seekToEnd(), end > start, (try? file.seek(toOffset: start)) != nil else {
            return start
        }
        var offset = start
        // A file that grows faster than it is read has its turn again.
        while offset < end, let data = try? file.read(upToCount: Self.chunk), !data.isEmpty {
            offset += UInt64(data.count)
            split(data, take)
        }
        return offset
    }

    private mutating func split(_ data: Data, _ take: (LoggedLine) -> Void) {
        var start = data.startIndex
        while start < data.endIndex {
            let end = data.range(of: Self.lineEnd, in: start..<data.endIndex)
            rest += data[start..<(end?.lowerBound ?? data.endIndex)]
            start = end?.upperBound ?? data.endIndex
            guard end != nil || rest.count > Self.lineBytesMax else { return }
            guard !rest.isEmpty else { continue }
            let line = LoggedLine(String(decoding: rest, as: UTF8.self), of: service, after: lastTime)
            rest = Data()
            lastTime = line.time
            take(line)
        }
    }
}
