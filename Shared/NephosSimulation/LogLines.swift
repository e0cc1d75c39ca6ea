package import Logging
internal import Synchronization

/// What the services of a test have said in their logs.
package final class LogLines: Sendable {
    private let lines = Mutex<[String]>([])

    package init() {}

    /// How many lines have this in their message.
    package func count(of text: String) -> Int { lines.withLock { $0.count { $0.contains(text) } } }

    package var logger: Logger {
        Logger(label: "test") { _ in Handler(lines: self) }
    }

    private func add(_ line: String) { lines.withLock { $0.append(line) } }

    private struct Handler: LogHandler {
        let lines: LogLines
        var metadata = Logger.Metadata()
        var logLevel = Logger.Level.info

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) { lines.add("\(event.message)") }
    }
}
