internal import Foundation
internal import GRDB
internal import NephosBus
internal import NephosCore
internal import NephosFiles
internal import NephosWire
internal import SwiftProtobuf

/// Ubiquity containers as a model: the names and places of everything in a container are here whole; contents are the
/// server's to keep.
final class DocumentsModel: ContentSending {
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

    func scope(in session: SessionRecord) -> LocalScope? {
        guard session.containerIDs?[app.rawValue]?.contains(where: { $0.hasSameBytes(as: name) }) == true else {
            return nil
        }
        return Self.place(of: name, in: session)
    }

    static func place(of container: String, in session: SessionRecord?) -> LocalScope {
        LocalScope(
            account: session.flatMap { $0.signedIn ? $0.accountID : nil }, service: .documents, path: container)
    }

    func place(in session: SessionRecord?) -> LocalScope { Self.place(of: name, in: session) }

    var absence: CloudError {
        CloudError(.missingEntitlement, "The app lists no such container.", details: ["container": name])
    }

    /// A page has 4096 items; a container may have a million.
    func adjust(_ options: inout ScopeSync.Options) {
        options.pagesMax = 1 << 14
        options.readingBytesMax = 1 << 30
    }

    func ended() {
        uploads.end()
        downloads.end()
    }

    // MARK: Bringing in

    func digests(in rows: ScopeTransaction, key: [UInt8]) throws -> [ItemName: SetDigest] {
        let items = try DocumentTransaction(rows).allSynced()
        return Dictionary(items.compactMap { item in item.digest(key: key).map { (item.name, $0) } }) { $1 }
    }

    func digest(of change: WireChange, key: [UInt8]) -> SetDigest? {
        DocumentTransaction.Synced.digest(of: ItemName(change.item), body: change.body, key: key)
    }

    func greatestSequence(in rows: ScopeTransaction) throws -> UInt64 {
        try DocumentTransaction(rows).greatestSequence()
    }

    func merge(_ pulled: PulledChanges, in rows: ScopeTransaction, _ state: inout ScopeState) throws -> MergedChanges? {
        let documents = DocumentTransaction(rows)
        let isRestored =
            state.head.epoch != 0 && (pulled.token.epoch != state.head.epoch || pulled.isOtherHistory)
        guard pulled.isListing || !isRestored else { return nil }
        let isFirst = !state.synced
        // Above this the server may have lost what is here.
        let common = pulled.isComparing ? 0 : isRestored ? pulled.epochStart : UInt64.max
        let all = pulled.isListing ? try documents.allSynced() : []
        var local = Dictionary(all.map { ($0.name, $0) }) { $1 }
        var merged = MergedChanges()
        var changed: [ItemName] = []
        var offers: [WireDocumentChange] = []
        var folders: Set<DocumentID> = []
        for change in pulled.changes {
            let name = ItemName(change.item)
            let mine = try pulled.isListing ? local.removeValue(forKey: name) : documents.synced(name)
            if change.damaged { merged.damaged.append(name) }
            let theirs = DocumentTransaction.Synced(
                change, sequence: min(change.sequence, pulled.token.sequence), damagedBody: mine?.body)
            if let mine, !isRestored,
                mine.sequence > (pulled.isComparing ? pulled.token.sequence : theirs.sequence)
            {
                continue
            }
            if let mine, mine.sequence > common {
                let offered = Self.offer(mine, over: theirs, isLater: theirs.sequence <= common)
                offers += offered
                if !offered.isEmpty, let folder = mine.item.flatMap({ DocumentID(bytes: $0.parent) }) {
                    folders.insert(folder)
                }
            }
            if mine == nil { offers += try offerOfDoubt(over: theirs, documents) }
            guard mine?.body != theirs.body || mine?.sequence != theirs.sequence else { continue }
            if Self.isNews(theirs, after: mine) { changed.append(name) }
            try documents.put(theirs, replacing: mine, &state)
        }
        for item in local.values.sorted(by: { $0.name < $1.name }) {
            // A push's reply was quicker than the listing.
            if !isRestored, item.sequence > pulled.token.sequence { continue }
            // That it is not listed does not say what became of it.
            if item.body == nil || item.isComing {
                try documents.forget(item, &state)
            } else {
                try documents.doubt(item, isNewer: item.sequence > common, &state)
            }
        }
        if pulled.isListing {
            try documents.askAnew()
            try ask(in: documents)
        }
        try offer(lostFolders(among: folders, documents) + offers, in: documents)
        if !pulled.info.isEmpty { state.info = pulled.info }
        downloads.look()
        merged.news = news(isFirst ? .initialSyncChange : .serverChange, changed, isFirst: isFirst)
        return merged
    }

