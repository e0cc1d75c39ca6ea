import Foundation
import NephosCore
import NephosWire
import SwiftProtobuf

/// What an app is about to change, in one transaction: changes that may rest on each other.
struct DocumentDraft {
    let documents: DocumentTransaction
    let now: Timestamp
    let makeID: () -> DocumentID
    private(set) var changes: [(change: WireDocumentChange, content: StagedContent?)] = []
    /// What all of it takes for granted.
    private var conditions: [WireItemCondition] = []
    /// Versions of contents that are there already, byte by byte: nobody needs them.
    private(set) var unchanged: [DocumentID] = []
    /// Folders that are there and were looked up: many files lie in one.
    private var folders: [DocumentPath: DocumentTransaction.Place] = [:]
    /// Chunks and manifest nodes that the server has lost, as it was asked: of contents that are to be put.
    var lostParts: Set<ChunkID> = []
    /// Files that are there and were put.
    private var replaced: Set<DocumentID> = []
    /// What it has made itself.
    private var made: [DocumentPath: (id: DocumentID, isFolder: Bool)] = [:]

    init(_ documents: DocumentTransaction, now: Timestamp, makeID: @escaping () -> DocumentID) {
        self.documents = documents
        self.now = now
        self.makeID = makeID
    }

    /// Items that it makes.
    var itemCount: Int {
        changes.count { if case .create? = $0.change.kind { true } else { false } }
    }

    /// - Parameter content: What the change brings, and where that comes from, if the container may not have it.
    mutating func add(_ change: WireDocumentChange, bringing content: StagedContent? = nil) {
        changes.append((change, content))
    }

    /// Before anything is changed.
    ///
    /// - Throws: ``CloudError`` as ``DocumentTransaction/require(_:)`` does.
    mutating func require(_ conditions: [DocumentCondition]) throws {
        self.conditions = try documents.require(conditions)
    }

    /// What is there, or will be.
    mutating func place(_ path: DocumentPath) throws -> (id: DocumentID, isFolder: Bool)? {
        if let made = made[path] { return made }
        return try lookUp(path).map { ($0.id, $0.isFolder) }
    }

    /// What is there. Nothing of the draft is, before all of it is.
    mutating func lookUp(_ path: DocumentPath) throws -> DocumentTransaction.Place? {
        if let folder = folders[path] { return folder }
        // What is at the top may be Documents.
        guard path.names.count > 1, let parent = path.parent else { return try documents.place(path) }
        guard let folder = try lookUp(parent), folder.isFolder,
            let child = try documents.child(of: folder.id, named: path.last)
        else { return nil }
        if child.isFolder { folders[path] = .item(child) }
        return .item(child)
    }

    /// The folder at the path.
    ///
    /// - Parameters:
    ///   - makes: Whether it is made, with those that it is in, where it is not there.
    ///   - modified: When what is in it was changed, if it is made; nil: unknown.
    /// - Throws: ``CloudError`` `.unknownItem`; `.alreadyExists` when something is there that is no folder.
    mutating func folder(
        at path: DocumentPath, makes: Bool, modified: DocumentDate? = nil
    ) throws -> DocumentID {
        if let place = try place(path) {
            guard place.isFolder else {
                throw CloudError(.alreadyExists, "This is no folder.", details: ["path": path.text])
            }
            return place.id
        }
        guard makes, let parent = path.parent else { throw Self.noFolder(path) }
        try path.requireSynced()
        let folder = try folder(at: parent, makes: true)
        return create(.folder, at: path, in: folder, content: nil, modified: modified)
    }

    static func noFolder(_ path: DocumentPath) -> CloudError {
        CloudError(.unknownItem, "There is no such folder.", details: ["path": path.text])
    }

