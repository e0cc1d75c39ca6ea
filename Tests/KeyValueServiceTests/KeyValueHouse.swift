import Bus
import Core
import Storage
import SwiftProtobuf
import Synchronization
import Testing
import Wire

@testable import KeyValueService
@testable import ServiceKit

/// The service on a database in memory, its requests run in the host's groups.
final class KeyValueHouse {
    final class Clock: WallClock {
        private let time = Mutex(Timestamp(milliseconds: 1_750_000_000_000))
        var now: Timestamp { time.withLock { $0 } }
        func advance(by duration: Duration) { time.withLock { $0 = $0.advanced(by: duration) } }
    }

    struct Answer {
        var result: Result<Frame, CloudError>
    }

    let clock = Clock()
    let engine: SQLiteEngine
    let service: KeyValueService
    private(set) var events: [OutgoingEvent] = []
    private let groups: GroupCommit
    private var methods: [String: Router.Method] = [:]

    static let masterKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

    init(_ configuration: KeyValueConfiguration = KeyValueConfiguration(), engine: SQLiteEngine? = nil) throws {
        self.engine = try engine ?? .inMemory()
        let clock = clock
        service = KeyValueService(configuration: configuration)
        groups = GroupCommit(engine: self.engine, now: { .zero }, wallClock: clock)
        try self.engine.migrate(ChangeFeedSchema.migrations + AccountKeys.migrations + service.migrations)
        groups.cache.history = try self.engine.write {
            let key = try #require(SipHash(key: [UInt8](repeating: 3, count: 16)))
            return try Feed.beginRun(in: $0, key: key, at: clock.now, random: 1)
        }
        service.keys = try AccountKeys(masterKeys: [Self.masterKey])
        var router = Router()
        service.register(on: &router)
        methods = router.methods
    }

    var lastNotification: WireNotification? {
        events.last.flatMap { try? $0.notification.decode(WireNotification.self) }
    }

    func operation() -> OperationID { OperationID(at: clock.now) }

    func item(
        _ message: some SwiftProtobuf.Message, by caller: Caller?, id: OperationID? = nil
    ) throws -> GroupItem {
        let name = String(type(of: message).protoMessageName.split(separator: ".").last ?? "")
        guard let method = methods[name], let key = PublicKey(bytes: [UInt8](repeating: 7, count: 32)) else {
            throw CloudError(.unknownMethod, "The service has no such method.")
        }
        let body = Frame(encoding: message)
        let context = RequestContext(
            id: id ?? operation(), causeID: nil, peer: Peer(connection: 1, publicKey: key), caller: caller,
            now: clock.now, fingerprint: body.withUnsafeBytes { RequestFingerprint(method: name, body: $0) })
        return GroupItem(
            work: .request(method, body: body), context: context, mutates: method.mutates,
            principal: method.remembersReply ? caller?.device.rawValue : nil)
    }

    func run(_ items: [GroupItem]) -> [Answer] {
        events += groups.run(items).events
        return items.map { item in
            let result: Result<Frame, CloudError> =
                switch item.outcome {
                case .success(let frame): .success(frame)
                case .failure(let error): .failure(error)
                case .pending, .toPrepare: .failure(CloudError(.internalError, "The request was not run."))
                }
            return Answer(result: result)
        }
    }

    /// As the host does, when a token has shown that the database is an old copy.
    func raiseEpoch(shownBy token: ChangeToken) throws {
        let history = try #require(groups.cache.history)
        let now = clock.now
        groups.cache.removeAll()
        groups.cache.history = try engine.write {
            try Feed.beginEpoch(in: $0, shownBy: token, history, at: now, random: 2)
        }
    }

    /// As the host does, in a group of its own.
    func pruneTombstones(before time: Timestamp) throws {
        let key = try #require(PublicKey(bytes: [UInt8](repeating: 7, count: 32)))
        let context = RequestContext(
            id: operation(), causeID: nil, peer: Peer(connection: 1, publicKey: key), caller: nil, now: clock.now)
        let item = GroupItem(
            work: .submission {
                let group = try #require($0 as? GroupTransaction)
                _ = try group.prune(operationsBefore: OperationID(high: 0, low: 0), tombstonesBefore: time)
            }, context: context, mutates: true)
        _ = try run([item])[0].result.get()
    }

    /// As at the service's start.
    func recallClock() throws {
        let key = try #require(PublicKey(bytes: [UInt8](repeating: 7, count: 32)))
        let context = RequestContext(
            id: operation(), causeID: nil, peer: Peer(connection: 1, publicKey: key), caller: nil, now: clock.now)
        let item = GroupItem(work: .submission { try self.service.recallClock($0) }, context: context, mutates: true)
        _ = groups.run([item])
    }

    func call<Reply: SwiftProtobuf.Message>(
        _ message: some SwiftProtobuf.Message, by caller: Caller?, id: OperationID? = nil, _ reply: Reply.Type
    ) throws -> Reply {
        try run([item(message, by: caller, id: id)])[0].result.get().decode(reply)
    }

    // MARK: What the tests say

    func caller(
        _ device: String, account: String = "acct_one", app: String = "com.example.notes", store: String = "notes"
    ) -> Caller {
        Caller(
            account: AccountID(account), device: DeviceID(device), app: AppID(app),
            entitlements: Entitlements(store: StoreID(store), containers: []),
            expires: clock.now.advanced(by: .seconds(900)))
    }

    /// A write stamped this long after the house's clock.
    func write(_ key: String, _ value: PropertyValue?, after delay: Duration = .zero) -> WireKeyWrite {
        var write = WireKeyWrite()
        write.key = key
        if let value { write.value = WirePropertyValue(value) }
        write.timestamp = HybridTimestamp(clock.now.advanced(by: delay)).rawValue
        return write
    }

    func push(_ writes: [WireKeyWrite], store: String = "notes") -> WirePushKeys {
        var push = WirePushKeys()
        push.storeID = store
        push.writes = writes
        return push
    }

    @discardableResult
    func push(_ writes: WireKeyWrite..., by caller: Caller, id: OperationID? = nil) throws -> WirePushKeysReply {
        try call(
            push(writes, store: caller.entitlements.store?.rawValue ?? ""), by: caller, id: id, WirePushKeysReply.self)
    }

    func pull(_ caller: Caller, after token: WireChangeToken = WireChangeToken()) throws -> WirePullKeysReply {
        var pull = WirePullKeys()
        pull.storeID = caller.entitlements.store?.rawValue ?? ""
        pull.after = token
        return try call(pull, by: caller, WirePullKeysReply.self)
    }

    func values(_ caller: Caller) throws -> [ItemName: PropertyValue] {
        var values: [ItemName: PropertyValue] = [:]
        for item in try pull(caller).items { values[ItemName(item.key)] = try KeyValueItem(item).value }
        return values
    }

    func history(_ caller: Caller, key: String = "") throws -> [WireKeyHistoryEntry] {
        var list = WireListKeyHistory()
        list.storeID = caller.entitlements.store?.rawValue ?? ""
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
