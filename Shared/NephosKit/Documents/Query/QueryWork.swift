import Foundation
import GRDB
import NephosCore
import NephosPredicates

/// The work of one query, in steps that are bounded in time and memory. On the query's thread only.
///
/// Folders are walked from the top down, so many items a step; what is touched meanwhile, or later, is looked at again,
/// and a folder whose place has changed is walked again. When nothing is left of both, what was found is what is there
/// in the state that the step has read, and the difference to what the reader was told is what there is to tell.
final class QueryWork {
    /// What a step came to.
    enum Step {
        case event(DocumentQuery.Event)
        /// There is more to do.
        case more
        /// Until something changes.
        case idle
    }

    struct Plan {
        var account: AccountID
        var container: String
        var predicate: CompiledPredicate
        /// Of the predicate, by their places in it.
        var fields: [DocumentField?]
        var includesTrash: Bool
        var scope: DocumentQueryScope
        var sorts: [DocumentSort]
        /// Items of one event.
        var batchMax: Int
        /// The server's time, as far as that is known.
        var now: @Sendable () -> Timestamp
    }

    /// Items that a step looks at.
    static let stepMax = 1000
    /// Folders whose places a step remembers.
    private static let placesMax = 4096

    private let plan: Plan
    private let local: LocalStore
    private let found: FoundDocuments
    private var progress = Progress()

    /// How far it is.
    private struct Progress {
        /// What was touched up to here is heeded; nil: nothing was looked at yet.
        var revision: Int64?
        /// Everything is being looked at, for the first time or again.
        var isRound = false
        /// The folder that is being walked, and where in it the next step goes on.
        var walk: (folder: FoundDocuments.Folder, name: Data?, after: (name: Data, item: String))?
        /// What was gathered last.
        var gathered: (key: Data, number: Int64)?
        var isGathering = true
    }

    init(_ plan: Plan, _ local: LocalStore) throws {
        self.plan = plan
        self.local = local
        found = try FoundDocuments()
    }

    /// - Parameter isPaused: Whether nobody is told of updates. It is asked once the step has read: what is written
    ///   after it became so is not told.
    /// - Throws: ``CloudError`` `.notSignedIn` once another account is signed in, or none. The work is over then.
    func step(isPaused: () -> Bool) throws -> Step {
        try found.change { found in
            try local.read { database in
                guard let documents = try open(database) else { return Step.idle }
                let look = Look(plan, documents, found)
                let isCurrent = try look.goOn(&progress)
                return try look.tell(&progress, isCurrent: isCurrent, isPaused: isPaused())
            }
        }
    }

    /// - Returns: Nil: nobody here knows yet what is in the container.
    private func open(_ database: Database) throws -> DocumentTransaction? {
        guard let session = try Facts(database).session, session.signedIn, session.accountID == plan.account else {
            throw CloudError(
                .notSignedIn, "This device has signed out, or is another account's now. Sign in, and ask again.")
        }
        let rows = ScopeTransaction(
            database, LocalScope(account: plan.account, service: .documents, path: plan.container))
        guard try rows.state().synced else { return nil }
        let documents = DocumentTransaction(rows)
        documents.known.now = plan.now()
        return documents
    }

    /// One step in one state of the home.
    private struct Look {
        let plan: Plan
        let documents: DocumentTransaction
        let found: FoundDocuments.Changes

        init(_ plan: Plan, _ documents: DocumentTransaction, _ found: FoundDocuments.Changes) {
            self.plan = plan
            self.documents = documents
            self.found = found
        }

        // MARK: Finding

        /// - Returns: Whether all that is there now was looked at.
        func goOn(_ progress: inout Progress) throws -> Bool {
            guard let revision = progress.revision,
                let touched = try documents.touched(after: revision, limit: QueryWork.stepMax)
            else {
                try beginRound(&progress)
                return false
            }
            var places = Places()
            for item in touched.items { try look(atTouched: item, &places) }
            progress.revision = touched.upTo
            guard try touched.upTo == documents.latestTouch() else { return false }
            var left = QueryWork.stepMax - touched.items.count
            while left > 0, try progress.walk != nil || beginWalk(&progress) { left -= try walk(&progress) + 1 }
            guard try progress.walk == nil && found.nextToWalk() == nil else { return false }
            if progress.isRound { try found.endRound() }
            progress.isRound = false
            return true
        }

        private func beginRound(_ progress: inout Progress) throws {
            progress.revision = try documents.latestTouch()
            progress.walk = nil
            progress.isRound = true
            try found.beginRound()
            for root in plan.scope.roots {
                let folder = FoundDocuments.Folder(id: root.id, location: root.location)
                try found.put(folder, walk: plan.scope.isOnTheWay(root.location) ? .way : .everything)
            }
        }

        private func beginWalk(_ progress: inout Progress) throws -> Bool {
            guard let (folder, walk) = try found.nextToWalk() else { return false }
            try found.put(folder, walk: .none)
            let name = walk == .way ? folder.location.flatMap { plan.scope.nextName(after: $0) } : nil
            progress.walk = (folder, name, (Data(), ""))
            return true
        }

        /// Goes on in a folder.
        ///
        /// - Returns: How many items were looked at.
        private func walk(_ progress: inout Progress) throws -> Int {
            guard let walk = progress.walk else { return 0 }
            let page = try documents.everything(
                in: walk.folder.id, named: walk.name, after: walk.after, limit: QueryWork.stepMax)
            for item in page.items { try look(at: item, in: walk.folder.location) }
            progress.walk = page.last.map { (walk.folder, walk.name, $0) }
            return page.items.count
        }