    mutating func create(
        _ kind: WireItemKind, at path: DocumentPath, in folder: DocumentID, content: StagedContent?,
        modified: DocumentDate? = nil
    ) -> DocumentID {
        let id = makeID()
        var create = WireCreateItem()
        create.kind = kind
        create.parent = folder.wire
        create.name = path.last
        create.placeVersion = makeID().wire
        create.attributes.created = now.nanoseconds
        create.attributes.modified = modified?.nanoseconds ?? 0
        create.clash = .merge
        if let content {
            create.content = WireDocumentContent(content, base: nil)
            create.attributes.executable = content.isExecutable
            create.attributes.extended = content.extended
        }
        changes.append((WireDocumentChange(id, .create(create)), content))
        made[path] = (id, kind == .folder)
        return id
    }

    /// Makes an item that has a content of another's, and all else that is said of it.
    ///
    /// - Parameters:
    ///   - content: Of no meaning where the item is a folder.
    ///   - staged: Where the content comes from, if this container may not have it; nil: it has.
    /// - Returns: The item's id, and what its content is called; of a folder, nothing.
    /// - Throws: ``CloudError`` `.incompatibleVersion`: nobody here knows what it is.
    mutating func copy(
        _ item: HeldDocument, content: WireDocumentContent, _ staged: StagedContent? = nil, at path: DocumentPath,
        in folder: DocumentID
    ) throws -> (item: DocumentID, version: Data) {
        guard DocumentEntry.Kind(item.wire.kind) != nil else {
            throw CloudError(
                .incompatibleVersion, "The item is of a kind that this release does not know. Upgrade it.",
                details: ["path": path.text])
        }
        let id = makeID()
        var create = WireCreateItem()
        create.kind = item.wire.kind
        create.parent = folder.wire
        create.name = path.last
        create.placeVersion = makeID().wire
        if !item.isFolder {
            create.content = WireDocumentContent(bytesOf: content, version: staged?.version ?? makeID())
        }
        if item.wire.hasAttributes { create.attributes = item.wire.attributes }
        create.clash = .rename
        add(WireDocumentChange(id, .create(create)), bringing: staged)
        made[path] = (id, item.isFolder)
        return (id, create.content.version)
    }

    /// Puts a content where the path says: a new item, or another version of the one that is there.
    mutating func put(_ content: StagedContent, at path: DocumentPath, makesFolders: Bool) throws -> DocumentID {
        guard let parent = path.parent else {
            throw CloudError(.invalidArguments, "A file needs a name.", details: ["path": path.text])
        }
        try path.requireSynced()
        if let made = made[path] {
            throw made.isFolder ? Self.isFolder(path) : Self.putTwice(path)
        }
        switch try lookUp(path) {
        case nil:
            var attributes = WireItemAttributes()
            attributes.extended = content.extended
            try Self.check(attributes, of: path.text)
            let folder = try folder(at: parent, makes: makesFolders)
            return create(content.kind, at: path, in: folder, content: content)
        case .fixed: throw Self.isFolder(path)
        case .item(let item):
            _ = try replace(item, at: path, by: content, madeFrom: item.wire.content.version)
            return item.id
        }
    }

    /// Puts a content in the place of an item's, unless the item has these bytes.
    ///
    /// - Parameters:
    ///   - path: Where the item is.
    ///   - base: The version that the content was made from: where that is not the item's newest, the two are a conflict,
    ///     and the item keeps its attributes too. Empty: nobody knows.
    /// - Returns: The version that has the bytes.
    mutating func replace(
        _ item: HeldDocument, at path: DocumentPath, by content: StagedContent, madeFrom base: Data
    ) throws -> Data {
        guard !item.isFolder else { throw Self.isFolder(path) }
        guard replaced.insert(item.id).inserted else { throw Self.putTwice(path) }
        try Self.requireKind(content.kind, of: item, at: path)
        let isNewest = base == item.wire.content.version
        // What is refused has changed nothing.
        let attributes = content.kind == .file && isNewest ? try change(of: item, at: path, to: content) : nil
        var replace = WireReplaceContent()
        replace.content = WireDocumentContent(content, base: base)
        let others = isNewest ? [] : item.wire.conflicts
        let same = ([item.wire.content] + others).first { replace.content.hasBytes(of: $0) }
        if let same, try !heals(content, item) {
            unchanged.append(content.version)
            if let attributes { add(attributes) }
            return same.version
        }
        changes.append((WireDocumentChange(item.id, .replace(replace)), content))
        if let attributes { add(attributes) }
        return content.version.wire
    }

