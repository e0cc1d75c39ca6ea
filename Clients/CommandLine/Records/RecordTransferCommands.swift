import ArgumentParser
import Foundation
import NephosCore
import NephosKit
import Synchronization

extension RecordsCommand {
    struct Export: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Print a zone's records as lines of JSON for nephos records import.",
            discussion: """
                An import restores every value exactly. Parents come before their children. The command waits \
                for the first download. Exit code 6: the download has not finished in time.

                A line has only the name of an asset's bytes. With --assets the bytes are written to a folder, \
                each once, for nephos records import. Lost assets are listed on standard error, and the rest is \
                exported (exit code 2 or 8).
                """)

        @OptionGroup var database: DatabaseOptions
        @OptionGroup var zone: ZoneOptions
        @Option(name: .long, help: "Only records of this type (default: all).") var type: String?
        @Option(
            name: .long, help: "The folder to write assets into (default: assets are not written).",
            completion: .directory)
        var assets: String?
        @OptionGroup var network: ReadOptions
        // It prints JSON in any case; this says how an error is printed.
        @OptionGroup var output: OutputOptions

        func run() async throws {
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                try await database.refresh(zone.zone, network)
                let folder = assets.map { AssetFolder(path: $0) }
                try folder?.make()
                if folder != nil { Interrupt.first { LocalParts.removeAll() } }
                var job = ExportJob(
                    database: database, zone: zone.zone, source: network.source(), assets: folder,
                    timeout: network.duration)
                do {
                    for try await page in database.pages(
                        matching: RecordQuery(type: type), in: zone.zone, from: network.source())
                    {
                        try await job.add(page)
                    }
                    try await job.finish()
                } catch {
                    job.failures.list("not exported")
                    throw error
                }
                job.failures.list("not exported")
                try job.failures.end()
            }
        }
    }

    struct Import: AsyncParsableCommand {
        static let configuration = CommandConfiguration(
            abstract: "Save records from lines of JSON, as nephos records export writes them.",
            discussion: """
                Records become exactly as the lines say; equal ones are not saved again. So you can run an \
                interrupted import again. A record that cannot be saved is reported with its line number. A \
                malformed line ends the import, and earlier records stay saved. Lines may be in any order: \
                parents are saved before their children.

                Assets come from the folder --assets. Without it the server must have their bytes in a record of \
                this account; otherwise the record is rejected.
                """)

        @Argument(help: "The file; - is standard input.", completion: .file()) var file: String
        @Option(name: .long, help: "Save into this zone (default: the zone of each line).") var zone: String?
        @Option(name: .long, help: "The folder with the assets of nephos records export.", completion: .directory)
        var assets: String?
        @Option(
            name: .long, help: "If another device has saved a record meanwhile: unchanged, changed-keys or all-keys.")
        var policy = PolicyArgument.unchanged
        @OptionGroup var database: DatabaseOptions
        @OptionGroup var network: NetworkOptions
        @OptionGroup var output: OutputOptions

        private struct Failure: Encodable {
            var line: Int
            var record: String
            var error: String
            var reason: String
        }

        private struct Report: Encodable {
            var state: String
            var saved: Int
            var unchanged: Int
            var reason: String?
            var failures: [Failure]
        }

        func run() async throws {
            let folder = assets.map { AssetFolder(path: $0) }
            try folder?.requireReadable()
            var lines = try RecordLines(file)
            defer { lines.close() }
            try await database.withDatabase(isOffline: network.offline) { database, _ in
                var job = ImportJob(database, network, policy: policy.policy, showsProgress: !output.json)
                Interrupt.first {
                    ProgressLine("importing", isShown: true).clear()
                    Standard.error(
                        "nephos: What was imported so far is kept. Import the same again, and it goes on.")
                }
                var order = try ParentsFirst()
                defer { order.close() }
                do {
                    while let line = try lines.next() {
                        let record = try read(line, number: lines.number)
                        guard try order.isNext(record, line, number: lines.number) else { continue }
                        try await add(record, line: lines.number, bytes: line.count, folder, to: &job)
                        job.show(lines.bytes, of: lines.size)
                    }
                    while let (line, number) = try order.next(read) {
                        try await add(read(line, number: number), line: number, bytes: line.count, folder, to: &job)
                    }
                    try await job.finish()
                } catch {
                    job.progress.clear()
                    // What came before the line that is none stays saved, and what waits in the batch is saved too.
                    var error = CloudError(wrapping: error)
                    if !job.isOver {
                        do { try await job.finish() } catch let own { error = CloudError(wrapping: own) }
                    }
                    if job.saved > 0, !job.isOver, error.code == .invalidArguments {
                        let others = job.failures.isEmpty ? "" : ", but for what is named"
                        error = CloudError(
                            error.code, "A line cannot be taken over as it is. What came before it was saved\(others).",
                            details: error.details)
                    }
                    error.details["saved"] = "\(job.saved)"
                    tell(job.failures)
                    throw error
                }
                job.progress.clear()
                let report = Report(
                    state: !job.failures.isEmpty ? "failed" : job.unsent == nil && !network.offline ? "sent" : "queued",
                    saved: job.saved, unchanged: job.unchanged, reason: job.unsent?.reason,
                    failures: job.failures.map {
                        Failure(
                            line: $0.line, record: $0.name, error: $0.error.code.description, reason: $0.error.sentence)
                    })
                tell(job.failures)
                try output.print(report, text: text(job))
                if let first = job.failures.first { throw ExitStatus.of(first.error) }
            }
        }

        private func read(_ line: [UInt8], number: Int) throws -> Record {
            let record = try RecordLines.record(line, number: number, zone: RecordZone.defaultName)
            guard let zone, zone != record.id.zone else { return record }
            return Record(
                RecordID(record.id.name, zone: zone), type: record.type, fields: record.fields, parent: record.parent)
        }

        private func add(
            _ record: Record, line: Int, bytes: Int, _ folder: AssetFolder?, to job: inout ImportJob
        ) async throws {
            let whole: Record
            do { whole = try await folder?.read(record) ?? record } catch let error as CloudError
                where error.code != .operationCancelled
            {
                return try job.fail(record, line: line, error)
            }
            try await job.add(whole, line: line, bytes: bytes)
        }

        private static let shownMax = 20

        /// Says to a person what could not be saved.
        private func tell(_ failures: [ImportJob.Failure]) {
            guard !output.json else { return }
            for failure in failures.prefix(Self.shownMax) {
                Standard.error("nephos: line \(failure.line): \(inLine(failure.name)): \(failure.error.sentence)")
            }
            if failures.count > Self.shownMax {
                Standard.error("nephos: and \(failures.count - Self.shownMax) more: --json")
            }
        }

        private func text(_ job: ImportJob) -> String {
            func count(_ number: Int) -> String { counted(number, "record") }
            var text = "Imported \(count(job.saved))."
            if job.unchanged > 0 {
                text += " \(count(job.unchanged)) \(job.unchanged == 1 ? "was" : "were") so already."
            }
            if !job.failures.isEmpty { text += " \(count(job.failures.count)) could not be saved." }
            if network.offline { return text + " They are kept here, and sent later." }
            return job.unsent?.text(text, isMany: true) ?? text
        }
    }
}

