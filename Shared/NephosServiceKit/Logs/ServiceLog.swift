private import Foundation
internal import Logging
internal import NephosCore
internal import NephosStorage
internal import Synchronization

/// Where all lines of a process go: to standard error, each whole.
final class LogSink: Sendable {
    let format: LogFormat
    private let service: String
    private let write: @Sendable ([UInt8]) -> Void
    private let now: @Sendable () -> (wall: Timestamp, monotonic: Duration)
    private let rates = Mutex(LogRates())

    /// - Parameters:
    ///   - write: Takes a line; to standard error unless something else is said.
    ///   - now: What time it is.
    init(
        _ format: LogFormat, of service: ServiceName, write: @escaping @Sendable ([UInt8]) -> Void = LogSink.print,
        now: @escaping @Sendable () -> (wall: Timestamp, monotonic: Duration) = LogSink.systemTime
    ) {
        self.format = format
        self.service = service.rawValue
        self.write = write
        self.now = now
    }

    /// Lines that were left out since the start.
    var leftOut: Int { rates.withLock { $0.leftOut } }

    func log(_ level: Logger.Level, _ message: String, _ fields: [(name: String, value: String)]) {
        let time = now()
        let (isAdmitted, earlier) = rates.withLock { rates in
            let earlier = rates.takeLeftOut(at: time.monotonic)
            return (rates.admit(message, level, at: time.monotonic), earlier)
        }
        tell(earlier, at: time.wall)
        guard isAdmitted else { return }
        write(
            LogLine(time: time.wall, level: level, service: service, message: message, fields: fields)
                .written(as: format))
    }

    /// Says what was left out and not told yet. The last thing of a process.
    func end() {
        let time = now()
        tell(rates.withLock { $0.takeLeftOut(at: time.monotonic, all: true) }, at: time.wall)
    }

    private func tell(_ leftOut: [(message: String, count: Int)], at time: Timestamp) {
        for (message, count) in leftOut {
            write(
                LogLine(
                    time: time, level: .notice, service: service,
                    message: "Lines were left out: \(count) more like this",
                    fields: [("count", "\(count)"), ("like", message)]
                ).written(as: format))
        }
    }

    private static let print: @Sendable ([UInt8]) -> Void = { LogOutput.error.write($0) }

    private static let systemTime: @Sendable () -> (wall: Timestamp, monotonic: Duration) = {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return (.ofSystem, .nanoseconds(Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)))
    }
}

/// What loggers of a service write through.
struct ServiceLog: LogHandler {
    let sink: LogSink
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.info

    init(_ sink: LogSink) { self.sink = sink }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }
        // The sink says which service it is.
        let fields = all.filter { $0.key != "service" }.sorted { $0.key < $1.key }.map { ($0.key, "\($0.value)") }
        sink.log(event.level, "\(event.message)", fields)
    }
}

extension CloudError {
    /// Of the details what a log may have: nothing that a person wrote or named.
    var loggedDetails: String {
        details.filter { Self.logged.contains($0.key) || $0.key.hasSuffix("_max") }.sorted { $0.key < $1.key }
            .map { "\($0.key)=\($0.value)" }.joined(separator: " ")
    }

    private static let logged: Set = [
        "argument", "beside", "budget", "bytes", "capacity", "chunk", "class", "code", "errno", "error", "file",
        "key_id", "limit", "master_key_id", "maximum", "mode", "partition", "reason", "reserved_bytes", "segment",
        "segments", "server_time", "service", "size_bytes", "sqlite_code", "stored_bytes", "type", "used_bytes",
    ]
}
