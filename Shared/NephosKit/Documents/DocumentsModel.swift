internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosFiles
internal import NephosSync
internal import NephosWire
internal import SwiftProtobuf

/// Ubiquity containers as a model: the names and places of everything in a container are here whole; contents are the
/// server's to keep.
final class DocumentsModel: ContentKeeping {
    static var migrations: [LocalMigration] { DocumentTransaction.migrations }

    let app: AppID
    let service = ServiceName.documents
    /// The container's id.
    let name: String
    unowned let engine: DeviceEngine
    private(set) lazy var uploads = ContentUploads(self)
    private(set) lazy var downloads = ContentDownloads(self)

    init(app: AppID, container: String, engine: DeviceEngine) {
        self.app = app
        name = container
        self.engine = engine
    }

    var footprints = RequestFootprints()

    func address(in session: SessionRecord) -> ScopeAddress {
        guard session.containerIDs?[app.rawValue]?.contains(where: { $0.hasSameBytes(as: name) }) == true else {
            return .toldByToken(
                CloudError(.missingEntitlement, "The app lists no such container.", details: ["container": name]))
        }
        return .known(Self.place(of: name, in: session))
    }

    static func place(of container: String, in session: SessionRecord?) -> LocalScope {
        LocalScope(
            account: session.flatMap { $0.signedIn ? $0.accountID : nil }, service: .documents, path: container)
    }

    func place(in session: SessionRecord?) -> LocalScope { Self.place(of: name, in: session) }

    func ended() {
        uploads.end()
        downloads.end()
    }

    // MARK: Bringing in

    func forEachDigest(
        in rows: ScopeTransaction, key: [UInt8], _ body: (ItemName, SetDigest) throws -> Void
    ) throws {
        let items = try DocumentTransaction(rows).allSynced()
        while let item = try items.next() {
            if let digest = item.digest(key: key) { try body(item.name, digest) }
        }
    }

    func digest(of change: WireChange, key: [UInt8]) -> SetDigest? {
        DocumentTransaction.Synced.digest(of: ItemName(change.item), body: change.body, key: key)
    }

    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64 {
        try DocumentTransaction(rows).greatestSequence()
    }

    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges? {
        let documents = DocumentTransaction(rows)
        let isFirst = !state.synced
        let history = pulled.history
        var changed = ToldNames()
        var settling = SettlingItems()
        let offers = StagedOffers(in: rows)
        var folders: Set<DocumentID> = []
        try pulled.changes.forEach { change in
            let theirs = DocumentTransaction.Synced(change, sequence: min(change.sequence, pulled.token.sequence))
            let mine = try documents.synced(theirs.name)
            switch Self.decide(theirs, over: mine, history) {
            case .keep: return
            case .takeAndOffer(let isLater):
                // In one history the times say which place and attributes are later; of contents both are kept.
                let offered = mine.map { Self.offer($0, over: theirs, isLater: isLater && !history.isOwn) } ?? []
                try offers.add(offered)
                if !offered.isEmpty, let folder = mine?.item.flatMap({ DocumentID(bytes: $0.parent) }) {
                    folders.insert(folder)
                }
            default: break
            }
            try offers.add(offerOfDoubt(over: theirs, documents))
            guard mine?.body != theirs.body || mine?.sequence != theirs.sequence else { return }
            if Self.isNews(theirs, after: mine) { changed.add(theirs.name) }
            try documents.put(theirs, replacing: mine, &state)
            settling.add(theirs)
        }
        if pulled.isListing {
            settling.addAll()
            try pulled.changes.forEachUnlisted(of: DocumentTransaction.table) { name, isQuarantined in
                guard let mine = try documents.synced(name) else { return }
                let decision = history.decideUnlisted(
                    mine.held, at: mine.sequence, isQuarantined: isQuarantined, canAsk: true)
                switch decision {
                case .ask(let isNewer): try documents.doubt(mine, isNewer: isNewer, &state)
                case .forget: try documents.forget(mine, &state)
                default: break
                }
            }
            try documents.askAnew()
            try ask(in: documents)
        }
        for change in try lostFolders(among: folders, documents) { try offers.add(change, turn: .lostFolders) }
        try offer(offers, in: documents)
        if let info = pulled.info, !info.isEmpty {
            state.info = info
            try noteLoss(info, in: rows)
        }
        try settleRefusals(by: settling, in: documents)
        downloads.look()
        return MergedChanges(news: changed.news(isFirst: isFirst))
    }

