import Logging
import NephosBus
import NephosCore
import NephosSimulation
import NephosWire
import Testing

@testable import NephosKit

/// A device against a ``ScriptedCloud``.
final class Device {
    let cloud: ScriptedCloud
    let loop: any BusLoop
    var network: SimulatedNetwork { cloud.network }
    let local: LocalStore
    let secrets: any SecretStore
    private(set) var engine: DeviceEngine
    var changes: [ChangeNotification] = []
    /// What was told of who is signed in.
    var accountEvents: [UbiquityIdentityToken?] = []
    /// What was told of the account's plan.
    var storageNotices: [StorageNotice] = []
    /// How often a key pair was made.
    var madeKeys: Int { keyCount.value }
    private let keyCount = Count()

    private final class Count { var value = 0 }
    /// How many changes had been told at the end of each fetch.
    private(set) var changesAtFetches: [Int] = []
    var store: KeyValueSync { engine.keyValue(AppID("app.one")) }

    init(
        cloud: ScriptedCloud? = nil, name: String = "device", local: LocalStore? = nil,
        secrets: any SecretStore = MemorySecrets()
    ) throws {
        let cloud = try cloud ?? ScriptedCloud()
        self.cloud = cloud
        loop = cloud.network.makeLoop(named: name)
        self.local = try local ?? LocalStore()
        self.secrets = secrets
        engine = Self.makeEngine(loop, self.local, secrets, seed: 1, keyCount)
        try start()
    }

    private static func makeEngine(
        _ loop: any BusLoop, _ local: LocalStore, _ secrets: any SecretStore, seed: UInt64, _ count: Count
    ) -> DeviceEngine {
        var options = DeviceOptions()
        options.seed = seed
        return DeviceEngine(
            loop: loop, local: local, secrets: secrets, options: options, logger: Logger(label: "test")
        ) {
            count.value += 1
            let bytes = [UInt8](repeating: 9, count: 32)
            guard let publicKey = PublicKey(bytes: bytes), let secretKey = SecretKey(bytes: bytes) else {
                throw CloudError(.internalError, "These are 32 bytes.")
            }
            return KeyPair(publicKey: publicKey, secretKey: secretKey)
        }
    }

    private func start() throws {
        engine.onEvent = { [weak self] event in
            switch event {
            case .change(_, let notification): self?.changes.append(notification)
            case .accountChanged(let session): self?.accountEvents.append(session?.ubiquityIdentityToken)
            case .storage(let notice): self?.storageNotices.append(notice)
            case .didFetchChanges: self?.changesAtFetches.append(self?.changes.count ?? 0)
            }
        }
        try engine.start()
        _ = store
    }

    /// The process ends, and another one begins on the same disk.
    func restart() throws {
        engine.stop()
        engine = Self.makeEngine(loop, local, secrets, seed: 2, keyCount)
        try start()
    }

    func signIn(_ name: String = "anna", discardsUnsent: Bool = false) throws {
        var result: Result<SessionRecord, CloudError>?
        let identity = SessionRecord.Service(
            service: "identity", publicKey: Z85.encode(Array(repeating: 1, count: 32)), requests: ["tcp://identity"],
            subscriptions: [])
        engine.signIn(
            SignInRequest(
                identity: identity, accountName: name, password: "", deviceName: "here",
                discardsUnsent: discardsUnsent)
        ) { result = $0 }
        network.run(for: .milliseconds(300))
        _ = try #require(result).get()
    }

    /// Signed in, with the first pull done and nothing to be told.
    static func ready(_ cloud: ScriptedCloud? = nil) throws -> Device {
        let device = try Device(cloud: cloud)
        try device.signIn()
        device.network.run(for: .seconds(1))
        device.changes = []
        device.accountEvents = []
        device.cloud.requests = []
        return device
    }

    func state() throws -> ScopeState {
        try local.read { try StoreTransaction($0, try #require(store.scope)).state() }
    }

    var now: Timestamp { loop.wallClock.now }
}