    func merge(
        _ segment: FeedSegment, in rows: ScopeTransaction, _ state: inout ScopeState
    ) throws -> MergedChanges? {
        let documents = DocumentTransaction(rows)
        guard segment.changes.allSatisfy({ !$0.body.isEmpty || $0.deleted }) else { return nil }
        var changed: [ItemName] = []
        var offers: [WireDocumentChange] = []
        for change in segment.changes {
            let sequence = change.sequence == 0 ? segment.token.sequence : change.sequence
            let theirs = DocumentTransaction.Synced(change, sequence: min(sequence, segment.token.sequence))
            let mine = try documents.synced(theirs.name)
            if let mine, mine.sequence > theirs.sequence { continue }
            if Self.isNews(theirs, after: mine) { changed.append(theirs.name) }
            if mine == nil { offers += try offerOfDoubt(over: theirs, documents) }
            try documents.put(theirs, replacing: mine, &state)
        }
        try offer(offers, in: documents)
        downloads.look()
        return MergedChanges(news: news(.serverChange, changed, isFirst: false))
    }

    /// Whether an item has changed: what a device is about to make is none, and nobody knows it by its name.
    private static func isNews(_ theirs: DocumentTransaction.Synced, after mine: DocumentTransaction.Synced?) -> Bool {
        guard mine?.body != theirs.body else { return false }
        return !(theirs.body == nil ? mine?.isComing ?? false : theirs.isComing)
    }

    func news(_ reason: ChangeReason, _ changed: [ItemName], isFirst: Bool) -> ChangeNotification? {
        guard isFirst || !changed.isEmpty else { return nil }
        // Who is told of so many looks at all.
        return ChangeNotification(reason: reason, changedKeys: changed.count > 1000 ? [] : changed.sorted())
    }

    // MARK: Offering again

    /// - Parameter isLater: Whether what is here came after what the server has, and has not merely come beside it.
    private static func offer(
        _ mine: DocumentTransaction.Synced, over theirs: DocumentTransaction.Synced, isLater: Bool = false
    ) -> [WireDocumentChange] {
        guard mine.body != theirs.body, !mine.isComing, !theirs.isComing, let id = DocumentID(mine.name.rawValue),
            let item = mine.item,
            let other = theirs.item
        else { return [] }
        return DocumentChanges.difference(to: item, from: other, of: id, isLater: isLater)
    }

    /// What this device has of an item that the server has again, and that was lost there before.
    private func offerOfDoubt(
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
        var (lost, seen): ([DocumentTransaction.Synced], Set<DocumentID>) = ([], [])
        for start in folders.sorted() {
            var next = start
            while !next.isFixed, seen.insert(next).inserted, let doubt = try documents.doubt(of: next.name),
                doubt.isNewer, let item = doubt.item.item, item.kind == .folder
            {
                lost.append(doubt.item)
                guard let parent = DocumentID(bytes: item.parent) else { break }
                next = parent
            }
        }
        // Whatever else there is of them is offered once they are known to be lost.
        return try Self.creations(of: lost, documents).filter(\.createsFolder)
    }

    /// A folder before what is in it. What was in a folder that is gone comes to where the person finds it.
    static func creations(
        of lost: [DocumentTransaction.Synced], _ documents: DocumentTransaction
    ) throws -> [WireDocumentChange] {
        var left = Dictionary(
            lost.compactMap { row -> (DocumentID, WireDocumentItem)? in
                // What could never be read here cannot be made again.
                guard let id = DocumentID(row.name.rawValue), let item = row.item, item.kind != .unspecified,
                    !row.isComing
                else {
                    return nil
                }
                return (id, item)
            }
        ) { $1 }
        var changes: [WireDocumentChange] = []
        var made: Set<DocumentID> = []
        for start in left.keys.sorted() {
            var chain: [(DocumentID, WireDocumentItem)] = []
            var next: DocumentID? = start
            while let id = next, let item = left.removeValue(forKey: id) {
                chain.append((id, item))
                next = DocumentID(bytes: item.parent)
            }
            if let (first, item) = chain.last, let folder = next, !folder.isFixed,
                try !made.contains(folder) && documents.document(folder) == nil
            {
                chain[chain.count - 1] = (first, item.moved(to: .documents))
            }
            made.formUnion(chain.map(\.0))
            for (id, item) in chain.reversed() { changes += DocumentChanges.creation(of: item, named: id) }
        }
        return changes
    }

