import ArgumentParser
import Foundation
import Logging
import NephosBus
import NephosCore
import NephosKit
import NephosServiceKit
import NephosWire
import NephosZeroMQ
import Synchronization

struct ScopeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scope", abstract: "How a device reads a scope of so many items, and how much memory that takes.",
        discussion: """
            Saves so many records into one zone of a deployment of its own. Then a device that has             nothing reads all of them; while it is away so many are changed, which it reads when it is back; and it             verifies its copy. Each time the device is a process of its own, with its home on the disk: the seconds             are from its beginning until its copy is the server's, the memory is what its process, and the service's,             had at most.
            """)

    @Option(help: "Records of the zone; several numbers give several tables.") var items = Numbers([100_000])
    @Option(help: "Of those, how many are changed while the device is away.") var changed = 100_000
    @Option(help: "Bytes of a record, beside some 250.") var bytes = 100
    @Flag(name: .long, help: "Print one JSON document.") var json = false
    @Flag(name: .long, help: "No progress on standard error.") var quiet = false

    func validate() throws {
        guard items.values.allSatisfy({ $0 <= 1_500_000 }) else { throw ValidationError("--items is 1500000 at most.") }
        guard changed > 0 else { throw ValidationError("--changed is above zero.") }
        // A request has 400 records.
        guard (0...4000).contains(bytes) else { throw ValidationError("--bytes is from 0 to 4000.") }
    }

    func run() throws {
        let rows = try RecordsBench.rows(of: items, quiet: quiet) { try ScopeRun(self, $0, count: $1).rows() }
        try report(ScopeSummary(rows: rows), json: json)
    }
}

/// What a device does with so many records, and its home.
private struct ScopeRun {
    private static let clients = 4

    let options: ScopeCommand
    let bench: RecordsBench
    private var deployment: LoadDeployment { bench.deployment }
    private var sample: SampleRecords { bench.sample }

    init(_ options: ScopeCommand, _ deployment: LoadDeployment, count: Int) throws {
        self.options = options
        bench = try RecordsBench(
            deployment, clients: Self.clients, count: count, dataBytes: options.bytes, quiet: options.quiet)
    }

    func rows() throws -> [ScopeRow] {
        let home = try TemporaryFolder()
        defer { home.close() }
        let sample = sample
        try write(sample.count) { sample.save($0) }
        var rows = [try row("whole scope", sample.count, home)]
        let changed = min(options.changed, sample.count)
        try write(changed) { sample.change($0) }
        rows.append(try row("one change", changed, home))
        rows.append(try row("verify", sample.count, home))
        return rows
    }

    /// Sends requests for all these records.
    private func write(_ count: Int, _ request: @escaping @Sendable (Range<Int>) -> LoadRequest) throws {
        let taken = Counter(0)
        let figures = try bench.measureClients(Self.clients, "\(count) are saved", WriteOutcome()) { _ in
            let first = taken.take(RecordsBench.batch)
            return first < count ? request(first..<min(first + RecordsBench.batch, count)) : nil
        }
        guard figures.failures == 0 else {
            throw CloudError(.internalError, "Records could not be saved.", details: ["failed": "\(figures.failures)"])
        }
    }

    /// Ends the service, which is started again: so what it has in memory is of one step. What the replies of more than a
    /// million changes of an account would cost in a day it does not remember either.
    private func renewService() throws {
        let former = try deployment.processID(of: .records)
        kill(former, SIGTERM)
        let deadline = ContinuousClock.now + .seconds(60)
        while case let pid = try? deployment.processID(of: .records), pid == nil || pid == former {
            guard ContinuousClock.now < deadline else {
                throw CloudError(.serviceUnavailable, "The service was not started again.")
            }
            usleep(20_000)
        }
        // It waits until the service answers.
        _ = try bench.indexes()
    }

