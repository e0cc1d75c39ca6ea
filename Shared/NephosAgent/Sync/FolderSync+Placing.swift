internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

// Changes of the disk. Each changes only what is there as the row says, and undoes itself otherwise. The data is on the
// disk before the row says so.
extension FolderSync {
    // MARK: Folders, links and moves

    /// Makes a folder or link, or moves an item to its place.
    ///
    /// - Returns: False: another change has to come first.
    func place(_ item: ContainerTree.Item) async throws(CloudError) -> Bool {
        let row = try read { try $0.item(item.id) }
        if let row, row.parent == item.parent, row.itemName == item.place.name { return true }
        var item = item
        let name = item.place.name
        if row?.isEvicted ?? (item.kind == .file) {
            item.name = Data(Placeholder.name(of: item.place.name) ?? item.place.name)
        }
        do {
            guard let folder = try open(item.parent) else {
                // The folder comes first, and brings this one along, also if it is blocked for now.
                remote.insert(item.parent)
                return true
            }
            if item.place.name != name, let other = try read({ try $0.child(of: item.parent, named: item.place.name) }),
                other.id != item.id, let version = item.version, try container.item(other.id)?.place == item.place
            {
                // Another file has the placeholder's name, so the file itself comes.
                guard hasRoom(for: item) else {
                    block(item.place, "The disk has no room for its \(item.size) bytes.", of: item.id)
                    return false
                }
                downloads.want(item.id, version, item.size)
                return true
            }
            guard try await free(item) else { return false }
            if let row {
                guard try move(row, to: item, folder) else { return false }
            } else if try read({ try $0.item(item.id) }) == nil {
                switch item.kind {
                case .folder: try makeFolder(item, folder)
                case .link: try await makeLink(item, folder)
                case .file: guard try placeEvicted(item, folder) else { return false }
                case .package: break
                }
            }
            unblock(item.place)
            return true
        } catch let failure as FileFailure { return handle(failure, item) } catch { throw CloudError(wrapping: error) }
    }

    /// - Returns: False: it is tried again later.
    private func handle(_ failure: FileFailure, _ item: ContainerTree.Item) -> Bool {
        switch failure.number {
        case EEXIST:
            // A local file has the name, and is sent first.
            dirty.insert(item.place)
            return false
        case ENOENT, EINVAL, ENOTDIR:
            dirty.insert(item.parent)
            return false
        default:
            block(item.place, "It cannot be placed here: \(failure.reason).", of: item.id)
            return false
        }
    }

    /// Moves an item away that has the name of another and belongs elsewhere.
    ///
    /// - Returns: False: it belongs there. The server will rename one of the two.
    private func free(_ item: ContainerTree.Item) async throws -> Bool {
        let place = item.place
        guard var other = try read({ try $0.child(of: place.folder, named: place.name) }), other.id != item.id else {
            return true
        }
        guard try await !keepsItsPlace(other) else { return false }
        var wanted = try container.item(other.id)
        // It became one with another item.
        if wanted?.id != other.id { wanted = nil }
        guard wanted?.place != place else { return false }
        if other.isEvicted, let wanted, Placeholder.name(of: wanted.place.name) == place.name {
            // Its placeholder has the other's name. It goes once the file is here.
            if let version = wanted.version { downloads.want(wanted.id, version, wanted.size) }
            return false
        }
        if wanted == nil, other.kind == .folder, item.kind == .folder, try read({ try $0.item(item.id) }) == nil {
            // The folder was deleted and made again. Its contents are compared, and need not move.
            remote.insert(try read { try $0.children(of: other.id).map(\.id) })
            try rename(other.id, to: item.id)
            return true
        }
        guard try standing(of: other) == .same, let folder = try open(place.folder) else {
            dirty.insert(place)
            return false
        }
        guard try other.isEvicted || isUnused(other, in: folder) else { return false }
        let isUnchanged = try isAsRowSays(other, in: folder)
        try folder.move(place.name, to: root.parking, as: other.parkingName)
        let stamp = try restamped(other, isUnchanged, FileStamp(root.parking.facts(other.parkingName)))
        (other.parent, other.name, other.stamp) = (SyncedItem.parkingLot, other.parkingName, stamp)
        try flush([folder, root.parking])
        try write { try $0.put(other) }
        remote.insert(other.id)
        return true
    }