    /// Queues what the server has lost, as it was. What is still here of the contents is sent along.
    func offer(_ changes: [WireDocumentChange], in documents: DocumentTransaction) throws {
        // Nothing is changed of what lies in the trash: what has left it leaves it first. Then come folders, and what
        // is put into the trash is made before. Contents go each by itself: one that nobody has any more must not keep
        // the others away.
        let first = changes.filter(\.restores) + changes.filter(\.createsFolder)
        let others = changes.filter { !$0.restores && !$0.createsFolder && $0.content == nil }
        let contents = changes.filter { $0.content != nil }.map { [$0] }
        let requests = DocumentBatches.divide(first) + contents + DocumentBatches.divide(others)
        let copies = try takeCopies(for: changes.compactMap(\.content), in: documents)
        for changes in requests {
            var request = WireApplyChanges()
            request.container = name
            request.changes = changes
            let found = changes.compactMap { change in change.content.flatMap { copies[$0.version] } }
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

    /// Gives those of the contents that are here as copies a file that they are sent from, whatever becomes of the copy.
    ///
    /// - Returns: What is known of them, by version.
    private func takeCopies(
        for contents: [WireDocumentContent], in documents: DocumentTransaction
    ) throws -> [Data: StagedContent] {
        guard let folder = try? ContentFolder(home: engine.local.home) else { return [:] }
        var (taken, claim) = ([Data: StagedContent](), FileLock?.none)
        for content in contents where !content.isInline && taken[content.version] == nil {
            guard let version = DocumentID(bytes: content.version), try !documents.holdsContent(content.version),
                let copy = try documents.copy(of: content), !copy.chunks.isEmpty
            else { continue }
            if claim == nil { claim = try folder.claim() }
            if copy.file == version {
                // What was sent from here is called so still: it waits again, and is a copy no longer.
                try documents.forgetCopy(in: copy.file)
            } else if !folder.link(copy.file, as: version) {
                continue
            }
            taken[content.version] = StagedContent(
                version: version, length: copy.length, chunks: copy.chunks, modified: content.modified)
        }
        guard let claim else { return [:] }
        // Until this transaction is over.
        engine.loop.schedule(after: .zero) { withExtendedLifetime(claim) {} }
        try folder.flushNames()
        return taken
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
    /// - Parameter damagedBody: What is kept of an item that the server cannot read any more.
    init(_ change: WireChange, sequence: UInt64, damagedBody: Data? = nil) {
        name = ItemName(change.item)
        self.sequence = sequence
        body = change.deleted ? nil : change.damaged ? damagedBody ?? Data() : change.body
    }

    /// What a device is about to make: no item, and nobody's to offer again.
    var isComing: Bool { item?.kind == .coming }

    /// Nil: there is none, or it cannot be read here.
    var item: WireDocumentItem? {
        body.flatMap { try? WireDocumentItem(serializedBytes: $0) }
    }
}

/// Divides changes into requests.
enum DocumentBatches {
    /// Bytes of them, well below what a frame may have.
    static let bytesMax = 1 << 20

    static func divide(_ changes: [WireDocumentChange]) -> [[WireDocumentChange]] {
        var batches: [[WireDocumentChange]] = []
        var bytes = 0
        for change in changes {
            let size = (try? change.serializedData().count) ?? 0
            if batches.isEmpty || bytes + size > bytesMax || (batches.last?.count ?? 0) >= DocumentLimits.changesMax {
                batches.append([])
                bytes = 0
            }
            batches[batches.count - 1].append(change)
            bytes += size
        }
        return batches
    }
}