    /// In one history the times of an item's place and attributes only rise: an older state is there again where a device that
    /// was behind has brought it back. Of two histories nobody knows which state is the later one. No removal can be offered, nor
    /// anything over one: an id is never used again.
    static func decide(
        _ theirs: DocumentTransaction.Synced, over mine: DocumentTransaction.Synced?, _ history: HistoryRelation
    ) -> ReconcileRule.Decision {
        history.decide(
            mine?.held ?? .absent, at: mine?.sequence ?? 0, isLive: theirs.held == .live, at: theirs.sequence,
            mine?.body == theirs.body ? .same : history.isOwn && mine?.isLater(than: theirs) == true ? .mine : .unknown)
    }

    /// Whether an item has changed: what a device is about to make is none, and nobody knows it by its name.
    private static func isNews(_ theirs: DocumentTransaction.Synced, after mine: DocumentTransaction.Synced?) -> Bool {
        guard mine?.body != theirs.body else { return false }
        return !(theirs.body == nil ? mine?.isComing ?? false : theirs.isComing)
    }

    // MARK: Offering again

    /// What could never be read here is offered to nobody.
    ///
    /// - Parameter isLater: Whether what is here came after what the server has, and has not merely come beside it.
    private static func offer(
        _ mine: DocumentTransaction.Synced, over theirs: DocumentTransaction.Synced, isLater: Bool = false
    ) -> [WireDocumentChange] {
        guard mine.body != theirs.body, !mine.isComing, !theirs.isComing, let id = DocumentID(mine.name.rawValue),
            let item = mine.item, item.kind != .unspecified,
            let other = theirs.item, other.kind != .unspecified
        else { return [] }
        return DocumentChanges.difference(to: item, from: other, of: id, isLater: isLater)
    }

    /// What this device has of an item that the server has again, and that was lost there before.
    func offerOfDoubt(
        over theirs: DocumentTransaction.Synced, _ documents: DocumentTransaction
    ) throws -> [WireDocumentChange] {
        guard let doubt = try documents.doubt(of: theirs.name), doubt.isNewer else { return [] }
        return Self.offer(doubt.item, over: theirs)
    }

    /// What makes the folders again that the service has lost, and those that they are in: what has come to lie in them
    /// is offered before the service has said what became of them.
    private func lostFolders(
        among folders: Set<DocumentID>, _ documents: DocumentTransaction
    ) throws -> [WireDocumentChange] {
        var (lost, seen): ([DocumentID: DocumentTransaction.Synced], Set<DocumentID>) = ([:], [])
        for start in folders.sorted() {
            var next = start
            while !next.isFixed, seen.insert(next).inserted, let doubt = try documents.doubt(of: next.name),
                doubt.isNewer, let item = doubt.item.item, item.kind == .folder
            {
                lost[next] = doubt.item
                guard let parent = DocumentID(bytes: item.parent) else { break }
                next = parent
            }
        }
        var creations = LostCreations(documents) { lost[$0] }
        // Whatever else there is of them is offered once they are known to be lost.
        return try lost.keys.sorted().flatMap { try creations.creations(from: $0) }.filter(\.createsFolder)
    }

    /// Queues what the server has lost, as it was. What is still here of the contents is sent along.
    func offer(_ changes: [WireDocumentChange], in documents: DocumentTransaction) throws {
        let offers = StagedOffers(in: documents.rows)
        try offers.add(changes)
        try offer(offers, in: documents)
    }

