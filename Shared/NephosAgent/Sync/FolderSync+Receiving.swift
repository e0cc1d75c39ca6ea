internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

/// The changes that make the disk equal to the container.
struct RemotePlan {
    /// New files come as placeholders.
    var isOnDemand = false
    /// Items that were placeholders before, and come as such again.
    var placeholders: Set<DocumentID> = []
    /// Folders and links to make, and items to move. Files are made when their contents have come.
    var placements: [ContainerTree.Item] = []
    var downloads: [ContainerTree.Item] = []
    /// Links with another target.
    var links: [(SyncedItem, ContainerTree.Item)] = []
    var modes: [(SyncedItem, ContainerTree.Item)] = []
    /// Rows whose content has another version by name, with the same bytes or with none on disk.
    var versions: [(SyncedItem, ContainerTree.Item)] = []
    var removals: [SyncedItem] = []
    /// Of a kind that a folder cannot hold.
    var unsupported: [ContainerTree.Item] = []

    /// Compares an item with its row.
    ///
    /// - Parameter item: Nil: it is not in the container's folder.
    mutating func compare(_ item: ContainerTree.Item?, _ row: SyncedItem?) {
        guard let item else {
            if let row { removals.append(row) }
            return
        }
        guard item.canBePlaced else { return unsupported.append(item) }
        guard let row else {
            let isEvicted =
                (isOnDemand && item.size >= Placeholder.fileSizeMin || placeholders.contains(item.id))
                && Placeholder.name(of: FileName(item.name)) != nil
                && FileName(item.name) != IgnoreRule.fileName
            if item.kind == .file, !isEvicted { downloads.append(item) } else { placements.append(item) }
            return
        }
        guard row.kind == item.fileKind else {
            removals.append(row)
            return compare(item, nil)
        }
        // A placeholder of this name would have too long a name.
        if row.isEvicted, Placeholder.name(of: FileName(item.name)) == nil { return downloads.append(item) }
        if row.parent != item.parent || row.itemName != FileName(item.name) { placements.append(item) }
        guard item.kind != .folder, let version = item.version else { return }
        if row.isEvicted {
            // A placeholder is of no version.
            if row.version != version { versions.append((row, item)) }
            return
        }
        if !item.hasContent(of: row.version) {
            if item.kind == .file { downloads.append(item) } else { links.append((row, item)) }
        } else if row.version != version {
            versions.append((row, item))
        }
        if item.kind == .file, row.stamp.isExecutable != item.isExecutable { modes.append((row, item)) }
    }
}

extension ContainerTree.Item {
    /// Whether it can be in a folder on disk.
    var canBePlaced: Bool {
        kind != .package && DocumentLimits.isName(name) && !IgnoreRule.ignores(place.name)
    }

    var fileKind: FileFacts.Kind {
        switch kind {
        case .file: .file
        case .folder, .package: .folder
        case .link: .link
        }
    }
}

// From the container to the disk.
extension FolderSync {
    private static let itemsMax = 512

    /// Brings the disk to where the container is, as far as the contents are here.
    func applyChanges() async throws(CloudError) {
        try takeRemoteChanges()
        try await placeArrivals()
        while true {
            while let (folder, isDeep) = remote.popFolder() {
                try compare(folder, isDeep)
                if remote.items.count >= Self.itemsMax { break }
            }
            let ids = remote.popItems(max: Self.itemsMax)
            guard !ids.isEmpty else { break }
            try await apply(ids)
        }
        downloads.start()
    }

    /// Finds the items of a folder that differ.
    private func compare(_ folder: DocumentID, _ isDeep: Bool) throws(CloudError) {
        let items = try container.children(of: folder)
        let rows = try read { try $0.children(of: folder) }
        remote.insert(items.map(\.id))
        remote.insert(rows.map(\.id))
        guard isDeep else { return }
        for item in items where item.kind == .folder { remote.compare(item.id) }
    }

