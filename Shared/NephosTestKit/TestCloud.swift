internal import Foundation
internal import NephosBus
internal import NephosContent
internal import NephosCore
public import NephosKit
internal import NephosRecords
internal import NephosSimulation
private import Synchronization

/// A whole deployment in the process of a test: all five services, and any number of devices, which are ordinary
/// sessions. Nothing of it uses the network, and its clock is the test's: see ``settle(within:)``.
///
///     let cloud = try await TestCloud()
///     let phone = try await cloud.openSession(account: "anna")
///     let laptop = try await cloud.openSession(account: "anna")
///     try phone.keyValueStore().set("dark", forKey: "theme")
///     try await cloud.settle()
///
/// Time passes only while somebody waits for it: for a session's call that is `async`, for ``settle(within:)``, or for
/// ``advance(by:)``; and then as fast as the machine can. The same seed gives the same history, as long as the test
/// does one thing after the other. Safe to use from any task.
public final class TestCloud: Sendable {
    /// The password of every account that is not given another.
    public static let password = NephosSimulation.TestCloud.password

    /// What is to go wrong, by name.
    public let faults: FaultPlan
    /// Where devices sign in: what a deployment's operator would hand out. It leads to this cloud, and only from
    /// devices of this cloud: those of ``openSession(account:password:device:app:)`` and ``onDevice(_:_:)``.
    public let connectionString: String
    private let simulation: Simulation
    private let root: String
    private let known = Mutex(Known())

    private struct Known {
        var accounts: Set<String> = []
        var deviceCount = 0
        /// Names of devices, so that one that the cloud makes up is not somebody's.
        var devices: Set<String> = []
    }

