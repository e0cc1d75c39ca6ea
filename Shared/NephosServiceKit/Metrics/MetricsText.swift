internal import NephosCore

/// The text in which metrics are told.
public enum MetricsFormat: Sendable {
    /// Prometheus' own, 0.0.4.
    case prometheus
    /// OpenMetrics 1.0.0.
    case openMetrics

    /// As an HTTP request's `Accept` asks for.
    public init(accept: [String]) {
        self = accept.contains { $0.lowercased().contains("application/openmetrics-text") } ? .openMetrics : .prometheus
    }

    public var contentType: String {
        switch self {
        case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
        case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
        }
    }
}

/// Writes metrics. Their number is that of the table, of methods and of codes, whatever clients send.
struct MetricsText {
    private let format: MetricsFormat
    private(set) var text = ""

    init(_ source: Metric.Source, as format: MetricsFormat) {
        self.format = format
        text.reserveCapacity(64 << 10)
        for metric in Metric.all { write(metric, metric.samples(source)) }
        if format == .openMetrics { text += "# EOF\n" }
    }

    private mutating func write(_ metric: Metric, _ samples: [Metric.Sample]) {
        guard !samples.isEmpty else { return }
        // To OpenMetrics the family of a counter has no suffix.
        let isCut = format == .openMetrics && metric.kind == .counter && metric.name.hasSuffix("_total")
        let family = isCut ? String(metric.name.dropLast("_total".count)) : metric.name
        text += "# HELP \(family) \(metric.help).\n# TYPE \(family) \(metric.kind.rawValue)\n"
        for sample in samples {
            switch sample.value {
            case .whole(let value): line(metric.name, sample.labels, "\(value)")
            case .real(let value): line(metric.name, sample.labels, "\(value)")
            case .buckets(let buckets, let unit): write(metric.name, sample.labels, buckets, unit)
            }
        }
    }

    private mutating func write(
        _ name: String, _ labels: [(name: String, value: String)], _ buckets: Buckets, _ unit: Double
    ) {
        var below: UInt64 = 0
        for (bound, count) in zip(buckets.bounds, buckets.counts) {
            below += count
            line(name + "_bucket", labels + [("le", "\(Double(bound) / unit)")], "\(below)")
        }
        let count = buckets.count
        line(name + "_bucket", labels + [("le", "+Inf")], "\(count)")
        line(name + "_sum", labels, "\(Double(buckets.sum) / unit)")
        line(name + "_count", labels, "\(count)")
    }

    /// Labels are words of our own: methods, codes, names of services. Nothing of them has to be escaped.
    private mutating func line(_ name: String, _ labels: [(name: String, value: String)], _ value: String) {
        text += name
        if !labels.isEmpty {
            text += "{" + labels.map { "\($0.name)=\"\($0.value)\"" }.joined(separator: ",") + "}"
        }
        text += " \(value)\n"
    }
}