    /// The stamp of an item that this process has renamed. If it was changed before, it is still to be sent.
    ///
    /// - Parameter isUnchanged: Whether it was as its row says before that (``isAsRowSays(_:in:)``).
    private func restamped(_ row: SyncedItem, _ isUnchanged: Bool, _ now: FileStamp) -> FileStamp {
        if row.kind == .folder { return now }
        var stamp = now
        if !isUnchanged || row.stamp.size != now.size || row.stamp.modified != now.modified {
            stamp = row.stamp
            stamp.changed = 0
        }
        return stamp
    }

    private func move(_ row: SyncedItem, to item: ContainerTree.Item, _ target: HeldFolder) throws -> Bool {
        guard try standing(of: row) == .same, let source = try open(row.parent) else {
            if !row.isParked { dirty.insert(Place(folder: row.parent, name: row.name)) }
            return false
        }
        let isUnchanged = try isAsRowSays(row, in: source)
        try source.move(row.name, to: target, as: item.place.name)
        note(.received, item.place)
        if !isUnchanged { dirty.insert(item.place) }
        var row = row
        row.stamp = restamped(row, isUnchanged, FileStamp(try target.facts(item.place.name)))
        (row.parent, row.name) = (item.parent, item.place.name)
        try flush([source, target])
        try write { try $0.put(row) }
        return true
    }

    private func makeFolder(_ item: ContainerTree.Item, _ folder: HeldFolder) throws {
        do throws(FileFailure) { try folder.makeFolder(item.place.name) } catch {
            // An equal folder becomes the item; its files are compared by the next look.
            guard error.number == EEXIST, try folder.facts(item.place.name).kind == .folder else { throw error }
            dirty.insert(item.id, isDeep: true)
        }
        note(.received, item.place)
        let facts = try folder.facts(item.place.name)
        try flush([folder])
        try write {
            try $0.put(
                SyncedItem(
                    id: item.id, parent: item.parent, name: item.place.name, kind: .folder, version: nil,
                    stamp: FileStamp(facts)))
        }
        // Something may have been put into it since it was made.
        dirty.insert(item.id)
        remote.compare(item.id, isDeep: false)
    }

    private func makeLink(_ item: ContainerTree.Item, _ folder: HeldFolder) async throws {
        guard let version = item.version else { return }
        let target = try await container.linkTarget(of: item.id, version: version)
        try folder.makeLink(item.place.name, to: target)
        note(.received, item.place)
        try recordLink(item, version, folder)
    }

    private func recordLink(_ item: ContainerTree.Item, _ version: DocumentID, _ folder: HeldFolder) throws {
        let facts = try folder.facts(item.place.name)
        try flush([folder])
        try write {
            try $0.put(
                SyncedItem(
                    id: item.id, parent: item.parent, name: item.place.name, kind: .link, version: version,
                    stamp: FileStamp(facts), digest: item.digest))
        }
    }

    func replaceLink(_ row: SyncedItem, by item: ContainerTree.Item) async throws(CloudError) {
        do {
            // It may have been moved since.
            guard let version = item.version, let row = try read({ try $0.item(row.id) }),
                let folder = try open(row.parent)
            else { return postpone(item.id, item.place) }
            guard try FileStamp(folder.facts(row.name)) == row.stamp else {
                dirty.insert(row.place)
                return postpone(item.id, item.place)
            }
            let target = try await container.linkTarget(of: item.id, version: version)
            root.parts.removeAll(row.parkingName)
            try root.parts.makeLink(row.parkingName, to: target)
            guard try exchange(row.parkingName, with: row, in: folder) else {
                return postpone(item.id, item.place)
            }
            note(.received, Place(folder: row.parent, name: row.name))
            var item = item
            (item.parent, item.name) = (row.parent, Data(row.name))
            try recordLink(item, version, folder)
        } catch let failure as FileFailure {
            _ = handle(failure, item)
            postpone(item.id, item.place)
        } catch { throw CloudError(wrapping: error) }
    }

