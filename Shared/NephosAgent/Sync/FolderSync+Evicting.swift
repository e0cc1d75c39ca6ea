internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

// Placeholders. Wherever a kill interrupts this, one rule puts it right: a file with the name of an evicted item is the
// item's content, and its placeholder then goes.
extension FolderSync {
    /// Writes an item's placeholder.
    ///
    /// - Parameter row: Of the item's file on disk: the placeholder gets its owner and permissions.
    /// - Returns: Its stamp; nil: another file has the name.
    private func makePlaceholder(
        of item: DocumentID, _ name: FileName, _ folder: HeldFolder, inPlaceOf row: SyncedItem? = nil
    ) throws -> FileStamp? {
        let part = FileName("\(container.makeID())".utf8)
        try root.parts.makeFile(part, mode: 0o666, with: Placeholder.text(of: item)) { descriptor in
            if let row { try Self.keepAccess(of: row, in: folder, descriptor) }
        }
        do throws(FileFailure) { try root.parts.move(part, to: folder, as: name) } catch {
            root.parts.removeAll(part)
            guard error.number == EEXIST else { throw error }
            let facts = try folder.facts(name)
            // One that was left by a kill.
            guard folder.placeholderItem(name, facts) == item else { return nil }
        }
        try flush([folder])
        return FileStamp(try folder.facts(name))
    }

    /// Puts a placeholder in the place of a new item.
    ///
    /// - Parameter item: With the name of its placeholder.
    /// - Returns: False: a local file has the item's name, and is looked at first.
    func placeEvicted(_ item: ContainerTree.Item, _ folder: HeldFolder) throws -> Bool {
        let name = FileName(item.name)
        if let file = Placeholder.file(of: name), (try? folder.facts(file)) != nil {
            if let other = try read({ try $0.child(of: item.parent, named: file) }), other.isEvicted {
                // Another item's placeholder has the file's name. Then the files of both come.
                if let version = item.version { downloads.want(item.id, version, item.size) }
                return true
            }
            dirty.insert(Place(folder: item.parent, name: file))
            return false
        }
        guard try !isInCheckout(item.parent), let stamp = try makePlaceholder(of: item.id, name, folder) else {
            // Then the file itself comes.
            if let version = item.version { downloads.want(item.id, version, item.size) }
            return true
        }
        try write {
            try $0.put(
                SyncedItem(
                    id: item.id, parent: item.parent, name: name, kind: .file, version: item.version, stamp: stamp,
                    digest: item.digest, isEvicted: true))
        }
        restoredPlaceholders.remove(item.id)
        note(.received, item.place, "as a placeholder")
        return true
    }

    /// Takes a file's content off the disk. The server has to have it.
    ///
    /// - Returns: Why the file stays; nil: it is evicted.
    private func evict(_ row: SyncedItem) async throws(CloudError) -> String? {
        // The home may have a copy too, as on the device that has sent the file.
        do throws(CloudError) { try await container.evict(row.id) } catch {
            guard error.code == .constraintViolation || error.code == .unknownItem else { throw error }
            return error.message
        }
        guard let item = try container.item(row.id), item.hasContent(of: row.version) else {
            return "It has changed, and is not in sync yet."
        }
        guard row.place != Place(folder: container.root, name: IgnoreRule.fileName) else { return "It is always here." }
        guard row.stamp.size >= Placeholder.fileSizeMin else { return "It is so small that this would save nothing." }
        guard let name = Placeholder.name(of: row.name) else {
            return "Its name is too long, or ends in .nephos as a placeholder's does."
        }
        do {
            guard !row.isParked, let folder = try open(row.parent) else { return "It has moved. Try again." }
            let facts = try folder.facts(row.name)
            guard FileStamp(facts) == row.stamp, !row.isRacy, !row.isToBeSent, !row.isRejected else {
                dirty.insert(row.place)
                return "It has changed, and is not in sync yet."
            }
            guard facts.linkCount == 1 else { return "It has another hard link, so this would save nothing." }
            guard try isUnused(row, in: folder) else {
                unblock(row.place)
                return "A program has it open."
            }
            guard let stamp = try makePlaceholder(of: row.id, name, folder, inPlaceOf: row) else {
                return "A file has the placeholder's name, which ends in .nephos."
            }
            var evicted = row
            (evicted.name, evicted.stamp, evicted.isEvicted) = (name, stamp, true)
            try write { try put(evicted, $0) }
            guard try isAsRowSays(row, in: folder) else {
                try keepContent(of: row)
                return "It was written in this moment."
            }
            // Out of everybody's sight first: what is removed is what was looked at.
            try folder.move(row.name, to: root.parking, as: row.parkingName)
            guard try isAsBefore(row, row.parkingName, in: root.parking) else {
                try giveBack(row.parkingName, from: root.parking, to: folder, as: row.name)
                try keepContent(of: row)
                return "It was written in this moment."
            }
            try root.parking.removeFile(row.parkingName)
            try flush([folder])
            note(.evicted, row.place)
            return nil
        } catch let failure as FileFailure {
            do {
                if (try? root.parking.facts(row.parkingName)) != nil, let folder = try open(row.parent) {
                    try giveBack(row.parkingName, from: root.parking, to: folder, as: row.name)
                    try keepContent(of: row)
                }
            } catch { throw CloudError(wrapping: error) }
            if failure.number != ENOSPC { dirty.insert(row.place) }
            return "It cannot be removed: \(failure.reason)."
        } catch { throw CloudError(wrapping: error) }
    }

