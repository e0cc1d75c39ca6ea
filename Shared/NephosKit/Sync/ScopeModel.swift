import Foundation
import GRDB
import NephosBus
import NephosCore
import NephosSync
import NephosWire
import SwiftProtobuf

/// What differs from one kind of scope to another: which tables hold it, how changes merge into them, how an operation
/// is packed and what its reply means, what the app is told. Everything else is the same for all (``ScopeSync``,
/// ``ScopeDriver``).
///
/// What gets a ``ScopeTransaction`` runs inside the transaction that also moves the scope's head. A model keeps
/// `state.digest` in step with the live items in its tables, each of which has a column `account`.
protocol ScopeModel: AnyObject {
    /// Whose tokens it uses.
    var app: AppID { get }
    var service: ServiceName { get }
    /// Which of those that the app has; empty: it has one.
    var name: String { get }
    /// Who keeps it in step.
    var engine: DeviceEngine { get }
    /// Its own tables.
    static var migrations: [LocalMigration] { get }
    /// What its scopes may hold, and the like.
    func adjust(_ options: inout ScopeSync.Options)

    /// Its scope under this session; nil: the server has not told which it is.
    func scope(in session: SessionRecord) -> LocalScope?
    /// Whether it is known that there is none: what is left of it is here, and there is nothing to be in step with.
    func isGone(in session: SessionRecord) -> Bool
    /// Whether the app's token tells which it is. If not, it begins when somebody says so (``ScopeDriver/reconsider()``).
    var isToldByToken: Bool { get }
    /// Why there is none, when the app's token did not tell.
    var absence: CloudError { get }
    /// Where its content is, whoever is signed in.
    func place(in session: SessionRecord?) -> LocalScope

    // MARK: Bringing in

    /// Tells the live items' shares in the digest, one by one in the order of their names: a scope may have more items
    /// than fit into memory.
    func forEachDigest(in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void) throws
    /// What the item's share in the digest is, by what the server says of it; nil: it cannot be read here.
    func digest(of change: WireChange, key: [UInt8]) -> SetDigest?
    /// Finds what differs from the server's without reading all of it, and calls back on the loop. The copy is not behind.
    ///
    /// - Parameter timeout: How long each answer may take.
    /// - Returns: False: it cannot, and everything is read.
    func walk(
        _ scope: LocalScope, timeout: Duration, _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) -> Bool
    /// The greatest sequence of an item: a push's reply may have brought one that is beyond the head.
    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64
    /// Merges what was pulled, or has come of the feed, into the tables, and queues what the server has lost.
    ///
    /// - Returns: Nil: it cannot be merged; fetch everything.
    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges?

    // MARK: Sending

    /// Those of the operations, the oldest first, that may be sent now: what they need is there.
    func ready(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [OutboxOperation]
    /// What those of the operations wait for that may not.
    func preparations(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [Int64: Preparation]
    /// How many of those that wait do so because somebody wanted it: nobody waits until they are sent.
    func heldByChoice(in rows: ScopeTransaction) throws -> Int
    /// Tries now what would be tried later by itself: what failed may succeed by now.
    func hasten()
    /// The positions of those that must neither overtake another nor be overtaken.
    func alone(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64>
    /// The positions of those that only make room on the server's disk, and are about nothing that those before them are
    /// about: they go past those while that is full. Of those that may go in any order none need be named.
    func makingRoom(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64>
    /// The request that carries the operation; the same to the byte at each attempt under one id.
    func pack(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> any SwiftProtobuf.Message
    /// Reads the reply.
    ///
    /// - Returns: Nil: it does not fit the request.
    func receipt(_ reply: Frame, of operation: OutboxOperation, in rows: ScopeTransaction) throws -> PushReceipt?
    /// Takes out what will never be accepted, and keeps its content where a person finds it.
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush
    /// What the operation writes, for a person to read.
    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName]
    /// Whether it is kept in step only as long as this home has something of it, and not because somebody has opened it:
    /// as a zone is, which another device may delete.
    var isOnlyWhatIsHere: Bool { get }
    /// What was refused, and nobody has dismissed.
    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite]
    /// What waits in places that the app no longer has.
    func leftBehind(in rows: ScopeTransaction) throws -> [StoreStatus.LeftBehind]
    /// Forgets refusals.
    ///
    /// - Parameter names: Nil: all.
    /// - Returns: Those that there were.
    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName]
    /// Gives up what waits in places that the app no longer has.
    func discardLeftBehind(in rows: ScopeTransaction) throws
    /// Conflicts, newest first.
    ///
    /// - Parameters:
    ///   - name: Of this item; nil: of all.
    ///   - withHistory: Whether ordinary overwrites are listed too.
    ///   - timeout: How long one call may take; nil: as long as any of the session.
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void)

    /// Those of them that nobody has decided and that are here, newest first.
    func undecidedConflicts(of name: String?, limit: Int, in rows: ScopeTransaction) throws -> [ScopeConflict]
    /// Conflicts that wait for somebody to decide them.
    func conflictCount(in rows: ScopeTransaction) throws -> Int

    /// The scope is not kept in step any more, or is about to be anew.
    func ended()

    // MARK: Telling

    /// What the home's processes were told, as the app gets it.
    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification]
    func emit(_ notification: ChangeNotification)
    /// A pull has ended.
    func fetched(_ status: StoreStatus)
}

