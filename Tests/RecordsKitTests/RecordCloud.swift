import Foundation
import NephosBus
import NephosContent
import NephosCore
import NephosRecords
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire

@testable import NephosKit

/// A cloud with records, and devices that are used as an app uses them. Time passes while somebody waits.
final class RecordCloud {
    static let app = AppID("T.notes")
    static let container = "T.notes.records"

    let simulation: Simulation
    let root = NSTemporaryDirectory() + "/nephos-records-" + UUID().uuidString
    private var sessions: [Session] = []
    private var names = 0

    /// - Parameter engine: Records' database; nil: in memory.
    init(seed: UInt64 = 1, engine: SQLiteEngine? = nil) throws {
        let assets = root + "-assets"
        simulation = try Simulation {
            try FileManager.default.createDirectory(
                atPath: assets, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            let store = try SegmentStore(folder: assets, segmentBytesMax: 1 << 20)
            let cloud = try TestCloud(
                seed: seed, engines: engine.map { [.records: $0] } ?? [:],
                contentServices: [.records: .init(store: store) { RecordsService($0) }])
            var app = WireApp()
            app.appID = Self.app.rawValue
            app.storeID = Self.app.rawValue
            app.containerIds = [Self.container, Self.container + ".other"]
            try cloud.createApp(app)
            return cloud
        }
    }

    deinit { close() }

    func close() {
        for session in sessions { session.close() }
        sessions = []
        simulation.close()
        for folder in [root, root + "-assets"] { try? FileManager.default.removeItem(atPath: folder) }
    }

    /// Gives the account a plan of its own.
    func setPlan(bytes: UInt64) throws {
        try simulation.use { cloud in
            try cloud.savePlan("small", bytes: bytes)
            var request = WireSetPlan()
            request.accountName = TestCloud.accountName
            request.planID = "small"
            try cloud.operate("SetPlan", request, as: WireSetPlanReply.self)
            cloud.network.run(for: .seconds(10))
        }
    }

    /// A device on which somebody is signed in, with the container's zones and its default zone downloaded.
    ///
    /// - Parameter home: That of a session that was closed; nil: a new one.
    func open(
        account: String = TestCloud.accountName, home: String? = nil
    ) async throws -> Device {
        let device = try await openFirst(account: account, home: home)
        try await device.database.waitUntilCurrent(timeout: .seconds(60))
        return device
    }

    /// The same, with nothing downloaded yet.
    func openFirst(account: String = TestCloud.accountName, home: String? = nil) async throws -> Device {
        let session = try await openSession(home: home)
        let name = "device-\(names)"
        if try session.account == nil {
            let connection = try simulation.use { try $0.connection }.description
            try await session.signIn(
                connection: ConnectionString(connection), account: account, password: TestCloud.password,
                deviceName: name)
        }
        let container = try await session.recordContainer(app: Self.app)
        return Device(name: name, session: session, database: container.privateDatabase, simulation: simulation)
    }

    /// A home on which nobody is signed in.
    func openSession(home: String? = nil) async throws -> Session {
        names += 1
        let name = "device-\(names)"
        let session = try await Session.open(
            home: URL(fileURLWithPath: home ?? root + "/" + name, isDirectory: true),
            transport: simulation.transport(of: name),
            options: simulation.makeOptions(of: name))
        sessions.append(session)
        return session
    }

    struct Device {
        let name: String
        let session: Session
        let database: RecordDatabase
        let simulation: Simulation

        func setOffline(_ offline: Bool) { simulation.use { $0.network.setOffline(name, offline) } }

        /// Waits until both sides have the same.
        func settle(_ zone: String = RecordZone.defaultName) async throws {
            try await database.waitUntilSent(zone: zone, timeout: .seconds(120))
            try await database.waitUntilCurrent(zone: zone, timeout: .seconds(120))
        }

        /// Records' fields, by name.
        func contents(_ zone: String = RecordZone.defaultName) async throws -> [String: [String: RecordValue]] {
            let records = try await database.records(matching: RecordQuery(), in: zone)
            return Dictionary(records.map { ($0.id.name, $0.fields) }) { $1 }
        }

        /// The server has what is here, and says so by its digest.
        func proves(_ zone: String = RecordZone.defaultName) async throws -> Bool {
            try await database.scope(of: zone).verify(timeout: .seconds(60)).agrees
        }
    }
}

func withRecords(seed: UInt64 = 1, _ body: (RecordCloud) async throws -> Void) async throws {
    let cloud = try RecordCloud(seed: seed)
    defer { cloud.close() }
    try await body(cloud)
}

extension Record {
    init(_ name: String, zone: String = RecordZone.defaultName, type: String = "Note", _ fields: [String: RecordValue])
    {
        self.init(RecordID(name, zone: zone), type: type, fields: fields)
    }
}