    func setMode(of row: SyncedItem, to item: ContainerTree.Item) throws(CloudError) {
        do {
            guard var row = try read({ try $0.item(row.id) }), let folder = try open(row.parent),
                try FileStamp(folder.facts(row.name)) == row.stamp
            else { return postpone(item.id, item.place) }
            let descriptor = try folder.openFile(row.name)
            defer { close(descriptor) }
            Self.setExecutable(item.isExecutable, of: descriptor)
            let stamp = FileStamp(try HeldFolder.facts(of: descriptor))
            // A write in this moment is a change of its own.
            guard stamp.size == row.stamp.size, stamp.modified == row.stamp.modified else { return }
            row.stamp = stamp
            try write { try $0.put(row) }
        } catch let failure as FileFailure {
            _ = handle(failure, item)
            postpone(item.id, item.place)
        } catch { throw CloudError(wrapping: error) }
    }

    /// Those who may read the file may run it.
    private static func setExecutable(_ isExecutable: Bool, of descriptor: Int32) {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else { return }
        let mode = status.st_mode & 0o777
        _ = fchmod(descriptor, isExecutable ? mode | (mode & 0o444) >> 2 : mode & ~0o111)
    }

    // MARK: Files

    /// Puts a downloaded content into its place.
    ///
    /// - Parameter folders: The folders with changed names, to be flushed before the row is written.
    /// - Returns: The row; nil: the place is not as it was, and is looked at first.
    func place(
        _ arrival: Downloads.Arrival, _ item: ContainerTree.Item, _ folders: inout [DocumentID: HeldFolder]
    ) async throws(CloudError) -> SyncedItem? {
        let row = try read { try $0.item(item.id) }
        var place = row.map { Place(folder: $0.parent, name: $0.name) } ?? item.place
        do {
            guard let folder = try folders[place.folder] ?? open(place.folder) else {
                remote.insert([item.parent, item.id])
                root.parts.removeAll(arrival.part)
                return nil
            }
            let descriptor = try root.parts.openFile(arrival.part)
            defer { close(descriptor) }
            if let row { try Self.keepAccess(of: row, in: folder, descriptor) }
            Self.setExecutable(item.isExecutable, of: descriptor)
            // Before the file can be seen: a write after that is a change.
            let before = FileStamp(try HeldFolder.facts(of: descriptor))
            if let row, row.isEvicted {
                // The file beside its placeholder, which goes after the row is written.
                place.name = row.itemName
                try root.parts.move(arrival.part, to: folder, as: place.name)
                filledPlaces.new.insert(row.place)
                vanished[row.id] = nil
                // It may have waited for this to be moved.
                remote.insert(row.id)
            } else if let row {
                guard try exchange(arrival.part, with: row, in: folder) else {
                    postpone(item.id, place)
                    return nil
                }
            } else {
                guard try await free(item) else {
                    postpone(item.id, place)
                    keepUnplaced(arrival)
                    return nil
                }
                try root.parts.move(arrival.part, to: folder, as: place.name)
            }
            let after = FileStamp(try HeldFolder.facts(of: descriptor))
            let isSame = after.size == before.size && after.modified == before.modified
            note(.received, place)
            folders[place.folder] = folder
            unblock(place)
            return SyncedItem(
                id: item.id, parent: place.folder, name: place.name, kind: .file, version: arrival.version,
                stamp: isSame ? after : before, digest: item.digest)
        } catch let failure as FileFailure {
            // It is tried again with the content that is here.
            keepUnplaced(arrival)
            _ = handle(failure, item)
            postpone(item.id, place)
            return nil
        } catch { throw CloudError(wrapping: error) }
    }

