internal import Foundation
package import NephosCore
internal import NephosFiles
internal import NephosWire
internal import Synchronization

/// Contents of local files that were copied into the home and are not put yet. Those that are never put are removed with
/// this.
package final class StagedFiles: Sendable {
    /// The copy of one file.
    package struct File: Sendable {
        let content: StagedContent
        package var isExecutable: Bool { content.isExecutable }
        package var size: UInt64 { content.length }
        /// Equal for equal contents.
        package var digest: Data { ContentDigest(content).data }
    }

    private let handle: ContainerHandle
    fileprivate let folder: ContentFolder
    /// Keeps sweeps of the home's contents away.
    private let claim: FileLock
    private let unput = Mutex<[StagedContent]>([])

    fileprivate init(_ handle: ContainerHandle) throws(CloudError) {
        self.handle = handle
        folder = try handle.contentFolder()
        claim = try folder.claim()
    }

    deinit {
        for content in unput.withLock({ $0 }) where content.inline == nil { folder.remove(content.version) }
    }

    /// Copies a file into the home, cuts it into chunks and hashes the copy. It can take a while.
    ///
    /// - Parameters:
    ///   - descriptor: Open for reading, at its beginning. Not closed.
    ///   - onRead: Gets the number of bytes of each piece of a long file.
    /// - Throws: ``CloudError`` `.constraintViolation` when the file is written meanwhile: try later; `.limitExceeded`;
    ///   `.storageFailure`.
    package func copyFile(_ descriptor: Int32, onRead: (Int) -> Void = { _ in }) throws(CloudError) -> File {
        let path = LocalPath("/proc/self/fd/\(descriptor)")
        return try stage { try folder.stage(file: path, version: $0, onRead: onRead) }
    }

    /// A symbolic link, by where it leads.
    package func copyLink(to target: [UInt8]) throws(CloudError) -> File {
        let now = handle.now.nanoseconds
        return try stage { version in
            var content = try folder.stage(Data(target), version: version, modified: now)
            content.kind = .link
            return content
        }
    }

    private func stage(_ body: (DocumentID) throws -> StagedContent) throws(CloudError) -> File {
        let content: StagedContent
        do { content = try body(handle.makeID()) } catch { throw LocalFailure.error(of: error, at: nil) }
        unput.withLock { $0.append(content) }
        return File(content: content)
    }

    /// Flushes the copies. To be called before they are put.
    fileprivate func flush() throws(CloudError) { try folder.flush(unput.withLock { $0 }) }

    /// These belong to the container now.
    fileprivate func markPut(_ versions: Set<DocumentID>) {
        unput.withLock { $0.removeAll { versions.contains($0.version) } }
    }
}

extension ContainerTree {
    /// A change of one item.
    package enum Change: Sendable {
        /// Makes a folder, or adopts the folder of that name. If a file has the name, the server renames one of the two.
        case makeFolder(DocumentID, in: DocumentID, name: Data)
        /// Makes a file or link. If the container has one of that name, the two become one item, with a conflict unless
        /// the contents are equal.
        case make(DocumentID, in: DocumentID, name: Data, StagedFiles.File)
        /// Puts another content in place of a version. If the item has another version by now, both are kept, as a conflict.
        ///
        /// - Parameter superseding: The rejected version that this device had in its place; nil: none. It is dropped.
        case replace(
            DocumentID, base: DocumentID?, superseding: DocumentID? = nil, StagedFiles.File, wasExecutable: Bool?)
        case move(DocumentID, in: DocumentID, name: Data)
        /// Moves items to the trash: the first, and everything in it.
        ///
        /// - Parameter known: The versions of all items that this deletes. If the container has another version of one, or
        ///   another item in the folder, nothing is deleted.
        case trash(DocumentID, batch: DocumentID, known: [DocumentID: DocumentID?])
    }

    /// The result of a change.
    package struct Outcome: Sendable {
        /// The item: also an existing one that was adopted.
        package var item: DocumentID
        /// The version with the content; nil: of a folder, or of a change without a content.
        package var version: DocumentID?
    }

