internal import Foundation
package import NephosCore
internal import NephosFiles
internal import NephosKit

// From the disk to the container: deletions. Each rests on a folder that was looked into, and on the root's mark.
extension FolderSync {
    /// Sends deletions of items that have been gone for long enough.
    func sendDeletions() async throws(CloudError) {
        // A file that was moved into a new folder has not been found there yet.
        guard !ignoreFile.isAwaited, !isSendingFull else { return }
        let now = ContinuousClock.now
        // The files of one deletion are one batch for undo and for the limit, however long it takes to delete them.
        let (first, last) = (vanished.values.min() ?? now, vanished.values.max() ?? now)
        let isOver = last + options.deleteDelay <= now || first + Self.deletionMax <= now
        let due = isOver ? vanished.filter { $0.value + options.deleteDelay <= now }.map(\.key) : []
        guard !due.isEmpty else {
            if vanished.isEmpty { try endHold() }
            return
        }
        // It may be in a folder that nothing tells of.
        if watch.coverage.unwatched > 0, due.contains(where: { vanished[$0].map { $0 > lastScanBegin } ?? false }) {
            return scanAll()
        }
        let gone = try confirm(due)
        // Programs make and remove empty folders by the dozen, such as git.
        let counts = try read { tree in
            let all = try gone.flatMap { try deleted(with: $0, tree) }
            return (all.count { $0.kind != .folder }, try tree.fileCount())
        }
        // A slow disk is emptied in many small deletions.
        recentDeletions.removeAll { $0.time + Self.recentTime <= now }
        let recent = recentDeletions.reduce(0) { $0 + $1.count }
        let (count, total) = (counts.0 + recent, counts.1 + recent)
        // One that was held stays so, also when the time of the others is over.
        if counts.0 > 0, heldDeletionCount > 0 || count > options.deletionsMax && count * 4 > total {
            let answers = try store.answers(of: added.id)
            if answers.restores {
                try clearAnswers()
                return try restoreHeldDeletions()
            }
            guard answers.allowed >= counts.0 else {
                if heldDeletionCount == 0 { note(.held, nil, "\(counts.0)") }
                return heldDeletionCount = counts.0
            }
            try clearAnswers()
            recentDeletions = []
        } else if counts.0 > 0 {
            recentDeletions.append((now, counts.0))
        }
        try endHold()
        guard !gone.isEmpty else { return }
        // The mark may have gone together with everything else.
        try root.verify()
        let batch = container.makeID()
        // Items that wait for a deleted folder's name get it in the same step. They get another name first, since an item may
        // have been in that folder.
        let followers = waitingMoves.values.filter { move in gone.contains { $0.id == move.blocker } }
        let leaving = followers.map { move in
            ContainerTree.Change.move(
                move.item.id, in: move.place.folder, name: Data(".nephos-\(move.item.id)".utf8))
        }
        let trashed = try gone.map { item throws(CloudError) in
            ContainerTree.Change.trash(item.id, batch: batch, known: try known(of: item))
        }
        let arriving = followers.map { move in
            ContainerTree.Change.move(
                move.item.id, in: move.place.folder, name: Data(move.item.name(at: move.place)))
        }
        let outcomes = try await container.apply(leaving + trashed + arriving, container.stageFiles())
        let results = Array(zip(gone, outcomes.dropFirst(leaving.count)))
        let contents = try read { tree in try gone.map { try deleted(with: $0, tree) } }
        try write { tree in
            for move in followers {
                var row = move.item
                (row.parent, row.name) = (move.place.folder, move.place.name)
                try tree.put(row)
            }
            for item in gone { try tree.remove(item.id) }
        }
        // An item whose deletion failed comes back to the disk.
        for (item, outcome) in results { if case .failure = outcome { remote.insert(item.id) } }
        for move in followers {
            note(.moved, move.place)
            waitingMoves[move.item.id] = nil
            vanished[move.item.id] = nil
            later.remove(move.place)
            // The container may have given it another name, and its contents were not scanned while it waited.
            remote.insert(move.item.id)
            dirty.insert(move.item.id, isDeep: true)
            dirty.insert(move.place)
        }
        for ((item, outcome), all) in zip(results, contents) {
            note(.deleted, item.place)
            if case .failure(let error) = outcome { try await handle(error, ofDeletion: item, all, batch) }
            // A rejection ends with its file.
            for one in all where one.isRejected {
                if let version = one.version { try await container.dismissRejected(one.id, version: version) }
            }
            vanished[item.id] = nil
            // Something else may wait for the name.
            dirty.insert(item.place)
            lookAtBlocked(in: item.parent)
        }
    }

