import NephosBus
import NephosCore
import NephosServiceKit
import NephosSimulation
import NephosStorage
import NephosWire
import SwiftProtobuf
import Synchronization
import Testing

@testable import NephosKeyValue

/// A whole cloud in one process, of which key-value is asked: every request comes through the host's door, with its
/// token and its budget.
///
/// Messages take no time on their way, so that calls that are begun together arrive together.
final class KeyValueHouse {
    /// An app on a device of an account. Each device has a connection of its own.
    struct Caller: Hashable {
        /// The account's name; it is created with the first call.
        var account: String
        var device: DeviceID
        var app: AppID
        var store: StoreID
    }

    let cloud: TestCloud
    /// Key-value's wall clock, as every request finds it. It stands still but for what a test lets pass.
    var now: Timestamp {
        didSet { setClock() }
    }
    /// What key-value has published and committed, in order.
    var events: [WireEvent] { listener.events }
    private let configuration: Box
    private let operatorClient: TestClient
    private var accounts: [String: AccountID] = [:]
    /// By account and device.
    private var clients: [[String]: TestClient] = [:]
    private var tokens: [Caller: (token: String, end: Timestamp)] = [:]
    private let listener: EventListener
    private var random = SplitMix64(seed: 7)

    private static let tokenLifetime: Duration = .seconds(900)

    private final class Box: Sendable {
        let value: Mutex<KeyValueConfiguration>
        init(_ value: KeyValueConfiguration) { self.value = Mutex(value) }
    }

    /// - Parameter engine: Nil: the database lives in memory.
    init(_ configuration: KeyValueConfiguration = KeyValueConfiguration(), engine: SQLiteEngine? = nil) throws {
        let box = Box(configuration)
        self.configuration = box
        cloud = try TestCloud(
            seed: 7, faults: Faults(latency: .zero ... .zero), budgets: BudgetConfiguration(),
            engines: engine.map { [.keyValue: $0] } ?? [:],
            factories: [.keyValue: { _ in KeyValueService(configuration: box.value.withLock { $0 }) }])
        operatorClient = cloud.makeOperator()
        listener = try cloud.makeListener(to: .keyValue)
        now = SimulatedNetwork.epoch.advanced(by: cloud.network.now)
        try connect(operatorClient)
    }

    deinit { cloud.close() }

    /// What key-value has on disk.
    var engine: SQLiteEngine { get throws { try cloud.storage(of: .keyValue) } }

    var lastNotification: WireNotification? { events.last?.notification }

    // MARK: Time

    /// How far key-value's clock is ahead of the simulation's.
    private var offset: Duration { now.since(SimulatedNetwork.epoch) - cloud.network.now }

    private func setClock() { cloud.network.setClockOffset(ServiceName.keyValue.rawValue, offset) }

    /// Lets this much time pass.
    func pass(_ duration: Duration) {
        setClock()
        cloud.network.run(for: duration)
        now = now.advanced(by: duration)
    }

    /// Lets much time pass, in which nothing happens.
    func skip(_ duration: Duration) {
        cloud.network.skip(duration, of: ServiceName.keyValue.rawValue)
        now = now.advanced(by: duration)
    }

    // MARK: The service

    /// Ends key-value as kill -9 does, and starts it again on the same disk.
    func restart(_ configuration: KeyValueConfiguration? = nil) throws {
        if let configuration { self.configuration.value.withLock { $0 = configuration } }
        cloud.crash(.keyValue)
        try cloud.start(.keyValue)
        reconnect()
    }

    /// Ends key-value, and starts it on what it once had on disk.
    func restore(_ copy: StorageCopy) throws {
        try cloud.restore(copy, of: .keyValue)
        reconnect()
    }

    /// Lets connections come back, by the clock as it was.
    private func reconnect() {
        setClock()
        cloud.network.run(for: .milliseconds(1))
    }

