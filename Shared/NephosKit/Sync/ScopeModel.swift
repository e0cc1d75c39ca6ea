import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSync
import NephosWire
import SwiftProtobuf

/// One kind of scope (a key-value store, a container, a database of records, a zone). Four small protocols hold what
/// differs between kinds; ``ScopeSync`` and ``ScopeDriver`` do the rest for all of them.
///
/// Each method that gets a ``ScopeTransaction`` runs inside the transaction that also moves the scope's head.
protocol ScopeModel: ScopeIdentity, ScopeItems, OutgoingChanges, OpenDecisions {}

/// Which scope it is, and where.
protocol ScopeIdentity: AnyObject {
    /// The app whose tokens are used.
    var app: AppID { get }
    var service: ServiceName { get }
    /// The scope among several of one app and service; empty: there is only one.
    var name: String { get }
    var engine: DeviceEngine { get }
    /// Limits of this kind of scope.
    func adjust(_ options: inout ScopeSync.Options)
    /// Where the scope is on the server, under this session.
    func address(in session: SessionRecord) -> ScopeAddress
    /// Where the scope's rows are in the home, also while nobody is signed in.
    func place(in session: SessionRecord?) -> LocalScope
    /// The scope is followed only while the home holds something of it. A zone is: another device may delete it.
    var isOnlyWhatIsHere: Bool { get }
    /// The session ended, or the scope was closed.
    func ended()
}

/// Where a scope is on the server, as far as this device knows.
enum ScopeAddress: Equatable {
    case known(LocalScope)
    /// The scope was deleted on the server, and nothing is left to sync.
    case gone
    /// The app's next token tells it. The error is the reason if that token does not.
    case toldByToken(CloudError)
    /// Another scope of this home tells it, and calls ``ScopeDriver/reconsider()``.
    case toldByHome

    var scope: LocalScope? { if case .known(let scope) = self { scope } else { nil } }
}

/// The device's copy of a scope's items.
///
/// The model keeps `state.digest` equal to the sum of its live items. Each of its tables has a column `account`.
protocol ScopeItems: ScopeIdentity {
    static var migrations: [LocalMigration] { get }
    /// Calls the body with each live item's share in the digest, ordered by name. The scope may not fit into memory.
    func forEachDigest(in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void) throws
    /// The server's item's share in the digest; nil: this device cannot read the item.
    func digest(of change: WireChange, key: [UInt8]) -> SetDigest?
    /// Compares with the server by subtrees instead of reading everything, and calls back on the loop. The copy is not
    /// behind.
    ///
    /// - Parameter timeout: For each request.
    /// - Returns: False: this kind of scope cannot, so everything has to be read.
    func walk(
        _ scope: LocalScope, timeout: Duration, _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) -> Bool
    /// The greatest sequence of an item. It may be above the head: a push's reply brings items, too.
    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64
    /// Merges pulled changes, or a segment of the feed, into the tables, and queues items that the server has lost.
    ///
    /// - Returns: Nil: they cannot be merged. The driver reads everything.
    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges?
    /// News of the home's processes as the app gets them.
    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification]
}

/// Pending operations: their order, their requests and the replies.
protocol OutgoingChanges: ScopeIdentity {
    /// The reason, by position, why an operation cannot be sent yet: an upload, a pause, too many conflicts.
    func preparations(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [Int64: Preparation]
    /// Starts or continues the transfers that operations wait for. Called each time that operations are sent, outside
    /// the transaction.
    ///
    /// - Parameter hasUploads: Operations wait for an upload.
    func continueTransfers(hasUploads: Bool)
    /// Marks operations that must keep their order (``OutboxOperation/goesAlone``) and, when the server's disk is full,
    /// those that only make room and may pass earlier ones (``OutboxOperation/makesRoom``).
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws
    /// Operations paused by the user. Callers that wait for all changes to be sent do not wait for these.
    func heldByChoice(in rows: ScopeTransaction) throws -> Int
    /// Retries transfers now.
    func hasten()
    /// The operation's request. A repeat under the same id is the same to the byte.
    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message
    /// Reads the reply.
    ///
    /// - Returns: Nil: it does not fit the request.
    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt?
    /// Takes out a rejected operation, and keeps its content for the user.
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush
    /// Names of items that the operation writes, for a person to read.
    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName]
}