    /// An item that is gone and what is in it, without what was found elsewhere.
    private func deleted(with item: SyncedItem, _ tree: SyncedTree) throws -> [SyncedItem] {
        guard item.kind == .folder else { return [item] }
        return try tree.children(of: item.id).filter { waitingMoves[$0.id] == nil }
            .reduce(into: [item]) { $0 += try deleted(with: $1, tree) }
    }

    /// The longest time that a deletion is waited for.
    private static let deletionMax = Duration.seconds(60)
    /// Deletions of this time count together.
    private static let recentTime = Duration.seconds(600)

    /// Ends a held deletion, and forgets the answer to it.
    private func endHold() throws(CloudError) {
        guard heldDeletionCount > 0 else { return }
        heldDeletionCount = 0
        try clearAnswers()
    }

    /// Forgets what the user has answered to a held deletion.
    func clearAnswers() throws(CloudError) {
        let answers = try store.answers(of: added.id)
        if answers.allowed > 0 || answers.restores { try store.clearAnswers(of: added.id) }
    }

    /// The items that are really gone, without those that are in a folder that is.
    private func confirm(_ due: [DocumentID]) throws(CloudError) -> [SyncedItem] {
        var gone: [DocumentID: SyncedItem] = [:]
        try checkWaitingMoves()
        for id in due {
            guard waitingMoves[id] == nil else {
                // It was found.
                vanished[id] = nil
                continue
            }
            guard let item = try read({ try $0.item(id) }) else {
                vanished[id] = nil
                continue
            }
            switch try standing(of: item) {
            case .absent:
                // Some programs move a file by copying it: the copies of placeholders are looked at again first.
                let items = try placeholderCopies.isEmpty ? [] : [item] + read { try $0.descendants(of: id) }
                let copies = items.compactMap { placeholderCopies.removeValue(forKey: $0.id) }
                for copy in copies { dirty.insert(copy) }
                if copies.isEmpty { gone[id] = item } else { vanished[id] = .now }
            case .same: vanished[id] = nil
            // Another folder has the name, and this one was found nowhere.
            case .replaced where item.kind == .folder: gone[id] = item
            case .replaced:
                vanished[id] = nil
                dirty.insert(Place(folder: item.parent, name: item.name))
            case .unknown: vanished[id] = .now
            }
        }
        var tops: [SyncedItem] = []
        for item in gone.values {
            var parent = item.parent
            while parent != container.root, gone[parent] == nil, let row = try read({ try $0.item(parent) }) {
                parent = row.parent
            }
            if gone[parent] == nil { tops.append(item) } else { vanished[item.id] = nil }
        }
        return tops
    }

    /// Another device has changed the item, or put something into the folder: only what was seen here is deleted.
    private func handle(
        _ error: CloudError, ofDeletion item: SyncedItem, _ contents: [SyncedItem], _ batch: DocumentID
    ) async throws(CloudError) {
        // It is no item of this folder any more: there is nothing to delete.
        guard error.code != .unknownItem else { return }
        remote.insert(item.id)
        guard item.kind == .folder else { return }
        let changes = contents.filter { $0.kind != .folder }.map {
            ContainerTree.Change.trash($0.id, batch: batch, known: [$0.id: $0.containerVersion])
        }
        _ = try await container.apply(changes, container.stageFiles())
    }

    /// Puts held deletions back: the files are downloaded again.
    package func restoreHeldDeletions() throws(CloudError) {
        for id in vanished.keys {
            if let row = try read({ try $0.item(id) }), try restorePlaceholder(of: row) { continue }
            let evicted = try read { try $0.descendants(of: id).filter(\.isEvicted).map(\.id) }
            restoredPlaceholders.formUnion(evicted)
            remote.insert(id)
            try write { try $0.remove(id) }
        }
        (vanished, heldDeletionCount) = ([:], 0)
    }
}