    /// Keeps a content until its place is free.
    private func keepUnplaced(_ arrival: Downloads.Arrival) {
        guard (try? root.parts.facts(arrival.part)) != nil else { return }
        if let old = unplaced.updateValue(arrival, forKey: arrival.item), old.part != arrival.part {
            root.parts.removeAll(old.part)
        }
    }

    /// The new file gets the permissions and, as far as this user may, the owner of the old one.
    static func keepAccess(of row: SyncedItem, in folder: HeldFolder, _ descriptor: Int32) throws {
        let old: Int32
        do throws(FileFailure) { old = try folder.openFile(row.name) } catch { return }
        defer { close(old) }
        var status = stat()
        guard fstat(old, &status) == 0, FileAccess.copy(of: status, to: descriptor) else { throw FileFailure() }
    }

    /// Whether a file is still as its row says, up to the time of its last change. To be asked before it is renamed, which
    /// changes that time: programs that set dates back, as rsync and VeraCrypt do, hide a write from all other times.
    func isAsRowSays(_ row: SyncedItem, in folder: HeldFolder) throws(FileFailure) -> Bool {
        if row.isParked { return !row.isToBeSent }
        if row.kind == .folder { return true }
        return try FileStamp(folder.facts(row.name)) == row.stamp
    }

    /// Whether a file may be replaced or removed: no program has it open for writing, and it is no database in use.
    func isUnused(_ row: SyncedItem, in folder: HeldFolder) throws -> Bool {
        guard !row.isRacy, !row.isToBeSent else { return false }
        guard row.kind == .file else { return true }
        let descriptor = try folder.openFile(row.name)
        defer { close(descriptor) }
        let path = LocalPath("/proc/self/fd/\(folder.descriptor)").appending(row.name)
        guard HeldFolder.isWritten(descriptor) || DatabaseFiles.refusal(of: path) != nil else { return true }
        let place = Place(folder: row.parent, name: row.name)
        block(place, "A program has it open, so another device's change waits. Close it there.", of: row.id)
        return false
    }

    /// Whether a file that was taken out of sight has the row's content, and no program that opened it before can write it.
    func isAsBefore(_ row: SyncedItem, _ name: FileName, in folder: HeldFolder) throws(FileFailure) -> Bool {
        guard try row.stamp.hasContent(of: folder.facts(name)) else { return false }
        guard row.kind == .file else { return true }
        let descriptor = try folder.openFile(name)
        defer { close(descriptor) }
        return !HeldFolder.isWritten(descriptor)
    }

    /// Exchanges a file of the agent's own folder with an item's, and removes the old one if it is as the row says. If it
    /// is not, the two are exchanged back.
    ///
    /// - Returns: Whether the new one has the place.
    private func exchange(_ part: FileName, with row: SyncedItem, in folder: HeldFolder) throws -> Bool {
        guard try isUnused(row, in: folder) else {
            root.parts.removeAll(part)
            dirty.insert(Place(folder: row.parent, name: row.name))
            return false
        }
        // After a kill the name says that it may be the user's.
        let name = RootFolder.exchangedPrefix + row.parkingName
        if (try? root.parts.facts(name)) != nil {
            // A file that was exchanged before, when the disk failed.
            try giveBack(name, from: root.parts, to: folder, as: FileName("recovered ".utf8) + row.name)
        }
        try root.parts.move(part, to: root.parts, as: name)
        let new = try root.parts.facts(name)
        guard try isAsRowSays(row, in: folder) else {
            root.parts.removeAll(name)
            dirty.insert(row.place)
            return false
        }
        do throws(FileFailure) { try root.parts.move(name, to: folder, as: row.name, replacing: .exchange) } catch {
            try root.parts.move(name, to: root.parts, as: part)
            dirty.insert(Place(folder: row.parent, name: row.name))
            guard error.isAbsence else { throw error }
            root.parts.removeAll(part)
            return false
        }
        guard try isAsBefore(row, name, in: root.parts) else {
            try root.parts.move(name, to: folder, as: row.name, replacing: .exchange)
            if try root.parts.facts(name).inode == new.inode {
                root.parts.removeAll(name)
            } else {
                // Saved between the two exchanges.
                try giveBack(name, from: root.parts, to: folder, as: row.name)
            }
            dirty.insert(Place(folder: row.parent, name: row.name))
            return false
        }
        try root.parts.removeFile(name)
        return true
    }

