internal import Foundation
internal import GRDB
public import NephosCore
internal import NephosWire

/// The progress of a container, or of a part of it.
public struct ContainerStatus: Sendable {
    /// An item with a pending change.
    public struct Waiting: Sendable {
        /// The item on this device.
        public var item: DocumentEntry
        /// Bytes of its content that may have to be sent; 0: only the change.
        public var bytes: UInt64
        /// The reason, a sentence.
        public var reason: String
        /// The party that must act before it can continue.
        public var blocker: Blocker
        /// The time of the next attempt, by this device's clock; nil: as soon as possible.
        public var nextAttempt: Timestamp?
    }

    /// The progress of the container as a whole.
    public var scope: StoreStatus
    /// Number of files and links outside of the trash, and their bytes.
    public var fileCount = 0
    public var fileBytes: UInt64 = 0
    /// Number of these whose newest content is on this device, and their bytes.
    public var hereCount = 0
    public var hereBytes: UInt64 = 0
    /// Items whose contents are being downloaded, or will be.
    public var downloading: [DocumentEntry] = []
    /// Items to which another device is uploading a content.
    public var incoming: [DocumentEntry] = []
    /// New files that other devices are uploading.
    public var coming: [ComingDocument] = []
    /// Number of folders outside of the trash.
    public var folderCount = 0
    /// Number of items in the trash that were deleted themselves, not with a folder. They count on the plan.
    public var trashCount = 0
    /// Items with pending changes, also deleted ones, the oldest change first.
    public var waiting: [Waiting] = []
    /// Files whose sync is paused.
    public var paused: [DocumentEntry] = []
    /// Items that move to another container: they go to the trash once it has everything, and are in both until then.
    public var leaving: [DocumentEntry] = []
    /// Rejected changes that were not dismissed.
    public var refused: [RefusedWrite] = []
    /// Files with an unresolved conflict.
    public var conflicts: [DocumentEntry] = []
    /// Chunks of the container's contents that the server can no longer read; if there are very many, a part of them.
    /// See ``UbiquityContainer/damagedItems(of:timeout:)``.
    public var damagedChunkCount = 0

    /// Number of items without a pending change.
    public var inStepCount: Int { fileCount + folderCount - waiting.count { !$0.item.isTrashed } }
    /// Number of contents that lost a conflict.
    public var conflictCount: Int { conflicts.reduce(0) { $0 + $1.conflictCount } }
    /// Bytes of contents that may have to be sent.
    public var waitingBytes: UInt64 { waiting.reduce(0) { $0.addingClamped($1.bytes) } }
}

extension ContainerStatus {
    /// Where an item and what is in it stands.
    init(of path: some DocumentAddressing, in handle: ContainerHandle) async throws(CloudError) {
        let progress = try await handle.outbox.progress()
        let scope = try await handle.scope.status()
        self = try handle.read { documents in
            let path = try documents.path(path)
            guard try documents.place(path) != nil else { throw try documents.noItem(at: path) }
            return try documents.status(of: path, scope, uploading: progress.waiting)
        }
    }
}

