import Foundation
import NephosBulk
import NephosBus
import NephosContent
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire

@testable import NephosKit

/// A cloud with containers, and devices that are used as an app uses them. Time passes while somebody waits.
final class ContainerCloud {
    static let app = AppID("T.files")
    static let narrowApp = AppID("T.narrow")
    static let container = "T.files.documents"

    let simulation: Simulation
    let root = NSTemporaryDirectory() + "/nephos-containers-" + UUID().uuidString
    private var sessions: [Session] = []
    private var names = 0

    /// - Parameter engine: Documents' database; nil: in memory.
    init(
        seed: UInt64 = 1, budgets: BudgetConfiguration = .unlimited,
        configuration: Transfers.Configuration = Transfers.Configuration(), engine: SQLiteEngine? = nil
    ) throws {
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
        let store = try SegmentStore(folder: root, segmentBytesMax: 1 << 20)
        simulation = try Simulation {
            let cloud = try TestCloud(
                seed: seed, budgets: budgets, engines: engine.map { [.documents: $0] } ?? [:],
                content: ContentOptions(store: store, configuration: configuration, linksMax: 100))
            var app = WireApp()
            app.appID = Self.app.rawValue
            app.storeID = Self.app.rawValue
            app.containerIds = [Self.container, Self.container + ".other"]
            try cloud.createApp(app)
            // It lists one of them alone.
            app.appID = Self.narrowApp.rawValue
            app.storeID = Self.narrowApp.rawValue
            app.containerIds = [Self.container + ".other"]
            try cloud.createApp(app)
            return cloud
        }
    }

    deinit { close() }

    /// Gives the account a plan of its own.
    func setPlan(bytes: UInt64) throws {
        try simulation.use { try $0.setPlan(bytes: bytes) }
    }

    func close() {
        for session in sessions { session.close() }
        sessions = []
        simulation.close()
        try? FileManager.default.removeItem(atPath: root)
    }

    /// A device on which somebody is signed in; on this home, if one is named.
    ///
    /// - Parameters:
    ///   - temporaryFolder: See ``DeviceOptions/temporaryFolder``.
    ///   - fault: Called at each of the device's own steps, such as `save`.
    func open(
        _ home: String? = nil, isOffline: Bool = false, temporaryFolder: String? = nil,
        fault: (@Sendable (String) throws -> Void)? = nil
    ) async throws -> Device {
        names += 1
        let name = "device-\(names)"
        var options = simulation.makeOptions(of: name)
        options.isOffline = isOffline
        options.temporaryFolder = temporaryFolder
        let ofPlan = options.fault
        if let fault {
            options.fault = {
                try fault($0)
                try ofPlan?($0)
            }
        }
        let session = try await Session.open(
            home: URL(fileURLWithPath: home ?? root + "/" + name, isDirectory: true),
            transport: simulation.transport(of: name),
            options: options)
        sessions.append(session)
        if try session.account == nil {
            let connection = try simulation.use { try $0.connection }.description
            try await session.signIn(
                connection: ConnectionString(connection), account: TestCloud.accountName, password: TestCloud.password,
                deviceName: name)
        }
        let container = try await session.container(app: Self.app)
        return Device(name: name, session: session, container: container, simulation: simulation)
    }

    /// Of what the service has of the item nothing can be read any more.
    func damage(_ path: String, of device: Device, isRestarted: Bool = true) async throws {
        let item = try await device.container.items().first { $0.path == path }
        guard let id = item?.id else { throw CloudError(.unknownItem, "No such item.", details: ["path": path]) }
        try simulation.use { cloud in
            _ = try cloud.storage(of: .documents).write { transaction in
                try transaction.execute(
                    SQL("UPDATE feed_items SET body = ?1 WHERE name = ?2"),
                    [.blob(Array("damaged!".utf8)), .text(id.name.rawValue)])
            }
            guard isRestarted else { return }
            cloud.crash(.documents)
            try cloud.start(.documents)
        }
    }

    /// Sets properties of the container, as its operator.
    func define(_ change: @escaping @Sendable (inout WireContainerDefinition) -> Void) throws {
        try simulation.use { cloud in
            var request = WireSaveContainer()
            request.definition.containerID = Self.container
            change(&request.definition)
            try cloud.operate("SaveContainer", request, as: WireSaveContainerReply.self)
            cloud.network.run(for: .seconds(5))
        }
    }

    struct Device {
        let name: String
        let session: Session
        let container: UbiquityContainer
        let simulation: Simulation

        /// The app's second container, downloaded.
        func openOther() async throws -> UbiquityContainer {
            let other = try await session.container(ContainerCloud.container + ".other", app: ContainerCloud.app)
            try await other.scope.waitUntilCurrent(timeout: .seconds(60))
            return other
        }

        func setOffline(_ offline: Bool) { simulation.use { $0.network.setOffline(name, offline) } }

        /// Waits until both sides have the same.
        func settle() async throws {
            try await container.scope.waitUntilSent(timeout: .seconds(60))
            try await container.scope.waitUntilCurrent(timeout: .seconds(60))
        }

        /// Everything, by path, without what is in the trash.
        func paths() async throws -> [String] { try await container.items().map(\.path).sorted() }

        func text(_ path: String) async throws -> String {
            String(decoding: try await container.read(path), as: UTF8.self)
        }
    }
}

func withContainers(
    seed: UInt64 = 1, budgets: BudgetConfiguration = .unlimited,
    configuration: Transfers.Configuration = Transfers.Configuration(), _ body: (ContainerCloud) async throws -> Void
) async throws {
    let cloud = try ContainerCloud(seed: seed, budgets: budgets, configuration: configuration)
    defer { cloud.close() }
    try await body(cloud)
}
