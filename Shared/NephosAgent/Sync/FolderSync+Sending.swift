internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import NephosKit

// From the disk to the container: sending what was found.
extension FolderSync {
    /// A change that is ready to be sent.
    fileprivate struct Prepared {
        var change: ContainerTree.Change
        var local: LocalBatch.Change
        var stamp: FileStamp?
        var digest: Data?
        var isRacy = false
    }

    /// A file that was copied, and its state when it was read.
    private struct Staged {
        var file: StagedFiles.File
        var stamp: FileStamp
        var isRacy = false
    }

    private static let stagedBytesMax: UInt64 = 64 << 20

    /// Sends a batch, and records what was sent.
    func send(_ batch: inout LocalBatch) async throws(CloudError) {
        let changes = batch.takeAll()
        guard !changes.isEmpty else { return }
        var prepared: [Prepared] = []
        var files = try container.stageFiles()
        var bytes: UInt64 = 0
        var folders: [DocumentID: HeldFolder] = [:]
        var before = movesThatFreeNames(for: changes)
        let isExchange = !before.isEmpty
        for change in changes {
            if isSendingFull, let place = change.placeOfContent {
                // It is looked at again once there is room.
                dirty.insert(place)
                continue
            }
            // Each folder's move is sent alone, since the next change rests on the tree that it makes. Those that exchange
            // names are one step.
            let isFolderMoved = change.isFolderMove || prepared.contains(where: \.local.isFolderMove)
            if isFolderMoved, !(isExchange && change.isMove && prepared.allSatisfy(\.local.isMove)) {
                try await apply(&prepared, files, after: &before)
                files = try container.stageFiles()
            }
            guard let one = try prepare(change, files, &folders, &bytes) else { continue }
            prepared.append(one)
            guard bytes >= min(Self.stagedBytesMax, options.unsentBytesMax) else { continue }
            try await apply(&prepared, files, after: &before)
            files = try container.stageFiles()
            bytes = 0
            isSendingFull = try isFull()
        }
        try await apply(&prepared, files, after: &before)
        reportProgress()
    }

    /// Whether so much waits to be sent that no more contents are copied into the home for now.
    func isFull() throws(CloudError) -> Bool { try container.unsentBytes() >= options.unsentBytesMax }

    /// Items that exchange names get other names first: the container has no two items of one name. This goes with the
    /// exchange in one step, so that no device shows these names.
    private func movesThatFreeNames(for changes: [LocalBatch.Change]) -> [ContainerTree.Change] {
        var targets: [Place: DocumentID] = [:]
        for case .move(let item, let place, _, _) in changes { targets[place] = item.id }
        return changes.compactMap { change in
            guard case .move(let item, _, _, _) = change else { return nil }
            let taker = targets[Place(folder: item.parent, name: item.name)]
            guard taker != nil, taker != item.id else { return nil }
            return .move(item.id, in: item.parent, name: Data(".nephos-\(item.id)".utf8))
        }
    }

    private func prepare(
        _ local: LocalBatch.Change, _ files: StagedFiles, _ folders: inout [DocumentID: HeldFolder],
        _ bytes: inout UInt64
    ) throws(CloudError) -> Prepared? {
        switch local {
        case .displace(let item):
            let known = try known(of: item)
            return Prepared(change: .trash(item.id, batch: container.makeID(), known: known), local: local)
        case .move(let item, let place, let facts, _):
            return Prepared(
                change: .move(
                    item.id, in: place.folder,
                    name: Data(item.name(at: place))),
                local: local, stamp: FileStamp(facts))
        case .make(let place, let facts) where facts.kind == .folder:
            return Prepared(
                change: .makeFolder(container.makeID(), in: place.folder, name: Data(place.name)), local: local,
                stamp: FileStamp(facts))
        case .make(let place, let facts):
            guard let staged = try stage(place, facts, files, &folders) else { return nil }
            bytes += staged.file.size
            return Prepared(
                change: .make(container.makeID(), in: place.folder, name: Data(place.name), staged.file), local: local,
                stamp: staged.stamp, digest: staged.file.digest, isRacy: staged.isRacy)
        case .change(let item, let facts):
            let place = Place(folder: item.parent, name: item.name)
            if item.stamp.hasContent(of: facts), try isUnchanged(item, &folders) { return nil }
            guard let staged = try stage(place, facts, files, &folders) else { return nil }
            guard staged.file.digest != item.digest || staged.stamp.isExecutable != item.stamp.isExecutable else {
                // Only its dates or its inode changed, as by touch, cp -a or chown.
                try restamp(item, staged.stamp, isRacy: staged.isRacy)
                return nil
            }
            bytes += staged.file.size
            return Prepared(
                change: .replace(
                    item.id, base: item.containerVersion, superseding: item.isRejected ? item.version : nil,
                    staged.file, wasExecutable: item.stamp.isExecutable),
                local: local, stamp: staged.stamp, digest: staged.file.digest, isRacy: staged.isRacy)
        }
    }

