internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

/// Local changes that are sent together.
struct LocalBatch {
    enum Change {
        /// Another thing of another kind has the item's name.
        case displace(SyncedItem)
        case move(SyncedItem, to: Place, FileFacts, isChanged: Bool)
        case make(Place, FileFacts)
        case change(SyncedItem, FileFacts)

        /// Where a content has to be read; nil: none has.
        var placeOfContent: Place? {
            switch self {
            case .make(let place, let facts) where facts.kind == .file: place
            case .change(let item, _): item.place
            case .make, .move, .displace: nil
            }
        }

        var isMove: Bool { if case .move = self { true } else { false } }

        var isFolderMove: Bool {
            if case .move(let item, _, _, _) = self { item.kind == .folder } else { false }
        }

        /// The order within a batch: names become free before others take them.
        fileprivate var rank: Int {
            switch self {
            case .displace: 0
            case .move: 1
            case .make: 2
            case .change: 3
            }
        }
    }

    private enum Subject: Hashable {
        case item(DocumentID)
        case place(Place)
    }

    private var changes: [Change] = []
    private var numbers: [Subject: Int] = [:]
    var count: Int { changes.count }

    /// Whether the item was found at another place.
    func moves(_ id: DocumentID) -> Bool {
        guard let number = numbers[.item(id)], case .move = changes[number] else { return false }
        return true
    }

    func has(_ id: DocumentID) -> Bool { numbers[.item(id)] != nil }

    /// Where an item was found; nil: it was not moved.
    func target(of id: DocumentID) -> Place? {
        guard let number = numbers[.item(id)], case .move(_, let place, _, _) = changes[number] else { return nil }
        return place
    }

    /// A place or an item may be looked at twice before the batch is sent: what was found last counts.
    mutating func append(_ change: Change) {
        let subject: Subject =
            switch change {
            case .displace(let item), .change(let item, _), .move(let item, _, _, _): .item(item.id)
            case .make(let place, _): .place(place)
            }
        if let number = numbers[subject] {
            changes[number] = change
        } else {
            numbers[subject] = changes.count
            changes.append(change)
        }
    }

    mutating func takeAll() -> [Change] {
        defer { (changes, numbers) = ([], [:]) }
        return changes.enumerated().sorted { ($0.element.rank, $0.offset) < ($1.element.rank, $1.offset) }
            .map(\.element)
    }
}

/// Something that was found at the place of a folder, which has to go from there first.
struct WaitingMove {
    var item: SyncedItem
    var place: Place
    var facts: FileFacts
    var isChanged: Bool
    /// The folder's item.
    var blocker: DocumentID
}

// From the disk to the container: finding what has changed.
extension FolderSync {
    private static let batchMax = 256

    /// Looks at dirty folders until none is left, and sends what has changed.
    func sendChanges() async throws(CloudError) {
        var batch = LocalBatch()
        isSendingFull = dirty.isEmpty ? false : try isFull()
        while !isSendingFull, let look = dirty.popLast() {
            try scan(look, &batch)
            // Folders that were found new have no row before this, and are looked at after it.
            if dirty.isEmpty { try addExchanges(to: &batch) }
            if dirty.isEmpty || batch.count >= Self.batchMax { try await send(&batch) }
        }
        try await send(&batch)
        lookAtFilled()
    }

    /// Adds moves that wait only for each other: their places are exchanged.
    private func addExchanges(to batch: inout LocalBatch) throws(CloudError) {
        try checkWaitingMoves()
        var moves = waitingMoves
        while let stuck = moves.values.first(where: { moves[$0.blocker] == nil && !batch.moves($0.blocker) }) {
            moves[stuck.item.id] = nil
        }
        for move in moves.values {
            batch.append(.move(move.item, to: move.place, move.facts, isChanged: move.isChanged))
            vanished[move.item.id] = nil
            waitingMoves[move.item.id] = nil
        }
    }

    /// Forgets waiting moves that are not as they were found. Their items are looked for again where they were.
    func checkWaitingMoves() throws(CloudError) {
        for (id, move) in waitingMoves {
            guard let row = try read({ try $0.item(id) }) else {
                waitingMoves[id] = nil
                continue
            }
            let facts = (try? open(move.place.folder)?.facts(move.place.name)) ?? nil
            let blocker = try read { try $0.child(of: move.place.folder, named: move.place.name) }
            guard let facts, row.stamp.isFile(facts), let blocker, blocker.id == move.blocker,
                !blocker.stamp.isFile(facts), try standing(of: row) != .same
            else {
                waitingMoves[id] = nil
                dirty.insert(row.place, isDeep: true)
                continue
            }
            waitingMoves[id]?.item = row
        }
    }