extension ScopeModel {
    var name: String { "" }
    var id: ScopeID { ScopeID(app: app, service: service, name: name) }
    static var migrations: [LocalMigration] { [] }
    func adjust(_ options: inout ScopeSync.Options) {}
    var isToldByToken: Bool { true }
    func isGone(in session: SessionRecord) -> Bool { false }
    var absence: CloudError { CloudError(.missingEntitlement, "The app has no such scope.") }
    func place(in session: SessionRecord?) -> LocalScope {
        session.flatMap { $0.signedIn ? scope(in: $0) : nil } ?? LocalScope(account: nil, service: service, path: "")
    }
    func walk(
        _ scope: LocalScope, timeout: Duration, _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) -> Bool { false }
    func ready(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [OutboxOperation] {
        operations
    }
    func preparations(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> [Int64: Preparation] {
        [:]
    }
    func heldByChoice(in rows: ScopeTransaction) throws -> Int { 0 }
    func hasten() {}
    func alone(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> { [] }
    func makingRoom(among operations: [OutboxOperation], in rows: ScopeTransaction) throws -> Set<Int64> { [] }
    func ended() {}
    func items(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> [ItemName] { [] }
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        RefusedPush(
            news: ChangeNotification(
                reason: .quotaViolationChange, changedKeys: try items(of: operation, in: rows), error: error))
    }

    /// Queues what the app writes, under an id of its own.
    func append(_ payload: Data, in rows: ScopeTransaction) throws {
        _ = try rows.append(payload, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
    }

    var isOnlyWhatIsHere: Bool { false }
    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] { [] }
    func notifications(of news: News, in rows: ScopeTransaction) throws -> [ChangeNotification] {
        let all = ChangeNotification(reason: .serverChange, changedKeys: [], token: try rows.state().head)
        return (news.isComplete ? [] : [all]) + news.entries.map { ChangeNotification($0.notification, $0.error) }
    }
    func leftBehind(in rows: ScopeTransaction) throws -> [StoreStatus.LeftBehind] { [] }
    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] { [] }
    func discardLeftBehind(in rows: ScopeTransaction) throws {}
    func conflicts(
        of name: String?, withHistory: Bool, limit: Int, timeout: Duration?,
        _ completion: @escaping (Result<[ScopeConflict], CloudError>) -> Void
    ) { completion(.success([])) }
    func undecidedConflicts(of name: String?, limit: Int, in rows: ScopeTransaction) throws -> [ScopeConflict] { [] }
    func conflictCount(in rows: ScopeTransaction) throws -> Int { 0 }
    func emit(_ notification: ChangeNotification) { engine.onEvent(.change(id, notification)) }
    func fetched(_ status: StoreStatus) { engine.onEvent(.didFetchChanges(id, status)) }
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
