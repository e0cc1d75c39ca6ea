package import Logging
internal import Synchronization

/// What the services of a test have said in their logs.
package final class LogLines: Sendable {
    private let lines = Mutex<[String]>([])
    private let details = Mutex<[String]>([])

    package init() {}

    /// How many lines have this in their message.
    package func count(of text: String) -> Int { lines.withLock { $0.count { $0.contains(text) } } }

    /// Whether it is anywhere in what was said, the details among it.
    package func contains(_ text: String) -> Bool { details.withLock { $0.contains { $0.contains(text) } } }

    package var logger: Logger {
        Logger(label: "test") { _ in Handler(lines: self) }
    }

    private func add(_ line: String, _ level: Logger.Level, _ metadata: Logger.Metadata) {
        if level >= .info { lines.withLock { $0.append(line) } }
        details.withLock { $0.append("\(line) \(metadata)") }
    }

    private struct Handler: LogHandler {
        let lines: LogLines
        var metadata = Logger.Metadata()
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            lines.add("\(event.message)", event.level, metadata.merging(event.metadata ?? [:]) { $1 })
        }
    }
}
