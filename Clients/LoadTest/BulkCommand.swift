import ArgumentParser
import Foundation
import NephosBus
import NephosCore
import NephosZeroMQ

struct BulkCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bulk", abstract: "How fast content is stored and fetched, and how long a small write takes then.",
        discussion: """
            A deployment of its own. Devices of one account store chunks of random bytes, or of words, which are \
            compressed on their way to less than half, for as long as --seconds says, \
            each answered once it is sealed, on disk and in the index; then they fetch them again. A device of another \
            account writes 50 small values a second: first alone, and then beside each. What fails is exit code 1.
            """)

    @Option(help: "Seconds to measure, for each direction.") var seconds = 5.0
    @Option(help: "Devices that store and fetch.") var devices = 1
    @Option(help: "Bytes of a chunk.") var chunkBytes = 256 << 10
    @Flag(name: .long, help: "Chunks of words instead of random bytes.") var compressible = false
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        // The standard plan has room for 5 GB.
        guard seconds >= 1, seconds <= 10 else { throw ValidationError("--seconds is from 1 to 10.") }
        guard devices >= 1, devices <= 16 else { throw ValidationError("--devices is from 1 to 16.") }
        guard chunkBytes >= BulkLimits.chunkBytesMin, chunkBytes <= BulkLimits.chunkBytesMax else {
            throw ValidationError("--chunk-bytes is from 4096 to 1048576.")
        }
    }

    func run() throws {
        let deployment = try LoadDeployment(directory: nil)
        defer { deployment.close() }
        let progress = Progress(quiet: quiet)
        let summary = try measure(deployment, progress)
        progress.done()
        try report(summary, json: json)
        if summary.hasFailures { throw ExitCode(1) }
    }

    private func measure(_ deployment: LoadDeployment, _ progress: Progress) throws -> BulkSummary {
        progress.show("signing in")
        let transport = ZeroMQTransport()
        let writing = try Enrolment(in: deployment, transport: transport)
        let moving = try Enrolment(in: deployment, transport: transport)
        let writer = PacedWriter(writing, try writing.devices(1)[0], transport: transport)
        // Neither the first statements nor the first connections.
        _ = try writer.run(for: .seconds(1))
        progress.show("the writer alone")
        let alone = try writer.run(for: .seconds(seconds))
        let movers = try moving.devices(devices).map {
            BulkMover(
                moving, $0, transport: transport, chunkBytes: chunkBytes, isCompressible: compressible,
                roomBytes: 4_800_000_000 / UInt64(devices))
        }
        progress.show("storing")
        let up = try run(.store, movers, beside: writer, deployment)
        progress.show("fetching")
        let down = try run(.fetch, movers, beside: writer, deployment)
        return BulkSummary(alone: alone.latencies.summary, up: up, down: down)
    }

    private func run(
        _ direction: BulkMover.Direction, _ movers: [BulkMover], beside writer: PacedWriter,
        _ deployment: LoadDeployment
    ) throws -> BulkSummary.Leg {
        let duration = Duration.seconds(seconds)
        let start = (deployment.processorTime(of: .documents), LoadDeployment.ownProcessorTime)
        let runs = try movers.map { try $0.begin(direction, for: duration) }
        let writes = try writer.run(for: duration)
        let outcomes = runs.map { $0.wait() }
        let bytes = outcomes.reduce(0) { $0 + $1.bytes }
        let megabytes = Double(bytes) / 1e6
        func milliseconds(_ time: Duration) -> Double { Double(time.nanoseconds) / 1e6 / max(1, megabytes) }
        return BulkSummary.Leg(
            megabytesPerSecond: outcomes.reduce(0) { $0 + $1.bytesPerSecond } / 1e6, megabytes: megabytes,
            movedMegabytes: Double(outcomes.reduce(0) { $0 + $1.bytesMoved }) / 1e6,
            writes: writes.latencies.summary,
            serviceMillisecondsPerMegabyte: milliseconds(deployment.processorTime(of: .documents) - start.0),
            ownMillisecondsPerMegabyte: milliseconds(LoadDeployment.ownProcessorTime - start.1),
            serviceMegabytes: (deployment.residentBytes(of: .documents) ?? 0) / 1_000_000,
            failures: outcomes.reduce(into: writes.failures) { $0.merge($1.failures, uniquingKeysWith: +) })
    }
}

struct BulkSummary: RunSummary {
    struct Leg: Encodable {
        var megabytesPerSecond: Double
        var megabytes: Double
        /// What went over the line for them.
        var movedMegabytes: Double
        /// The writer's latencies meanwhile.
        var writes: LatencySummary?
        /// Processor time, of the service and of this process, for each megabyte.
        var serviceMillisecondsPerMegabyte: Double
        var ownMillisecondsPerMegabyte: Double
        /// What the service held of memory at the end.
        var serviceMegabytes: Int
        /// By code.
        var failures: [String: Int]
    }

    var alone: LatencySummary?
    var up, down: Leg

    var hasFailures: Bool { !up.failures.isEmpty || !down.failures.isEmpty || up.megabytes == 0 || down.megabytes == 0 }

    var text: String {
        func line(_ name: String, _ leg: Leg) -> String {
            name
                + String(
                    format: "  %.0f MB/s (%.0f MB, %.0f on the line; %.2f ms/MB in the service, %.2f here; service %d "
                        + "MB)",
                    leg.megabytesPerSecond, leg.megabytes, leg.movedMegabytes, leg.serviceMillisecondsPerMegabyte,
                    leg.ownMillisecondsPerMegabyte, leg.serviceMegabytes)
        }
        func line(_ name: String, _ writes: LatencySummary?) -> String {
            guard let writes else { return name + "  no write was answered" }
            return name + String(format: "  p50 %.2f  p99 %.2f  slowest %.2f ms", writes.p50, writes.p99, writes.max)
        }
        var lines = [
            line("stored              ", up), line("fetched             ", down),
            line("writes alone        ", alone), line("writes while storing", up.writes),
            line("writes while fetching", down.writes),
        ]
        lines += [failureLine("storing", up.failures), failureLine("fetching", down.failures)].compactMap(\.self)
        return lines.joined(separator: "\n")
    }
}
