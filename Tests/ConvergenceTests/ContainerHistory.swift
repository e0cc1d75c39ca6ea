import Foundation
import NephosBulk
import NephosBus
import NephosChunks
import NephosContent
import NephosCore
import NephosSimulation
import NephosStorage
import NephosWire

@testable import NephosKit

/// One seeded history of a container: devices put, move, delete and bring back; they lose their connection and are
/// restarted, services crash, disks fail, messages are lost, repeated and overtaken. Then everything heals, and what
/// was put is held against what devices and the service have.
///
/// The devices are sessions, used as an app uses them.
final class ContainerHistory {
    static let app = AppID("T.files")
    /// Of one app, which copies and moves between them.
    static let containers = ["T.files", "T.files.other"]

    /// What a device accepted.
    struct Put {
        var item: DocumentID
        /// Hash of its bytes, or the bytes themselves.
        var root: Data
        var inline: Data
        var path: String
        /// Nobody had it any more when the server came back without it.
        var isForgotten = false

        var bytes: Data { root + inline }
    }

    struct Member {
        let name: String
        var home: String
        let killer: DeviceKiller
        var session: Session?
        var isOffline = false
    }

    let simulation: Simulation
    let folder: String
    let store: SegmentStore
    var generator: SplitMix64
    var members: [Member] = []
    var puts: [Put] = []
    /// What somebody removed for good, or tried to: with all that was in it.
    var removed: Set<DocumentID> = []
    var removedContents: Set<Data> = []
    /// Contents whose change was refused, by root or bytes.
    var refused: Set<Data> = []
    static let uploadRetention = Duration.seconds(3600)
    var crashed: ServiceName?
    var counter = 0
    /// What the service once had on disk.
    var copies: [StorageCopy] = []
    var restoreCount = 0
    /// Whether the service comes back from old copies, and whether devices are ended.
    let hasRestores: Bool
    let hasKills: Bool
    private var trace: [String] = []

    init(seed: UInt64) throws {
        var generator = SplitMix64(seed: seed)
        hasRestores = Double.random(in: 0..<1, using: &generator) < 0.4
        hasKills = Double.random(in: 0..<1, using: &generator) < 0.4
        self.generator = generator
        folder = NSTemporaryDirectory() + "/container-history-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let store = try SegmentStore(folder: folder, segmentBytesMax: 1 << 20)
        self.store = store
        simulation = try Simulation {
            var configuration = Transfers.Configuration()
            configuration.retention = Self.uploadRetention
            let cloud = try TestCloud(
                seed: seed, content: ContentOptions(store: store, configuration: configuration))
            var app = WireApp()
            app.appID = Self.app.rawValue
            app.storeID = Self.app.rawValue
            app.containerIds = Self.containers
            try cloud.createApp(app)
            return cloud
        }
    }

    /// What went wrong in some histories, and how often something was made to, by the name of the place.
    struct Outcome: Sendable {
        var failures: [String] = []
        var struck: [String: Int] = [:]

        static func + (left: Outcome, right: Outcome) -> Outcome {
            Outcome(
                failures: left.failures + right.failures, struck: left.struck.merging(right.struck, uniquingKeysWith: +)
            )
        }
    }

    /// Whether the histories are as many as usual, or more.
    static var isWholeRun: Bool {
        let environment = ProcessInfo.processInfo.environment
        return ["NEPHOS_SEED", "NEPHOS_FIRST_SEED", "NEPHOS_SEEDS"].allSatisfy { environment[$0] == nil }
    }

