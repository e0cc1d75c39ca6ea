import Foundation
import Histogram
import NephosCore

/// Latencies of one run, in nanoseconds up to a minute, with three significant digits.
struct Latencies {
    private var histogram = Histogram<UInt64>(
        highestTrackableValue: 60_000_000_000, numberOfSignificantValueDigits: .three)

    mutating func record(_ latency: Duration) {
        _ = histogram.record(UInt64(clamping: max(1, min(latency.nanoseconds, 60_000_000_000))))
    }

    var count: Int { Int(histogram.totalCount) }

    /// Milliseconds at this percentile.
    func milliseconds(_ percentile: Double) -> Double {
        Double(histogram.valueAtPercentile(percentile)) / 1_000_000
    }

    var summary: LatencySummary? {
        guard count > 0 else { return nil }
        return LatencySummary(
            p50: milliseconds(50), p90: milliseconds(90), p99: milliseconds(99), p999: milliseconds(99.9),
            max: milliseconds(100))
    }
}

/// Percentiles in milliseconds.
struct LatencySummary: Encodable {
    var p50, p90, p99, p999, max: Double

    var text: String { String(format: "%.2f / %.2f", p50, p99) }
}

/// One setting's result, as it is printed.
struct LoadResult: Encodable {
    var scenario: String
    /// What was varied: writers, rate, subscribers.
    var parameters: [String: Double]
    var perSecond: Double
    var reply: LatencySummary?
    var notified: LatencySummary?
    var failures: Int
    /// Other figures, such as bytes of memory for each subscriber.
    var extra: [String: Double] = [:]
    /// The slowest and the fastest of the runs that this is the median of.
    var perSecondMin: Double?
    var perSecondMax: Double?
    var runs: Int?
}

/// The run of median throughput, with the slowest and the fastest beside it.
func median(_ results: [LoadResult]) -> LoadResult? {
    let sorted = results.sorted { $0.perSecond < $1.perSecond }
    guard var median = sorted.dropFirst(sorted.count / 2).first else { return nil }
    median.perSecondMin = sorted.first?.perSecond
    median.perSecondMax = sorted.last?.perSecond
    median.runs = sorted.count
    return median
}

/// A line on standard error that is written over, so that long work shows where it is.
struct Progress {
    var quiet: Bool

    func show(_ text: String) {
        guard !quiet else { return }
        let isTerminal = isatty(2) == 1
        Self.say(isTerminal ? "\r\u{1b}[K\(text)" : "\(text)\n")
    }

    func done() {
        guard !quiet, isatty(2) == 1 else { return }
        Self.say("\r\u{1b}[K")
    }

    /// Text on standard error; lost if nobody can take it.
    static func say(_ text: String) { _ = Array(text.utf8).withUnsafeBytes { write(2, $0.baseAddress, $0.count) } }
}

/// Prints one JSON document, with keys in snake case and the environment of the run.
func printJSON(_ value: some Encodable, isList: Bool = false) throws {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
    encoder.keyEncodingStrategy = .convertToSnakeCase
    encoder.dateEncodingStrategy = .iso8601
    print(String(decoding: try encoder.encode(WithEnvironment(value: value, isList: isList)), as: UTF8.self))
}

/// What a scenario found that is no table.
protocol RunSummary: Encodable {
    /// For people.
    var text: String { get }
}

/// Prints it as text or JSON.
func report(_ summary: some RunSummary, json: Bool) throws {
    if json {
        try printJSON(summary)
    } else {
        print(RunEnvironment.atStart.text + "\n" + summary.text)
    }
}

/// How often something failed, by code; nil: it never did.
func failureLine(_ name: String, _ codes: [String: Int]) -> String? {
    guard !codes.isEmpty else { return nil }
    return "failed \(name): " + codes.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
}

/// Prints results as a table or JSON.
func report(_ results: [LoadResult], columns: [String], json: Bool) throws {
    if json {
        return try printJSON(results, isList: true)
    }
    print(RunEnvironment.atStart.text)
    let extras = Set(results.flatMap(\.extra.keys)).sorted()
    let heading =
        columns + ["PER SECOND", "MIN", "MAX", "REPLY p50/p99 ms", "NOTIFIED p50/p99 ms"] + extras + ["FAILED"]
    let rows = results.map { result -> [String] in
        columns.map { String(format: "%g", result.parameters[$0] ?? 0) }
            + [
                String(format: "%.0f", result.perSecond),
                String(format: "%.0f", result.perSecondMin ?? result.perSecond),
                String(format: "%.0f", result.perSecondMax ?? result.perSecond), result.reply?.text ?? "-",
                result.notified?.text ?? "-",
            ] + extras.map { String(format: "%g", result.extra[$0] ?? 0) } + ["\(result.failures)"]
    }
    let widths = heading.indices.map { column in ([heading] + rows).map { $0[column].count }.max() ?? 0 }
    for row in [heading] + rows {
        print(
            row.enumerated().map { $1.padding(toLength: widths[$0], withPad: " ", startingAt: 0) }
                .joined(separator: "  "))
    }
}