    private func apply(_ ids: [DocumentID]) async throws(CloudError) {
        for rejected in try await container.takeRejectedPlaces(ids) {
            guard let item = rejected.item else { continue }
            note(.kept, item.place, "It was not \(rejected.isDeletion ? "deleted" : "moved"): \(rejected.reason)")
        }
        var ids = ids
        var plan = RemotePlan(isOnDemand: policy.isOnDemand, placeholders: restoredPlaceholders)
        var seen: Set<DocumentID> = []
        while !ids.isEmpty {
            var versions: [DocumentID: DocumentID] = [:]
            try read { tree in for id in ids { versions[id] = try tree.item(id)?.version } }
            let standings = try container.standings(ids, versions: versions)
            var more: [DocumentID] = []
            for id in ids where seen.insert(id).inserted {
                var item: ContainerTree.Item?
                switch standings[id] {
                case .here(let found)?: item = found
                case .gone?: break
                case .unknown?, nil:
                    // Nothing says that it was deleted: what is on disk is sent again.
                    try sendAgain(id)
                    continue
                case .rejected(let reason, let base)?:
                    try await keepRejected(id, base, reason)
                    continue
                }
                if try endRejection(of: id, item) { continue }
                if let survivor = item, survivor.id != id {
                    // Two items became one. If both are on disk, the file of this id goes: the other has its content.
                    if try read({ try $0.item(survivor.id) }) == nil {
                        try rename(id, to: survivor.id)
                        guard seen.insert(survivor.id).inserted else {
                            // It was compared with no row.
                            remote.insert(survivor.id)
                            continue
                        }
                    } else {
                        more.append(survivor.id)
                        item = nil
                    }
                }
                noteConflict(item?.id ?? id, item)
                if let item, item.id != id { noteConflict(id, nil) }
                let row = try read { try $0.item(item?.id ?? id) }
                // A cause that is still there blocks them again.
                unblockUnlessBlockedAgain([item?.place, row?.place, blockedItems[id]])
                plan.compare(item, row)
                if item == nil { downloads.cancel(id) }
                // Some of a deleted folder's items may have been moved out before.
                if let row, item == nil, row.kind == .folder { more += try read { try $0.children(of: id).map(\.id) } }
            }
            ids = more
        }
        let wanted = Set(plan.downloads.map(\.id))
        for id in seen where !wanted.contains(id) {
            if let arrival = unplaced.removeValue(forKey: id) { root.parts.removeAll(arrival.part) }
        }
        try await carryOut(plan)
        endBlocks()
        reportProgress()
    }

    /// Forgets a row of an item that the container does not know, and looks at its place again.
    private func sendAgain(_ id: DocumentID) throws(CloudError) {
        guard let row = try read({ try $0.item(id) }) else { return }
        try letGo(row)
        if !row.isParked { dirty.insert(row.place) }
    }

    /// Removes a row. The row's file stays; one that is parked comes back.
    func letGo(_ row: SyncedItem) throws(CloudError) {
        do {
            if row.isParked, (try? root.parking.facts(row.name)) != nil {
                try giveBack(row.name, from: root.parking, to: root.folder, as: FileName("recovered ".utf8) + row.name)
            }
        } catch { throw CloudError(wrapping: error) }
        try write { try $0.remove(row.id) }
        vanished[row.id] = nil
    }

    /// The server rejected what is on disk. The file stays as it is.
    private func keepRejected(_ id: DocumentID, _ base: DocumentID?, _ reason: String) async throws(CloudError) {
        downloads.cancel(id)
        guard var row = try read({ try $0.item(id) }) else { return }
        if row.parent != container.root, case .gone? = try container.standings([row.parent])[row.parent] {
            // Another device has deleted the folder, which is made again for the file.
            return try await sendRejectedAgain(row)
        }
        block(row.place, "The server rejected it: \(reason)")
        if nextRejectedRetry == nil { nextRejectedRetry = .now + options.rejectedRetry }
        guard !row.isRejected || row.base != base else { return }
        (row.isRejected, row.base) = (true, base)
        try write { try $0.put(row) }
    }

    /// Whether a file does not make room for another item of its name: the server rejected its content, or does not have
    /// it yet. A new file then meets the other as a conflict, and a changed one keeps the name until it is accepted.
    func keepsItsPlace(_ other: SyncedItem) async throws(CloudError) -> Bool {
        if other.isRejected, other.base == nil { try await sendRejectedAgain(other) }
        return other.isRejected || other.isToBeSent
    }

    /// Sends a rejected new file as if it were found now.
    func sendRejectedAgain(_ row: SyncedItem) async throws(CloudError) {
        try sendAgain(row.id)
        if let version = row.version { try await container.dismissRejected(row.id, version: version) }
    }

    /// The rejected content has been accepted after all, or the user has dismissed it.
    ///
    /// - Parameter item: Nil: it is gone from the container.
    /// - Returns: Whether the file has to be sent again first: it is on disk, so it is still wanted.
    private func endRejection(of id: DocumentID, _ item: ContainerTree.Item?) throws(CloudError) -> Bool {
        guard var row = try read({ try $0.item(id) }), row.isRejected else { return false }
        let isAccepted = item?.hasContent(of: row.version) ?? false
        row.isRejected = false
        unblock(row.place)
        if !isAccepted {
            (row.version, row.digest, row.isToBeSent) = (row.base, nil, true)
            dirty.insert(row.place)
            // If the container has the content by then, nothing is sent, and nothing would compare them.
            postpone(id, row.place)
        }
        row.base = nil
        try write { try $0.put(row) }
        return !isAccepted
    }

    /// Sends rejected contents again after a pause: there may be room by now.
    func retryRejected() async throws(CloudError) {
        guard let due = nextRejectedRetry, due <= .now else { return }
        let ids = try read { try $0.rejected() }
        nextRejectedRetry = ids.isEmpty ? nil : .now + options.rejectedRetry
        try await container.retryRejected(Set(ids))
    }