    package func stageFiles() throws(CloudError) -> StagedFiles { try StagedFiles(handle) }

    /// Makes changes in order, in one transaction of this device's copy; they are sent when there is a connection. A
    /// change may use an item that an earlier one makes.
    ///
    /// - Returns: The outcome of each. A failure changes nothing: `.unknownItem` for an item that is not in the tree,
    ///   `.storeOutOfStep` for one that has changed, `.alreadyExists` for a name that the container cannot tell from
    ///   another, `.invalidArguments` for a name or place that no item can have.
    /// - Throws: ``CloudError`` of all of them: `.serviceBusy` when too much is pending, `.storageFailure`.
    package func apply(
        _ changes: [Change], _ files: StagedFiles
    ) async throws(CloudError) -> [Result<Outcome, CloudError>] {
        try files.flush()
        let (outcomes, unneeded, superseded) = try await handle.change { draft in
            var work = TreeDraft(draft: draft, root: root)
            let outcomes = try changes.map { change in
                do { return Result<Outcome, CloudError>.success(try work.apply(change, files.folder)) } catch {
                    guard let error = error as? CloudError, error.code != .storageFailure else { throw error }
                    return .failure(error)
                }
            }
            draft = work.draft
            return (outcomes, work.draft.unchanged, work.superseded)
        }
        if !superseded.isEmpty { handle.scope.execute { $0.engine.removeContents(superseded) } }
        files.markPut(Set(outcomes.compactMap { try? $0.get().version }).subtracting(unneeded))
        return outcomes
    }
}

/// Changes of a tree that rest on each other.
private struct TreeDraft {
    var draft: DocumentDraft
    let root: DocumentID
    /// Folders of the tree by the paths that this device's copy has for them.
    private var folders: [DocumentID: DocumentPath] = [:]
    private var madeFolders: Set<DocumentID> = []
    /// Items that this has put under a name.
    private var names: [Place: DocumentID] = [:]
    /// Items that have left their places.
    private var moved: Set<DocumentID> = []
    /// Rejected contents that newer ones have taken the place of.
    private(set) var superseded: [DocumentID] = []

    private struct Place: Hashable {
        var folder: DocumentID
        var key: Data
    }

    init(draft: DocumentDraft, root: DocumentID) {
        (self.draft, self.root) = (draft, root)
    }

    private var documents: DocumentTransaction { draft.documents }