    /// Copies a file or link into the home.
    ///
    /// - Returns: The copy, and the file's stamp when it was read; nil: it is looked at again later.
    private func stage(
        _ place: Place, _ found: FileFacts, _ files: StagedFiles, _ folders: inout [DocumentID: HeldFolder]
    ) throws(CloudError) -> Staged? {
        do {
            guard let folder = try folders[place.folder] ?? open(place.folder) else {
                // The folder got another id, since it was made again.
                lookAgain(place)
                return nil
            }
            folders[place.folder] = folder
            guard found.kind == .file else {
                let target = try folder.linkTarget(place.name)
                let file = try files.copyLink(to: target)
                // A link cannot be written to, only replaced.
                return Staged(file: file, stamp: FileStamp(try folder.facts(place.name)))
            }
            // SQLite's files are one only at a moment of SQLite's own.
            let path = LocalPath("/proc/self/fd/\(folder.descriptor)").appending(place.name)
            if let refusal = DatabaseFiles.refusal(of: path) {
                block(place, refusal.message)
                later.noteFailed(place, .now)
                return nil
            }
            let descriptor = try folder.openFile(place.name)
            defer { close(descriptor) }
            let start = Self.wallClock
            // The container's copy is flushed. If this were not, a power cut could leave an empty file here, which would
            // then be sent as the newest version.
            guard fsync(descriptor) == 0 else { throw FileFailure() }
            let before = FileStamp(try HeldFolder.facts(of: descriptor))
            let file = try files.copyFile(descriptor)
            guard try FileStamp(HeldFolder.facts(of: descriptor)) == before else {
                later.noteFailed(place, .now)
                return nil
            }
            return Staged(file: file, stamp: before, isRacy: Self.isRacy(descriptor, before, start))
        } catch let failure as FileFailure {
            if failure.isAbsence {
                dirty.insert(place)
            } else {
                block(place, "The file cannot be read: \(failure.reason).")
                later.noteFailed(place, .now)
            }
            return nil
        } catch let error as CloudError {
            switch error.code {
            // It is being written, or is something else by now.
            case .constraintViolation, .invalidArguments: later.noteFailed(place, .now)
            // The file cannot be read, or the home has no room for its copy. The rest goes on: it may make room.
            case .limitExceeded, .permissionFailure, .storageFailure:
                block(place, "\(error.message) The file has \(found.size) bytes.")
                later.noteFailed(place, .now)
            default: throw error
            }
            return nil
        } catch { throw CloudError(wrapping: error) }
    }

    /// In nanoseconds since 1970, by the clock of files' dates.
    private static var wallClock: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// An item and everything in it, with the versions on disk.
    func known(of item: SyncedItem) throws(CloudError) -> [DocumentID: DocumentID?] {
        try read { tree in
            var known: [DocumentID: DocumentID?] = [item.id: item.containerVersion]
            if item.kind == .folder {
                for one in try tree.descendants(of: item.id) { known[one.id] = one.containerVersion }
            }
            return known
        }
    }

    // MARK: Apply

    /// - Parameter before: Made once, with the first moves. One that fails is not needed.
    private func apply(
        _ prepared: inout [Prepared], _ files: StagedFiles, after before: inout [ContainerTree.Change]
    ) async throws(CloudError) {
        let some = prepared
        prepared = []
        guard !some.isEmpty else { return }
        let first = some.contains(where: \.local.isMove) ? before : []
        if !first.isEmpty { before = [] }
        let outcomes: [Result<ContainerTree.Outcome, CloudError>]
        do throws(CloudError) {
            try flushFolders(of: some)
            outcomes = try await Array(container.apply(first + some.map(\.change), files).dropFirst(first.count))
        } catch {
            // One change that the container cannot take keeps no others here.
            guard [.limitExceeded, .permissionFailure, .constraintViolation].contains(error.code) else { throw error }
            before = first + before
            for one in some where some.count > 1 {
                var alone = [one]
                try await apply(&alone, files, after: &before)
            }
            if some.count == 1 {
                block(some[0].place, error.message)
                later.noteFailed(some[0].place, .now)
            }
            return
        }
        var failures: [(Prepared, CloudError)] = []
        var madeFolders: [DocumentID] = []
        var elsewhere: [Place] = []
        for (one, outcome) in zip(some, outcomes) {
            if let place = try placeOfOther(one, outcome) { elsewhere.append(place) }
        }
        let isElsewhere = Set(elsewhere)
        try write { tree in
            for (one, outcome) in zip(some, outcomes) where !isElsewhere.contains(one.place) {
                switch outcome {
                case .success(let outcome):
                    if let made = try record(one, outcome, tree) { madeFolders.append(made) }
                case .failure(let error): failures.append((one, error))
                }
            }
        }
        for (one, outcome) in zip(some, outcomes) where !isElsewhere.contains(one.place) {
            if (try? outcome.get()) != nil { note(one.action, one.place) }
        }
        // The next look gives what is there another name.
        for place in elsewhere { lookAgain(place) }
        for id in madeFolders { dirty.insert(id, isDeep: true) }
        for (one, error) in failures { try await handle(error, of: one) }
    }

