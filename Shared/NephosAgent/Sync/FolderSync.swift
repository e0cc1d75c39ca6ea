internal import Foundation
package import NephosCore
internal import NephosFiles
package import NephosKit

/// Times and limits of an agent.
package struct AgentOptions: Sendable {
    /// How long a file must be gone before its deletion is sent. An editor may delete a file and write it again.
    package var deleteDelay = Duration.seconds(2)
    /// A deletion of more files than this, and of more than a quarter of the folder, is held until it is allowed.
    package var deletionsMax = 50
    /// Downloads at a time.
    package var downloadsMax = 8
    /// How long no data of a download may arrive.
    package var downloadTimeout = Duration.seconds(30)
    /// After how long contents that the server rejected are sent again.
    package var rejectedRetry = Duration.seconds(3600)
    /// Bytes of contents in the home that wait to be sent. With more, no others are copied there.
    package var unsentBytesMax: UInt64 = 1 << 30
    /// The free bytes of the folder's disk; nil: its file system says them.
    package var freeBytes: (@Sendable () -> Int64)?
    /// Gets each change; nil: none is reported.
    package var onActivity: (@Sendable (AgentActivity) -> Void)?

    package init() {}
}

/// Keeps one folder on disk equal to a container's folder.
///
/// Three trees: the disk, the container as this device has it, and the merge base in between (``SyncedTree``). A pass
/// first sends what differs on disk from the base, with the base's versions, so that the container decides about
/// conflicts and loses nothing. Then it changes the disk where the container differs from the base, and only what the
/// base says to be unchanged there.
package actor FolderSync {
    let added: AgentFolder
    let root: RootFolder
    let container: ContainerTree
    let store: AgentStore
    let options: AgentOptions
    let watch: FolderWatch
    let downloads: Downloads
    private let executor: DiskExecutor

    var ignoreFile = IgnoreFile()
    var dirty = DirtyFolders()
    var later = LaterPlaces()
    /// Items that are gone from their places, since when.
    var vanished: [DocumentID: ContinuousClock.Instant] = [:]
    /// By item.
    var waitingMoves: [DocumentID: WaitingMove] = [:]
    var heldDeletionCount = 0
    /// Ids that this pass has replaced by others.
    private var renamed: [DocumentID: DocumentID] = [:]
    var remote = RemoteWork()
    private var cursor: Int64?
    private(set) var blocked: [Place: Block] = [:]
    /// The places of items that cannot be placed.
    private(set) var blockedItems: [DocumentID: Place] = [:]
    private var unblocking: Set<Place> = []
    /// Whether blocks have changed since they were last written.
    private var areBlocksChanged = true
    /// Deletions of the last minutes, for the limit of ``AgentOptions/deletionsMax``: a disk may be emptied slowly.
    var recentDeletions: [(time: ContinuousClock.Instant, count: Int)] = []
    private var lastFullScan: Date?
    private var lastScanEnd: ContinuousClock.Instant?
    private(set) var lastScanBegin = ContinuousClock.now
    private var lastComparison = ContinuousClock.now
    private var lastReport: FolderReport?
    private var lastProgressReport = ContinuousClock.now
    private var problem: String?
    /// Counted once after rows were written: a pass may follow each event, and the table be long.
    private var rowCount: (all: Int, evicted: Int)?
    /// So much waits to be sent that looking for more has stopped.
    var isSendingFull = false
    var policy = RoomPolicy()
    /// Whether folders are in a checkout of git, as far as this pass has asked.
    var checkouts: [DocumentID: Bool] = [:]
    /// Placeholders whose files have come, before and after they are to be looked at again.
    var filledPlaces: (new: Set<Place>, dirty: Set<Place>) = ([], [])
    var nextRoomCheck = ContinuousClock.now
    /// Contents that have come and could not be put into their places.
    var unplaced: [DocumentID: Downloads.Arrival] = [:]
    /// Placeholders in folders whose deletion was held and is undone, until they are here again.
    var restoredPlaceholders: Set<DocumentID> = []
    /// Copies of placeholders, by item.
    var placeholderCopies: [DocumentID: Place] = [:]

    package nonisolated var unownedExecutor: UnownedSerialExecutor { executor.asUnownedSerialExecutor() }

    /// Opens the folder. Nothing is read before the first ``pass()``.
    ///
    /// - Parameter onEvent: Called when a pass may have something to do.
    /// - Throws: ``CloudError`` as ``RootFolder/init(_:)`` does.
    package init(
        _ added: AgentFolder, _ container: ContainerTree, _ store: AgentStore, _ options: AgentOptions = AgentOptions(),
        onEvent: @escaping @Sendable () -> Void = {}
    ) throws(CloudError) {
        self.added = added
        root = try RootFolder(added)
        try store.noteRoot(root.identity, of: added.id)
        (self.container, self.store, self.options) = (container, store, options)
        watch = FolderWatch(onEvent: onEvent)
        downloads = Downloads(root, container, options, onEvent: onEvent)
        executor = DiskExecutor(label: "nephos.agent.folder")
        heldDeletionCount = try store.report(of: added)?.heldDeletionCount ?? 0
        // After a start nothing is known of either side.
        dirty.insert(container.root, isDeep: true)
    }

    deinit { downloads.stop() }

    // MARK: Pass

    /// Does what there is to do now, in both directions. Downloads go on after it returns.
    ///
    /// - Returns: When the next pass is due without an event; nil: never.
    /// - Throws: ``CloudError`` of what stops the whole folder; the next pass tries again.
    @discardableResult
    package func pass() async throws(CloudError) -> ContinuousClock.Instant? {
        do throws(CloudError) {
            try root.verify()
            renamed = [:]
            if !hasRecovered {
                try recoverLeftovers()
                hasRecovered = true
            }
            policy = try store.policy(of: added)
            checkouts = [:]
            if dirty.isEmpty { filledPlaces.dirty = [] }
            takeEvents()
            try readIgnorePatterns()
            retryPostponed()
            try await retryRejected()
            // Each direction may make work for the other.
            for _ in 0..<Self.roundsMax {
                try await sendChanges()
                try await sendDeletions()
                try await applyChanges()
                guard !dirty.isEmpty, !isSendingFull else { break }
            }
            try await carryOutRequests()
            try await makeRoom()
            if !dirty.isEmpty {
                report(.syncing)
                return .now + (isSendingFull ? .seconds(1) : .milliseconds(100))
            }
        } catch {
            report(.stopped, problem: error.message)
            throw error
        }
        if isFullScan {
            isFullScan = false
            (lastFullScan, lastScanEnd) = (Date(), .now)
            if heldDeletionCount == 0, vanished.isEmpty { try clearAnswers() }
        }
        let standing = await container.standing
        (isProved, isConnected) = (isIdle && standing.isInSync, standing.isConnected)
        if downloads.count == 0 { problem = nil }
        report(isIdle ? .idle : .syncing)
        if isIdle, !wasReady {
            wasReady = true
            note(.ready, nil, "\(rowCount?.all ?? 0)")
        }
        return nextDue
    }

    private static let roundsMax = 8
    private var isFullScan = true
    private var (isProved, isConnected) = (false, false)
    private var hasRecovered = false
    private var wasReady = false
    /// Files in conflict, with how many other contents each has.
    private var conflicts: [DocumentID: Int] = [:]
    private var nextRetry = ContinuousClock.now
    private var retryPause = FolderSync.retryPauseMin
    /// The items of the last retry.
    private var retried: Set<DocumentID> = []
    /// Nil: nothing is rejected.
    var nextRejectedRetry: ContinuousClock.Instant?

    /// Whether there is no known work.
    package var isIdle: Bool { vanished.isEmpty && hasNoWork }

    /// Whether nothing can be done without an event, or without the user.
    package var isDone: Bool { (vanished.isEmpty || heldDeletionCount > 0) && hasNoWork }

    /// Blocked files are looked at again from time to time, which is no known work.
    var hasNoWork: Bool {
        ignoreFile.due == nil && dirty.isEmpty && downloads.count == 0 && remote.isEmpty
            && (Array(later.places) + remote.postponed.values).allSatisfy { blocked[$0] != nil }
    }

    private var nextDue: ContinuousClock.Instant? {
        // A held deletion waits for the user.
        let deletions =
            heldDeletionCount > 0 || ignoreFile.isAwaited ? nil : vanished.values.max().map { $0 + options.deleteDelay }
        return [
            deletions, later.nextDue, downloads.nextDue, nextScan, nextRejectedRetry, ignoreFile.due, nextRoomDue,
            remote.postponed.isEmpty ? nil : max(nextRetry, .now + .milliseconds(100)),
        ]
        .compactMap { $0 }.min()
    }

    /// Items that could not be placed are tried again after a pause, whatever else happens meanwhile. The pause grows while
    /// the same ones are blocked.
    private func retryPostponed() {
        let now = ContinuousClock.now
        guard !remote.postponed.isEmpty, nextRetry <= now else { return }
        let ids = Set(remote.postponed.keys)
        let areBlocked = remote.postponed.values.allSatisfy { blocked[$0] != nil }
        retryPause = areBlocked && ids == retried ? min(retryPause * 2, Self.retryPauseMax) : Self.retryPauseMin
        retried = ids
        remote.insert(ids)
        remote.postponed = [:]
        nextRetry = now + retryPause
    }

    private static let retryPauseMin = Duration.seconds(1)
    private static let retryPauseMax = Duration.seconds(60)

    private func takeEvents() {
        let events = watch.takeEvents()
        let now = ContinuousClock.now
        if events.isOverflown { scanAll() }
        // A program may have closed what waits.
        if remote.postponed.values.contains(where: { events.dirty[$0.folder]?.contains($0.name) ?? false }) {
            nextRetry = now
        }
        for (folder, names) in events.dirty {
            dirty.insert(folder, names)
            for name in names.names ?? [] { later.remove(Place(folder: folder, name: name)) }
        }
        for (folder, names) in events.written {
            for name in names { later.noteWritten(Place(folder: folder, name: name), now) }
        }
        for place in later.takeDue(now) { dirty.insert(place) }
        if nextScan.map({ $0 <= now }) ?? false { scanAll() }
        if now - lastComparison >= .seconds(86_400) { compareAll() }
    }

    /// Programs that write through memory raise no event, so everything is scanned once a day; every five minutes while a
    /// folder has no watch.
    private var nextScan: ContinuousClock.Instant? {
        lastScanEnd.map { $0 + (watch.coverage.unwatched > 0 ? .seconds(300) : .seconds(86_400)) }
    }

    /// Looks at every file and folder on disk.
    package func scanAll() {
        dirty.insert(container.root, isDeep: true)
        isFullScan = true
        lastScanBegin = .now
        watch.forgetUnwatched()
    }

    /// Compares every item of the container with its row: should a fault have left one behind, it is brought up to date. Done
    /// at the start, and once a day.
    package func compareAll() {
        remote.compare(container.root)
        lastComparison = .now
    }

    /// The container's changes since the last pass; at first, everything in it.
    func takeRemoteChanges() throws(CloudError) {
        guard var next = cursor else {
            cursor = try container.latest()
            remote.compare(container.root)
            return
        }
        while true {
            guard let page = try container.changedItems(after: next) else {
                cursor = nil
                return try takeRemoteChanges()
            }
            remote.insert(page.items)
            guard page.cursor != next else { break }
            next = page.cursor
            cursor = next
        }
    }

    // MARK: Rows

    func read<Value>(_ body: (SyncedTree) throws -> Value) throws(CloudError) -> Value {
        try store.read { try body(SyncedTree(database: $0, folder: added.id, root: container.root)) }
    }

    func write<Value>(_ body: (SyncedTree) throws -> Value) throws(CloudError) -> Value {
        rowCount = nil
        return try store.write { try body(SyncedTree(database: $0, folder: added.id, root: container.root)) }
    }

    /// The folder on disk of an item; nil: the item has no place.
    ///
    /// - Throws: ``FileFailure`` of a folder that is missing or cannot be opened.
    func open(_ folder: DocumentID) throws -> HeldFolder? {
        guard folder != SyncedItem.parkingLot else { return root.parking }
        guard let path = try read({ try $0.path(of: folder) }) else { return nil }
        return try root.folder.folder(path)
    }

    /// Gives an item's row to another id, which has none. The new id's contents are compared: items of it that were not
    /// placed while it had no row come with it.
    func rename(_ old: DocumentID, to new: DocumentID) throws(CloudError) {
        try write { try $0.rename(old, to: new) }
        renamed[old] = new
        remote.compare(new)
        watch.rename(old, to: new)
        dirty.rename(old, to: new)
        later.rename(old, to: new)
        for (place, block) in blocked where place.folder == old {
            unblock(place)
            self.block(Place(folder: new, name: place.name), block.reason, of: block.item)
        }
        if let since = vanished.removeValue(forKey: old) { vanished[new] = since }
    }

    /// Looks at a place again, also if its folder has got another id.
    func lookAgain(_ place: Place) {
        var place = place
        while let id = renamed[place.folder] { place.folder = id }
        dirty.insert(place)
    }

    /// Stores a row. If another item had the place, the container's state of that is compared.
    func put(_ item: SyncedItem, _ tree: SyncedTree) throws {
        if let other = try tree.child(of: item.parent, named: item.name), other.id != item.id {
            remote.insert(other.id)
        }
        try tree.put(item)
    }

    // MARK: Status

    /// Notes whether an item is in conflict.
    ///
    /// - Parameter item: Nil: it is gone.
    func noteConflict(_ id: DocumentID, _ item: ContainerTree.Item?) {
        let count = item?.conflictCount ?? 0
        if let item, count > conflicts[id] ?? 0 {
            note(.conflict, item.place, "Two devices have changed it. The other content is kept, see: nephos conflicts")
        }
        conflicts[id] = count > 0 ? count : nil
    }

    /// Why a place is not synced.
    struct Block: Hashable {
        var reason: String
        /// The container's item that cannot be placed; nil: the local file cannot be sent.
        var item: DocumentID?

        var isLocal: Bool { item == nil }
    }

    /// - Parameter item: The container's item that cannot be placed; nil: the local file cannot be sent.
    func block(_ place: Place, _ reason: String, of item: DocumentID? = nil) {
        unblocking.remove(place)
        // An item is blocked at one place.
        if let former = item.flatMap({ blockedItems[$0] }), former != place { unblock(former) }
        let block = Block(reason: reason, item: item)
        guard blocked[place] != block else { return }
        if blocked[place]?.reason != reason { note(.blocked, place, reason) }
        blocked[place] = block
        if let item { blockedItems[item] = place }
        areBlocksChanged = true
    }

    func unblock(_ place: Place) {
        guard let block = blocked.removeValue(forKey: place) else { return }
        if let item = block.item { blockedItems[item] = nil }
        areBlocksChanged = true
    }

    /// Unblocks places of container's items in ``endBlocks()``, unless they are blocked again until then.
    func unblockUnlessBlockedAgain(_ places: [Place?]) {
        for place in places {
            if let place, blocked[place]?.isLocal == false { unblocking.insert(place) }
        }
    }

    func endBlocks() {
        for place in unblocking { unblock(place) }
        unblocking = []
    }

    func note(_ action: AgentActivity.Action, _ place: Place?, _ detail: String? = nil) {
        guard let onActivity = options.onActivity else { return }
        let folder = place.flatMap { place in (try? read { try $0.path(of: place.folder) }).flatMap { $0 } } ?? []
        let path = (folder + [place?.name].compactMap { $0 }).map(\.text).joined(separator: "/")
        onActivity(AgentActivity(action: action, path: path, detail: detail))
    }

    /// Notes why downloads fail; nil: they do not.
    func noteProblem(_ error: CloudError?) { problem = error?.message }

    /// The last report without its date: while it changes, there is progress.
    package var progress: FolderReport? {
        guard var report = lastReport else { return nil }
        report.date = .distantPast
        return report
    }

    /// Some of the paths whose deletion is held.
    private var heldPaths: [String] {
        let paths = vanished.keys.prefix(FolderReport.heldMax + 1).compactMap { id in
            try? read { try $0.path(of: id) }.flatMap { $0 }
        }
        return paths.map { $0.map(\.text).joined(separator: "/") }.sorted()
    }

    /// Writes the status during a long pass, such as the first one of a large folder.
    func reportProgress() {
        guard .now - lastProgressReport >= Self.progressPause else { return }
        lastProgressReport = .now
        report(.syncing)
    }

    private static let progressPause = Duration.seconds(5)

    private func report(_ state: FolderReport.State, problem: String? = nil) {
        var report = FolderReport()
        report.state = isFullScan && state == .syncing ? .scanning : state
        report.problem = problem ?? self.problem
        (report.isProved, report.isConnected) = (isProved, isConnected)
        let areRowsChanged = rowCount == nil
        // A block ends with its folder.
        for folder in areRowsChanged ? Set(blocked.keys.map(\.folder)) : []
        where (try? read({ try $0.path(of: folder) == nil })) ?? false {
            for place in blocked.keys where place.folder == folder { unblock(place) }
        }
        rowCount = rowCount ?? (try? read { (try $0.count(), try $0.evictedCount()) })
        (report.itemCount, report.evictedCount) = rowCount ?? (0, 0)
        report.dirtyFolderCount = dirty.count + later.count
        (report.waitingCount, report.downloadCount) = (remote.count, downloads.count)
        (report.heldDeletionCount, report.held) = (heldDeletionCount, heldDeletionCount > 0 ? heldPaths : [])
        (report.blockedCount, report.conflictCount) = (blocked.count, conflicts.count)
        (report.watchedFolderCount, report.unwatchedFolderCount) = watch.coverage
        report.lastFullScan = lastFullScan
        var last = lastReport
        last?.date = report.date
        if last != report {
            lastReport = report
            // A status that is not written is written by the next pass.
            try? store.setReport(report, of: added.id)
        }
        // A folder of theirs may have been moved.
        guard areBlocksChanged || areRowsChanged && !blocked.isEmpty else { return }
        let paths = blocked.compactMap { place, block in
            (try? read { try $0.path(of: place.folder) }).flatMap { $0 }.map {
                BlockedPath(
                    path: Data(($0 + [place.name]).joined(separator: [UInt8(ascii: "/")])), reason: block.reason)
            }
        }
        if (try? store.setBlocked(paths, of: added.id)) != nil { areBlocksChanged = false }
    }
}