    /// Whether a content can be placed once it has come. Otherwise the local file is looked at first.
    private func isFree(_ item: ContainerTree.Item) async throws(CloudError) -> Bool {
        let row = try read { try $0.item(item.id) }
        let place = row.map { Place(folder: $0.parent, name: $0.name) } ?? item.place
        do {
            guard let folder = try open(place.folder) else {
                // The folder comes first, and its contents with it.
                remote.insert(place.folder)
                return false
            }
            let stamp = FileStamp(try folder.facts(place.name))
            if let row, row.stamp == stamp, !row.isRacy {
                if try isUnused(row, in: folder) { return true }
            } else if row == nil, let other = try read({ try $0.child(of: place.folder, named: place.name) }) {
                if try await !keepsItsPlace(other) { return true }
            } else if blocked[place] == nil, !later.places.contains(place) {
                dirty.insert(place)
            }
        } catch let failure as FileFailure {
            // Gone here: whether that is a deletion is decided first.
            if failure.isAbsence, row == nil { return true }
        } catch { throw CloudError(wrapping: error) }
        postpone(item.id, place)
        return false
    }

    private func carryOut(_ plan: RemotePlan) async throws(CloudError) {
        for item in plan.unsupported {
            let reason =
                item.kind == .package
                ? "Packages are not kept in folders yet. Get it with nephos docs get."
                : "Files with this name stay on their device, so another device's is not placed here."
            block(item.place, reason, of: item.id)
        }
        // The deletion of a placeholder is of the version that was known then.
        var versions: [(SyncedItem, ContainerTree.Item)] = []
        for (row, item) in plan.versions {
            let isHere = row.isEvicted ? try standing(of: row) == .same : true
            if !isHere {
                postpone(item.id, item.place)
            } else {
                versions.append((row, item))
            }
        }
        try write { tree in
            for (var row, item) in versions {
                (row.version, row.digest) = (item.version, item.digest)
                try tree.put(row)
            }
        }
        // A folder is made before what is in it, and what is in the way may move first.
        var left = plan.placements
        while !left.isEmpty {
            let before = left.count
            var next: [ContainerTree.Item] = []
            for item in left where try await !place(item) { next.append(item) }
            left = next
            guard left.count < before else { break }
        }
        for item in left { postpone(item.id, item.place) }
        for (row, item) in plan.links { try await replaceLink(row, by: item) }
        for (row, item) in plan.modes { try setMode(of: row, to: item) }
        for item in plan.downloads {
            guard let version = item.version, try await isFree(item) else { continue }
            if let arrival = unplaced.removeValue(forKey: item.id) {
                downloads.putBack(arrival)
                if arrival.version == version { continue }
            }
            guard hasRoom(for: item) else {
                block(item.place, "The disk has no room for its \(item.size) bytes.", of: item.id)
                postpone(item.id, item.place)
                continue
            }
            downloads.want(item.id, version, item.size)
        }
        // Contents are removed before their folder.
        let depths = try plan.removals.map { row throws(CloudError) in
            (row, try read { try $0.path(of: row.parent)?.count ?? 0 })
        }
        for (row, _) in depths.sorted(by: { $0.1 > $1.1 }) { try remove(row) }
    }

    /// The item is looked at again in the next pass.
    func postpone(_ id: DocumentID, _ place: Place) { remote.postponed[id] = place }

    /// Puts downloaded contents into their places.
    private func placeArrivals() async throws(CloudError) {
        let (arrivals, failures) = downloads.takeArrivals()
        for failure in failures {
            guard failure.error.code == .unknownItem || failure.error.code == .storeOutOfStep else {
                noteProblem(failure.error)
                continue
            }
            remote.insert(failure.item)
        }
        guard !arrivals.isEmpty else { return }
        noteProblem(nil)
        // Data first: after a power cut a name must not lead to a file without its content.
        guard FileSystem.flush(root.parts.descriptor) == 0 else {
            throw CloudError(.storageFailure, "The folder's disk cannot be flushed.", details: ["folder": root.path])
        }
        var rows: [SyncedItem] = []
        var folders: [DocumentID: HeldFolder] = [:]
        let standings = try container.standings(arrivals.map(\.item))
        for arrival in arrivals {
            guard let item = standings[arrival.item]?.item, item.version == arrival.version, item.canBePlaced else {
                root.parts.removeAll(arrival.part)
                remote.insert(arrival.item)
                continue
            }
            if let row = try await place(arrival, item, &folders) { rows.append(row) }
        }
        try flush(Array(folders.values))
        try write { tree in for row in rows { try tree.put(row) } }
        lookAtFilled()
    }

    func flush(_ folders: [HeldFolder]) throws(CloudError) {
        for folder in folders {
            do throws(FileFailure) { try folder.flush() } catch {
                throw CloudError(
                    .storageFailure, "The folder's disk cannot be flushed.", details: ["reason": error.reason])
            }
        }
    }
}

extension ContainerTree.Item {
    var place: Place { Place(folder: parent, name: FileName(name)) }
}