/// Prints records page by page. What belongs to another comes after all that belong to none, by its name and its parent's
/// until then: of a zone of any size no more is in memory.
private struct ExportJob {
    let database: RecordDatabase
    let zone: String
    let source: RecordSource
    /// Where assets are written to; nil: nowhere.
    let assets: AssetFolder?
    let timeout: Duration
    /// Assets that nobody can read any more.
    private(set) var failures = ItemFailures()
    private var parents: [String: String] = [:]

    init(database: RecordDatabase, zone: String, source: RecordSource, assets: AssetFolder?, timeout: Duration) {
        self.database = database
        (self.zone, self.source) = (zone, source)
        (self.assets, self.timeout) = (assets, timeout)
    }

    mutating func add(_ page: [Record]) async throws {
        for record in page {
            if let parent = record.parent {
                parents[record.id.name] = parent
            } else {
                try await write(record)
            }
        }
    }

    /// Those that belong to others, the highest first. Parents in a circle, as what waits to be sent may have, have an end
    /// too.
    mutating func finish() async throws {
        let known = parents
        func depth(_ name: String) -> Int {
            var (depth, above) = (0, known[name])
            while let name = above, depth < RecordLimits.parentsMax {
                depth += 1
                above = known[name]
            }
            return depth
        }
        let names = parents.keys.map { (depth: depth($0), name: $0) }.sorted { $0 < $1 }.map(\.name)
        for start in stride(from: 0, to: names.count, by: RecordLimits.itemsMax) {
            let ids = names[start..<min(start + RecordLimits.itemsMax, names.count)].map { RecordID($0, zone: zone) }
            let found = try await database.records(ids, from: source)
            for record in ids.compactMap({ found[$0] }) { try await write(record) }
        }
    }

    private mutating func write(_ record: Record) async throws {
        // Before its line: whoever reads that finds them.
        try await assets?.write(record, of: database, timeout: timeout, failures: &failures)
        try StandardOutput.write(printableJSON(RecordJSON.line(record)) + "\n")
    }
}

/// Records that are saved in batches, each within the limits and on the server before the next.
private struct ImportJob {
    struct Failure {
        var line: Int
        var name: String
        var error: CloudError
    }

    private struct Line {
        var number: Int
        var record: Record
    }

    /// Of a batch, as JSON: that is less than half of what it may be on the wire, since a real may be shorter as text.
    private static let bytesMax = 512 << 10
    /// After so many it is said, and nothing more is tried.
    private static let failuresMax = 100