    /// The place of a new file or folder that became one with an item, in the container, which is elsewhere on this disk and
    /// about to be moved there; nil: it did not.
    private func placeOfOther(
        _ one: Prepared, _ outcome: Result<ContainerTree.Outcome, CloudError>
    ) throws(CloudError) -> Place? {
        guard case .make(let place, _) = one.local, case .success(let outcome) = outcome,
            let row = try read({ try $0.item(outcome.item) }), row.place != place, try standing(of: row) == .same
        else { return nil }
        remote.insert(outcome.item)
        return place
    }

    /// Flushes names that were made or changed: they must not be gone after a power cut when the container has them.
    private func flushFolders(of changes: [Prepared]) throws(CloudError) {
        if changes.count(where: \.local.isFolderMove) > 1 {
            // Where they are now, no row says yet.
            guard FileSystem.flush(root.folder.descriptor) == 0 else {
                throw CloudError(
                    .storageFailure, "The folder's disk cannot be flushed.", details: ["folder": root.path])
            }
            return
        }
        var folders: Set<DocumentID> = []
        for one in changes {
            switch one.local {
            case .move(let item, let place, _, _): folders.formUnion([item.parent, place.folder])
            case .make(let place, _): folders.insert(place.folder)
            case .change(let item, _): folders.insert(item.parent)
            case .displace: break
            }
        }
        for folder in folders {
            // A folder that is gone meanwhile has nothing to flush.
            guard let held = (try? open(folder)) ?? nil else { continue }
            try flush([held])
        }
    }

    /// - Returns: A folder with a new place, whose contents have to be looked at.
    private func record(
        _ one: Prepared, _ outcome: ContainerTree.Outcome, _ tree: SyncedTree
    ) throws -> DocumentID? {
        switch one.local {
        case .displace(let item): try tree.remove(item.id)
        case .move(var item, let place, _, let isChanged):
            let old = item.parent
            (item.parent, item.name) = (place.folder, place.name)
            // The rename has changed the stamp. That of a changed file stays, so that the next look finds the change.
            if let stamp = one.stamp, !isChanged { item.stamp = stamp }
            // A write before that may have set its date back. It is read once more, and sent if it differs.
            if item.kind == .file, !item.isEvicted { item.isRacy = true }
            try put(item, tree)
            unblock(place)
            noteRead(place, isRacy: item.isRacy)
            if isChanged { dirty.insert(place) }
            lookAtBlocked(in: old)
            // Looks at its contents that came before may not have found it.
            return item.kind == .folder ? item.id : nil
        case .make(let place, let facts):
            guard let stamp = one.stamp else { return nil }
            let made = SyncedItem(
                id: outcome.item, parent: place.folder, name: place.name, kind: facts.kind, version: outcome.version,
                stamp: stamp, digest: one.digest, isRacy: one.isRacy)
            try put(made, tree)
            unblock(place)
            vanished[outcome.item] = nil
            noteRead(place, isRacy: one.isRacy)
            guard facts.kind == .folder else { return nil }
            if case .makeFolder(let id, _, _) = one.change, id != outcome.item { remote.compare(outcome.item) }
            return outcome.item
        case .change(var item, _):
            guard let stamp = one.stamp else { return nil }
            (item.version, item.stamp, item.isRacy) = (outcome.version, stamp, one.isRacy)
            item.digest = one.digest
            (item.isRejected, item.base) = (false, nil)
            try put(item, tree)
            let place = Place(folder: item.parent, name: item.name)
            unblock(place)
            noteRead(place, isRacy: one.isRacy)
        }
        return nil
    }