    mutating func apply(_ change: ContainerTree.Change, _ folder: ContentFolder) throws -> ContainerTree.Outcome {
        switch change {
        case .makeFolder(let id, let parent, let name):
            // Of two items of different kinds, the server renames one.
            if let there = try existing(name, in: parent), there.isFolder { return .init(item: there.id) }
            try create(id, .folder, name, in: parent, nil)
            madeFolders.insert(id)
            return .init(item: id)
        case .make(let id, let parent, let name, let file):
            try folder.require(file.content)
            guard let there = try existing(name, in: parent), there.wire.kind == file.content.kind else {
                try create(id, file.content.kind, name, in: parent, file.content)
                return .init(item: id, version: file.content.version)
            }
            let version = try draft.replace(
                there, at: DocumentPath(names: [name]), by: file.content, madeFrom: Data())
            return .init(item: there.id, version: DocumentID(bytes: version))
        case .replace(let id, let base, let rejected, let file, let wasExecutable):
            try folder.require(file.content)
            let item = try item(id)
            var content = file.content
            // A bit that was not changed here must not undo a change by another device.
            if wasExecutable == content.isExecutable { content.isExecutable = item.wire.attributes.executable }
            let newest = item.wire.content.version
            let isNewest = base.map { $0.wire == newest || item.wire.content.sameAs.contains($0.wire) } ?? false
            let version = try draft.replace(
                item, at: DocumentPath(names: [item.wire.name]), by: content,
                madeFrom: isNewest ? newest : base?.wire ?? Data())
            if let rejected { superseded += try documents.dropRejected(rejected, of: id) }
            return .init(item: item.id, version: DocumentID(bytes: version))
        case .move(let id, let parent, let name):
            try move(id, to: parent, name)
            return .init(item: id)
        case .trash(let id, let batch, let known):
            let item = try item(id)
            try requireKnown(item, known)
            try draft.trash(item, batch: batch)
            moved.insert(item.id)
            return .init(item: item.id)
        }
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    private mutating func item(_ id: DocumentID) throws -> HeldDocument {
        guard let item = try documents.document(id), !item.isTrashed, let parent = item.parent,
            try documents.isInTree(parent, root, &folders)
        else { throw ContainerTree.gone(id) }
        return item
    }

    private mutating func requireFolder(_ id: DocumentID) throws {
        if id == root || madeFolders.contains(id) { return }
        guard try item(id).isFolder else { throw ContainerTree.gone(id) }
    }

    /// The item of a name, by its bytes.
    ///
    /// - Throws: ``CloudError`` `.alreadyExists` when another name clashes with it.
    private mutating func existing(_ name: Data, in parent: DocumentID) throws -> HeldDocument? {
        try DocumentPath.check(name)
        try requireFolder(parent)
        let place = Place(folder: parent, key: try documents.key(of: name))
        guard names[place] == nil else { throw Self.clash(name) }
        guard !madeFolders.contains(parent) else { return nil }
        let there = try documents.children(of: parent, named: name).first { !moved.contains($0.id) }
        guard let there else { return nil }
        guard there.wire.name == name else { throw Self.clash(name) }
        return there
    }

    private mutating func create(
        _ id: DocumentID, _ kind: WireItemKind, _ name: Data, in parent: DocumentID, _ content: StagedContent?
    ) throws {
        var create = WireCreateItem()
        create.kind = kind
        create.parent = parent.wire
        create.name = name
        create.placeVersion = draft.makeID().wire
        create.attributes.created = draft.now.nanoseconds
        create.clash = .merge
        if let content {
            create.content = WireDocumentContent(content, base: nil)
            create.attributes.executable = content.isExecutable
            create.attributes.extended = content.extended
        }
        draft.add(WireDocumentChange(id, .create(create)), bringing: content)
        names[Place(folder: parent, key: try documents.key(of: name))] = id
    }

    private mutating func move(_ id: DocumentID, to parent: DocumentID, _ name: Data) throws {
        try DocumentPath.check(name)
        try requireFolder(parent)
        let item = try item(id)
        // The database has the old place of an item that this draft has moved already.
        guard moved.contains(id) || item.parent != parent || item.wire.name != name else { return }
        if !madeFolders.contains(parent) {
            let folder = try documents.path(ofFolder: parent, &folders) ?? DocumentPath(names: [])
            try documents.requireRoom(for: item, in: parent, at: folder.appending(name))
        }
        var place = WirePlaceItem()
        place.parent = parent.wire
        place.name = name
        place.placeVersion = draft.makeID().wire
        place.clash = .rename
        draft.add(WireDocumentChange(item.id, .place(place)))
        moved.insert(item.id)
        names[Place(folder: parent, key: try documents.key(of: name))] = id
    }

    private func requireKnown(_ item: HeldDocument, _ known: [DocumentID: DocumentID?]) throws {
        var left = [item]
        while let item = left.popLast() {
            guard let version = known[item.id],
                item.isFolder || ContainerTree.Item(item)?.hasContent(of: version) == true
            else { throw ContainerTree.changed(item.id) }
            guard item.isFolder else { continue }
            left += try documents.children(of: item.id).filter { !moved.contains($0.id) }
        }
    }

    private static func clash(_ name: Data) -> CloudError {
        CloudError(
            .alreadyExists, "The container cannot tell this name from another in the folder. Rename the file.",
            details: ["name": String(decoding: name, as: UTF8.self)])
    }
}
