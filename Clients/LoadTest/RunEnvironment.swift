import Foundation
import NephosServiceKit

/// The machine that a figure was measured on, so that a reader can judge it; printed with every result.
struct RunEnvironment: Encodable {
    var version = serviceKitVersion
    /// A debug build is several times slower.
    var build: String
    var date = Date()
    var processor: String
    var processors: Int
    var kernel: String
    /// The kind of file system that temporary deployments lie on.
    var fileSystem: String
    /// Processes that were running or waiting for a processor in the minute before, on average.
    var loadBefore: Double
    /// The machine had other work when the run began: its figures are not comparable.
    var isBusy: Bool

    /// As it was when the program began.
    static let atStart = RunEnvironment()

    private init() {
        #if DEBUG
            build = "debug"
        #else
            build = "release"
        #endif
        let model = Self.text("/proc/cpuinfo").split(separator: "\n").first { $0.hasPrefix("model name") }
        processor =
            model.flatMap { $0.split(separator: ":").last }.map { $0.trimmingCharacters(in: .whitespaces) } ?? "unknown"
        processors = ProcessInfo.processInfo.activeProcessorCount
        kernel = Self.text("/proc/sys/kernel/osrelease").trimmingCharacters(in: .whitespacesAndNewlines)
        fileSystem = Self.fileSystem(of: NSTemporaryDirectory())
        loadBefore = Self.text("/proc/loadavg").split(separator: " ").first.flatMap { Double($0) } ?? 0
        isBusy = loadBefore > 0.5 * Double(processors)
    }

    /// One line, and a second one where the figures are not comparable.
    var text: String {
        let day = ISO8601DateFormatter().string(from: date)
        let line =
            "nephos-load \(version) (\(build)), \(day); \(processors) x \(processor), Linux \(kernel), \(fileSystem), "
            + String(format: "load before %.2f", loadBefore)
        return isBusy
            ? line + "\nBUSY: the machine had other work when this run began; do not compare these figures." : line
    }

    private static func text(_ path: String) -> String {
        FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    /// The kind of the mount with the longest path above the folder.
    private static func fileSystem(of folder: String) -> String {
        let path = URL(fileURLWithPath: folder).standardizedFileURL.path
        let mounts = text("/proc/self/mounts").split(separator: "\n").compactMap {
            line -> (place: String, kind: String)? in
            let words = line.split(separator: " ")
            return words.count > 2 ? (String(words[1]), String(words[2])) : nil
        }
        return mounts.filter { path == $0.place || path.hasPrefix($0.place == "/" ? "/" : $0.place + "/") }
            .max { $0.place.utf8.count < $1.place.utf8.count }?.kind ?? "unknown"
    }
}

/// A result with the environment that it was measured in; its own keys stand beside `env`.
struct WithEnvironment<Value: Encodable>: Encodable {
    private enum Keys: CodingKey { case env, results }

    var value: Value
    /// A list has no keys of its own: it is `results`.
    var isList = false

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Keys.self)
        try container.encode(RunEnvironment.atStart, forKey: .env)
        if isList { try container.encode(value, forKey: .results) } else { try value.encode(to: encoder) }
    }
}