/// Changes and conflicts that wait for the user.
protocol OpenDecisions: ScopeIdentity {
    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite]
    /// - Parameter names: Nil: all.
    /// - Returns: The names of the dismissed ones.
    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName]
    /// Pending changes of scopes that the app no longer has.
    func leftBehind(in rows: ScopeTransaction) throws -> [StoreStatus.LeftBehind]
    func discardLeftBehind(in rows: ScopeTransaction) throws
    /// Conflicts, newest first.
    ///
    /// - Parameters:
    ///   - name: Of this item; nil: of all.
    ///   - withHistory: Include ordinary overwrites. Only the server has them.
    ///   - timeout: For each request; nil: the session's.
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void)
    /// Conflicts on this device that the user has to decide.
    func conflictCount(in rows: ScopeTransaction) throws -> Int
}

extension ScopeIdentity {
    var name: String { "" }
    var id: ScopeID { ScopeID(app: app, service: service, name: name) }
    func adjust(_ options: inout ScopeSync.Options) {}
    func scope(in session: SessionRecord) -> LocalScope? { address(in: session).scope }
    func place(in session: SessionRecord?) -> LocalScope {
        session.flatMap { $0.signedIn ? scope(in: $0) : nil } ?? LocalScope(account: nil, service: service, path: "")
    }
    var isOnlyWhatIsHere: Bool { false }
    func ended() {}
}

extension ScopeItems {
    static var migrations: [LocalMigration] { [] }
    func walk(
        _ scope: LocalScope, timeout: Duration, _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) -> Bool { false }
    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification] {
        let all = ChangeNotification(reason: .serverChange, changedKeys: [], token: try rows.state().head)
        return (news.isComplete ? [] : [all]) + news.entries.map { ChangeNotification($0.notification, $0.error) }
    }
}

extension OutgoingChanges {
    func preparations(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [Int64: Preparation] {
        [:]
    }
    func continueTransfers(hasUploads: Bool) {}
    func arrange(_ operations: inout [OutboxOperation], isFull: Bool, in rows: ScopeTransaction) throws {}
    func heldByChoice(in rows: ScopeTransaction) throws -> Int { 0 }
    func hasten() {}
    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] { [] }
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        RefusedPush(
            news: ChangeNotification(
                reason: .quotaViolationChange, changedKeys: try items(of: operation, in: rows), error: error))
    }

    /// Queues a write of the app under an id of its own.
    func append(_ payload: Data, in rows: ScopeTransaction) throws {
        _ = try rows.append(payload, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
    }
}

extension OpenDecisions {
    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] { [] }
    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] { [] }
    func leftBehind(in rows: ScopeTransaction) throws -> [StoreStatus.LeftBehind] { [] }
    func discardLeftBehind(in rows: ScopeTransaction) throws {}
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) { completion(.success([])) }
    func conflictCount(in rows: ScopeTransaction) throws -> Int { 0 }
}

/// A change of a model's tables that every home makes once, in the order in which they are listed.
struct LocalMigration {
    /// Unlike every other's, of whichever model.
    var name: String
    var sql: String
}

/// What a whole reading has brought, or a stretch of the feed that continues the copy.
struct PulledChanges {
    /// One by one; of a listing, and of what took several pages, in the order of their names.
    var changes: Changes
    /// Where it has ended.
    var token: ChangeToken
    /// What is in none of the pages is not in the scope.
    var isListing: Bool
    /// From where the copy is reconciled with it.
    var history: HistoryRelation
    /// What the service says of the scope besides; nil: the feed has not told.
    var info: Data?