    /// Starts the services.
    ///
    /// - Parameters:
    ///   - seed: Of all that is left to chance.
    ///   - network: What may happen to messages from now on.
    ///   - waitingPassesTime: Whether a call of a session that waits for the server lets time pass by itself. False:
    ///     only ``settle(within:)`` and ``advance(by:)`` do, for tests of what an app does meanwhile; such a call has
    ///     to wait in a task of its own then.
    /// - Throws: ``CloudError`` when a service does not start.
    public init(
        seed: UInt64 = 1, network: NetworkConditions = .good, waitingPassesTime: Bool = true
    ) async throws(CloudError) {
        let root = NSTemporaryDirectory() + "/nephos-cloud-" + UUID().uuidString
        self.root = root
        do {
            for folder in ["/content", "/assets"] {
                try FileManager.default.createDirectory(
                    atPath: root + folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
            }
            simulation = try Simulation(waitingPassesTime: waitingPassesTime) {
                try NephosSimulation.TestCloud(
                    seed: seed, faults: network.faults,
                    contentServices: [
                        .records: .init(store: SegmentStore(folder: root + "/assets")) { RecordsService($0) }
                    ],
                    content: ContentOptions(store: SegmentStore(folder: root + "/content")))
            }
            (faults, connectionString) = try simulation.use { ($0.faults, try $0.connection.description) }
        } catch { throw CloudError(wrapping: error) }
    }

    deinit { close() }

    /// Ends the services and all devices, and removes their files. A cloud that nobody holds any more closes itself.
    public func close() {
        simulation.close()
        try? FileManager.default.removeItem(atPath: root)
    }

    // MARK: Accounts and devices

    /// Creates an account.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` when there is one of this name.
    public func createAccount(_ name: String, password: String = TestCloud.password) throws(CloudError) {
        do { try simulation.use { _ = try $0.createAccount(name, password: password) } } catch {
            throw CloudError(wrapping: error)
        }
        known.withLock { _ = $0.accounts.insert(name) }
    }

    /// Gives an account room for this many bytes.
    ///
    /// - Throws: ``CloudError`` when there is no such account.
    public func setPlan(bytes: UInt64, of account: String) throws(CloudError) {
        do { try simulation.use { try $0.setPlan(bytes: bytes, of: account) } } catch {
            throw CloudError(wrapping: error)
        }
    }

    /// Makes an app known, which has a key-value store of its own.
    ///
    /// - Parameters:
    ///   - sharing: Apps that use the store of another, by its id.
    ///   - containers: Ids of the containers of documents and records that it lists, the default one first. Each begins
    ///     with the app's team: `T.notes.files`.
    /// - Throws: ``CloudError`` when there is one of this id, or it cannot be one.
    public func createApp(
        _ app: AppID, sharing store: AppID? = nil, containers: [String] = []
    ) throws(CloudError) {
        do { try simulation.use { try $0.createApp(app, store: store ?? app, containers: containers) } } catch {
            throw CloudError(wrapping: error)
        }
    }

    /// Opens a session as an app does, signed in; creates the account if this is the first that is heard of it. Its
    /// key-value store is kept in step from the start, as by an app that opens it when it starts.
    ///
    /// - Parameters:
    ///   - device: Whose home it is, such as `phone`; nil: a new device's. One that is opened again is as it was when
    ///     its session was closed: the app has been restarted.
    ///   - app: As which app it signs in; nil: the deployment's default app.
    /// - Throws: ``CloudError`` as `Session.open` and `signIn` do.
    public func openSession(
        account: String, password: String = TestCloud.password, device: String? = nil, app: AppID? = nil
    ) async throws(CloudError) -> Session {
        if known.withLock({ !$0.accounts.contains(account) }) { try createAccount(account, password: password) }
        let session = try await openSession(device: device)
        let signedIn = try session.account
        if signedIn?.accountName != account {
            try await session.signIn(
                connection: connectionString, account: account, password: password, deviceName: name(of: session),
                app: app)
        }
        _ = try session.keyValueStore()
        return session
    }

    /// Opens a session on which nobody is signed in, or whoever was when it was closed.
    ///
    /// - Throws: ``CloudError`` as `Session.open` does.
    public func openSession(device: String? = nil) async throws(CloudError) -> Session {
        let name = try device.map { name throws(CloudError) in try checked(name) } ?? makeName()
        return try await Session.open(
            home: home(of: name), transport: simulation.transport(of: name), options: simulation.makeOptions(of: name),
            logger: .silent)
    }

    /// Runs code of an app that opens its sessions itself, as if it ran on this device: `Session.open` in it, and in
    /// tasks that it starts (not detached ones), leads to this cloud, and without a home to the device's.
    ///
    /// - Throws: What the body throws.
    public func onDevice<Value>(
        _ device: String, isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
    ) async throws -> Value {
        let name = try checked(device)
        let simulation = simulation
        let surroundings = SessionSurroundings(
            home: home(of: name), transport: simulation.transport(of: name),
            makeOptions: { simulation.makeOptions(of: name) })
        return try await SessionSurroundings.$current.withValue(surroundings) { try await body() }
    }

    /// What a session's device is called, in faults and in what ``NotSettled`` says.
    public func name(of session: Session) -> String {
        session.home.lastPathComponent
    }

    private func home(of name: String) -> URL { URL(fileURLWithPath: root + "/" + name, isDirectory: true) }

    private func makeName() -> String {
        known.withLock { known in
            var name: String
            repeat {
                name = "device-\(known.deviceCount)"
                known.deviceCount += 1
            } while !known.devices.insert(name).inserted
            return name
        }
    }

    private func checked(_ name: String) throws(CloudError) -> String {
        guard !name.isEmpty, !["content", "assets"].contains(name), !ServiceName.all.contains(ServiceName(name)),
            name.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-") })
        else {
            throw CloudError(
                .invalidArguments, "A device's name is made of letters, digits and hyphens, and is no service's.",
                details: ["name": name])
        }
        known.withLock { _ = $0.devices.insert(name) }
        return name
    }

    // MARK: Time

    /// The time, by every clock that nobody has set wrong. It begins on 1 January 2026.
    public var now: Timestamp {
        simulation.use { SimulatedNetwork.epoch.advanced(by: $0.network.now) }
    }

    /// Lets this much time pass.
    public func advance(by duration: Duration) async {
        let simulation = simulation
        await simulation.run { _ in simulation.advance(by: duration) }
    }

    /// Lets time pass until nothing is left to send or to hear: every signed-in device has sent what waits on it, and
    /// has what the services have; the services have heard of each other; no message is on its way. A write that was
    /// refused, and told, is done with.
    ///
    /// What the app does with that on tasks of its own is not waited for.
    ///
    /// - Parameter limit: How long it may take, by the cloud's clock.
    /// - Throws: ``NotSettled``, which says what was left.
    public func settle(within limit: Duration = .seconds(600)) async throws(NotSettled) {
        let left = await simulation.settle(within: limit)
        guard left.isEmpty else { throw NotSettled(left: left) }
    }

    /// Sets how far a device's wall clock is ahead. For as long as its session is open.
    public func setClock(of session: Session, ahead: Duration) {
        let name = name(of: session)
        simulation.use { $0.network.setClockOffset(name, ahead) }
    }

    /// How many things have happened so far, and when: the same for the same seed.
    public var history: String { simulation.use { "\($0.network.eventCount) events in \($0.network.now)" } }

    // MARK: The network and the services

    /// Sets what may happen to messages from now on.
    public func setNetwork(_ conditions: NetworkConditions) {
        simulation.use { $0.network.faults = conditions.faults }
    }

    /// Takes a device off the network. Its messages are lost without a sign.
    public func disconnect(_ session: Session) { setOffline(session, true) }

    /// Brings it back.
    public func connect(_ session: Session) { setOffline(session, false) }

    private func setOffline(_ session: Session, _ isOffline: Bool) {
        let name = name(of: session)
        simulation.use { $0.network.setOffline(name, isOffline) }
    }

    /// Lets no message pass between these devices and these services, until ``joinAll()``.
    public func separate(_ sessions: [Session], from services: [ServiceName]) {
        let names = Set(sessions.map { name(of: $0) })
        simulation.use { $0.separate(names, from: services) }
    }

    /// Lets messages pass between all that were separated.
    public func joinAll() { simulation.use { $0.joinAll() } }

    /// Ends a service as `kill -9` does. What it has stored stays.
    public func crash(_ service: ServiceName) { simulation.use { $0.crash(service) } }

    /// Starts it again.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such service, and what keeps it from starting.
    public func start(_ service: ServiceName) throws(CloudError) {
        do { try simulation.use { try $0.start(service) } } catch { throw CloudError(wrapping: error) }
    }
}