    // MARK: Removals

    /// Removes an item that was deleted in the container, if it is as the row says.
    func remove(_ row: SyncedItem) throws(CloudError) {
        guard let row = try read({ try $0.item(row.id) }) else { return }
        if row.isParked, row.kind == .file, !row.isEvicted, row.isToBeSent || row.isRacy {
            // It was changed here before it was parked, and becomes a new file.
            return try letGo(row)
        }
        let place = Place(folder: row.parent, name: row.name)
        do {
            let standing = try standing(of: row)
            guard standing == .same, let folder = try open(row.parent) else {
                // Gone on both sides; or something else has the name, which is new.
                if standing == .absent || standing == .replaced { try forget(row) } else { postpone(row.id, place) }
                if standing == .replaced { dirty.insert(place) }
                return
            }
            if row.kind == .folder {
                guard try removeFolder(row, folder) else { return }
            } else {
                guard try removeFile(row, folder) else { return postpone(row.id, place) }
            }
            note(.removed, place)
            try flush([folder])
            try forget(row)
            unblock(place)
        } catch let failure as FileFailure {
            block(place, "Another device deleted it, and it cannot be removed here: \(failure.reason).", of: row.id)
            postpone(row.id, place)
        } catch { throw CloudError(wrapping: error) }
    }

    private func forget(_ row: SyncedItem) throws(CloudError) {
        try write { try $0.remove(row.id) }
        vanished[row.id] = nil
    }

    private func removeFile(_ row: SyncedItem, _ folder: HeldFolder) throws -> Bool {
        guard try isUnused(row, in: folder), try isAsRowSays(row, in: folder) else {
            dirty.insert(row.place)
            return false
        }
        // First out of everybody's sight: what is removed is what was looked at.
        let name = row.isParked ? row.name : row.parkingName
        if !row.isParked { try folder.move(row.name, to: root.parking, as: name) }
        guard try isAsBefore(row, name, in: root.parking) else {
            // It was changed here: it becomes a new item.
            let wanted = row.isParked ? FileName("recovered ".utf8) + name : row.name
            try giveBack(name, from: root.parking, to: row.isParked ? root.folder : folder, as: wanted)
            if row.isParked { try forget(row) } else { dirty.insert(row.place) }
            return false
        }
        try root.parking.removeFile(name)
        return true
    }

    /// - Returns: False: something in it is not deleted.
    private func removeFolder(_ row: SyncedItem, _ parent: HeldFolder) throws -> Bool {
        let folder = try parent.folder([row.name])
        let names = try folder.names()
        let left = try names.filter { try !(IgnoreRule.isJunk($0) && folder.facts($0).kind == .file) }
        guard left.isEmpty else {
            if let path = try read({ try $0.path(of: row.id) }), holdsOnlyIgnored(path) {
                // Ignored files stay, in a folder that this device alone has from now on. Its row stays too, so that a new
                // file in it is found.
                if row.isParked {
                    try giveBack(
                        row.name, from: root.parking, to: root.folder, as: FileName("recovered ".utf8) + row.name)
                    try forget(row)
                }
                return false
            }
            if try left.allSatisfy({ try folder.facts($0).kind == .special }) {
                let place = Place(folder: row.parent, name: row.name)
                block(
                    place, "Another device deleted it. It stays here, since a FIFO, socket or device is in it.",
                    of: row.id)
            } else {
                // New files are sent, and the folder is made again for them.
                dirty.insert(row.id, isDeep: true)
            }
            postpone(row.id, row.place)
            return false
        }
        for name in names { folder.removeAll(name) }
        try parent.removeFolder(row.name)
        return true
    }
}