    /// A reading may have more than fits into memory: one page of it may be here, all of it is on disk.
    enum Changes {
        case page([WireChange])
        /// - Parameter moreQuarantined: Any item that is not listed may be in quarantine.
        case staged(ScopeTransaction, reader: Int, moreQuarantined: Bool = false)

        func forEach(_ body: (WireChange) throws -> Void) throws {
            switch self {
            case .page(let changes): try changes.forEach(body)
            case .staged(let rows, let reader, _):
                let changes = try rows.staged(by: reader)
                while let change = try changes.next() { try body(change) }
            }
        }

        /// Tells which of a model's items the listing does not have, in the order of their names. What is done with one
        /// of them may change the table that they are in.
        func forEachUnlisted(
            of items: ItemTable, _ body: (ItemName, _ isQuarantined: Bool) throws -> Void
        ) throws {
            // A page by itself is never a listing: those are staged.
            guard case .staged(let rows, let reader, let moreQuarantined) = self else { return }
            try rows.forEachUnstaged(of: items, by: reader) { try body($0, $1 || moreQuarantined) }
        }
    }
}

/// How SQL calls the table of a model's items, its column of the scope's name and that of the items' names.
struct ItemTable {
    var table: String
    var scope: String
    var name: String
}

/// What a walk down a scope has found.
struct ScopeWalk {
    /// Where both sides stand.
    var head: ChangeToken
    var localDigest: SetDigest
    var serverDigest: SetDigest
    var differences: [Verification.Difference] = []
    var hasMore = false
    /// What was found is all that differs. If not, everything has to be read to find the rest.
    var isWhole: Bool
    /// The scope has moved on, here or there.
    var isElsewhere = false
}

/// Names that somebody is told of, as long as they are few: who is told of more looks at all.
struct ToldNames {
    private(set) var names: [ItemName] = []
    /// There are more than are kept.
    private(set) var hasMore = false
    let limit: Int

    init(limit: Int = MergedChanges.newsMax) { self.limit = limit }

    var isEmpty: Bool { names.isEmpty }

    /// - Parameter isFirst: Of the first download an app is told also where nothing has changed.
    func news(isFirst: Bool = false) -> ChangeNotification? {
        guard isFirst || !isEmpty else { return nil }
        return ChangeNotification(
            reason: isFirst ? .initialSyncChange : .serverChange, changedKeys: hasMore ? [] : names.sorted())
    }

    mutating func add(_ name: ItemName) {
        if names.count < limit { names.append(name) } else { hasMore = true }
    }
}

/// What merging has done.
struct MergedChanges {
    /// What the app is told; its token is filled in.
    var news: ChangeNotification?

    /// Names of items that the app is told of. Who is told of more looks at all.
    static let newsMax = 1000
}

/// What a reply says of an operation that was accepted.
struct PushReceipt {
    /// The scope's head after it, and before.
    var token: ChangeToken
    var previousSequence: UInt64
    /// The greatest sequence of what won over it; 0: nothing did. What was not fetched yet may be part of a
    /// transaction, and taken alone would show half of that.
    var winner: UInt64 = 0
    /// What of it is yet to be sent: in its place, in its turn. Nil: nothing.
    var rest: OutboxOperation?
    /// Whether any service could have answered so.
    var isPossible: Bool { token.epoch > 0 && max(previousSequence, winner) <= token.sequence }
    /// Takes the operation's content out of the model's tables, and puts what it has become in.
    ///
    /// - Parameter isCurrent: False: the reply is of an epoch that is over. What the copy, which is of a later one,
    ///   lacks of it is to be offered again.
    /// - Returns: What the app is told.
    var store: (_ isCurrent: Bool, _ state: inout ScopeState) throws -> ChangeNotification?
}

/// What becomes of an operation that the service has refused.
struct RefusedPush {
    /// What the app is told.
    var news: ChangeNotification?
    /// What of it may be accepted yet: it is sent in its place, in its turn.
    var rest: OutboxOperation?
}