    /// A file that was about to be evicted stays, and is sent if it has changed. Its placeholder goes.
    private func keepContent(of row: SyncedItem) throws {
        var row = row
        row.isToBeSent = true
        try write { try put(row, $0) }
        dirty.insert(row.place)
        if let name = Placeholder.name(of: row.name) { dirty.insert(Place(folder: row.parent, name: name)) }
    }

    // MARK: Local changes

    /// The decision about a file beside its placeholder; nil: it has none.
    func decideAboutEvictedFile(_ place: Place, _ facts: FileFacts) throws -> LocalDecision? {
        guard facts.kind == .file, let name = Placeholder.name(of: place.name),
            var row = try read({ try $0.child(of: place.folder, named: name) }), row.isEvicted
        else { return nil }
        // It was downloaded, or a program has written it anew: in both cases it is the item's content.
        filledPlaces.new.insert(row.place)
        (row.name, row.isEvicted, row.stamp) = (place.name, false, FileStamp(facts))
        row.isToBeSent = true
        vanished[row.id] = nil
        // At once: another device's version must not become this content's base.
        try write { try put(row, $0) }
        return .change(row)
    }

    /// The decision about a file with the text of a placeholder, under whatever name. The text is never sent as a content.
    ///
    /// - Returns: Nil: the file is no placeholder.
    func decideAboutPlaceholder(_ place: Place, _ facts: FileFacts) throws -> LocalDecision? {
        guard let folder = try open(place.folder), let id = folder.placeholderItem(place.name, facts) else {
            return nil
        }
        guard try !leaveIgnored(place, facts) else { return .unchanged }
        guard var row = try read({ try $0.item(id) }) else {
            // After the folder was removed from the agent and added again.
            guard try container.item(id) == nil else { return .wait }
            block(
                place,
                "The file of this placeholder is not in the folder: it was deleted, or moved out. nephos docs undo may bring it back."
            )
            return .unchanged
        }
        let standing = try standing(of: row)
        switch (row.isEvicted, standing) {
        case (true, .absent):
            if Placeholder.file(of: place.name) != nil { return .move(row, isChanged: false) }
            return try giveSuffixBack(place, row, folder)
        case (true, .same):
            // If the first one goes, this is where it has gone.
            placeholderCopies[id] = place
        case (true, .replaced), (true, .unknown): break
        case (false, _):
            let isItsOwn = row.parent == place.folder && Placeholder.name(of: row.name) == place.name
            guard isItsOwn || filledPlaces.dirty.contains(place) else { break }
            switch standing {
            case .same, .replaced:
                try folder.removeFile(place.name)
                filledPlaces.dirty.remove(place)
                unblock(place)
            case .absent where isItsOwn:
                // The content was evicted, and a power cut took the row's change.
                (row.name, row.stamp, row.isEvicted) = (place.name, FileStamp(facts), true)
                vanished[id] = nil
                try write { try put(row, $0) }
            case .absent: break
            case .unknown: return .wait
            }
            return .unchanged
        }
        if try takeFromFile(place, folder) { return .unchanged }
        block(place, "This is a copy of a placeholder, without the file's content. Delete it.")
        return .unchanged
    }

