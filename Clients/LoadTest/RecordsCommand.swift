import ArgumentParser
import Foundation
import NephosBus
import NephosCore
import NephosWire
import NephosZeroMQ
import Synchronization

struct RecordsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "records", abstract: "Saves, queries and whole reads of a zone with so many records.",
        discussion: """
            A deployment of its own for each number of records. Each client has a connection of its own and one \
            request in flight. A record has a kind, a rank and a title of six words, which are indexed, a number and \
            100 bytes. Whatever the number of records, a query finds twenty: so a cost that grows is the service's.
            """)

    @Option(help: "Records of the zone; several numbers give several tables.") var records = Numbers([1000, 100_000])
    @Option(help: "Clients at once, for single saves and for reading one record.") var clients = Numbers([1, 16, 64])
    @Option(help: "Only this operation, by its name in the table, as \"kind ==\".") var only: String?
    @Option(help: "Seconds to measure each.") var seconds = 3.0
    @Option(help: "Seconds to warm up, not counted.") var warmUp = 0.5
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard seconds > 0, seconds <= 600, warmUp >= 0 else { throw ValidationError("--seconds is from 1 to 600.") }
        guard records.values.allSatisfy({ $0 >= 100 && $0 <= 1_500_000 }) else {
            throw ValidationError("--records is from 100 to 1500000.")
        }
        guard clients.values.allSatisfy({ $0 <= 256 }) else { throw ValidationError("--clients is 256 at most.") }
    }

    func run() throws {
        let rows = try RecordsBench.rows(of: records, quiet: quiet) {
            try RecordsRun(self, $0, count: $1).rows()
        }
        try report(RecordsSummary(rows: rows), json: json)
    }
}

/// What is measured of so many records.
private struct RecordsRun {
    private static let devicesMax = 16

    let options: RecordsCommand
    let bench: RecordsBench
    private var sample: SampleRecords { bench.sample }

    init(_ options: RecordsCommand, _ deployment: LoadDeployment, count: Int) throws {
        self.options = options
        bench = try RecordsBench(deployment, clients: Self.devicesMax, count: count, quiet: options.quiet)
    }

    func rows() throws -> [RecordsRow] {
        _ = try bench.call(sample.indexes, returning: WireModifyRecordIndexesReply.self)
        var rows = [try fill()]
        try waitForIndexes()
        // What was saved since: new records have new numbers.
        let used = Counter(sample.count)
        let sample = sample
        let known: @Sendable () -> Int = { Int.random(in: 0..<sample.count) }
        func measure(
            _ operation: String, _ clients: [Int], each: Int = 1, _ next: @escaping @Sendable (Int) -> LoadRequest?
        ) throws {
            guard options.only.map({ $0 == operation }) ?? true else { return }
            for count in clients { rows.append(try row(operation, count, each: each, next)) }
        }
        try measure("save", options.clients.values) { _ in
            let number = used.take(1)
            return sample.save(number..<number + 1)
        }
        try measure("change", [16]) { _ in sample.change(known(), to: known()) }
        try measure("save of 400", [1, 4], each: RecordsBench.batch) { _ in
            let first = used.take(RecordsBench.batch)
            return sample.save(first..<first + RecordsBench.batch)
        }
        try measure("fetch", options.clients.values) { _ in sample.fetch(known()) }
        try measure("kind ==", [1, 16]) { _ in sample.equal(to: known()) }
        try measure("rank >=, by rank", [1, 16]) { _ in sample.range(from: known()) }
        try measure("self CONTAINS", [1, 16]) { _ in sample.words(of: known()) }
        if options.only.map({ $0 == "whole zone" }) ?? true { rows.append(try sync()) }
        return rows
    }

    /// They are declared before the first record, and looked for records all the same.
    private func waitForIndexes() throws {
        while try bench.indexes().contains(where: { $0.state == .building }) {
            bench.progress.show("\(sample.count) records: indexes are being made")
            usleep(200_000)
        }
    }

    /// All records that there are before anything is measured.
    private func fill() throws -> RecordsRow {
        let left = Counter(0)
        let sample = sample
        var row = try row("fill", 4, each: RecordsBench.batch, isWhole: true) { _ in
            let first = left.take(RecordsBench.batch)
            guard first < sample.count else { return nil }
            return sample.save(first..<min(first + RecordsBench.batch, sample.count))
        }
        row.perSecond = Double(sample.count) / row.seconds
        return row
    }