    /// Nothing else is changed of what lies in the trash: what has left it leaves it first. Then come folders, and what is put
    /// into the trash is made before. Contents go each by itself: one that nobody has any more must not keep the others
    /// away.
    func offer(_ offers: StagedOffers, in documents: DocumentTransaction) throws {
        guard !offers.isEmpty else { return }
        let copies = OfferedCopies(engine, documents)
        var batch = DocumentBatches.Batch()
        var last: OfferTurn?
        try offers.forEach { offer in
            let turn = OfferTurn(rawValue: offer.turn) ?? .others
            let change = try WireDocumentChange(serializedBytes: offer.change)
            let isNext = last.map { turn.begins(after: $0) } ?? false
            if isNext || !batch.hasRoom(for: offer.change.count) {
                try queue(batch.take(), copies, in: documents)
            }
            batch.add(change, bytes: offer.change.count)
            last = turn
        }
        try queue(batch.take(), copies, in: documents)
        try copies.keep()
        try offers.clear()
    }

    private func queue(
        _ changes: [WireDocumentChange], _ copies: OfferedCopies, in documents: DocumentTransaction
    ) throws {
        guard !changes.isEmpty else { return }
        var request = WireApplyChanges()
        request.container = name
        request.changes = changes
        let found = try changes.compactMap { try $0.content.flatMap(copies.take) }
        request.nodes = try found.flatMap { try CutChunk.nodes(of: $0.chunks) }
        let position = try documents.append(
            request, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        for content in changes.compactMap(\.content) where try documents.holdsContent(content.version) {
            try documents.moveContent(content.version, to: position)
        }
        for copy in found {
            try documents.addContent(copy.version, at: position, length: copy.length, chunks: copy.chunks)
        }
    }
}

/// Makes anew what the service has lost, a folder before what is in it. What was in a folder that is gone comes to where the
/// person finds it.
struct LostCreations {
    private let documents: DocumentTransaction
    private let lost: (DocumentID) throws -> DocumentTransaction.Synced?
    private var made: Set<DocumentID> = []

    /// - Parameter lost: What is made anew; nil: the item is not, here.
    init(
        _ documents: DocumentTransaction, among lost: @escaping (DocumentID) throws -> DocumentTransaction.Synced?
    ) {
        self.documents = documents
        self.lost = lost
    }

    /// What makes this one, and the folders that it is in, as far as they are lost and were not made yet.
    mutating func creations(from start: DocumentID) throws -> [WireDocumentChange] {
        var chain: [(id: DocumentID, item: WireDocumentItem)] = []
        var next: DocumentID? = start
        while let id = next, !made.contains(id), let row = try lost(id),
            // What could never be read here cannot be made again.
            let item = row.item, item.kind != .unspecified, !row.isComing
        {
            chain.append((id, item))
            made.insert(id)
            next = DocumentID(bytes: item.parent)
        }
        if let (id, item) = chain.last, let folder = next, !folder.isFixed {
            // What is within itself is made nowhere else.
            let isMade = made.contains(folder) && !chain.contains { $0.id == folder }
            if try !isMade && documents.document(folder) == nil {
                chain[chain.count - 1] = (id, item.moved(to: .documents))
            }
        }
        return chain.reversed().flatMap { DocumentChanges.creation(of: $0.item, named: $0.id) }
    }
}

/// What is offered together: what the earlier turns make, the later ones need.
private enum OfferTurn: Int {
    case restores, lostFolders, folders, contents, others

    /// Whether a change of it cannot go into the request that has one of the other.
    func begins(after other: OfferTurn) -> Bool {
        self == .contents || other == .contents || (self == .others) != (other == .others)
    }
}

extension StagedOffers {
    fileprivate func add(_ change: WireDocumentChange, turn: OfferTurn) throws {
        try add(Offer(turn: turn.rawValue, change: change.serializedData()))
    }

    fileprivate func add(_ changes: [WireDocumentChange]) throws { for change in changes { try add(change) } }