        private func look(atTouched id: DocumentID, _ places: inout Places) throws {
            // An item that became one with another is read as that one, and is gone itself.
            guard let item = try documents.document(id), item.id == id else {
                try found.drop(id)
                return try note(id, at: nil)
            }
            try look(at: item, in: try item.parent.flatMap { try places.location(of: $0, documents) })
        }

        /// - Parameter folder: Where the folder is that it is in; nil: nowhere.
        private func look(at item: HeldDocument, in folder: DocumentLocation?) throws {
            if item.isFolder { try note(item.id, at: folder?.appending(item)) }
            guard let folder, folder.depth < DocumentLimits.depthMax, plan.scope.holds(in: folder),
                let document = QueriedDocument(item, in: folder, documents), try matches(document)
            else { return try found.drop(item.id) }
            try found.put(
                item.id, key: try DocumentSortKey(sorts: plan.sorts).bytes(of: document),
                path: document.location.bytes, now: try fingerprint(of: document))
        }

        /// A folder is here; nil: where the query has nothing to look for. What is in it is looked at if that is new.
        private func note(_ id: DocumentID, at location: DocumentLocation?) throws {
            var location = location
            if let place = location,
                place.depth >= DocumentLimits.depthMax || place.isTrashed && !plan.includesTrash
                    || !plan.scope.leads(to: place)
            {
                location = nil
            }
            guard let known = try found.folder(id) else {
                guard let location else { return }
                let walk = plan.scope.isOnTheWay(location) ? FoundDocuments.Walk.way : .everything
                return try found.put(FoundDocuments.Folder(id: id, location: location), walk: walk)
            }
            guard known.location != location else { return }
            try found.put(FoundDocuments.Folder(id: id, location: location), walk: .everything)
        }

        private func matches(_ document: QueriedDocument) throws -> Bool {
            guard plan.includesTrash || !document.location.isTrashed else { return false }
            var failure: (any Error)?
            let isMatch = plan.predicate.matches(
                valueAt: { index in
                    guard let field = plan.fields[index] else { return nil }
                    do { return try document.value(of: field) } catch {
                        failure = error
                        return nil
                    }
                }, texts: { document.texts })
            if let failure { throw failure }
            return isMatch
        }

        /// The same as long as what is read of the item is.
        private func fingerprint(of document: QueriedDocument) throws -> Int64 {
            var hasher = Hasher()
            hasher.combine(document.location)
            hasher.combine(document.held.wire)
            hasher.combine(try documents.transfer(of: document.held))
            return Int64(hasher.finalize())
        }

        // MARK: Telling

        /// - Parameter isCurrent: What was found is what is there.
        func tell(_ progress: inout Progress, isCurrent: Bool, isPaused: Bool) throws -> Step {
            if progress.isGathering {
                // Without an order they can be told as they are found.
                guard isCurrent || plan.sorts.isEmpty else { return .more }
                let news = try found.unknown(after: progress.gathered, limit: plan.batchMax)
                guard isCurrent || news.count == plan.batchMax else { return .more }
                if news.isEmpty {
                    progress.isGathering = false
                    return .event(.finishedGathering)
                }
                progress.gathered = news.last.map { ($0.key, $0.number) }
                var folders: [DocumentID: DocumentLocation] = [:]
                let entries = try news.compactMap { try entry($0, &folders) }
                return entries.isEmpty ? .more : .event(.gathered(entries))
            }
            guard isCurrent else { return .more }
            return isPaused ? .idle : try update()
        }

        private func update() throws -> Step {
            let news = try found.news(limit: plan.batchMax + 1)
            guard !news.isEmpty else { return .idle }
            var update = DocumentQuery.Update()
            update.hasMore = news.count > plan.batchMax
            var folders: [DocumentID: DocumentLocation] = [:]
            for one in news.prefix(plan.batchMax) {
                if one.now == nil {
                    try found.tell(one)
                    update.removed.append(
                        DocumentQuery.Removed(id: one.id, path: String(decoding: one.path, as: UTF8.self)))
                } else if let entry = try entry(one, &folders) {
                    if one.isKnown { update.changed.append(entry) } else { update.added.append(entry) }
                }
            }
            return .event(.updated(update))
        }

        /// - Parameter folders: Where those are that were asked for before.
        /// - Returns: Nil: it is another one since; that is seen when what was touched is looked at.
        private func entry(
            _ news: FoundDocuments.News, _ folders: inout [DocumentID: DocumentLocation]
        ) throws -> DocumentEntry? {
            guard let item = try documents.document(news.id), let parent = item.parent,
                let folder = try folders[parent] ?? found.folder(parent)?.location,
                let document = QueriedDocument(item, in: folder, documents),
                try fingerprint(of: document) == news.now
            else { return nil }
            folders[parent] = folder
            try found.tell(news)
            return try document.entry()
        }
    }

    /// Where folders are, as one state of the home says.
    private struct Places {
        private var known: [DocumentID: DocumentLocation?] = [:]

        /// - Returns: Nil: no way leads from the top to it, or it is no folder.
        mutating func location(of folder: DocumentID, _ documents: DocumentTransaction) throws -> DocumentLocation? {
            var chain: [HeldDocument] = []
            var next = folder
            var location: DocumentLocation?
            // Folders that lie in each other lead nowhere.
            while chain.count <= DocumentLimits.depthMax {
                if next == .top { location = .top } else if next == .documents { location = .documents }
                if location != nil { break }
                if let found = known[next] {
                    guard let found else { break }
                    location = found
                    break
                }
                guard let held = try documents.document(next), held.isFolder, let parent = held.parent else { break }
                chain.append(held)
                next = parent
            }
            if known.count > QueryWork.placesMax { known = [:] }
            for held in chain.reversed() {
                location = location?.appending(held)
                known[held.id] = .some(location)
            }
            return location
        }
    }
}
