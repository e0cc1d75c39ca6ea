import ArgumentParser
import Dispatch
import Foundation
import Logging
import NephosCore
import NephosKit
import Synchronization

struct QueryCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "query", abstract: "How long queries of a container take on a device, and how much memory.",
        discussion: """
            Makes a home with so many items in a temporary folder; no service takes part. Each query gathers, and then \
            waits for a change that is made beside it: the seconds are until the first batch, until all was gathered, \
            and from the change to the update; the memory is how much more the process had at most than before.
            """)

    @Option(help: "Items of the container; several numbers give several tables.")
    var items = Numbers([10_000, 1_000_000])
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    /// What is asked, and in which order.
    private static let queries: [(predicate: String, sorts: String)] = [
        ("name == 'Folder 0'", ""), ("name LIKE[c] '*.pdf' AND size > 1000000", ""), ("TRUEPREDICATE", ""),
        ("name LIKE[c] '*.pdf' AND size > 1000000", "-modified"), ("TRUEPREDICATE", "-modified"),
        ("TRUEPREDICATE", "name[cd]"),
    ]

    func validate() throws {
        guard items.values.allSatisfy({ $0 <= 2_000_000 }) else {
            throw ValidationError("A container has at most 2000000 items.")
        }
    }

    func run() throws {
        let progress = Progress(quiet: quiet)
        let result = Mutex<Result<[QueryRow], any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            do {
                var rows: [QueryRow] = []
                for count in items.values { rows += try await measure(count, progress) }
                result.withLock { $0 = .success(rows) }
            } catch { result.withLock { $0 = .failure(error) } }
            done.signal()
        }
        done.wait()
        progress.done()
        try report(QuerySummary(rows: result.withLock { $0 }?.get() ?? []), json: json)
    }

    private func measure(_ count: Int, _ progress: Progress) async throws -> [QueryRow] {
        let folder = try TemporaryFolder()
        defer { folder.close() }
        try SampleContainer.fill(home: folder.path, count: count) { progress.show("\($0) of \(count) items") }
        var logger = Logger(label: "nephos.load")
        logger.logLevel = .critical
        let session = try await Session.open(
            home: URL(fileURLWithPath: folder.path, isDirectory: true), logger: logger)
        defer { session.close() }
        let container = try await session.container(SampleContainer.name, app: SampleContainer.app)
        var rows: [QueryRow] = []
        for (predicate, sorts) in Self.queries {
            progress.show("\(count) items: \(predicate), by \(sorts.isEmpty ? "nothing" : sorts)")
            rows.append(try await measure(predicate, sorts, container, count))
        }
        return rows
    }

    private func measure(
        _ predicate: String, _ sorts: String, _ container: UbiquityContainer, _ count: Int
    ) async throws -> QueryRow {
        let query = try container.query(
            "(\(predicate)) OR name == 'probe'", sortedBy: sorts.isEmpty ? [] : DocumentSort.parse(sorts))
        let before = Memory().resident
        Memory().forgetPeak()
        let start = ContinuousClock.now
        var first: Duration?
        var found = 0
        let events = query.makeAsyncIterator()
        gathering: while let event = try await events.next() {
            guard case .gathered(let entries) = event else { break gathering }
            first = first ?? ContinuousClock.now - start
            found += entries.count
        }
        let gathered = ContinuousClock.now - start
        let peak = Memory().peak
        let change = ContinuousClock.now
        try await container.makeFolder(at: "probe")
        guard case .updated = try await events.next() else {
            throw CloudError(.internalError, "What was made is told.")
        }
        let told = ContinuousClock.now - change
        try await container.trash.remove(try await container.trash(["probe"]))
        return QueryRow(
            items: count, predicate: predicate, sorts: sorts, found: found, firstSeconds: (first ?? gathered).seconds,
            gatheredSeconds: gathered.seconds, updateMilliseconds: told.seconds * 1000,
            megabytes: Double(max(0, peak - before)) / 1_000_000)
    }
}

/// What one query took.
private struct QueryRow: Encodable {
    var items: Int
    var predicate: String
    var sorts: String
    var found: Int
    var firstSeconds: Double
    var gatheredSeconds: Double
    var updateMilliseconds: Double
    var megabytes: Double
}

private struct QuerySummary: RunSummary {
    var rows: [QueryRow]

    var text: String {
        (["ITEMS  FOUND  FIRST s  GATHERED s  UPDATE ms  MB  PREDICATE, ORDER"]
            + rows.map { row in
                String(
                    format: "%d  %d  %.3f  %.2f  %.1f  %.0f  ", row.items, row.found, row.firstSeconds,
                    row.gatheredSeconds, row.updateMilliseconds, row.megabytes) + row.predicate
                    + (row.sorts.isEmpty ? "" : ", by \(row.sorts)")
            }).joined(separator: "\n")
    }
}