    private func scan(_ look: DirtyFolders.Look, _ batch: inout LocalBatch) throws(CloudError) {
        let id = look.folder
        let row = try read { try $0.item(id) }
        guard id == container.root || row != nil else {
            // It is no folder of the tree any more, and its files are not waited for.
            for place in Array(later.places) where place.folder == id { later.remove(place) }
            return
        }
        let place = row.map { Place(folder: $0.parent, name: $0.name) }
        do {
            guard let folder = try open(id) else { return }
            if let row, let place, try !row.stamp.isFile(folder.facts()) {
                // Another folder has the name: the look at the parent decides.
                return dirty.insert(place, isDeep: true)
            }
            // Before the names are read, so that no change falls between.
            watch.watch(folder, as: id)
            try scan(folder, look, &batch)
            if let place { unblock(place) }
        } catch let failure as FileFailure {
            guard let place else { throw Self.unreadable(failure) }
            if failure.isAbsence || failure.number == ENOTDIR || failure.number == ELOOP {
                // Should it be back by then, this look is made up for.
                dirty.insert(place, isDeep: true)
            } else {
                block(place, "The folder cannot be read, so nothing in it is synced: \(failure.reason).")
                later.noteFailed(place, .now)
            }
        } catch { throw CloudError(wrapping: error) }
    }

    private func scan(
        _ folder: HeldFolder, _ look: DirtyFolders.Look, _ batch: inout LocalBatch
    ) throws {
        let names = try (look.names.names.map { Array($0) } ?? folder.names()).filter { !IgnoreRule.ignores($0) }
        var found: [FileName: FileFacts] = [:]
        var unknown: Set<FileName> = []
        for name in names {
            do throws(FileFailure) { found[name] = try folder.facts(name) } catch {
                guard !error.isAbsence else { continue }
                unknown.insert(name)
                block(Place(folder: look.folder, name: name), "It cannot be looked at: \(error.reason).")
            }
        }
        for (place, block) in blocked
        where block.isLocal && place.folder == look.folder && look.names.contains(place.name) {
            if found[place.name] == nil, !unknown.contains(place.name) { unblock(place) }
        }
        let rows = try read { tree in
            try look.names.names == nil
                ? tree.children(of: look.folder)
                : names.compactMap { try tree.child(of: look.folder, named: $0) }
        }
        let inodes = Set(found.values.map(\.inode))
        var items: [FileName: SyncedItem] = [:]
        for row in rows {
            items[row.name] = row
            if found[row.name] == nil, !unknown.contains(row.name), vanished[row.id] == nil { vanished[row.id] = .now }
        }
        // Nothing is there to be looked at again.
        for place in Array(later.places) where place.folder == look.folder && look.names.contains(place.name) {
            if found[place.name].map({ $0.kind == .special }) ?? true { later.remove(place) }
        }
        for (name, facts) in found {
            let place = Place(folder: look.folder, name: name)
            guard facts.kind != .special else {
                if try !leaveIgnored(place, facts) { block(place, "FIFOs, sockets and devices are not synced.") }
                continue
            }
            try decide(place, facts, items[name], inodes, look.isDeep, &batch)
        }
    }

    private func decide(
        _ place: Place, _ facts: FileFacts, _ item: SyncedItem?, _ inodes: Set<UInt64>, _ isDeep: Bool,
        _ batch: inout LocalBatch
    ) throws {
        var item = item.flatMap { batch.moves($0.id) ? nil : $0 }
        var known: SyncedItem?
        var standing = Standing.absent
        if item?.stamp.isFile(facts) != true {
            known = try read { try $0.item(identifiedBy: facts) }
            // A further name of one file is a file of its own.
            if facts.kind == .file, facts.linkCount > 1, let id = known?.id, batch.target(of: id) ?? place != place {
                known = nil
            }
            if let known { standing = try self.standing(of: known) }
        }
        let isElsewhere = item.map { $0.stamp.inode != facts.inode && inodes.contains($0.stamp.inode) } ?? false
        let found = LocalRule.decide(
            facts, item, isElsewhere: isElsewhere, known: known, standing: standing)
        var decision = try decide(found, place, facts)
        // A placeholder that became a file of its own.
        if case .change = found, case .make = decision { item = nil }
        switch decision {
        case .make, .change:
            guard let other = try decideAboutPlaceholder(place, facts) else { break }
            // An item of another kind had the name. It is not deleted for a placeholder.
            decision = other == .unchanged && item != nil && decision == .make ? .wait : other
        default: break
        }
        if item == nil, case .make = decision { decision = try decideAboutEvictedFile(place, facts) ?? decision }
        if let item, decision.displaces, !isElsewhere {
            guard item.kind != .folder else {
                // The folder may come up elsewhere, or its deletion may be held: until then its name is not free.
                if vanished[item.id] == nil { vanished[item.id] = .now }
                if case .move(let known, let isChanged) = decision {
                    waitingMoves[known.id] = WaitingMove(
                        item: known, place: place, facts: facts, isChanged: isChanged, blocker: item.id)
                }
                return later.noteFailed(place, .now, isWaiting: true)
            }
            batch.append(.displace(item))
        }
        switch decision {
        case .unchanged:
            guard let item else { return later.remove(place) }
            vanished[item.id] = nil
            later.remove(place)
            if item.kind == .folder, isDeep { dirty.insert(item.id, isDeep: true) }
        case .adopt(var item):
            vanished[item.id] = nil
            item.stamp = FileStamp(facts)
            try write { try $0.put(item) }
            later.remove(place)
            dirty.insert(item.id, isDeep: true)
        case .make:
            guard try !leaveIgnored(place, facts) else { return later.remove(place) }
            guard try !isTaken(place) else {
                later.remove(place)
                return try rename(place, facts)
            }
            batch.append(.make(place, facts))
        case .change(let item):
            vanished[item.id] = nil
            if facts.linkCount > 1, !isDeep {
                // A write to a hard-linked file changes the content under all of its names.
                for other in try read({ try $0.items(identifiedBy: facts) })
                where !batch.has(other.id) && other.id != item.id {
                    dirty.insert(other.place)
                }
            }
            batch.append(.change(item, facts))
        case .move(let item, let isChanged):
            vanished[item.id] = nil
            batch.append(.move(item, to: place, facts, isChanged: isChanged))
        case .wait: later.noteFailed(place, .now, isWaiting: true)
        }
    }