    /// A copy of a placeholder was written over a file. It gets a placeholder's name, and the file comes back.
    private func takeFromFile(_ place: Place, _ folder: HeldFolder) throws -> Bool {
        guard let row = try read({ try $0.child(of: place.folder, named: place.name) }), row.kind == .file,
            !row.isEvicted, !row.isRejected, let name = Placeholder.name(of: place.name)
        else { return false }
        try giveBack(place.name, from: folder, to: folder, as: name)
        try write { try $0.remove(row.id) }
        vanished[row.id] = nil
        remote.insert(row.id)
        return true
    }

    /// A placeholder was moved to a name without its suffix. It gets that again, if need be with a number, and the next look
    /// finds the move.
    private func giveSuffixBack(_ place: Place, _ row: SyncedItem, _ folder: HeldFolder) throws -> LocalDecision {
        try giveBack(place.name, from: folder, to: folder, as: Placeholder.name(of: place.name) ?? row.name)
        vanished[row.id] = nil
        return .unchanged
    }

    /// The decision about a placeholder that was written to or moved.
    func decide(_ decision: LocalDecision, _ place: Place, _ facts: FileFacts) throws -> LocalDecision {
        switch decision {
        case .change(var row) where row.isEvicted:
            guard let folder = try open(place.folder) else { return .wait }
            guard folder.placeholderItem(place.name, facts) == row.id else { return try release(row) }
            row.stamp = FileStamp(facts)
            try write { try $0.put(row) }
            return .unchanged
        case .move(let row, _) where row.isEvicted:
            guard let folder = try open(place.folder) else { return .wait }
            if Placeholder.file(of: place.name) == nil { return try giveSuffixBack(place, row, folder) }
            guard folder.placeholderItem(place.name, facts) == row.id else { return try release(row) }
            return .move(row, isChanged: false)
        default: return decision
        }
    }

    /// The placeholder has become a file of its own: the item gets another one.
    private func release(_ row: SyncedItem) throws -> LocalDecision {
        try write { try $0.remove(row.id) }
        vanished[row.id] = nil
        remote.insert(row.id)
        return .make
    }

    /// Writes the placeholder of an evicted item again.
    ///
    /// - Returns: False: the item is not evicted, or its folder is gone.
    func restorePlaceholder(of row: SyncedItem) throws(CloudError) -> Bool {
        guard row.isEvicted, let folder = (try? open(row.parent)) ?? nil else { return false }
        do {
            guard let stamp = try makePlaceholder(of: row.id, row.name, folder) else { return false }
            var row = row
            row.stamp = stamp
            try write { try put(row, $0) }
            return true
        } catch { throw CloudError(wrapping: error) }
    }

    /// Looks at placeholders again whose files are there by now: they go.
    func lookAtFilled() {
        for place in filledPlaces.new { dirty.insert(place) }
        filledPlaces.dirty.formUnion(filledPlaces.new)
        filledPlaces.new = []
    }

    // MARK: Requests

    /// Carries out what was asked for, as far as it can be now.
    func carryOutRequests() async throws(CloudError) {
        for request in try store.requests(of: added.id) {
            guard let outcome = try await carryOut(request) else { continue }
            try store.set(outcome, of: request)
        }
        downloads.start()
    }

    /// - Returns: Nil: it goes on in a later pass.
    private func carryOut(_ request: ContentRequest) async throws(CloudError) -> ContentRequest.Outcome? {
        let files = try read { try $0.files(at: request.path) }
        var outcome = ContentRequest.Outcome()
        guard let files else {
            // It may be on its way.
            guard hasNoWork else { return nil }
            outcome.add(request.path, "It is not synced, or not here. See: nephos agent status")
            return outcome
        }
        guard request.evicts else {
            var isDone = true
            for row in files where row.isEvicted {
                guard let item = try container.item(row.id), let version = item.version else { continue }
                if let block = blocked[Place(folder: row.parent, name: row.itemName)] {
                    outcome.add(try path(of: row), block.reason)
                    continue
                }
                guard hasRoom(for: item) else {
                    outcome.add(try path(of: row), "The disk has no room for its \(item.size) bytes.")
                    continue
                }
                downloads.want(row.id, version, item.size)
                isDone = false
            }
            outcome.files = files.count - outcome.failureCount
            return isDone ? outcome : nil
        }
        // Only what the server has, as digests have proved.
        guard dirty.isEmpty, await container.isInSync else { return nil }
        // And has now: a server that was lost since may not come back.
        do throws(CloudError) { try await container.waitUntilCurrent(timeout: Self.answerTime) } catch {
            outcome.add(request.path, error.message)
            return outcome
        }
        let isOneFile =
            files.count == 1 && (request.path.last.map { [files[0].name, files[0].itemName].contains($0) } ?? false)
        for row in files {
            if row.isEvicted {
                if (try? open(row.parent)?.facts(row.itemName)) == nil {
                    outcome.files += 1
                } else {
                    outcome.add(try path(of: row), "It has changed, and is not in sync yet.")
                }
                continue
            }
            // In a folder these are not meant.
            if row.stamp.size < Placeholder.fileSizeMin, !isOneFile { continue }
            if let reason = try await evict(row) {
                outcome.add(try path(of: row), reason)
            } else {
                outcome.files += 1
                outcome.bytes += row.stamp.size
            }
        }
        return outcome
    }

