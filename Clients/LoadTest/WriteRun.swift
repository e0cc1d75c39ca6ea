import ArgumentParser
import Foundation
import NephosBus
import NephosCore
import NephosZeroMQ
import Synchronization

/// What the two scenarios of writers take.
struct WriterOptions: ParsableArguments {
    @Option(help: "Writers at once, each with one push in flight.") var writers = Numbers([1, 16, 64, 256])
    @Option(help: "Pushes a second that arrive whether or not earlier ones were answered (instead of --writers).")
    var rate: Numbers?
    @Option(help: "Connections that the writers share (default: one for each).") var connections: Int?

    func validate() throws {
        guard connections ?? 1 > 0, writers.values.allSatisfy({ $0 <= 1024 }) else {
            throw ValidationError("--connections must be above zero; a store has 1024 keys, so --writers at most that.")
        }
    }

    /// What is run, one after another.
    var settings: [(writers: Int, rate: Double?)] {
        if let rate { return rate.values.map { (256, Double($0)) } }
        return writers.values.map { ($0, nil) }
    }
}

/// Runs writers against a deployment and reports what they saw.
struct WriteRun {
    var scenario: String
    var options: LoadOptions
    var writerOptions: WriterOptions
    /// Whether another device follows the store, and its deliveries are measured.
    var isFollowed: Bool

    func run() throws {
        let deployment = try LoadDeployment(directory: options.deployment)
        defer { deployment.close() }
        let transport = ZeroMQTransport()
        var results: [LoadResult] = []
        for setting in writerOptions.settings {
            var runs: [LoadResult] = []
            for number in 1...options.runs {
                let label =
                    setting.rate.map { "\(Int($0)) a second" } ?? "\(setting.writers) writers"
                runs.append(
                    try run(setting, on: deployment, transport, label: "\(label), run \(number) of \(options.runs)"))
            }
            if let result = median(runs) { results.append(result) }
        }
        let first = writerOptions.rate == nil ? "writers" : "rate"
        try report(results, columns: [first, "connections"], json: options.json)
    }

    /// Devices of a run; they share the connections. An account has a hundred at most, and each has to sign in.
    private static let devicesMax = 16

    private func run(
        _ setting: (writers: Int, rate: Double?), on deployment: LoadDeployment, _ transport: ZeroMQTransport,
        label: String
    ) throws -> LoadResult {
        let enrolment = try Enrolment(in: deployment, transport: transport)
        defer { enrolment.close() }
        let connections = min(writerOptions.connections ?? setting.writers, setting.writers)
        let writing = try enrolment.devices(min(connections, Self.devicesMax))
        let following = isFollowed ? try enrolment.devices(1).first : nil
        let plan = WritePlan(
            store: enrolment.store, keyValue: enrolment.keyValue,
            devices: (0..<connections).map { writing[$0 % writing.count] },
            writers: setting.writers, rate: setting.rate, valueBytes: options.bytes,
            subscriber: following.map { (enrolment.subscriptions, $0) },
            warmUp: .seconds(options.warmUp), duration: .seconds(options.seconds))
        let outcome = WriteOutcome()
        let (figures, used) = try measure(deployment, transport, outcome, label: label, quiet: options.quiet) {
            try WriteGenerator(loop: $0, plan: plan, outcome: outcome)
        }
        var parameters = ["writers": Double(setting.writers), "connections": Double(connections)]
        if let rate = setting.rate { parameters["rate"] = rate }
        var extra = used.microseconds(perEachOf: figures.answered)
        // Also before and after what is measured: what the service has to have counted.
        extra["answered_in_all"] = Double(outcome.answered.load(ordering: .relaxed))
        return LoadResult(
            scenario: scenario, parameters: parameters, perSecond: Double(figures.answered) / figures.seconds,
            reply: figures.replies.summary, notified: isFollowed ? figures.notified.summary : nil,
            failures: figures.failures, extra: extra)
    }
}

/// Runs a generator on a loop of its own until its outcome has ended.
///
/// - Throws: ``CloudError`` that ended the run.
func measure<Generator>(
    _ deployment: LoadDeployment, _ transport: ZeroMQTransport, _ outcome: WriteOutcome, label: String, quiet: Bool,
    _ makeGenerator: @escaping @Sendable (any BusLoop) throws -> Generator
) throws -> (figures: WriteOutcome.Figures, used: ProcessorTimes) {
    // Held here: a loop's sockets do not hold their handlers' owner.
    let held = Shelf<Generator>()
    let loop = try transport.startLoop(named: "load") { loop in held.put(try makeGenerator(loop), on: loop) }
    defer { loop.stop() }
    let used = ProcessorTimes(of: deployment, while: outcome, label: label, quiet: quiet)
    let figures = outcome.figures.withLock { $0 }
    if let error = figures.error { throw error }
    return (figures, used)
}

/// The processor time that each process of a run used while it was measured.
///
/// On a machine that others use too it tells more than the time on the wall.
struct ProcessorTimes {
    private var used: [(name: String, time: Duration)] = []

    /// Returns when the run has ended; shows its progress meanwhile.
    init(of deployment: LoadDeployment, while outcome: WriteOutcome, label: String, quiet: Bool) {
        let progress = Progress(quiet: quiet)
        let services: [ServiceName] = [.keyValue, .notifications]
        func sample() -> [(name: String, time: Duration)] {
            services.map { ("\($0)_cpu_us", deployment.processorTime(of: $0)) }
                + [("generator_cpu_us", LoadDeployment.ownProcessorTime)]
        }
        var before: [(name: String, time: Duration)]?
        var shown = ContinuousClock.now
        var count = 0
        while outcome.done.wait(timeout: .now() + .milliseconds(20)) == .timedOut {
            let isMeasuring = outcome.isMeasuring.load(ordering: .relaxed)
            if isMeasuring, before == nil { before = sample() }
            if !isMeasuring, let start = before, used.isEmpty {
                used = zip(start, sample()).map { ($0.name, $1.time - $0.time) }
            }
            let elapsed = shown.duration(to: .now)
            if elapsed >= .milliseconds(500) {
                let total = outcome.answered.load(ordering: .relaxed)
                let rate = Double(total - count) / (Double(elapsed.nanoseconds) / 1e9)
                progress.show("\(label): \(isMeasuring ? "measuring" : "warming up"), \(Int(rate)) a second")
                count = total
                shown = .now
            }
        }
        if let before, used.isEmpty { used = zip(before, sample()).map { ($0.name, $1.time - $0.time) } }
        progress.done()
    }

    /// Microseconds for each of so many requests.
    func microseconds(perEachOf count: Int) -> [String: Double] {
        guard count > 0 else { return [:] }
        return Dictionary(
            uniqueKeysWithValues: used.map {
                ($0.name, (Double($0.time.nanoseconds) / 100 / Double(count)).rounded() / 10)
            })
    }
}
