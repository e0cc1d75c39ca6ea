import Foundation
import NephosCore

/// What was added to a log file from some moment on.
struct LogTail {
    private static let bytesMax = 65_536

    private let path: String
    private let start: UInt64

    /// From now on.
    init(_ path: String) {
        self.path = path
        let attributes = try? FileManager.default.attributesOfItem(atPath: path)
        start = (attributes?[.size] as? NSNumber)?.uint64Value ?? 0
    }

    /// From its beginning.
    init(whole path: String) {
        self.path = path
        start = 0
    }

    /// At most the last 64 KiB of it.
    private var lines: [Substring] {
        guard let file = FileHandle(forReadingAtPath: path) else { return [] }
        defer { try? file.close() }
        let end = (try? file.seekToEnd()) ?? 0
        let from = max(min(start, end), end > UInt64(Self.bytesMax) ? end - UInt64(Self.bytesMax) : 0)
        // Not to its end: what is put in its place may have none.
        guard (try? file.seek(toOffset: from)) != nil, let data = try? file.read(upToCount: Self.bytesMax) else {
            return []
        }
        return String(decoding: data, as: UTF8.self).split(separator: "\n")
    }

    var lastLine: String { lines.last.map { String($0.prefix(300)) } ?? "(empty)" }

    /// Why the program ended, where that is the last that it has said: what it said before may be of an earlier run.
    var failure: CloudError? { lines.last.flatMap { LoggedLine(String($0), of: "", after: "").failure } }

    /// The lines as a log has them.
    var logged: [LoggedLine] { lines.map { LoggedLine(String($0), of: "", after: "") } }

    /// Lines with this text.
    func count(of text: String) -> Int { lines.count { $0.contains(text) } }
}