    private func path(of row: SyncedItem) throws(CloudError) -> [FileName] {
        try read { try $0.path(of: row.parent) ?? [] } + [row.name]
    }

    // MARK: Room

    /// Evicts files that were not opened for longest, if the disk has less room than the person wants.
    func makeRoom() async throws(CloudError) {
        guard policy.keptFreeBytes > 0, nextRoomCheck <= .now, await container.isInSync else { return }
        nextRoomCheck = .now + Self.roomPause
        var left = policy.keptFreeBytes - freeBytes
        guard left > 0, (try? await container.waitUntilCurrent(timeout: Self.answerTime)) != nil else { return }
        let rows = try read { try $0.evictable() }
        var candidates: [(row: SyncedItem, opened: Int64)] = []
        var folders: [DocumentID: HeldFolder] = [:]
        for row in rows {
            guard let folder = try? folders[row.parent] ?? open(row.parent) else { continue }
            folders = [row.parent: folder]
            if let opened = Self.opened(row.name, in: folder) { candidates.append((row, opened)) }
        }
        candidates.sort { $0.opened < $1.opened }
        for (row, _) in candidates where left > 0 {
            guard try !isInCheckout(row.parent) else { continue }
            if try await evict(row) == nil { left -= row.stamp.size }
        }
    }

    /// Whether a folder is in a checkout of git, which takes a file without its name for a deleted one.
    private func isInCheckout(_ folder: DocumentID) throws(CloudError) -> Bool {
        if let known = checkouts[folder] { return known }
        let name = FileName(".git".utf8)
        // It may be ignored.
        let facts = (try? open(folder)?.facts(name)) ?? nil
        var answer = facts != nil
        if !answer { answer = try container.child(of: folder, named: Data(name)) != nil }
        if !answer, folder != container.root, let parent = try container.item(folder)?.parent {
            answer = try isInCheckout(parent)
        }
        checkouts[folder] = answer
        return answer
    }

    private static let roomPause = Duration.seconds(60)
    /// How long the server may take to answer before anything is evicted.
    private static let answerTime = Duration.seconds(5)

    /// When the disk's room is looked at again; nil: never.
    var nextRoomDue: ContinuousClock.Instant? {
        policy.keptFreeBytes > 0 ? .now + Self.roomPause : nil
    }

    /// Whether the disk has room for a content besides those that are on their way.
    func hasRoom(for item: ContainerTree.Item) -> Bool {
        let (needed, isTooMuch) = downloads.bytes(besides: item.id).addingReportingOverflow(item.size)
        return !isTooMuch && needed <= UInt64(max(0, freeBytes))
    }

    /// Free bytes for a program without privileges.
    var freeBytes: Int64 {
        if let freeBytes = options.freeBytes { return freeBytes() }
        var status = statvfs()
        guard fstatvfs(root.folder.descriptor, &status) == 0 else { return .max }
        let (bytes, isTooMuch) = UInt64(status.f_bavail).multipliedReportingOverflow(by: UInt64(status.f_frsize))
        return isTooMuch ? .max : Int64(clamping: bytes)
    }

    /// When a file was last read or written, in seconds since 1970, as far as its file system notes that.
    private static func opened(_ name: FileName, in folder: HeldFolder) -> Int64? {
        var status = stat()
        let characters = name.map { CChar(bitPattern: $0) } + [0]
        let result = fstatat(folder.descriptor, characters, &status, AT_SYMLINK_NOFOLLOW)
        return result == 0 ? Int64(max(status.st_atim.tv_sec, status.st_mtim.tv_sec)) : nil
    }
}

extension ContentRequest.Outcome {
    fileprivate mutating func add(_ path: [FileName], _ reason: String) {
        failureCount += 1
        guard failures.count < Self.failuresMax else { return }
        failures[path.map(\.text).joined(separator: "/")] = reason
    }
}
