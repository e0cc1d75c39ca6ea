internal import NephosCore

/// One thing that a service tells in numbers, by the conventions of Prometheus: base units, `_total` for what only rises.
struct Metric: Sendable {
    enum Kind: String, Sendable { case counter, gauge, histogram }

    /// One line, or one histogram.
    struct Sample: Sendable {
        enum Value: Sendable {
            case whole(UInt64)
            case real(Double)
            /// With what its values are divided by: a billion, of nanoseconds.
            case buckets(Buckets, unit: Double)
        }

        var labels: [(name: String, value: String)] = []
        var value: Value
    }

    /// All that the figures are of.
    struct Source: Sendable {
        var service: ServiceFigures
        /// What the service adds, by the names of its counters.
        var own: [String: Int]
        var process: ProcessFigures

        func counted(_ name: String) -> UInt64 { service.counters[name] ?? 0 }

        /// The counters that are above zero, each with its label: an idle service has few series.
        func risen(_ counters: [(name: String, value: String)], label: String) -> [Sample] {
            counters.compactMap { name, value in
                counted(name) > 0 ? .whole(counted(name), (label, value)) : nil
            }
        }
    }

    var name: String
    var kind: Kind
    /// A sentence without its full stop.
    var help: String
    /// Nothing, where the service has no such thing.
    var samples: @Sendable (Source) -> [Sample]

    static func counter(
        _ name: String, _ help: String, _ samples: @escaping @Sendable (Source) -> [Sample]
    ) -> Metric { Metric(name: name, kind: .counter, help: help, samples: samples) }

    /// What is counted under a name of `CheckHealth`.
    ///
    /// - Parameter services: Who has it; nil: all.
    static func counter(_ name: String, _ help: String, counted: String, by services: [ServiceName]? = nil) -> Metric {
        counter(name, help) { source in
            guard services?.contains(source.service.service) ?? true else { return [] }
            return [.whole(source.counted(counted))]
        }
    }

    static func gauge(
        _ name: String, _ help: String, _ samples: @escaping @Sendable (Source) -> [Sample]
    ) -> Metric { Metric(name: name, kind: .gauge, help: help, samples: samples) }

    /// What the service adds under this name.
    static func gauge(_ name: String, _ help: String, own: String) -> Metric {
        gauge(name, help) { $0.own[own].map { [.whole($0)] } ?? [] }
    }

    static func histogram(
        _ name: String, _ help: String, _ samples: @escaping @Sendable (Source) -> [Sample]
    ) -> Metric { Metric(name: name, kind: .histogram, help: help, samples: samples) }
}

extension Metric.Sample {
    static func whole(_ value: UInt64, _ labels: (name: String, value: String)...) -> Metric.Sample {
        Metric.Sample(labels: labels, value: .whole(value))
    }

    static func whole(_ value: Int, _ labels: (name: String, value: String)...) -> Metric.Sample {
        Metric.Sample(labels: labels, value: .whole(UInt64(clamping: value)))
    }

    static func real(_ value: Double, _ labels: (name: String, value: String)...) -> Metric.Sample {
        Metric.Sample(labels: labels, value: .real(value))
    }

    static func seconds(_ buckets: Buckets, _ labels: (name: String, value: String)...) -> Metric.Sample {
        Metric.Sample(labels: labels, value: .buckets(buckets, unit: 1e9))
    }
}
