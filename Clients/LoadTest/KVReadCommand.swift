import ArgumentParser
import Foundation
import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ
import SwiftProtobuf
import Synchronization

struct KVReadCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "kv-read", abstract: "How long a small write takes while others read whole stores.",
        discussion: """
            A deployment of its own. A device writes 50 small values a second, first alone; then devices of another \
            account, with a connection each, read a full store of 1000 keys and 1 MB, as often as --rate says in \
            all. More than --factor times as long for a write in the median is exit code 1, as is a read that fails.
            """)

    @Option(help: "Seconds to measure, once alone and once with the readers.") var seconds = 10.0
    @Option(help: "Whole reads a second.") var rate = 20
    @Option(help: "Devices that read.") var readers = 4
    @Option(help: "How much longer a write may take in the median.") var factor = 2.0
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard seconds >= 1, seconds <= 600 else { throw ValidationError("--seconds is from 1 to 600.") }
        guard rate >= 1, rate <= 10_000 else { throw ValidationError("--rate is from 1 to 10000.") }
        guard readers >= 1, readers <= 64 else { throw ValidationError("--readers is from 1 to 64.") }
    }

    func run() throws {
        let deployment = try LoadDeployment(directory: nil)
        defer { deployment.close() }
        let progress = Progress(quiet: quiet)
        let summary = try measure(deployment, progress)
        progress.done()
        try report(summary, json: json)
        if summary.beside.p50 > factor * summary.alone.p50 || summary.hasFailures { throw ExitCode(1) }
    }

    private func measure(_ deployment: LoadDeployment, _ progress: Progress) throws -> ReadSummary {
        progress.show("signing in")
        let transport = ZeroMQTransport()
        let writing = try Enrolment(in: deployment, transport: transport)
        let reading = try Enrolment(in: deployment, transport: transport)
        let devices = try reading.devices(readers)
        try reading.fill(as: devices[0], keys: 1000, bytes: 1000)
        let writer = PacedWriter(writing, try writing.devices(1)[0], transport: transport)
        // Neither the first statements nor the first connections.
        _ = try writer.run(for: .seconds(1))
        progress.show("the writer alone")
        let alone = try writer.run(for: .seconds(seconds))
        progress.show("with \(rate) whole reads a second")
        let reads = Shared(ReadSummary.Reads())
        let interval: Duration = .nanoseconds(Int64(1e9 * Double(readers) / Double(rate)))
        let loops = try devices.enumerated().map { number, device in
            // They have machines of their own, and give way to the writer's.
            try transport.startLoop(named: "reader \(number)", for: .content) { loop in
                let reader = try Reader(loop, reading, device, every: interval, reads)
                loop.schedule(after: interval / readers * number) { reader.start() }
            }
        }
        let beside = try writer.run(for: .seconds(seconds))
        for loop in loops { loop.stop() }
        guard let quiet = alone.latencies.summary, let loud = beside.latencies.summary else {
            throw CloudError(.serverResponseLost, "The writer was not answered at all.")
        }
        let outcome = reads.state.withLock { $0 }
        return ReadSummary(
            alone: quiet, beside: loud, reads: outcome.latencies.summary, readCount: outcome.count,
            failures: alone.failures.merging(beside.failures, uniquingKeysWith: +), readFailures: outcome.failures)
    }
}

/// A device that reads the whole store at a steady pace.
private final class Reader {
    private let loop: any BusLoop
    private let client: RequestClient
    private let device: LoadDevice
    private let store: String
    private let interval: Duration
    private let reads: Shared<ReadSummary.Reads>
    private var began = Duration.zero

    init(
        _ loop: any BusLoop, _ enrolment: Enrolment, _ device: LoadDevice, every interval: Duration,
        _ reads: Shared<ReadSummary.Reads>
    ) throws {
        self.loop = loop
        self.device = device
        self.interval = interval
        self.reads = reads
        store = enrolment.store
        client = try RequestClient(
            loop: loop,
            socket: RequestSocketOptions(
                endpoints: [enrolment.keyValue.endpoint], serverKey: enrolment.keyValue.key, keys: device.keys))
    }

    func start() {
        began = loop.monotonicNow
        next(0)
    }

    private func next(_ number: Int) {
        let intended = began + interval * number
        read(ChangesReading(.scope(store), after: .zero), since: intended)
        loop.schedule(after: max(.zero, intended + interval - loop.monotonicNow)) { self.next(number + 1) }
    }

    private func read(_ reading: ChangesReading, since intended: Duration) {
        client.call("ReadChanges", body: Frame(encoding: reading.request), accessToken: device.accessToken) { reply in
            do throws(CloudError) {
                let page = try reply.result.decoded(as: WireReadChangesReply.self).get()
                var reading = reading
                guard try reading.take(page) else { return self.read(reading, since: intended) }
                self.reads.state.withLock {
                    $0.count += 1
                    $0.latencies.record(self.loop.monotonicNow - intended)
                }
            } catch {
                self.reads.state.withLock { $0.failures["\(error.code)", default: 0] += 1 }
            }
        }
    }
}

struct ReadSummary: RunSummary {
    struct Reads: Sendable {
        var latencies = Latencies()
        var count = 0
        var failures: [String: Int] = [:]
    }

    /// The writer's latencies.
    var alone, beside: LatencySummary
    /// How long a whole read took; nil: none was finished.
    var reads: LatencySummary?
    var readCount: Int
    /// Of the writer and of the readers, by code.
    var failures, readFailures: [String: Int]

    var hasFailures: Bool { !failures.isEmpty || !readFailures.isEmpty || readCount == 0 }

    var text: String {
        func line(_ name: String, _ figures: LatencySummary) -> String {
            name + String(format: "  p50 %.2f  p99 %.2f  slowest %.2f ms", figures.p50, figures.p99, figures.max)
        }
        var lines = [line("writes alone        ", alone), line("writes beside reads ", beside)]
        lines.append(reads.map { line("whole reads         ", $0) + "  (\(readCount))" } ?? "no read was finished")
        lines += [failureLine("writes", failures), failureLine("reads", readFailures)].compactMap(\.self)
        return lines.joined(separator: "\n")
    }
}