    /// What a device does, in a process of its own.
    private func row(_ step: String, _ items: Int, _ home: TemporaryFolder) throws -> ScopeRow {
        bench.progress.show("\(sample.count) records: \(step)")
        try renewService()
        let service = Memory(of: try deployment.processID(of: .records))
        let before = service.resident
        let device = try ScopeDevice.run(
            [
                "--deployment", deployment.directory, "--account", bench.enrolment.account, "--app",
                bench.enrolment.store,
                "--home", home.path + "/home", "--items", "\(sample.count)",
            ] + (step == "verify" ? ["--verify"] : []))
        return ScopeRow(
            items: sample.count, step: step, read: items, seconds: device.seconds,
            deviceMegabytes: Double(device.peak) / 1_000_000, serviceMegabytes: Double(service.peak) / 1_000_000,
            serviceMegabytesBefore: Double(before) / 1_000_000)
    }
}

/// What a device does in a process of its own: it signs in where its home has nobody, gets in step, and perhaps verifies.
struct ScopeDevice: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "scope-device", shouldDisplay: false)
    /// How long nothing may come.
    private static let patience: Duration = .seconds(600)

    @Option var deployment: String
    @Option var account: String
    @Option var app: String
    @Option var home: String
    @Option(help: "Records that the zone has.") var items: Int
    @Flag var verify = false

    /// What it says of itself.
    struct Figures: Codable {
        var seconds: Double
        var peak: Int
    }

    func run() throws {
        let result = Mutex<Result<Figures, any Error>?>(nil)
        let done = DispatchSemaphore(value: 0)
        Task {
            let figures: Result<Figures, any Error>
            do { figures = .success(try await measured()) } catch { figures = .failure(error) }
            result.withLock { $0 = figures }
            done.signal()
        }
        done.wait()
        guard let figures = try result.withLock({ $0 })?.get() else { return }
        print(String(decoding: try JSONEncoder().encode(figures), as: UTF8.self))
    }

    private func measured() async throws -> Figures {
        let start = ContinuousClock.now
        var logger = Logger(label: "nephos.load")
        logger.logLevel = .critical
        let session = try await Session.open(
            home: URL(fileURLWithPath: home, isDirectory: true), logger: logger)
        defer { session.close() }
        if try session.account == nil { try await signIn(session) }
        let database = try await session.recordContainer(app, app: AppID(app)).privateDatabase
        if verify {
            guard try await database.scope(of: RecordZone.defaultName).verify(timeout: Self.patience).agrees else {
                throw Self.isNotTheSame
            }
        } else {
            try await database.waitUntilCurrent(timeout: Self.patience)
        }
        let seconds = (ContinuousClock.now - start).seconds
        let peak = Memory().peak
        guard try await database.scope(of: RecordZone.defaultName).status().isInSync,
            try await database.recordCount() == items
        else {
            throw Self.isNotTheSame
        }
        return Figures(seconds: seconds, peak: peak)
    }

    private func signIn(_ session: Session) async throws {
        let entry = try DeploymentFiles(directory: deployment).roster().entry(of: .identity)
        try await session.signIn(
            connection: ConnectionString(endpoint: entry.publicRequests ?? entry.requests, key: try entry.key),
            account: account, password: Enrolment.password, deviceName: "reader", app: AppID(app))
    }

    private static let isNotTheSame = CloudError(.internalError, "The device's copy is not the server's.")

    /// Runs it in a process of its own.
    static func run(_ arguments: [String]) throws -> Figures {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["scope-device"] + arguments
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let bytes = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        guard process.terminationStatus == 0 else {
            throw CloudError(.internalError, "The device did not get in step.")
        }
        return try JSONDecoder().decode(Figures.self, from: bytes)
    }
}

/// What one step took.
private struct ScopeRow: Encodable {
    var items: Int
    var step: String
    /// Items that the device read.
    var read: Int
    var seconds: Double
    /// Of the device's and the service's process at most, and of the service's before.
    var deviceMegabytes: Double
    var serviceMegabytes: Double
    var serviceMegabytesBefore: Double
}

private struct ScopeSummary: RunSummary {
    var rows: [ScopeRow]

    var text: String {
        (["ITEMS     READ      SECONDS  DEVICE MB  SERVICE MB  BEFORE  STEP"]
            + rows.map { row in
                String(
                    format: "%-9d %-9d %-8.1f %-10.0f %-11.0f %-7.0f ", row.items, row.read, row.seconds,
                    row.deviceMegabytes, row.serviceMegabytes, row.serviceMegabytesBefore) + row.step
            }).joined(separator: "\n")
    }
}
