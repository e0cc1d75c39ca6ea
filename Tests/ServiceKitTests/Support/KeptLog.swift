import Logging
import NephosCore
import Synchronization

@testable import NephosServiceKit

/// A log whose lines are kept, at a time that is turned by hand.
final class KeptLog: Sendable {
    private let lines = Mutex<[String]>([])
    private let now = Mutex(Duration.seconds(1000))

    func passes(_ time: Duration) { now.withLock { $0 += time } }

    func logger(_ format: LogFormat = .text) -> Logger {
        let sink = self.sink(format)
        return Logger(label: "test") { _ in ServiceLog(sink) }
    }

    func sink(_ format: LogFormat) -> LogSink {
        LogSink(
            format, of: .keyValue,
            write: { line in self.lines.withLock { $0.append(String(decoding: line, as: UTF8.self)) } },
            now: { (Timestamp(milliseconds: 1_772_366_400_123), self.now.withLock { $0 }) })
    }

    var all: [String] { lines.withLock { $0 } }
}
