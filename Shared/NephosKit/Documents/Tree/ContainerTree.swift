internal import Foundation
package import NephosCore
internal import NephosFiles
internal import NephosWire

/// The items of a container's folder by id, for a program that keeps a real folder equal to it.
///
/// Reads are of this device's copy: the server's state with this device's pending changes on top. The cursor of
/// ``changedItems(after:)`` covers changes by this device too, by any of its processes.
package struct ContainerTree: Sendable {
    /// A file, folder, link or package.
    package struct Item: Hashable, Sendable {
        package var id: DocumentID
        package var parent: DocumentID
        package var name: Data
        package var kind: DocumentEntry.Kind
        /// The version of its content; nil: it is a folder.
        package var version: DocumentID?
        /// Other names of the version: the same bytes, committed again.
        package var aliases: [DocumentID]
        /// Bytes of the content.
        package var size: UInt64
        package var isExecutable: Bool
        /// Equal for equal contents; nil: it is a folder.
        package var digest: Data?
        /// Other contents that are kept until one is chosen.
        package var conflictCount = 0

        /// Whether a file with this version has the item's present content.
        package func hasContent(of version: DocumentID?) -> Bool {
            self.version == version || version.map { aliases.contains($0) } ?? false
        }
    }

    /// The state of an id in this device's copy.
    package enum Standing: Sendable {
        /// It is in the tree. If two items became one, this is the remaining one, with another id.
        case here(Item)
        /// It was removed, moved to the trash, or moved out of the tree.
        case gone
        /// The copy has no such item: it was never sent, or the copy is older.
        case unknown
        /// The server rejected the given version of it, or its creation, and the user has not dismissed that. The sentence
        /// says why.
        /// The base is the version that the content was made from; nil: a new item.
        case rejected(String, base: DocumentID?)

        /// The item, if it is in the tree.
        package var item: Item? { if case .here(let item) = self { item } else { nil } }
    }

    let handle: ContainerHandle
    /// The folder; items elsewhere in the container do not exist for this tree.
    package let root: DocumentID

    init(handle: ContainerHandle, root: DocumentID) {
        (self.handle, self.root) = (handle, root)
    }

    /// A new item id.
    package func makeID() -> DocumentID { handle.makeID() }

    /// Rings after each change of this device's copy, from the moment of the call.
    package func changes() -> AsyncStream<Void> { handle.session.local.changed.listen() }

    /// Whether nothing is pending, and digests have proved that the container is equal here and on the server.
    package var isInSync: Bool { get async { await standing.isInSync } }

    /// The same, and whether other devices' changes arrive at once: else the server may have changes that are not known here.
    package var standing: (isInSync: Bool, isConnected: Bool) {
        get async {
            guard let status = try? await handle.scope.status() else { return (false, false) }
            return (status.isInSync, status.isFollowing)
        }
    }

    /// Bytes of contents in the home that wait to be sent.
    package func unsentBytes() throws(CloudError) -> UInt64 { try handle.read { try $0.unsentBytes() } }

    // MARK: Read

    /// Items that may have changed after a cursor, and the cursor behind them; call again until it stays the same.
    ///
    /// - Returns: Nil: the log does not go back that far. Compare every item, from the cursor ``latest()`` on.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the first download; `.notSignedIn`; `.storageFailure`.
    package func changedItems(
        after cursor: Int64
    ) throws(CloudError) -> (items: [DocumentID], cursor: Int64)? {
        try handle.read { try $0.touched(after: cursor, limit: Self.pageMax).map { ($0.items, $0.upTo) } }
    }

    /// The cursor behind the newest change.
    package func latest() throws(CloudError) -> Int64 { try handle.read { try $0.latestTouch() } }

    /// The states of these ids.
    ///
    /// - Parameter versions: The versions on disk, for ``Standing/rejected(_:base:)``.
    package func standings(
        _ ids: [DocumentID], versions: [DocumentID: DocumentID] = [:]
    ) throws(CloudError) -> [DocumentID: Standing] {
        try handle.read { documents in
            var folders: [DocumentID: DocumentPath] = [:]
            var found: [DocumentID: Standing] = [:]
            for id in ids { found[id] = try documents.treeStanding(id, versions[id], in: root, &folders) }
            return found
        }
    }

    /// The item of an id; nil: it is not in the tree.
    package func item(_ id: DocumentID) throws(CloudError) -> Item? { try standings([id])[id]?.item }

    /// The items directly in a folder of the tree; none if it is not in the tree.
    package func children(of folder: DocumentID) throws(CloudError) -> [Item] {
        try handle.read { documents in
            var folders: [DocumentID: DocumentPath] = [:]
            guard try folder == root || documents.treeItem(folder, in: root, &folders) != nil else { return [] }
            return try documents.children(of: folder).compactMap { Item($0) }
        }
    }

    /// The item of a name in a folder; nil: no item, or a folder outside of the tree.
    package func child(of folder: DocumentID, named name: Data) throws(CloudError) -> Item? {
        try handle.read { documents in
            var folders: [DocumentID: DocumentPath] = [:]
            guard try documents.isInTree(folder, root, &folders) else { return nil }
            return try documents.child(of: folder, named: name).flatMap { Item($0) }
        }
    }

    /// Whether this device has a content of the item that the server does not have, as far as is known here.
    package func isUnsent(_ id: DocumentID) throws(CloudError) -> Bool {
        try handle.read { documents in
            guard let held = try documents.document(id), held.isPending, held.wire.hasContent else { return false }
            return try documents.synced(id.name)?.item?.content.version != held.wire.content.version
        }
    }

    /// The digest of a file on disk, to be compared with ``Item/digest``. It can take a while.
    ///
    /// - Parameter descriptor: Open for reading.
    /// - Returns: Nil: it is no file.
    /// - Throws: ``CloudError`` of what cannot be read; `.constraintViolation` when it is written meanwhile.
    package func digest(of descriptor: Int32) throws(CloudError) -> Data? {
        do {
            return try ContentDigest.read(LocalPath("/proc/self/fd/\(descriptor)"), followsLinks: true)?.digest.data
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }

    private static let pageMax = 1000

    // MARK: Rejected changes

    /// Sends rejected contents and folders of these items again, as ``DocumentConflicts/retryRejected(_:)`` does. A new
    /// item gets another id.
    package func retryRejected(_ ids: Set<DocumentID>) async throws(CloudError) {
        let names = Set(ids.map(\.name))
        try await DocumentConflicts(handle: handle).retryRejected(wasNamed: true) {
            names.contains($0.item) && $0.error.code != .operationCancelled
        }
    }

    /// Drops a rejected content of an item, since a newer one takes its place or the user has deleted the file, and those
    /// that it was made from.
    package func dismissRejected(_ id: DocumentID, version: DocumentID) async throws(CloudError) {
        let versions = try await handle.change { try $0.documents.dropRejected(version, of: id) }
        handle.scope.execute { $0.engine.removeContents(versions) }
    }

    /// A rejected deletion or move of an item.
    package struct RejectedPlace: Sendable {
        /// Nil: another device has deleted it.
        package var item: Item?
        package var isDeletion: Bool
        package var reason: String
    }

    /// Takes rejected deletions and moves of these items out of the list. The items are where the server has them, so there
    /// is nothing to decide.
    package func takeRejectedPlaces(_ ids: [DocumentID]) async throws(CloudError) -> [RejectedPlace] {
        func rejected(
            _ documents: DocumentTransaction
        ) throws -> [(refusal: DocumentTransaction.Refusal, rejected: RejectedPlace)] {
            guard try documents.hasRefusals() else { return [] }
            var folders: [DocumentID: DocumentPath] = [:]
            return try ids.flatMap { id in
                let refusals = try documents.rejectedPlaces(of: id)
                let item = refusals.isEmpty ? nil : try documents.treeItem(id, in: root, &folders)
                return refusals.map { refusal in
                    let isDeletion = refusal.change?.trashes ?? false
                    return (refusal, RejectedPlace(item: item, isDeletion: isDeletion, reason: refusal.error.message))
                }
            }
        }
        guard try !handle.read({ try rejected($0) }).isEmpty else { return [] }
        return try await handle.change { draft in
            try rejected(draft.documents).map { refusal, rejected in
                try draft.documents.removeRefusal(refusal)
                return rejected
            }
        }
    }

    // MARK: Contents

    /// Writes the content of a file into an open file, from its beginning, and gives it its length, date and extended
    /// attributes. Nothing is flushed.
    ///
    /// - Parameters:
    ///   - version: The expected version.
    ///   - descriptor: Open for writing, and not closed by this call.
    ///   - timeout: How long no data may arrive.
    ///   - onProgress: Gets the bytes that were written.
    /// - Throws: ``CloudError`` `.storeOutOfStep` when the item has another version by now: look again; `.unknownItem`; a
    ///   network error; `.storageFailure`.
    package func fetch(
        _ id: DocumentID, version: DocumentID, into descriptor: Int32, timeout: Duration = .seconds(30),
        onProgress: @escaping @Sendable (UInt64) -> Void = { _ in }
    ) async throws(CloudError) {
        let (item, content) = try content(of: id, version)
        let file = dup(descriptor)
        guard file >= 0 else { throw ContentFolder.failure(item.wire.nameText) }
        let sink = EndingSink(FileSink(file: OpenFile(file), name: item.wire.nameText))
        defer { sink.end() }
        do {
            var standing = try handle.reader.standing(of: content, of: item)
            // The folder has the bytes: a second copy in the home would only take room.
            standing.bound = 0
            _ = try await handle.reader.write(content, of: item, standing, to: sink, timeout) { done, _ in
                onProgress(done)
            }
        } catch { throw LocalFailure.error(of: error, at: nil) }
        guard ftruncate(descriptor, off_t(clamping: content.length)) == 0 else {
            throw ContentFolder.failure(item.wire.nameText)
        }
        var attributes = UnkeptAttributes()
        for attribute in item.wire.attributes.extended {
            attributes.set(attribute.name, to: attribute.value, of: descriptor, file: item.wire.nameText)
        }
        DocumentExport.setModified(DocumentDate(nanoseconds: content.modified), of: descriptor)
        // Its content's date says nothing of when it was last opened here.
        FileSystem.noteRead(descriptor)
    }

    /// Where a symbolic link leads, as bytes.
    ///
    /// - Throws: ``CloudError`` as ``fetch(_:version:into:timeout:onProgress:)`` does.
    package func linkTarget(
        of id: DocumentID, version: DocumentID, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [UInt8] {
        let (item, content) = try content(of: id, version)
        return [UInt8](try await handle.reader.readAll(content, of: item, timeout))
    }

    /// Drops what this device's home has of a file's content, as ``DocumentDownloads/evict(_:)`` does.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` when the server does not have the content, as far as is known.
    package func evict(_ id: DocumentID) async throws(CloudError) {
        try await DocumentDownloads(handle: handle).evict(id)
    }

    /// Asks the server for changes, and waits until this device has them.
    ///
    /// - Throws: ``CloudError`` at once when the server cannot be reached; `.deadlineExceeded`.
    package func waitUntilCurrent(timeout: Duration) async throws(CloudError) {
        try await handle.scope.waitUntilCurrent(timeout: timeout, isImpatient: true)
    }

    private func content(
        of id: DocumentID, _ version: DocumentID
    ) throws(CloudError) -> (HeldDocument, WireDocumentContent) {
        guard let item = try handle.read({ try $0.document(id) }), item.wire.hasContent else { throw Self.gone(id) }
        guard item.wire.content.version == version.wire else { throw Self.changed(id) }
        return (item, item.wire.content)
    }

    static func gone(_ id: DocumentID) -> CloudError {
        CloudError(.unknownItem, "The item is no longer in the folder.", details: ["item": "\(id)"])
    }

    static func changed(_ id: DocumentID) -> CloudError {
        CloudError(.storeOutOfStep, "The item has changed meanwhile. Look again.", details: ["item": "\(id)"])
    }
}

extension UbiquityContainer {
    /// The items of a folder by id; `Documents`, unless another is given.
    package func tree(of root: DocumentID = .documents) -> ContainerTree { ContainerTree(handle: handle, root: root) }
}

extension WireDocumentItem {
    fileprivate var nameText: String { String(decoding: name, as: UTF8.self) }
}

extension ContainerTree.Item {
    /// - Returns: Nil: of a kind that this release does not know.
    init?(_ held: HeldDocument) {
        guard let kind = DocumentEntry.Kind(held.wire.kind), let parent = held.parent else { return nil }
        self.init(
            id: held.id, parent: parent, name: held.wire.name, kind: kind,
            version: held.wire.hasContent ? DocumentID(bytes: held.wire.content.version) : nil,
            aliases: held.wire.content.sameAs.compactMap { DocumentID(bytes: $0) },
            size: held.wire.hasContent ? held.wire.content.length : 0,
            isExecutable: held.wire.attributes.executable,
            digest: held.wire.hasContent ? ContentDigest(held.wire.kind, held.wire.content).data : nil,
            conflictCount: held.wire.conflicts.count)
    }
}

extension DocumentTransaction {
    func treeStanding(
        _ id: DocumentID, _ version: DocumentID?, in root: DocumentID, _ folders: inout [DocumentID: DocumentPath]
    ) throws -> ContainerTree.Standing {
        // A rejected move or deletion leaves the item as it is; rejected bytes are nowhere but on this device.
        let refusals = try rows.undecided.all(.rejected, of: id.name).map(Refusal.init)
        if let refusal = refusals.first(where: \.makes), try document(id) == nil {
            return .rejected(refusal.error.message, base: nil)
        }
        if let version, let refusal = refusals.first(where: { $0.brought == version.wire }) {
            return .rejected(refusal.error.message, base: try base(ofRejected: refusal, of: id))
        }
        if let item = try treeItem(id, in: root, &folders) { return .here(item) }
        // A removed item keeps its row.
        return try document(id) != nil || synced(id.name) != nil ? .gone : .unknown
    }

    /// - Parameter folders: The paths of folders that were asked for before, in this transaction.
    /// - Returns: Nil: the item is not in the tree.
    func treeItem(
        _ id: DocumentID, in root: DocumentID, _ folders: inout [DocumentID: DocumentPath]
    ) throws -> ContainerTree.Item? {
        guard let held = try document(id), !held.isTrashed, let parent = held.parent,
            try isInTree(parent, root, &folders)
        else { return nil }
        return ContainerTree.Item(held)
    }

    /// Whether a folder is the root of a tree or beneath it, and not in the trash.
    func isInTree(
        _ folder: DocumentID, _ root: DocumentID, _ folders: inout [DocumentID: DocumentPath]
    ) throws -> Bool {
        guard let here = try path(ofFolder: folder, &folders), let top = try path(ofFolder: root, &folders) else {
            return false
        }
        return top.contains(here)
    }
}