    /// - Parameters:
    ///   - each: Records of a request.
    ///   - isWhole: Until nothing is left.
    private func row(
        _ operation: String, _ clients: Int, each: Int = 1, isWhole: Bool = false,
        _ next: @escaping @Sendable (Int) -> LoadRequest?
    ) throws -> RecordsRow {
        let outcome = WriteOutcome()
        let (warmUp, duration): (Duration, Duration) =
            isWhole ? (.zero, .seconds(7200)) : (.seconds(options.warmUp), .seconds(options.seconds))
        let start = usedTimes
        let figures = try bench.measureClients(
            clients, "\(operation), \(clients) clients", warmUp: warmUp, duration: duration, outcome, next)
        return RecordsRow(
            records: sample.count, operation: operation, clients: clients,
            perSecond: Double(figures.answered * each) / max(figures.seconds, 1e-9), reply: figures.replies.summary,
            used: (start, usedTimes), for: outcome.answered.load(ordering: .relaxed) * each,
            seconds: figures.seconds, failures: figures.failures)
    }

    /// Processor time of the service and of this program.
    private var usedTimes: (service: Duration, own: Duration) {
        (bench.deployment.processorTime(of: .records), LoadDeployment.ownProcessorTime)
    }

    /// The whole zone, as a device gets it that has nothing.
    private func sync() throws -> RecordsRow {
        bench.progress.show("\(sample.count) records: whole zone")
        var reading = ChangesReading(.scope("\(bench.enrolment.container)/\(SampleRecords.zone)"), after: .zero)
        let device = bench.devices[0]
        let line = try Call(to: bench.enrolment.records, keys: device.keys, transport: bench.transport)
        defer { line.close() }
        let start = usedTimes
        let began = monotonicNanoseconds()
        var count = 0
        var pages = Latencies()
        var isComplete = false
        while !isComplete {
            let asked = monotonicNanoseconds()
            let page = try line.make(
                reading.request, accessToken: device.accessToken, returning: WireReadChangesReply.self)
            pages.record(.nanoseconds(Int64(monotonicNanoseconds() - asked)))
            count += page.changes.count
            isComplete = try reading.take(page)
        }
        let seconds = Double(monotonicNanoseconds() - began) / 1e9
        return RecordsRow(
            records: sample.count, operation: "whole zone", clients: 1, perSecond: Double(count) / seconds,
            reply: pages.summary, used: (start, usedTimes), for: count, seconds: seconds, failures: 0)
    }
}

/// Numbers that are used once.
final class Counter: Sendable {
    private let next: Atomic<Int>

    init(_ first: Int) { next = Atomic(first) }

    /// The first of so many.
    func take(_ count: Int) -> Int { next.add(count, ordering: .relaxed).oldValue }
}

/// What one operation took.
struct RecordsRow: Encodable {
    var records: Int
    var operation: String
    var clients: Int
    /// Records, where a request has several.
    var perSecond: Double
    var reply: LatencySummary?
    /// Processor time of the service, and of this program, for each.
    var serviceMicroseconds: Double
    var ownMicroseconds: Double
    var seconds: Double
    var failures: Int

    init(
        records: Int, operation: String, clients: Int, perSecond: Double, reply: LatencySummary?,
        used: (before: (service: Duration, own: Duration), after: (service: Duration, own: Duration)),
        for count: Int, seconds: Double, failures: Int
    ) {
        self.records = records
        self.operation = operation
        self.clients = clients
        self.perSecond = perSecond
        self.reply = reply
        let each = 1000 * Double(max(1, count))
        serviceMicroseconds = Double((used.after.service - used.before.service).nanoseconds) / each
        ownMicroseconds = Double((used.after.own - used.before.own).nanoseconds) / each
        self.seconds = seconds
        self.failures = failures
    }
}

private struct RecordsSummary: RunSummary {
    var rows: [RecordsRow]

    var text: String {
        (["RECORDS  OPERATION         CLIENTS  PER SECOND  REPLY p50/p99 ms  SERVICE, OWN CPU us  FAILED"]
            + rows.map { row in
                String(format: "%-8d ", row.records)
                    + row.operation.padding(toLength: 18, withPad: " ", startingAt: 0)
                    + String(format: "%-8d %-11.0f ", row.clients, row.perSecond)
                    + (row.reply?.text ?? "-").padding(toLength: 18, withPad: " ", startingAt: 0)
                    + String(
                        format: "%.0f, %.0f  %d", row.serviceMicroseconds, row.ownMicroseconds, row.failures)
            }).joined(separator: "\n")
    }
}