    /// Runs the histories of the seeds from 1 to `count` and of those that went wrong before, or as the environment says.
    static func outcome(of count: Int, and wrong: [UInt64] = [], suite: String) async -> Outcome {
        let environment = ProcessInfo.processInfo.environment
        let one = environment["NEPHOS_SEED"].flatMap { UInt64($0) }
        let first = environment["NEPHOS_FIRST_SEED"].flatMap { UInt64($0) } ?? 1
        let last = environment["NEPHOS_SEEDS"].flatMap { UInt64($0) } ?? UInt64(count)
        let seeds = Array(one.map { $0...$0 } ?? first...max(first, last)) + (isWholeRun ? wrong : [])
        let lanes = UInt64(ProcessInfo.processInfo.activeProcessorCount)
        return await withTaskGroup(of: Outcome.self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    var outcome = Outcome()
                    for seed in seeds where seed % lanes == lane {
                        do {
                            let struck = try await ContainerHistory(seed: seed).run()
                            outcome.struck.merge(struck, uniquingKeysWith: +)
                        } catch {
                            let again = "Again with: NEPHOS_SEED=\(seed) swift test --filter \(suite)"
                            outcome.failures.append("\(error). \(again)")
                            if environment["NEPHOS_SEEDS"] != nil { print("seed \(seed): \(error)") }
                        }
                    }
                    return outcome
                }
            }
            return await group.reduce(Outcome(), +)
        }
    }

    /// - Returns: How often something was made to go wrong, by the name of the place.
    func run() async throws -> [String: Int] {
        defer { close() }
        do {
            try await begin()
            for _ in 0..<Int.random(in: 20...60, using: &generator) {
                try await step()
                try await pass()
            }
            try await heal()
            try await settle()
            if hasRestores, flip(0.7) { try await checkRestore() }
            try await checkEnd()
        } catch { throw Violation("\(error)" + trace.map { "\n\($0)" }.joined()) }
        return try struck()
    }

    private func pass() async throws {
        let pause = Duration.milliseconds(.random(in: 0...400, using: &generator))
        await simulation.run { [simulation] _ in simulation.advance(by: pause) }
        for index in members.indices where members[index].killer.isDead { try await revive(index) }
    }

    func settle() async throws {
        let left = await simulation.settle(within: .seconds(1200))
        guard left.isEmpty else { throw Violation("The devices did not settle: \(left)") }
    }

    private func struck() throws -> [String: Int] {
        var struck: [String: Int] = [:]
        for point in FaultPoint.all {
            let count = try simulation.use { try $0.faults.count(point.name) }
            if count > 0 { struck[point.name] = count }
        }
        for member in members {
            for (place, count) in member.killer.struck { struck["killed at \(place)", default: 0] += count }
        }
        return struck
    }

    private func close() {
        for member in members { member.session?.close() }
        simulation.close()
        try? FileManager.default.removeItem(atPath: folder)
        try? FileManager.default.removeItem(atPath: folder + "-package")
        for member in members { try? FileManager.default.removeItem(atPath: member.home) }
    }

    func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < probability }

    func note(_ text: @autoclosure () -> String) {
        trace.append("\(simulation.use { $0.network.now }): \(text())")
    }

    // MARK: Devices

    private func begin() async throws {
        for number in 1...Int.random(in: 2...3, using: &generator) {
            let name = "device-\(number)"
            members.append(
                Member(
                    name: name, home: "\(folder)-home-\(number)", killer: DeviceKiller(of: name, in: simulation)))
            if flip(0.2) {
                try simulation.use { cloud in
                    if Bool.random(using: &generator) {
                        try cloud.faults.fail("device.secrets")
                    } else {
                        try cloud.faults.leaveHalfDone("device.secrets")
                    }
                }
            }
            try await open(number - 1)
        }
        _ = await simulation.settle(within: .seconds(60))
        let faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: flip(0.4) ? 0.03 : 0,
            duplication: flip(0.4) ? 0.03 : 0, reordering: flip(0.4) ? 0.05 : 0)
        simulation.use { $0.network.faults = faults }
        try copyStorage()
    }

    /// Opens a device's session. A disk that fails then is tried again.
    func open(_ index: Int) async throws {
        for attempt in 1... {
            do { return try await openOnce(index) } catch let error as CloudError
                where error.code == .storageFailure && attempt < 8
            { note("  \(error)") }
        }
    }

    private func openOnce(_ index: Int) async throws {
        let member = members[index]
        member.session?.close()
        members[index].session = nil
        var options = simulation.makeOptions(of: member.name)
        let (ofPlan, killer, home) = (options.fault, member.killer, member.home)
        options.fault = {
            try killer.reach($0, home: home)
            try ofPlan?($0)
        }
        let session = try await Session.open(
            home: URL(fileURLWithPath: member.home), transport: simulation.transport(of: member.name), options: options)
        members[index].session = session
        simulation.use { $0.network.setOffline(member.name, false) }
        if try session.account == nil {
            let connection = try simulation.use { try $0.connection }.description
            try await session.signIn(
                connection: ConnectionString(connection), account: TestCloud.accountName, password: TestCloud.password,
                deviceName: member.name)
        }
        simulation.use { $0.network.setOffline(member.name, member.isOffline) }
        for name in Self.containers { _ = try await session.container(name, app: Self.app) }
    }

    /// Starts a device that was ended, with what is left of its home.
    private func revive(_ index: Int) async throws {
        members[index].session?.close()
        members[index].session = nil
        guard let remains = members[index].killer.takeRemains() else { return }
        note("\(members[index].name) was ended, and begins anew")
        // The last of its connections may close meanwhile, and takes files with it.
        let home = members[index].home
        for _ in 0..<100 where FileManager.default.fileExists(atPath: home) {
            try? FileManager.default.removeItem(atPath: home)
        }
        members[index].home = remains
        for line in ["send", "receive"] { try simulation.use { try $0.faults.clear("device.\(line)") } }
        try await open(index)
    }

    func container(_ index: Int, _ name: String = ContainerHistory.containers[0]) async throws -> UbiquityContainer? {
        guard let session = members[index].session else { return nil }
        return try await session.container(name, app: Self.app)
    }

    /// Every container as each device has it.
    func eachContainer(_ body: (Int, UbiquityContainer) async throws -> Void) async throws {
        for index in members.indices {
            for name in Self.containers {
                if let container = try await container(index, name) { try await body(index, container) }
            }
        }
    }
}