    /// Whether the container has an item of this name that is elsewhere on disk, and about to be moved here.
    private func isTaken(_ place: Place) throws -> Bool {
        guard let item = try container.child(of: place.folder, named: Data(place.name)),
            let row = try read({ try $0.item(item.id) })
        else { return false }
        return Place(folder: row.parent, name: row.name) != place
    }

    /// Gives a new file or folder another name, since an item that other devices have there comes to its place.
    private func rename(_ place: Place, _ facts: FileFacts) throws {
        guard let folder = try open(place.folder) else { return }
        for number in 2...Self.namesMax {
            let name = FileName(DocumentPath.numbered(Data(place.name), number))
            do throws(FileFailure) { try folder.move(place.name, to: folder, as: name) } catch {
                guard error.number == EEXIST else { throw error }
                continue
            }
            dirty.insert(Place(folder: place.folder, name: name))
            remote.insert(remote.postponed.keys)
            return
        }
    }

    private static let namesMax = 1000

    /// Whether an item is where its row has it.
    func standing(of item: SyncedItem) throws(CloudError) -> Standing {
        try Standing(of: item) { try open(item.parent) }
    }

    // MARK: After a kill

    /// Puts files back that a killed pass left in the agent's own folder.
    func recoverLeftovers() throws(CloudError) {
        do {
            for name in try root.parking.names() {
                let facts = try root.parking.facts(name)
                if let row = try DocumentID(name.text).flatMap({ id in try read { try $0.item(id) } }), row.isEvicted,
                    !row.isParked, let folder = (try? open(row.parent)) ?? nil
                {
                    // The content was about to be evicted. Where that is not possible now, it stays for the next start.
                    try? giveBack(name, from: root.parking, to: folder, as: row.itemName)
                    continue
                }
                guard var row = try read({ try $0.item(identifiedBy: facts) }) else {
                    try giveBack(name, from: root.parking, to: root.folder, as: FileName("recovered ".utf8) + name)
                    continue
                }
                remote.insert(row.id)
                // A scan from the root does not reach it.
                if row.kind == .folder { dirty.insert(row.id, isDeep: true) }
                guard row.parent != SyncedItem.parkingLot || row.name != name else { continue }
                (row.parent, row.name) = (SyncedItem.parkingLot, name)
                try write { try $0.put(row) }
            }
            for name in try root.parts.names() {
                let facts = try root.parts.facts(name)
                let row = try read { try $0.item(identifiedBy: facts) }
                let isOld = name.starts(with: RootFolder.exchangedPrefix)
                if isOld, facts.kind == .folder || row.map({ $0.isRacy || !$0.stamp.hasContent(of: facts) }) ?? true {
                    // It was edited in the moment when another device's version came.
                    try giveBack(name, from: root.parts, to: root.folder, as: FileName("recovered ".utf8) + name)
                } else {
                    root.parts.removeAll(name)
                }
            }
        } catch let failure as FileFailure { throw Self.unreadable(failure) } catch {
            throw CloudError(wrapping: error)
        }
    }

    /// Moves a file of the agent's own folder to where the user sees it, under a free name.
    func giveBack(
        _ name: FileName, from source: HeldFolder, to folder: HeldFolder, as wanted: FileName
    ) throws(FileFailure) {
        for number in 1...Self.namesMax {
            let free = number == 1 ? wanted : FileName(DocumentPath.numbered(Data(wanted), number))
            do throws(FileFailure) { try source.move(name, to: folder, as: free) } catch {
                guard error.number == EEXIST, number < Self.namesMax else { throw error }
                continue
            }
            return dirty.insert(container.root, isDeep: true)
        }
    }

    private static func unreadable(_ failure: FileFailure) -> CloudError {
        CloudError(
            .storageFailure, "The folder cannot be read, so nothing is synced. Check its disk and permissions.",
            details: ["reason": failure.reason])
    }
}

extension SyncedItem {
    /// Its name in the agent's own folder.
    var parkingName: FileName { FileName("\(id)".utf8) }
}