    static func requireKind(_ kind: WireItemKind, of item: HeldDocument, at path: DocumentPath) throws {
        guard item.wire.kind == kind else {
            throw CloudError(
                .alreadyExists,
                "A file, a link and a package do not take each other's place. Delete what is there first.",
                details: ["path": path.text])
        }
    }

    /// The staged content is not needed: nothing is put.
    mutating func drop(_ content: StagedContent) { unchanged.append(content.version) }

    /// Whether the server has lost some of these bytes, and nothing waits here that brings them: then they go there again,
    /// as another version.
    private func heals(_ content: StagedContent, _ item: HeldDocument) throws -> Bool {
        guard !lostParts.isEmpty,
            content.chunks.contains(where: { lostParts.contains($0.id) })
                || content.nodes.contains(where: { lostParts.contains(ContentUpload.id($0)) })
        else { return false }
        return try !documents.holdsContent(item.wire.content.version)
    }

    mutating func setExecutable(_ isExecutable: Bool, of item: HeldDocument) {
        guard item.wire.attributes.executable != isExecutable else { return }
        var set = WireSetAttributes()
        set.executable = isExecutable
        add(WireDocumentChange(item.id, .attributes(set)))
    }

    /// What the file says that the content was copied from; what it does not say stays.
    private func change(
        of item: HeldDocument, at path: DocumentPath, to content: StagedContent
    ) throws -> WireDocumentChange? {
        var set = WireSetAttributes()
        set.executable = content.isExecutable
        set.extended = content.extended
        return try change(of: item, set, at: path)
    }

    /// Sets what is not so already.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`, as the service would refuse it.
    mutating func setAttributes(_ set: WireSetAttributes, of item: HeldDocument) throws {
        if let change = try change(of: item, set) { add(change) }
    }

    /// - Returns: Nil: all of it is so.
    private func change(
        of item: HeldDocument, _ set: WireSetAttributes, at path: DocumentPath? = nil
    ) throws -> WireDocumentChange? {
        let before = item.wire.attributes.canonical
        var after = before
        after.merge(set)
        guard after != before else { return nil }
        try Self.check(after, of: path?.text ?? documents.pathText(of: item.id) ?? "\(item.id)")
        return WireDocumentChange(item.id, .attributes(set))
    }

    private static func check(_ attributes: WireItemAttributes, of path: String) throws {
        do { try attributes.check() } catch {
            var error = error
            error.details["path"] = path
            throw error
        }
    }

    private static func putTwice(_ path: DocumentPath) -> CloudError {
        CloudError(.alreadyExists, "Two contents have one path.", details: ["path": path.text])
    }

    static func isFolder(_ path: DocumentPath) -> CloudError {
        CloudError(.alreadyExists, "This is a folder.", details: ["path": path.text])
    }

    /// The requests that make it so, in order, each within the bounds of one.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: there are conditions, and it does not go as one.
    func requests(container: String) throws -> [(request: WireApplyChanges, contents: [StagedContent])] {
        var requests = try divided(container: container)
        guard !conditions.isEmpty, !requests.isEmpty else { return requests }
        guard requests.count == 1 else {
            throw CloudError(
                .limitExceeded, "With conditions no more is changed at once than goes in one request. Divide it.",
                details: ["maximum": "\(Self.changesMax)"])
        }
        requests[0].request.conditions = conditions
        return requests
    }