    /// What key-value has counted since it started.
    func counter(_ name: String) throws -> UInt64 {
        let reply: WireCheckHealthReply = try operatorClient.call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue))
        return reply.counters[name] ?? 0
    }

    // MARK: Calls

    func newOperation() -> OperationID { OperationID(at: now, using: &random) }

    func account(_ name: String) throws -> AccountID {
        if let account = accounts[name] { return account }
        let account = try cloud.createAccount(name)
        accounts[name] = account
        return account
    }

    func client(of caller: Caller) throws -> TestClient {
        let place = [caller.account, caller.device.rawValue]
        if let client = clients[place] { return client }
        let client = try cloud.makeClient()
        clients[place] = client
        try connect(client)
        return client
    }

    /// Waits for the connection, so that no call has to.
    private func connect(_ client: TestClient) throws {
        _ = try client.call(
            "CheckHealth", WireCheckHealth(), at: .requests(.keyValue), as: WireCheckHealthReply.self)
    }

    /// An access token as identity gives it to the caller.
    ///
    /// - Parameter lifetime: By key-value's clock; nil: as long as they live, and the same one for as long.
    func token(of caller: Caller, lifetime: Duration? = nil) throws -> String {
        if lifetime == nil, let known = tokens[caller], known.end > now { return known.token }
        let token = try cloud.makeToken(
            account: account(caller.account), device: caller.device, app: caller.app,
            entitlements: Entitlements(store: caller.store, containers: []), key: client(of: caller).keys.publicKey,
            lifetime: offset + (lifetime ?? Self.tokenLifetime))
        if lifetime == nil { tokens[caller] = (token, now.advanced(by: Self.tokenLifetime)) }
        return token
    }

    /// Begins a call, and lets no time pass.
    ///
    /// - Parameter token: Nil: the caller's own.
    func begin(
        _ message: some SwiftProtobuf.Message, by caller: Caller, token: String? = nil, id: OperationID? = nil
    ) throws -> TestClient.Answer {
        let name = String(type(of: message).protoMessageName.split(separator: ".").last ?? "")
        let client = try client(of: caller)
        let token = try token ?? self.token(of: caller)
        setClock()
        return try client.begin(
            name, message, at: .requests(.keyValue), accessToken: token, id: id ?? newOperation())
    }

    /// Lets time pass until all calls are answered, and what they have changed is published.
    func finish(_ answers: [TestClient.Answer]) throws -> [Result<Frame, CloudError>] {
        cloud.network.run(within: .seconds(60)) { answers.allSatisfy { $0.result != nil } }
        cloud.network.run(for: .microseconds(500))
        return try answers.map { try #require($0.result) }
    }

    func call<Reply: SwiftProtobuf.Message>(
        _ message: some SwiftProtobuf.Message, by caller: Caller, token: String? = nil, id: OperationID? = nil,
        _: Reply.Type
    ) throws -> Reply {
        try finish([begin(message, by: caller, token: token, id: id)])[0].get().decode(Reply.self)
    }

    /// Makes several calls that arrive together and are one group.
    func callTogether(
        _ messages: [any SwiftProtobuf.Message], by caller: Caller
    ) throws -> [Result<Frame, CloudError>] {
        _ = try token(of: caller)
        let groups = try counter("groups")
        let results = try finish(messages.map { try begin($0, by: caller) })
        // Theirs, and that of the first question.
        #expect(try counter("groups") == groups + 2)
        return results
    }

    // MARK: What the tests say

    func caller(
        _ device: String, account: String = "acct_one", app: String = "com.example.notes", store: String = "notes"
    ) -> Caller {
        Caller(account: account, device: DeviceID(device), app: AppID(app), store: StoreID(store))
    }

    /// A write stamped this long after the house's clock.
    func write(_ key: String, _ value: PropertyValue?, after delay: Duration = .zero) -> WireKeyWrite {
        var write = WireKeyWrite()
        write.key = key
        if let value { write.value = WirePropertyValue(value) }
        write.timestamp = HybridTimestamp(now.advanced(by: delay)).rawValue
        return write
    }

    func push(_ writes: [WireKeyWrite], store: String = "notes") -> WirePushKeys {
        var push = WirePushKeys()
        push.storeID = store
        push.writes = writes
        return push
    }

    /// A call of each method on a store.
    func requests(on store: String) -> [any SwiftProtobuf.Message] {
        var pull = WireReadChanges()
        pull.scope = store
        var history = WireListKeyHistory()
        history.storeID = store
        var digests = WireListKeyDigests()
        digests.storeID = store
        var resolve = WireResolveKeyConflicts()
        resolve.storeID = store
        return [push([write("k", 2)], store: store), pull, history, digests, resolve]
    }

    @discardableResult
    func push(_ writes: WireKeyWrite..., by caller: Caller, id: OperationID? = nil) throws -> WirePushKeysReply {
        try call(push(writes, store: caller.store.rawValue), by: caller, id: id, WirePushKeysReply.self)
    }

    func pull(_ caller: Caller, after token: WireChangeToken = WireChangeToken()) throws -> WireReadChangesReply {
        var pull = WireReadChanges()
        pull.scope = caller.store.rawValue
        pull.after = token
        return try call(pull, by: caller, WireReadChangesReply.self)
    }

    func values(_ caller: Caller) throws -> [ItemName: PropertyValue] {
        var values: [ItemName: PropertyValue] = [:]
        for item in try pull(caller).items { values[ItemName(item.key)] = try KeyValueItem(item).value }
        return values
    }

    func history(_ caller: Caller, key: String = "") throws -> [WireKeyHistoryEntry] {
        var list = WireListKeyHistory()
        list.storeID = caller.store.rawValue
        list.key = key
        return try call(list, by: caller, WireListKeyHistoryReply.self).entries
    }
}

/// The error that the body throws, or nil.
func failure(_ body: () throws -> Void) -> CloudError? {
    do {
        try body()
        return nil
    } catch {
        return error as? CloudError
    }
}