extension DocumentTransaction {
    fileprivate func status(
        of path: DocumentPath, _ scope: StoreStatus, uploading: CloudError?
    ) throws -> ContainerStatus {
        var status = ContainerStatus(scope: scope)
        var items: [(item: HeldDocument, path: DocumentPath)] = []
        if case .item(let item)? = try place(path) { items.append((item, path)) }
        if let place = try place(path), place.isFolder { items += try descendants(of: place.id, at: path) }
        for (item, path) in items {
            guard let entry = try entry(item, at: path) else { continue }
            if entry.kind == .folder { status.folderCount += 1 } else { status.fileCount += 1 }
            status.fileBytes = status.fileBytes.addingClamped(entry.size)
            if entry.kind != .folder, entry.download.status == .current {
                status.hereCount += 1
                status.hereBytes = status.hereBytes.addingClamped(entry.size)
            }
            if entry.download.isRequested { status.downloading.append(entry) }
            if !entry.incoming.isEmpty { status.incoming.append(entry) }
            if entry.conflictCount > 0 { status.conflicts.append(entry) }
            if entry.isPaused { status.paused.append(entry) }
        }
        status.coming = try comingDocuments(in: path, isDeep: true)
        for item in try trashed() {
            if try self.path(of: item).map({ path.contains($0.path) }) ?? path.names.isEmpty { status.trashCount += 1 }
        }
        let pending = Dictionary(scope.pending.map { ($0.id, $0) }) { first, _ in first }
        for waiting in try waiting() {
            guard try isPart(waiting.item, of: path), let entry = try entry(waiting.item) else { continue }
            status.waiting.append(
                Self.waiting(
                    entry, waiting.bytes, waiting.operation.flatMap { pending[$0] }, uploading,
                    after: status.waiting.last { Preparation(rawValue: $0.reason)?.isByChoice != true }?.blocker))
        }
        status.leaving = try leaving().filter { try isPart($0, of: path) }.compactMap { try entry($0) }
        status.damagedChunkCount = try loss().lostChunks
        status.refused = scope.refused.filter { Self.isPart($0.key.rawValue, of: path) }
        return status
    }

    /// Whether the item is this or in it, wherever it lies; of what no way leads to, whether all is meant.
    private func isPart(_ item: HeldDocument, of path: DocumentPath) throws -> Bool {
        try self.path(of: item).map { path.contains($0.path) } ?? path.names.isEmpty
    }

    /// The same of a path as people read it: a name that is no text is another there, and may be too long for one.
    private static func isPart(_ text: String, of path: DocumentPath) -> Bool {
        if let place = try? DocumentPath(text) { return path.contains(place) }
        return path.names.isEmpty || text.utf8.starts(with: (path.text + "/").utf8)
    }

    /// - Parameter before: Who holds up what is before it, which is sent first; nil: nothing is.
    private static func waiting(
        _ item: DocumentEntry, _ bytes: UInt64, _ pending: StoreStatus.Pending?, _ uploading: CloudError?,
        after before: Blocker?
    ) -> ContainerStatus.Waiting {
        var waiting = ContainerStatus.Waiting(
            item: item, bytes: bytes, reason: pending?.reason ?? "It waits for those before it.",
            blocker: pending?.blocker ?? before ?? .thisDevice, nextAttempt: pending?.nextAttempt)
        guard waiting.blocker == .thisDevice, pending?.state != .blocked,
            Preparation(rawValue: waiting.reason)?.isByChoice != true
        else { return waiting }
        if bytes > 0 {
            // Nobody holds the request up: its content goes first.
            let error = uploading ?? pending?.error
            waiting.reason = error.map(words) ?? "Its content is sent first."
            waiting.blocker = error.map(PushRules.blocker) ?? .network
        } else if let before {
            waiting.reason = "It waits for those before it."
            waiting.blocker = before
        }
        return waiting
    }

    /// An error as a person reads it, who knows of no calls.
    private static func words(_ error: CloudError) -> String {
        switch error.code {
        case .serverResponseLost, .deadlineExceeded: "The server has not answered in time."
        default: error.message
        }
    }

    /// The items of which changes wait, in the order of the first of them.
    private func waiting() throws -> [(item: HeldDocument, bytes: UInt64, operation: OperationID?)] {
        let operations = Dictionary(try rows.operations().map { ($0.position, $0.id) }) { first, _ in first }
        return try pendingItems().compactMap { id, position, bytes in
            // One that is about to be removed for good is as the server has it still.
            let held = try document(id) ?? synced(id.name)?.item.map { HeldDocument(id: id, wire: $0, isPending: true) }
            return held.map { ($0, bytes, operations[position]) }
        }
    }
}