    private func divided(container: String) throws -> [(request: WireApplyChanges, contents: [StagedContent])] {
        let paused = changes.count > 1 ? try documents.pauses() : [:]
        var last: Data?
        var requests: [(request: WireApplyChanges, contents: [StagedContent])] = []
        var bytes = 0
        var itemBytes = 0
        var nodeBytes = 0
        var contentBytes: UInt64 = 0
        var count = 0
        for (change, content) in changes {
            let size = (try? change.serializedData().count) ?? 0
            let weight = try weight(of: change)
            let ofItem = try storedBytes(of: change)
            let nodes = content?.nodes ?? []
            let ofNodes = nodes.reduce(0) { $0 + $1.count }
            let ofContent = content?.inline == nil && content?.isHere == true ? content?.length ?? 0 : 0
            let other = requests.last?.request.sourceContainer ?? ""
            // What brings contents of an item that is paused must not keep others here.
            let alone = DocumentID(bytes: change.item).flatMap { paused[$0] } != nil && change.followsContent
            let item = alone ? change.item : nil
            defer { last = item }
            let isFull =
                bytes + size > DocumentBatches.bytesMax || nodeBytes + ofNodes > DocumentLimits.nodesBytesMax
                || contentBytes > 0 && contentBytes + ofContent > Self.contentBytesMax
                || itemBytes > 0 && itemBytes + ofItem > Self.itemBytesMax
                || count + weight > Self.changesMax
                || item != last
                // A request names one.
                || !other.isEmpty && content?.source.map { $0 != other } ?? false
            if requests.isEmpty || isFull {
                var request = WireApplyChanges()
                request.container = container
                requests.append((request, []))
                (bytes, itemBytes, nodeBytes, contentBytes, count) = (0, 0, 0, 0, 0)
            }
            requests[requests.count - 1].request.changes.append(change)
            requests[requests.count - 1].request.nodes += nodes
            if let content { requests[requests.count - 1].contents.append(content) }
            if let source = content?.source { requests[requests.count - 1].request.sourceContainer = source }
            bytes += size
            itemBytes += ofItem
            nodeBytes += ofNodes
            contentBytes += ofContent
            count += weight
        }
        return requests
    }

    /// What the service looks up for a change, in bytes.
    private func storedBytes(of change: WireDocumentChange) throws -> Int {
        try DocumentID(bytes: change.item).flatMap { try documents.synced($0.name)?.body?.count } ?? 0
    }

    /// Bytes of the items of a request, with room for the folders that they are in.
    private static let itemBytesMax = DocumentLimits.looksBytesMax / 2

    /// With room for folders that have to be made again.
    private static let changesMax = DocumentLimits.changesMax - DocumentLimits.depthMax

    /// An item that somebody deletes meanwhile gets its place again.
    private func weight(of change: WireDocumentChange) throws -> Int {
        return switch change.kind {
        case .replace: 2
        // As many as it may remove, against how many a request may.
        case .versions(let remove):
            max(1, (remove.versions.count + (try formerCount(before: remove.before, of: change))) * 2 / 5)
        default: 1
        }
    }

    /// How many versions an item may have had before this one.
    private func formerCount(before version: Data, of change: WireDocumentChange) throws -> Int {
        guard !version.isEmpty, let item = DocumentID(bytes: change.item) else { return 0 }
        return try documents.document(item)?.wire.content.base.isEmpty == false ? DocumentLimits.versionsMax : 0
    }

    /// Contents that are sent before any of them is seen, in bytes, unless one alone has more.
    private static let contentBytesMax: UInt64 = 64 << 20
}

extension WireDocumentContent {
    /// The same bytes as another version: the server has them, and nothing is sent.
    ///
    /// - Parameter base: What it takes the place of; nil: nothing.
    init(bytesOf other: WireDocumentContent, version: DocumentID, base: Data? = nil) {
        self.init()
        self.version = version.wire
        self.base = base ?? Data()
        length = other.length
        inline = other.inline
        root = other.root
        depth = other.depth
        modified = other.modified
    }

    init(_ content: StagedContent, base: Data?) {
        self.init()
        version = content.version.wire
        self.base = base ?? Data()
        length = content.length
        inline = content.inline ?? Data()
        root = content.root.map { Data($0.bytes) } ?? Data()
        depth = content.depth
        modified = content.modified
    }
}