    func add(_ change: WireDocumentChange) throws {
        let turn: OfferTurn =
            change.restores ? .restores : change.createsFolder ? .folders : change.content == nil ? .others : .contents
        try add(change, turn: turn)
    }
}

/// Gives those of the contents that are here as copies a file that they are sent from, whatever becomes of the copy.
private final class OfferedCopies {
    private let engine: DeviceEngine
    private let documents: DocumentTransaction
    private lazy var folder = try? ContentFolder(home: engine.local.home)
    private var claim: FileLock?
    /// Their versions: one may be offered more than once.
    private var taken: Set<DocumentID> = []

    init(_ engine: DeviceEngine, _ documents: DocumentTransaction) {
        self.engine = engine
        self.documents = documents
    }

    /// - Returns: What is known of it; nil: there is no copy of it here.
    func take(_ content: WireDocumentContent) throws -> StagedContent? {
        guard !content.isInline, let version = DocumentID(bytes: content.version), let folder else { return nil }
        guard !taken.contains(version) else {
            return StagedContent(
                version: version, length: content.length, chunks: try documents.chunks(of: version),
                modified: content.modified)
        }
        guard try !documents.holdsContent(content.version), let copy = try documents.copies.copy(of: content),
            !copy.chunks.isEmpty
        else { return nil }
        if claim == nil { claim = try folder.claim() }
        if copy.file == version {
            // What was sent from here is called so still: it waits again, and is a copy no longer.
            try documents.copies.forget(copy.file)
        } else if !folder.link(copy.file, as: version) {
            return nil
        }
        taken.insert(version)
        return StagedContent(version: version, length: copy.length, chunks: copy.chunks, modified: content.modified)
    }

    /// Nobody removes the files until this transaction is over.
    func keep() throws {
        guard let claim else { return }
        engine.loop.schedule(after: .zero) { withExtendedLifetime(claim) {} }
        try folder?.flushNames()
    }
}

extension WireDocumentItem {
    fileprivate func moved(to folder: DocumentID) -> WireDocumentItem {
        var item = self
        item.parent = folder.wire
        return item
    }
}

extension DocumentTransaction.Synced {
    init(_ change: WireChange, sequence: UInt64) {
        name = ItemName(change.item)
        self.sequence = sequence
        body = change.deleted ? nil : change.body
    }

    /// What a device is about to make: no item, and nobody's to offer again.
    var isComing: Bool { item?.kind == .coming }

    /// An item that is coming is none.
    var held: ReconcileRule.Mine { body == nil || isComing ? .deleted : .live }

    /// Whether it was moved, or its attributes set, after the other state.
    func isLater(than other: Self) -> Bool {
        guard let item, let older = other.item, !isComing, !other.isComing else { return false }
        return item.placed > older.placed || item.attributed > older.attributed
    }

    /// Nil: there is none, or it cannot be read here.
    var item: WireDocumentItem? {
        body.flatMap { try? WireDocumentItem(serializedBytes: $0) }
    }
}

/// Divides changes into requests.
enum DocumentBatches {
    /// Bytes of them, well below what a frame may have.
    static let bytesMax = 1 << 20

    /// What one request has.
    struct Batch {
        private var changes: [WireDocumentChange] = []
        private var bytes = 0

        func hasRoom(for size: Int) -> Bool {
            changes.isEmpty || bytes + size <= bytesMax && changes.count < DocumentLimits.changesMax
        }

        mutating func add(_ change: WireDocumentChange, bytes size: Int) {
            changes.append(change)
            bytes += size
        }

        /// What it has; it is empty then.
        mutating func take() -> [WireDocumentChange] {
            defer { self = Batch() }
            return changes
        }
    }

    static func divide(_ changes: [WireDocumentChange]) -> [[WireDocumentChange]] {
        var batches: [[WireDocumentChange]] = []
        var batch = Batch()
        for change in changes {
            let size = (try? change.serializedData().count) ?? 0
            if !batch.hasRoom(for: size) { batches.append(batch.take()) }
            batch.add(change, bytes: size)
        }
        let last = batch.take()
        return last.isEmpty ? batches : batches + [last]
    }
}
