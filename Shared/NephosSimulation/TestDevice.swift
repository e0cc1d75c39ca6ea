internal import Logging
internal import NephosBus
package import NephosCore
package import NephosKit
package import SwiftProtobuf

/// One device of a ``TestCloud``: a loop, a local database, secrets, and the engine over them.
package final class TestDevice {
    package let name: String
    private(set) package var local: LocalStore
    private(set) var secrets: MemorySecrets
    /// Whether other processes may use this home.
    package let isShared: Bool
    /// How they find each other; nil: each does for itself.
    let way: SimulatedHome?
    /// Names the home that it shares with other processes, or has alone.
    package let home: String
    private let fault: (@Sendable (String) throws -> Void)?
    private(set) var clockOffset: Duration = .zero
    private unowned let cloud: TestCloud
    private var generator: SplitMix64
    private(set) package var isOffline = false
    /// What the app has been told, in order, over all restarts.
    private(set) package var changes: [ChangeNotification] = []
    /// What it was told of the account's plan.
    private(set) package var storageNotices: [StorageNotice] = []
    /// Nil while the device is switched off.
    private(set) package var engine: DeviceEngine?

    /// - Parameters:
    ///   - home: The name of a home that several processes share; nil: it is this one's alone.
    ///   - way: How those processes find each other.
    ///   - other: Another process of the home.
    init(
        name: String, cloud: TestCloud, seed: UInt64, home: String? = nil, way: SimulatedHome? = nil,
        sharing other: TestDevice? = nil, fault: (@Sendable (String) throws -> Void)? = nil
    ) throws {
        self.fault = fault
        isShared = home != nil
        self.way = way
        self.home = other?.home ?? name
        secrets = other.map { MemorySecrets(sharing: $0.secrets) } ?? MemorySecrets()
        self.name = name
        self.cloud = cloud
        generator = SplitMix64(seed: seed)
        let reach = cloud.makeFault(of: name)
        local = try home.map { try LocalStore(inMemory: $0, fault: reach) } ?? LocalStore(fault: reach)
        try start()
    }

    /// The store of the app that signed in.
    package var store: KeyValueSync? {
        guard let engine, let session = engine.session else { return nil }
        return engine.keyValue(session.defaultApp)
    }

    /// Who is signed in, or was last. Nil while the device is switched off.
    package var session: SessionRecord? { engine?.session }

    /// Switches the device on, with what its database holds.
    package func start() throws {
        guard engine == nil else { return }
        var options = DeviceOptions()
        options.seed = generator.next()
        let (reach, fault) = (cloud.makeFault(of: name), fault)
        options.fault = {
            try reach($0)
            try fault?($0)
        }
        options.pageItemsMax = cloud.pageItemsMax
        if isShared { options.foreignPoll = .milliseconds(250) }
        if let way = way.map({ Unshared($0) }) { options.makeWay = { way.value.way($0) } }
        let transport = cloud.transport
        let made = Unshared(Holder())
        let local = local
        let secrets = secrets
        let logger = cloud.logger
        let onEvent = Unshared<(DeviceEvent) -> Void> { [weak self] event in
            switch event {
            case .change(_, let change): self?.changes.append(change)
            case .storage(let notice): self?.storageNotices.append(notice)
            default: break
            }
        }
        let fixed = options
        let (network, name, clockOffset) = (Unshared(cloud.network), name, clockOffset)
        _ = try transport.startLoop(named: name) { loop in
            // It begins with the clock that its machine has.
            network.value.setClockOffset(name, clockOffset)
            let engine = DeviceEngine(
                loop: loop, local: local, secrets: secrets, options: fixed, logger: logger,
                makeKeyPair: { try transport.makeKeyPair() })
            engine.onEvent = { onEvent.value($0) }
            try engine.start()
            made.value.engine = engine
        }
        engine = made.value.engine
        cloud.network.setOffline(name, isOffline)
        _ = store
    }

    /// Switches the device off at once, as a crash does. What it accepted is on its disk.
    package func stop() {
        engine?.stop()
        engine = nil
        // A process that ends leaves no lock behind.
        secrets.unlock()
        cloud.network.crash(name)
    }

    /// A copy of the device's home, as it is now.
    package func copyHome() throws -> HomeCopy {
        HomeCopy(local: try LocalStore(copyOf: local), secrets: MemorySecrets(copyOf: secrets))
    }

    /// Switches the device off, and on again with a home as it once was: all of its processes.
    package func restoreHome(_ copy: HomeCopy) throws {
        guard isShared else {
            stop()
            local = try LocalStore(copyOf: copy.local)
            secrets = MemorySecrets(copyOf: copy.secrets)
            return try start()
        }
        let processes = cloud.devices.filter { $0.home == home }
        let running = processes.filter { $0.engine != nil }
        for process in processes { process.stop() }
        let name = cloud.nameHome(home)
        let made = try LocalStore(inMemory: name, copyOf: copy.local)
        let secrets = MemorySecrets(copyOf: copy.secrets)
        for process in processes {
            process.local = try LocalStore(inMemory: name, fault: cloud.makeFault(of: process.name))
            process.secrets = MemorySecrets(sharing: secrets)
        }
        // Until here it was what kept the database.
        withExtendedLifetime(made) {}
        for process in running { try process.start() }
    }

    /// Cuts the device off, or lets it back.
    package func setOffline(_ offline: Bool) {
        for process in machine {
            process.isOffline = offline
            cloud.network.setOffline(process.name, offline)
        }
    }

    /// The processes that have their network and their clock in common with this one.
    private var machine: [TestDevice] {
        way == nil
            ? [self] : cloud.devices.filter { $0.way === way } + (cloud.devices.contains { $0 === self } ? [] : [self])
    }

    /// Sets how far the device's wall clock is ahead.
    package func setClockOffset(_ offset: Duration) {
        for process in machine {
            process.clockOffset = offset
            cloud.network.setClockOffset(process.name, offset)
        }
    }

    private final class Holder {
        var engine: DeviceEngine?
    }

    /// Signs it in to an account, whatever it is signed in to now.
    package func signIn(as account: String, discardsUnsent: Bool = false) throws {
        guard let engine else { return }
        let connection = try cloud.connection
        let request = SignInRequest(
            identity: SessionRecord.Service(
                service: ServiceName.identity.rawValue, publicKey: connection.key.z85,
                requests: [connection.endpoint], subscriptions: []),
            accountName: account, password: TestCloud.password, deviceName: name, discardsUnsent: discardsUnsent)
        var result: Result<SessionRecord, CloudError>?
        engine.signIn(request) { result = $0 }
        cloud.network.run(within: .seconds(60)) { result != nil }
        guard let result else { throw CloudError(.networkFailure, "The device could not sign in in time.") }
        _ = try result.get()
        _ = store
    }

    /// Signs it out.
    package func signOut(keepsUnsent: Bool = false) throws {
        guard let engine else { return }
        var result: Result<SignedOut, CloudError>?
        engine.signOut(keepsUnsent: keepsUnsent) { result = $0 }
        cloud.network.run(within: .seconds(60)) { result != nil }
        guard let result else { throw CloudError(.networkFailure, "The device could not sign out in time.") }
        _ = try result.get()
    }

    /// Calls a service's method as this device, and lets time pass until it is answered.
    ///
    /// - Throws: ``CloudError``, the service's own, or `.deadlineExceeded` after a virtual minute.
    package func call<Request: SwiftProtobuf.Message, Reply: SwiftProtobuf.Message>(
        _ service: ServiceName, _ request: Request, as _: Reply.Type = Reply.self
    ) throws -> Reply {
        guard let engine, let app = engine.session?.defaultApp else {
            throw CloudError(.notSignedIn, "The device is switched off, or was never signed in.")
        }
        var result: Result<Reply, CloudError>?
        engine.call(service, request, as: Reply.self, app: app) { answer, _ in result = answer }
        cloud.network.run(within: .seconds(60)) { result != nil }
        guard let result else { throw CloudError(.deadlineExceeded, "The service did not answer in time.") }
        return try result.get()
    }

    // MARK: What tests ask

    /// How often its secrets were saved.
    package var secretSaves: Int { secrets.saveCount }
    /// Under how many names there are secrets.
    package var secretNames: Int { secrets.names.count }
    /// Whether it could still speak for anybody.
    package var holdsTokens: Bool { secrets.names.contains { secrets.load($0).hasTokens } }

    /// Nothing waits, and the first pull has finished.
    package var isSettled: Bool {
        guard let status = try? store?.status() else { return false }
        return status.isInSync
    }

    /// The device's place in the store's feed.
    package var head: ChangeToken? { try? store?.status().head }

    package var digest: SetDigest? { try? store?.status().digest }

    /// What the app sees.
    package var values: [ItemName: PropertyValue] { (try? store?.dictionary()) ?? [:] }
}

/// A copy of a device's home.
package final class HomeCopy {
    let local: LocalStore
    let secrets: MemorySecrets

    init(local: LocalStore, secrets: MemorySecrets) {
        self.local = local
        self.secrets = secrets
    }
}