    let progress: ProgressLine
    private let database: RecordDatabase
    private let network: RecordsCommand.NetworkOptions
    private let policy: RecordSavePolicy
    private var batch: [Line] = []
    private var ids: Set<RecordID> = []
    private var bytes = 0
    private var refreshed: Set<String> = []
    private(set) var saved = 0
    private(set) var unchanged = 0
    private(set) var failures: [Failure] = []
    /// It has ended by itself: nothing more is saved.
    private(set) var isOver = false
    /// Why it is only kept here; nil: the server has it so far.
    private(set) var unsent: Unsent?

    init(
        _ database: RecordDatabase, _ network: RecordsCommand.NetworkOptions, policy: RecordSavePolicy,
        showsProgress: Bool
    ) {
        self.database = database
        self.network = network
        self.policy = policy
        progress = ProgressLine("importing", isShown: showsProgress)
    }

    func show(_ done: Int, of total: Int?) { if let total { progress.show(done: done, total: total) } }

    mutating func add(_ record: Record, line: Int, bytes: Int) async throws {
        if !refreshed.contains(record.id.zone) {
            try await database.refresh(record.id.zone, network)
            refreshed.insert(record.id.zone)
        }
        let isFull = batch.count >= RecordLimits.itemsMax || self.bytes + bytes > Self.bytesMax
        if isFull || ids.contains(record.id) { try await finish() }
        batch.append(Line(number: line, record: record))
        ids.insert(record.id)
        self.bytes += bytes
    }

    /// Saves what there is of a batch.
    mutating func finish() async throws {
        let lines = batch
        (batch, ids, bytes) = ([], [], 0)
        guard !lines.isEmpty else { return }
        do { try await save(lines) } catch {
            isOver = true
            throw error
        }
    }

    /// A line's record cannot be saved.
    ///
    /// - Throws: The error, where nothing more is tried.
    mutating func fail(_ record: Record, line: Int, _ error: CloudError) throws {
        do { try fail(Line(number: line, record: record), error) } catch {
            isOver = true
            throw error
        }
    }

    private mutating func save(_ lines: [Line]) async throws {
        var changed: [Record]
        do {
            let merged = try await RecordsCommand.merged(
                lines.map(\.record), in: database, within: network.limit)
            changed = merged.records
            // What is so already may be so because it waits, since an import before.
            let zones = Set(lines.map(\.record.id.zone)).sorted()
            var sents: [(zone: String, sent: SentRecords)] = []
            for zone in zones { sents.append((zone, try await SentRecords(database, zone: zone))) }
            try await database.modify(saving: changed, deleting: [], policy: policy, atomically: false)
            unchanged += merged.unchanged
            saved += changed.count
            guard !network.offline, unsent == nil else { return }
            try await wait(lines, changed, sents)
        } catch {
            // Nothing of it was saved: which one it is, they say one by one.
            let error = CloudError(wrapping: error)
            guard error.code == .invalidArguments || error.code == .limitExceeded || error.code == .zoneNotFound else {
                throw error
            }
            guard lines.count > 1 else { return try fail(lines[0], error) }
            try await save(Array(lines[..<(lines.count / 2)]))
            try await save(Array(lines[(lines.count / 2)...]))
        }
    }

    private mutating func wait(
        _ lines: [Line], _ changed: [Record], _ sents: [(zone: String, sent: SentRecords)]
    ) async throws {
        let numbers = Dictionary(lines.map { ($0.record.id, $0) }) { $1 }
        for (zone, sent) in sents {
            unsent = try await sent.unsent(within: network.duration)
            if unsent != nil { return }
            let names = Set(changed.filter { $0.id.zone == zone }.map(\.id.name))
            let refused = try await sent.failures(of: names)
            saved -= refused.count
            // One request was too much for the server: the same in smaller ones.
            let isTooMuch = refused.count > 1 && refused.values.allSatisfy { $0.code == .limitExceeded }
            if isTooMuch {
                let again = lines.filter { $0.record.id.zone == zone && refused[$0.record.id.name] != nil }
                try await save(Array(again[..<(again.count / 2)]))
                try await save(Array(again[(again.count / 2)...]))
                continue
            }
            for (name, error) in refused.sorted(by: { $0.key < $1.key }) {
                guard let line = numbers[RecordID(name, zone: zone)] else { continue }
                try fail(line, error)
            }
        }
    }

    /// - Throws: The error, where whatever comes after it fails for the same.
    private mutating func fail(_ line: Line, _ error: CloudError) throws {
        failures.append(Failure(line: line.number, name: line.record.id.name, error: error))
        guard error.code == .quotaExceeded || failures.count >= Self.failuresMax else { return }
        var error = error
        error.details["line"] = "\(line.number)"
        error.details["record"] = line.record.id.name
        throw error
    }
}
