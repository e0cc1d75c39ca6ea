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
        try await freeNames(for: changes)
        for change in changes {
            if case .move(let item, _, _, _) = change, item.kind == .folder {
                // What a folder's move makes of the tree decides about the next: it is sent alone.
                try await apply(&prepared, files)
                files = try container.stageFiles()
            }
            guard let one = try prepare(change, files, &folders, &bytes) else { continue }
            prepared.append(one)
            guard bytes >= Self.stagedBytesMax || one.isFolderMove else { continue }
            try await apply(&prepared, files)
            files = try container.stageFiles()
            bytes = 0
        }
        try await apply(&prepared, files)
    }

    /// Items that exchange names get other names first: the container has no two items of one name.
    private func freeNames(for changes: [LocalBatch.Change]) async throws(CloudError) {
        var targets: [Place: DocumentID] = [:]
        for case .move(let item, let place, _, _) in changes { targets[place] = item.id }
        let inTheWay = changes.compactMap { change -> SyncedItem? in
            guard case .move(let item, _, _, _) = change else { return nil }
            let taker = targets[Place(folder: item.parent, name: item.name)]
            return taker != nil && taker != item.id ? item : nil
        }
        guard !inTheWay.isEmpty else { return }
        _ = try await container.apply(
            inTheWay.map { .move($0.id, in: $0.parent, name: Data(".nephos-\($0.id)".utf8)) }, container.stageFiles())
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
                change: .move(item.id, in: place.folder, name: Data(place.name)), local: local,
                stamp: FileStamp(facts))
        case .make(let place, let facts) where facts.kind == .folder:
            return Prepared(
                change: .makeFolder(container.makeID(), in: place.folder, name: Data(place.name)), local: local,
                stamp: FileStamp(facts))
        case .make(let place, let facts):
            guard let (file, stamp, isRacy) = try stage(place, facts, files, &folders) else { return nil }
            bytes += file.size
            return Prepared(
                change: .make(container.makeID(), in: place.folder, name: Data(place.name), file), local: local,
                stamp: stamp, isRacy: isRacy)
        case .change(let item, let facts):
            let place = Place(folder: item.parent, name: item.name)
            guard let (file, stamp, isRacy) = try stage(place, facts, files, &folders) else { return nil }
            bytes += file.size
            return Prepared(
                change: .replace(item.id, base: item.version, file, wasExecutable: item.stamp.isExecutable),
                local: local, stamp: stamp, isRacy: isRacy)
        }
    }

    /// Copies a file or link into the home.
    ///
    /// - Returns: The copy, and the file's stamp when it was read; nil: it is looked at again later.
    private func stage(
        _ place: Place, _ found: FileFacts, _ files: StagedFiles, _ folders: inout [DocumentID: HeldFolder]
    ) throws(CloudError) -> (StagedFiles.File, FileStamp, isRacy: Bool)? {
        do {
            guard let folder = try folders[place.folder] ?? open(place.folder) else { return nil }
            folders[place.folder] = folder
            guard found.kind == .file else {
                let target = try folder.linkTarget(place.name)
                let file = try files.copyLink(to: target)
                // A link cannot be written to, only replaced.
                return (file, FileStamp(try folder.facts(place.name)), false)
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
            let before = FileStamp(try HeldFolder.facts(of: descriptor))
            let file = try files.copyFile(descriptor)
            guard try FileStamp(HeldFolder.facts(of: descriptor)) == before else {
                later.noteFailed(place, .now)
                return nil
            }
            return (file, before, before.isRacy(at: start))
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
            case .limitExceeded, .permissionFailure:
                block(place, error.message)
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
            var known: [DocumentID: DocumentID?] = [item.id: item.version]
            if item.kind == .folder { for one in try tree.descendants(of: item.id) { known[one.id] = one.version } }
            return known
        }
    }

    // MARK: Apply

    private func apply(_ prepared: inout [Prepared], _ files: StagedFiles) async throws(CloudError) {
        let some = prepared
        prepared = []
        guard !some.isEmpty else { return }
        let outcomes = try await container.apply(some.map(\.change), files)
        var failures: [(Prepared, CloudError)] = []
        var madeFolders: [DocumentID] = []
        try write { tree in
            for (one, outcome) in zip(some, outcomes) {
                switch outcome {
                case .success(let outcome):
                    if let made = try record(one, outcome, tree) { madeFolders.append(made) }
                case .failure(let error): failures.append((one, error))
                }
            }
        }
        for (one, outcome) in zip(some, outcomes) where (try? outcome.get()) != nil { note(one.action, one.place) }
        for id in madeFolders { dirty.insert(id, isDeep: true) }
        for (one, error) in failures { try await handle(error, of: one) }
    }

    /// - Returns: A folder with a new place, whose contents have to be looked at.
    private func record(
        _ one: Prepared, _ outcome: ContainerTree.Outcome, _ tree: SyncedTree
    ) throws -> DocumentID? {
        switch one.local {
        case .displace(let item): try tree.remove(item.id)
        case .move(var item, let place, _, let isChanged):
            (item.parent, item.name) = (place.folder, place.name)
            // The rename has changed the stamp. That of a changed file stays, so that the next look finds the change.
            if let stamp = one.stamp, !isChanged { item.stamp = stamp }
            try put(item, tree)
            blocked[place] = nil
            later.remove(place)
            if isChanged { dirty.insert(place) }
            // Looks at its contents that came before may not have found it.
            return item.kind == .folder ? item.id : nil
        case .make(let place, let facts):
            guard let stamp = one.stamp else { return nil }
            let made = SyncedItem(
                id: outcome.item, parent: place.folder, name: place.name, kind: facts.kind, version: outcome.version,
                stamp: stamp, isRacy: one.isRacy)
            try put(made, tree)
            (blocked[place], vanished[outcome.item]) = (nil, nil)
            noteRead(place, isRacy: one.isRacy)
            guard facts.kind == .folder else { return nil }
            if case .makeFolder(let id, _, _) = one.change, id != outcome.item { remote.compare(outcome.item) }
            return outcome.item
        case .change(var item, _):
            guard let stamp = one.stamp else { return nil }
            (item.version, item.stamp, item.isRacy) = (outcome.version, stamp, one.isRacy)
            try put(item, tree)
            let place = Place(folder: item.parent, name: item.name)
            blocked[place] = nil
            noteRead(place, isRacy: one.isRacy)
        }
        return nil
    }

    private func noteRead(_ place: Place, isRacy: Bool) {
        later.remove(place)
        if isRacy { later.noteWritten(place, .now) }
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
            if try container.items([place.folder])[place.folder] == .some(nil), place.folder != container.root {
                try await remake(place.folder)
            } else {
                // It was deleted by another device, and changed here: it becomes a new item.
                try write { try $0.remove(item.id) }
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
        default: block(place, error.message)
        }
    }

    /// Makes a folder again that another device has deleted, since something new is in it here.
    private func remake(_ id: DocumentID) async throws(CloudError) {
        guard let row = try read({ try $0.item(id) }) else { return }
        if row.parent != container.root, try container.items([row.parent])[row.parent] == .some(nil) {
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
            blocked[Place(folder: row.parent, name: row.name)] = nil
            remote.insert(children)
            remote.compare(outcome.item)
        case .failure(let error): block(Place(folder: row.parent, name: row.name), error.message)
        }
    }
}

extension FolderSync.Prepared {
    fileprivate var isFolderMove: Bool {
        if case .move(let item, _, _, _) = local { item.kind == .folder } else { false }
    }

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