    /// Reads a file that has its size and date, and probably its content, without copying it.
    ///
    /// - Returns: False: it differs, or cannot be read so.
    private func isUnchanged(
        _ item: SyncedItem, _ folders: inout [DocumentID: HeldFolder]
    ) throws(CloudError) -> Bool {
        guard item.kind == .file, let folder = folders[item.parent] ?? (try? open(item.parent)) ?? nil,
            let descriptor = try? folder.openFile(item.name)
        else { return false }
        folders[item.parent] = folder
        defer { close(descriptor) }
        let start = Self.wallClock
        guard let before = try? FileStamp(HeldFolder.facts(of: descriptor)),
            before.isExecutable == item.stamp.isExecutable,
            let digest = try? container.digest(of: descriptor), digest == item.digest,
            let after = try? FileStamp(HeldFolder.facts(of: descriptor)), after == before
        else { return false }
        try restamp(item, before, isRacy: Self.isRacy(descriptor, before, start))
        return true
    }

    /// Whether a file that was read may be written without another stamp.
    private static func isRacy(_ descriptor: Int32, _ stamp: FileStamp, _ start: Int64) -> Bool {
        if stamp.isRacy(at: start) { return true }
        // In memory nothing tells of what a program writes through a mapping.
        return HeldFolder.isWritten(descriptor) && !FileSystem.settle(descriptor)
    }

    private func restamp(_ item: SyncedItem, _ stamp: FileStamp, isRacy: Bool) throws(CloudError) {
        var item = item
        (item.stamp, item.isRacy) = (stamp, isRacy)
        try write { try $0.put(item) }
        let place = Place(folder: item.parent, name: item.name)
        if !item.isRejected { unblock(place) }
        noteRead(place, isRacy: isRacy)
    }

    /// Looks again at files that are blocked in a folder: a name is free there by now.
    func lookAtBlocked(in folder: DocumentID) {
        for (place, block) in blocked where place.folder == folder && block.isLocal { dirty.insert(place) }
    }

    private func noteRead(_ place: Place, isRacy: Bool) {
        if isRacy { later.noteFailed(place, .now) } else { later.remove(place) }
    }

    private func handle(_ error: CloudError, of one: Prepared) async throws(CloudError) {
        let place = one.place
        switch (error.code, one.local) {
        case (_, .displace(let item)):
            // It stays in the container, and comes back under another name.
            try write { try $0.remove(item.id) }
            remote.insert(item.id)
            lookAgain(place)
        case (.unknownItem, .change(let item, _)), (.unknownItem, .move(let item, _, _, _)):
            if place.folder != container.root, try container.item(place.folder) == nil {
                try await remake(place.folder)
            } else {
                // It was deleted by another device, or never made, and changed here: it becomes a new item.
                try write { try $0.remove(item.id) }
                if item.isRejected, let version = item.version {
                    try await container.dismissRejected(item.id, version: version)
                }
            }
            lookAgain(place)
        case (.unknownItem, .make):
            try await remake(place.folder)
            lookAgain(place)
        case (.invalidArguments, .move(var item, let place, _, _)):
            // Another device's move came before, and both together would be a loop: the container's stays.
            (item.parent, item.name) = (place.folder, place.name)
            try write { try $0.put(item) }
            remote.insert(item.id)
            // Looks at its contents that came before may not have found it.
            if item.kind == .folder { dirty.insert(item.id, isDeep: true) }
        default: block(place, error.message)
        }
    }

    /// Makes a folder again that another device has deleted, since something new is in it here.
    private func remake(_ id: DocumentID) async throws(CloudError) {
        guard let row = try read({ try $0.item(id) }) else { return }
        if row.parent != container.root, try container.item(row.parent) == nil {
            try await remake(row.parent)
        }
        guard let row = try read({ try $0.item(id) }) else { return }
        let change = ContainerTree.Change.makeFolder(container.makeID(), in: row.parent, name: Data(row.name))
        guard let outcome = try await container.apply([change], container.stageFiles()).first else { return }
        switch outcome {
        case .success(let outcome):
            // Its former contents are deleted with the old folder, each unless it was changed.
            let children = try read { try $0.children(of: id).map(\.id) }
            try rename(id, to: outcome.item)
            unblock(Place(folder: row.parent, name: row.name))
            remote.insert(children)
        case .failure(let error): block(Place(folder: row.parent, name: row.name), error.message)
        }
    }
}

extension FolderSync.Prepared {
    fileprivate var action: AgentActivity.Action {
        switch local {
        case .displace: .deleted
        case .move: .moved
        case .make, .change: .sent
        }
    }

    fileprivate var place: Place {
        switch local {
        case .displace(let item), .change(let item, _): Place(folder: item.parent, name: item.name)
        case .move(_, let place, _, _), .make(let place, _): place
        }
    }
}
