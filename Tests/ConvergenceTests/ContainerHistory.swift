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
    private static let app = AppID("T.files")
    static let container = "T.files"
    private static let names = ["a.txt", "b", "B", "鍵", "e\u{301}", "\u{e9}"]
    private static let folders = ["", "f/", "f/g/", "h/"]

    /// What a device accepted.
    private struct Put {
        var item: DocumentID
        /// Hash of its bytes, or the bytes themselves.
        var root: Data
        var inline: Data
        var path: String
    }

    private struct Member {
        let name: String
        let home: String
        var session: Session?
        var isOffline = false
    }

    private let simulation: Simulation
    private let folder: String
    private var generator: SplitMix64
    private var members: [Member] = []
    private var puts: [Put] = []
    /// What somebody removed for good, or tried to: with all that was in it.
    private var removed: Set<DocumentID> = []
    private var removedContents: Set<Data> = []
    /// Contents whose change was refused, by root or bytes.
    private var refused: Set<Data> = []
    private static let uploadRetention = Duration.seconds(3600)
    private var crashed: ServiceName?
    private var counter = 0
    private var trace: [String] = []

    init(seed: UInt64) throws {
        generator = SplitMix64(seed: seed)
        folder = NSTemporaryDirectory() + "/container-history-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        let store = try SegmentStore(folder: folder, segmentBytesMax: 1 << 20)
        simulation = try Simulation {
            var configuration = Transfers.Configuration()
            configuration.retention = Self.uploadRetention
            let cloud = try TestCloud(
                seed: seed, content: ContentOptions(store: store, configuration: configuration))
            var app = WireApp()
            app.appID = Self.app.rawValue
            app.storeID = Self.app.rawValue
            app.containerIds = [Self.container]
            try cloud.createApp(app)
            return cloud
        }
    }

    /// Runs the histories of the seeds from 1 to `count`, or as the environment says.
    ///
    /// - Returns: What went wrong.
    static func failures(of count: Int, suite: String) async -> [String] {
        let environment = ProcessInfo.processInfo.environment
        let one = environment["NEPHOS_SEED"].flatMap { UInt64($0) }
        let last = environment["NEPHOS_SEEDS"].flatMap { UInt64($0) } ?? UInt64(count)
        let seeds = one.map { $0...$0 } ?? 1...last
        let lanes = UInt64(ProcessInfo.processInfo.activeProcessorCount)
        return await withTaskGroup(of: [String].self) { group in
            for lane in 0..<lanes {
                group.addTask {
                    var failures: [String] = []
                    for seed in seeds where seed % lanes == lane {
                        do { try await ContainerHistory(seed: seed).run() } catch {
                            failures.append("\(error). Again with: NEPHOS_SEED=\(seed) swift test --filter \(suite)")
                        }
                    }
                    return failures
                }
            }
            return await group.reduce(into: []) { $0 += $1 }
        }
    }

    func run() async throws {
        defer { close() }
        do {
            try await begin()
            for _ in 0..<Int.random(in: 20...60, using: &generator) {
                try await step()
                let pause = Duration.milliseconds(.random(in: 0...400, using: &generator))
                await simulation.run { [simulation] _ in simulation.advance(by: pause) }
            }
            try await heal()
            let left = await simulation.settle(within: .seconds(1200))
            guard left.isEmpty else { throw Violation("The devices did not settle: \(left)") }
            try await checkEnd()
        } catch { throw Violation("\(error)" + trace.map { "\n\($0)" }.joined()) }
    }

    private func close() {
        for member in members { member.session?.close() }
        simulation.close()
        try? FileManager.default.removeItem(atPath: folder)
        try? FileManager.default.removeItem(atPath: folder + "-package")
    }

    private func flip(_ probability: Double) -> Bool { Double.random(in: 0..<1, using: &generator) < probability }

    private func note(_ text: @autoclosure () -> String) {
        trace.append("\(simulation.use { $0.network.now }): \(text())")
    }

    // MARK: Devices

    private func begin() async throws {
        for number in 1...Int.random(in: 2...3, using: &generator) {
            members.append(Member(name: "device-\(number)", home: "\(folder)-home-\(number)"))
            try await open(number - 1)
        }
        _ = await simulation.settle(within: .seconds(60))
        let faults = Faults(
            latency: .microseconds(200)...(.milliseconds(20)), loss: flip(0.4) ? 0.03 : 0,
            duplication: flip(0.4) ? 0.03 : 0, reordering: flip(0.4) ? 0.05 : 0)
        simulation.use { $0.network.faults = faults }
    }

    private func open(_ index: Int) async throws {
        let member = members[index]
        let session = try await Session.open(
            home: member.home, transport: simulation.transport(of: member.name),
            options: simulation.makeOptions(of: member.name))
        members[index].session = session
        if try session.account == nil {
            let connection = try simulation.use { try $0.connection }.description
            try await session.signIn(
                connection: ConnectionString(connection), account: TestCloud.accountName, password: TestCloud.password,
                deviceName: member.name)
        }
        simulation.use { $0.network.setOffline(member.name, member.isOffline) }
        _ = try await session.container(app: Self.app)
    }

    private func container(_ index: Int) async throws -> UbiquityContainer? {
        guard let session = members[index].session else { return nil }
        return try await session.container(app: Self.app)
    }

    // MARK: What happens

    private static let faults: [(String, FaultPoint.Kind)] = [
        ("documents.read", .fails), ("documents.commit", .fails), ("documents.commit", .halfDone),
        ("documents.send", .halfDone), ("documents.receive", .halfDone), ("documents.receive", .fails),
        ("documents.publish", .fails), ("device.save", .fails), ("device.read", .fails), ("device.receive", .halfDone),
        ("device.send", .halfDone),
    ]

    private func step() async throws {
        let index = Int.random(in: members.indices, using: &generator)
        let (member, place) = (members[index], path())
        switch Int.random(in: 0..<100, using: &generator) {
        case ..<22: try await put(index, at: place)
        case ..<26: try await putPackage(index, at: place)
        case ..<30: try await setRendition(index, of: place)
        case ..<36:
            try await change(index, "makes a folder \(place)") {
                try await $0.makeFolder(at: place, makesParents: true)
            }
        case ..<46:
            let (target, replaces) = (path(), flip(0.5))
            let source = flip(0.4) ? String(place.split(separator: "/").first ?? "f") : place
            try await change(index, "moves \(source) to \(target)") {
                try await $0.move(source, to: target, replaces: replaces)
            }
        case ..<56:
            let source = flip(0.3) ? String(place.split(separator: "/").first ?? "f") : place
            try await change(index, "trashes \(source)") { try await $0.trash([source]) }
        case ..<61: try await change(index, "restores") { try await $0.restore() }
        case ..<64: try await remove(index)
        case ..<66: try await read(index, place)
        case ..<67:
            try await change(index, "removes other versions of \(place)") {
                try await $0.removeOtherVersions(of: place)
            }
        case ..<74:
            members[index].isOffline = true
            note("\(member.name) offline")
            simulation.use { $0.network.setOffline(member.name, true) }
        case ..<84:
            members[index].isOffline = false
            note("\(member.name) online")
            simulation.use { $0.network.setOffline(member.name, false) }
        case ..<89:
            note("\(member.name) restarts")
            member.session?.close()
            members[index].session = nil
            // A disk that fails then is tried again.
            do { try await open(index) } catch let error as CloudError where error.code == .storageFailure {
                try await open(index)
            }
        case ..<94: try crashOrStart()
        default:
            guard let (name, kind) = Self.faults.randomElement(using: &generator) else { return }
            note("\(name) \(kind)")
            try simulation.use { cloud in
                if kind == .fails { try cloud.faults.fail(name) } else { try cloud.faults.leaveHalfDone(name) }
            }
        }
    }

    private func path() -> String {
        (Self.folders.randomElement(using: &generator) ?? "") + (Self.names.randomElement(using: &generator) ?? "a")
    }

    private func crashOrStart() throws {
        if let service = crashed {
            note("\(service) starts")
            try simulation.use { try $0.start(service) }
            crashed = nil
        } else {
            let service = flip(0.6) ? ServiceName.documents : flip(0.5) ? .identity : .notifications
            note("\(service) crashes")
            simulation.use { $0.crash(service) }
            crashed = service
        }
    }

    /// What an app may be told of a change that cannot be.
    private static let expected: Set<CloudError.Code> = [
        .unknownItem, .alreadyExists, .invalidArguments, .storeOutOfStep, .storageFailure, .constraintViolation,
    ]

    private func change(
        _ index: Int, _ text: String, _ body: (UbiquityContainer) async throws -> some Any
    ) async throws {
        note("\(members[index].name) \(text)")
        do {
            if let container = try await container(index) { _ = try await body(container) }
        } catch let error as CloudError where Self.expected.contains(error.code) { note("  \(error)") }
    }

    /// Bytes that no other put has; long ones have a beginning in common with others, or an end.
    private func bytes() -> Data {
        counter += 1
        let text = Data("put \(counter)".utf8)
        guard flip(0.35) else { return text }
        let lengths = [5000, 70_000, 300_000, 900_000]
        var shared = SplitMix64(seed: .random(in: 1...2, using: &generator))
        let length = lengths.randomElement(using: &generator) ?? 5000
        let body = Data((0..<length / 8).flatMap { _ in withUnsafeBytes(of: shared.next()) { Array($0) } })
        return flip(0.5) ? text + body : body + text
    }

    private func put(_ index: Int, at path: String) async throws {
        let data = bytes()
        try await change(index, "puts \(counter) of \(data.count) at \(path)") { container in
            let entry = try await container.put(data, at: path, makesFolders: true)
            let (root, inline) = try Self.root(of: data)
            puts.append(Put(item: entry.id, root: root, inline: inline, path: path))
        }
    }

    /// A folder with a file of its own, and one that others have too.
    private func putPackage(_ index: Int, at path: String) async throws {
        let package = folder + "-package"
        try FileManager.default.createDirectory(atPath: package + "/f", withIntermediateDirectories: true)
        let data = bytes()
        try data.write(to: URL(fileURLWithPath: package + "/f/x"))
        let list = try LocalPackage(LocalPath(package), allowsOpenDatabase: false).list
        let (root, inline) = try Self.root(of: Data(list.encoded()) + data)
        try await change(index, "puts \(counter) as a package at \(path)") { container in
            let entry = try await container.put(package: package, at: path, makesFolders: true)
            puts.append(Put(item: entry.id, root: root, inline: inline, path: path))
        }
    }

    private func setRendition(_ index: Int, of path: String) async throws {
        let (data, name) = (bytes(), flip(0.5) ? "small" : "large")
        if flip(0.2) {
            try await change(index, "takes \(name) of \(path) away") {
                try await $0.removeRendition(named: name, of: path)
            }
        } else {
            try await change(index, "sets \(counter) of \(data.count) as \(name) of \(path)") {
                try await $0.setRendition(data, named: name, of: path)
            }
        }
    }

    private static func root(of data: Data) throws -> (root: Data, inline: Data) {
        guard data.count > DocumentLimits.inlineBytesMax else { return (Data(), data) }
        var cutter = ContentCutter()
        try data.withUnsafeBytes { try cutter.take($0) }
        return (try Data(cutter.finish().root.bytes), Data())
    }

    /// Removes what this device has seen lie in the trash.
    private func remove(_ index: Int) async throws {
        try await change(index, "removes for good") { container in
            guard let batch = try await container.deletedItems().randomElement(using: &generator) else { return }
            try await container.remove(batch.batch)
            let roots = Set(batch.items.map(\.id))
            let gone = try container.read { documents in
                try documents.all().filter { item in
                    try roots.contains { try documents.isFolder(item.id, in: $0) }
                }
            }
            removed.formUnion(roots.union(gone.map(\.id)))
            // What was made again has another id.
            for content in gone.flatMap({ [$0.wire.content] + $0.wire.conflicts }) {
                removedContents.insert(content.root + content.inline)
            }
        }
    }

    private func read(_ index: Int, _ path: String) async throws {
        note("\(members[index].name) reads \(path)")
        do { _ = try await container(index)?.read(path, timeout: .seconds(2)) } catch let error as CloudError {
            note("  \(error)")
            guard error.code != .internalError else { throw error }
        }
    }

    // MARK: The end

    private func heal() async throws {
        note("everything heals")
        try simulation.use { cloud in
            cloud.network.faults = .none
            try cloud.faults.clear()
            for member in members { cloud.network.setOffline(member.name, false) }
        }
        for index in members.indices { members[index].isOffline = false }
        if crashed != nil { try crashOrStart() }
        for index in members.indices where members[index].session == nil { try await open(index) }
    }

    private func checkEnd() async throws {
        var trees: [[String]] = []
        for index in members.indices {
            guard let container = try await container(index) else { continue }
            trees.append(
                try await container.items().map {
                    "\($0.path) \($0.kind) \($0.version?.description ?? "-") \($0.conflictCount) \($0.renditionNames)"
                })
            try collectRefused(of: container)
        }
        for tree in trees where tree != trees[0] {
            throw Violation("Trees differ:\n\(trees[0].joined(separator: "\n"))\n--\n\(tree.joined(separator: "\n"))")
        }
        try await checkContents()
        for index in members.indices {
            members[index].session?.close()
            members[index].session = nil
        }
        // Uploads that nobody has closed have ended by then, and what is removed in steps is.
        simulation.advance(by: Self.uploadRetention + .seconds(300))
        let audit = try simulation.use { cloud in try ContainerAudit(of: cloud, app: Self.app.rawValue, Self.container)
        }
        try audit.check()
        try checkNothingIsLost(audit)
    }

    /// Every file can be read, and is as long as it says.
    private func checkContents() async throws {
        let index = Int.random(in: members.indices, using: &generator)
        guard let container = try await container(index) else { return }
        // Half of the time what the server has, and else what is here.
        if Bool.random(using: &generator) { try container.session.setContentCache(maxBytes: 0) }
        defer { try? container.session.setContentCache(maxBytes: nil) }
        for entry in try await container.items() where entry.kind != .folder {
            for name in entry.renditionNames { _ = try await container.rendition(named: name, of: entry.id) }
            if entry.kind == .package { _ = try await container.packageMembers(of: entry.id) }
            let data = try await container.read(entry.path)
            let (root, inline) = try Self.root(of: data)
            guard puts.contains(where: { $0.root == root && $0.inline == inline }) else {
                throw Violation("\(entry.path) has bytes that nobody put there: \(data.count)")
            }
        }
    }

    /// The bytes of what was refused are in the home until somebody has dismissed it.
    private func collectRefused(of container: UbiquityContainer) throws {
        let folder = try ContentFolder(home: container.session.local.home)
        for refusal in try container.read({ try $0.refusals() }) {
            note("refused on \(container.session.home): \(refusal.path): \(refusal.error)")
            guard let version = refusal.version else { continue }
            let data = try Data(contentsOf: URL(fileURLWithPath: folder.file(version)))
            let (root, inline) = try Self.root(of: data)
            refused.insert(root + inline)
        }
    }

    /// What was made again has another id.
    private func checkNothingIsLost(_ audit: ContainerAudit) throws {
        let kept = Set(audit.versions.values.joined().map { $0.root + $0.inline })
        let known = kept.union(refused).union(removedContents)
        for put in puts where !removed.contains(put.item) {
            guard known.contains(put.root + put.inline) else {
                throw Violation(
                    "What was put at \(put.path) is lost: \(put.item), \(String(decoding: put.inline, as: UTF8.self)); "
                        + "it has \(audit.versions[put.item]?.count ?? 0) versions")
            }
        }
    }
}
