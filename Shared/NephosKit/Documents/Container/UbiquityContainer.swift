public import Foundation
public import NephosCore
public import NephosPredicates
internal import NephosWire

/// Files and folders that are the same on all of an account's devices.
///
/// The names of all items are on this device, so reading them needs no network. A change is on this device's disk when
/// the call returns, also while offline; it is visible here at once, and sent when there is a connection. Contents are
/// downloaded when they are read. On a new device a change waits for the first download of the names, and a read before
/// that throws `.storeOutOfStep`: wait for ``SyncedStore/ready(timeout:)``.
///
/// A handle belongs to one account: once another is signed in, each call of it throws `.notSignedIn`.
///
/// A path that begins with `/` begins at the container's top; any other begins in `Documents`, the folder that users
/// see: `Letters/a.txt`, `Documents/Letters/a.txt` and `/Documents/Letters/a.txt` are one. An item's id works in place
/// of its path. It is the only address of an item if its name, or a folder's on its path, is not valid UTF-8.
///
/// Further calls are in groups, from ``localFiles`` to ``trash``.
public final class UbiquityContainer: SyncedStore {
    let handle: ContainerHandle

    init(id: String, app: AppID, account: AccountID, session: Session) {
        handle = ContainerHandle(id: id, app: app, account: account, session: session)
    }

    /// The container's name, unique in the deployment.
    public var id: String { handle.id }
    /// The app that uses it.
    public var app: AppID { handle.app }
    /// The container's scope: progress, proof, events.
    public var scope: Scope { handle.scope }
    /// The container's scope.
    public var syncedScopes: SyncedScopes { SyncedScopes(scope) }

    // MARK: Groups

    /// Copies of local files and folders: put, get.
    public var localFiles: DocumentLocalFiles { DocumentLocalFiles(handle: handle) }
    /// Contents of any length, piece by piece: read, write.
    public var streams: DocumentStreams { DocumentStreams(handle: handle) }
    /// Former versions of files: list, restore, remove.
    public var versions: DocumentVersions { DocumentVersions(handle: handle) }
    /// Files with two contents, and rejected changes: list, resolve, dismiss.
    public var conflicts: DocumentConflicts { DocumentConflicts(handle: handle) }
    /// Contents on this device: download, keep, evict.
    public var downloads: DocumentDownloads { DocumentDownloads(handle: handle) }
    /// Published links: publish, list, unpublish.
    public var links: DocumentLinks { DocumentLinks(handle: handle) }
    /// Files whose sync is paused: pause, resume, list.
    public var pauses: DocumentPauses { DocumentPauses(handle: handle) }
    /// Folders that change as one item: list and read their members.
    public var packages: DocumentPackages { handle.packages }
    /// Further contents of items, such as thumbnails: set, list, read, remove.
    public var renditions: DocumentRenditions { DocumentRenditions(handle: handle) }
    /// Deleted items: list, restore, remove permanently.
    public var trash: DocumentTrash { DocumentTrash(handle: handle) }

    /// Changes that wait to be sent.
    package var outbox: ContainerOutbox { handle.outbox }

    // MARK: List

    /// The item at a path; nil: it is missing.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the first download has finished; `.notSignedIn`;
    ///   `.invalidArguments` for a name that no item can have; `.storageFailure`.
    public func item(at path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry? {
        try handle.read { documents in
            let path = try documents.path(path)
            return try documents.place(path).flatMap { try documents.entry($0, at: path) }
        }
    }

    /// The same; without an item it throws `.unknownItem`, with the reason.
    package func requireItem(at path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry {
        if let item = try await item(at: path) { return item }
        throw try handle.read { documents in try documents.noItem(at: documents.path(path)) }
    }

    /// The item of this id, at any place, also in the trash; nil: it is missing.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func item(_ id: DocumentID) async throws(CloudError) -> DocumentEntry? { try handle.entry(id) }

    /// The items directly in a folder, by name.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.unknownItem` when there is no such folder.
    public func children(of folder: some DocumentAddressing = "") async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            let path = try documents.path(folder)
            let folder = try documents.folder(at: path)
            let fixed = folder == .top ? [documents.fixedEntry(.documents)].compactMap { $0 } : []
            return try fixed
                + documents.children(of: folder).compactMap { item in
                    try documents.entry(item, at: path.appending(item.wire.name))
                }
        }
    }

    /// All items in a folder and its folders, each folder before its contents, without the trash.
    ///
    /// - Throws: ``CloudError`` as ``children(of:)`` does.
    public func items(in folder: some DocumentAddressing = "/") async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            let path = try documents.path(folder)
            return try documents.descendants(of: documents.folder(at: path), at: path).compactMap {
                try documents.entry($0.item, at: $0.path)
            }
        }
    }

    /// A live query (`NSMetadataQuery`): the items that match a predicate, now and from now on. It is answered on this
    /// device; before the first download of the container it waits for that.
    ///
    ///     let query = try container.query("name LIKE '*.pdf' AND size > 10000", sortedBy: [DocumentSort(.modified)])
    ///     for try await event in query { ... }
    ///
    /// - Parameters:
    ///   - predicate: Its fields are those of ``DocumentField``. Items in the trash are left out, unless it names
    ///     `isTrashed`.
    ///   - scope: The folders to search.
    ///   - sorts: The order of gathered items; none: as they are found, which is fastest.
    ///   - batchMax: Maximum number of items of one event; 1 to 10,000.
    /// - Throws: ``QueryPredicateError``, with its place in the text and the remedy.
    public func query(
        _ predicate: String, scope: DocumentQueryScope = .container, sortedBy sorts: [DocumentSort] = [],
        batchMax: Int = 500
    ) throws(QueryPredicateError) -> DocumentQuery {
        try query(QueryPredicate(parsing: predicate), scope: scope, sortedBy: sorts, batchMax: batchMax)
    }

    /// A live query with a predicate that was parsed before, or made by a program.
    ///
    /// - Throws: ``QueryPredicateError`` for fields that items do not have, and values of other types than theirs.
    public func query(
        _ predicate: QueryPredicate, scope: DocumentQueryScope = .container, sortedBy sorts: [DocumentSort] = [],
        batchMax: Int = 500
    ) throws(QueryPredicateError) -> DocumentQuery {
        try DocumentQuery(handle, predicate, scope: scope, sorts: sorts, batchMax: batchMax)
    }

    // MARK: Read

    /// Maximum bytes of a content that one call reads into memory: 64 MiB.
    public static let readBytesMax = 64 << 20

    /// The content of a file, downloaded if it is not here.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - version: Nil: the newest.
    ///   - timeout: How long no data may arrive.
    /// - Throws: ``CloudError`` `.unknownItem`; `.limitExceeded` when it has more than ``readBytesMax`` (stream it, or get
    ///   it into a file); `.networkUnavailable` and the like (try again); else as ``item(at:)`` does.
    public func read(
        _ path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        try await handle.reader.read(path, version: version, timeout: timeout)
    }

    /// A part of the content of a file. Downloads only the chunks of that part, at most 1 MiB each, and the lists that
    /// lead to them.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - range: A range of bytes, cut off at the content's end.
    ///   - version: One of its versions; nil: the newest.
    ///   - timeout: The time that the server has to answer.
    /// - Throws: ``CloudError`` `.limitExceeded` when the part has more than ``readBytesMax`` (read it in several); else as
    ///   ``read(_:version:timeout:)`` does.
    public func read(
        _ path: some DocumentAddressing, range: Range<UInt64>, version: DocumentID? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        try await handle.reader.read(path, range: range, version: version, timeout: timeout)
    }

    // MARK: Write

    /// Puts a file of these bytes at a path: a new file, or a new version of an existing one. The bytes stay in this
    /// device's home until the server has them.
    ///
    /// - Parameters:
    ///   - data: The file's content.
    ///   - path: The item's path in the container.
    ///   - makesFolders: Whether to make missing folders of the path.
    ///   - conditions: Conditions on any items, checked here and on the server; if one does not hold, the change is
    ///     rejected.
    /// - Throws: ``CloudError`` `.unknownItem` when the folder is missing; `.alreadyExists` when a folder is at the path;
    ///   `.constraintViolation` when a condition does not hold here; `.invalidArguments` for a name that ends in `.nosync`,
    ///   which stays on its device; `.limitExceeded` when it is too long; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func put(
        _ data: Data, at path: String, makesFolders: Bool = false, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await handle.imports.put(.data(data, at: path), makesFolders: makesFolders, conditions)
    }

    /// Puts several items, all or none. They are sent in order, in requests of some hundreds of changes.
    ///
    /// - Parameters:
    ///   - sources: The contents, each with its path.
    ///   - makesFolders: Whether to make missing folders of the path.
    ///   - conditions: As for one item; then everything has to fit into one request.
    /// - Returns: The item of each.
    /// - Throws: ``CloudError`` as for one item; `.limitExceeded` when there are conditions, and the change does not
    ///   fit.
    @discardableResult
    public func put(
        _ sources: [DocumentSource], makesFolders: Bool = false, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> [DocumentID] {
        try await handle.imports.put(sources, makesFolders: makesFolders, conditions, reading: { $1 })
    }

    /// The tags, dates and extended attributes of an item.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; else as ``item(at:)`` does.
    public func attributes(of path: some DocumentAddressing) async throws(CloudError) -> DocumentAttributes {
        DocumentAttributes(try handle.item(at: path).wire.attributes)
    }

    /// Changes attributes of an item; the others stay. No content is sent. Each attribute merges on its own: if two
    /// devices set different attributes, both stay; if they set the same one, the last stays. All tags of an item are
    /// one attribute.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for the folders that every container has;
    ///   `.limitExceeded` when there would be too many, or too long ones (remove some first); `.constraintViolation` when a
    ///   condition does not hold here; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func setAttributes(
        _ changes: [DocumentAttributeChange], of path: some DocumentAddressing, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await handle.changeItem(conditions) { draft in
            let item = try draft.documents.item(at: draft.documents.path(path))
            try draft.setAttributes(WireSetAttributes(changes, of: item.wire.attributes), of: item)
            return item.id
        }
    }

    // MARK: Arrange

    /// Makes a folder, or returns the existing one.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - makesParents: Whether to make missing folders of the path too.
    /// - Throws: ``CloudError`` `.unknownItem` when its folder is missing; `.alreadyExists` when a file has the name;
    ///   `.serviceBusy` when too much waits to be sent; `.permissionFailure` in a read-only container; else as
    ///   ``item(at:)`` does.
    @discardableResult
    public func makeFolder(at path: String, makesParents: Bool = false) async throws(CloudError) -> DocumentEntry {
        let path = try DocumentPath(path)
        return try await handle.changeItem { draft in
            if !makesParents, let parent = path.parent { _ = try draft.folder(at: parent, makes: false) }
            return try draft.folder(at: path, makes: true)
        }
    }

    /// Moves or renames an item.
    ///
    /// - Parameters:
    ///   - source: The item's path now.
    ///   - target: The new path. An existing folder takes the item in, under its name.
    ///   - replaces: Whether to move a file at the target to the trash; otherwise the call throws.
    ///   - conditions: Conditions on any items, checked here and on the server; if one does not hold, the change is
    ///     rejected.
    /// - Throws: ``CloudError`` `.unknownItem`; `.alreadyExists`; `.invalidArguments` when a folder would be in itself, or
    ///   too deep; `.constraintViolation` when a condition does not hold here; else as ``makeFolder(at:makesParents:)``
    ///   does.
    @discardableResult
    public func move(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, replaces: Bool = false,
        conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await handle.changeItem(conditions) { draft in
            let item = try draft.documents.item(at: draft.documents.path(source))
            try draft.move(item, to: draft.documents.path(target), replaces: replaces)
            return item.id
        }
    }

    /// Moves an item into another container: copies it, and once the server has all of the copy, moves the original to
    /// this container's trash. Until then the item is in both (``ContainerStatus/leaving``). If a part could not be
    /// copied, or any device has changed it meanwhile, the original stays, and is listed as rejected. An interrupted
    /// move continues by itself.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded` when more than 1000 items of a folder wait to be sent; else as
    ///   ``copy(_:to:in:replaces:)`` does.
    @discardableResult
    public func move(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, in other: UbiquityContainer,
        replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        guard other.id != id else {
            return DocumentCopy(
                item: try await move(source, to: target, replaces: replaces), itemCount: 1, stepCount: 1)
        }
        return try await ContainerTransfer(source: handle, target: other.handle)
            .move(source, to: target, replaces: replaces)
    }

    /// Copies an item with its renditions, and a folder with everything in it; versions and conflicts are not copied.
    /// No bytes are sent. On this device the copy is complete at once; the server gets more than some hundreds of items
    /// in several steps, folders first.
    ///
    /// - Parameters:
    ///   - source: The item's path now.
    ///   - target: The copy's path. An existing folder takes the copy in, under its name.
    ///   - replaces: Whether an existing file gets the content as a new version, and the renditions; otherwise the call
    ///     throws.
    /// - Throws: ``CloudError`` `.unknownItem`; `.alreadyExists`; `.invalidArguments` when a folder would be copied into
    ///   itself, or too deep; `.limitExceeded` beyond ``DocumentCopy/itemsMax`` (copy the folder's items one by one), and
    ///   when the target would have too many renditions; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func copy(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        try await DocumentCopy(of: source, to: target, replaces: replaces, in: handle)
    }

    /// Copies an item into another container of the same session, as ``copy(_:to:replaces:)`` does within one. Contents
    /// that wait on this device are sent. An item whose content is gone from this container by then is rejected.
    ///
    /// - Throws: ``CloudError`` `.missingEntitlement` when the other container's app does not list this one;
    ///   `.constraintViolation` when a content is still on its way here from a third container that it does not list (wait
    ///   until it is sent); else as ``copy(_:to:replaces:)`` does.
    @discardableResult
    public func copy(
        _ source: some DocumentAddressing, to target: some DocumentAddressing, in other: UbiquityContainer,
        replaces: Bool = false
    ) async throws(CloudError) -> DocumentCopy {
        guard other.id != id else { return try await copy(source, to: target, replaces: replaces) }
        return try await ContainerTransfer(source: handle, target: other.handle)
            .copy(source, to: target, replaces: replaces)
    }

    /// Moves items to the trash, as one batch. A file that another device has changed meanwhile stays, and so does a
    /// folder with such a change in it; the change is then listed as rejected.
    ///
    /// - Parameters:
    ///   - paths: The items' paths.
    ///   - conditions: Further conditions on any items; if one does not hold, the change is rejected.
    /// - Returns: The batch, for ``DocumentTrash/restore(_:)`` and ``DocumentTrash/remove(_:)``.
    /// - Throws: ``CloudError`` `.unknownItem` (nothing was changed); `.constraintViolation` when a condition does not hold
    ///   here, or a paused file has an unsent change; `.limitExceeded` for conditions with more than some hundreds of items;
    ///   else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func trash(
        _ paths: [some DocumentAddressing], conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentID {
        try await trash.add(paths, conditions: conditions)
    }

    // MARK: Status

    /// The container's class and rules, by the last reply.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.incompatibleVersion` for a class that this release does not know.
    public var definition: ContainerDefinition {
        get throws(CloudError) { try handle.read { try $0.definition() } }
    }

    /// The state of this device's copy, for ``DocumentCondition/unchanged(_:since:)``: later reads are of this state,
    /// or a newer one.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func head() async throws(CloudError) -> ChangeToken { try handle.read { try $0.rows.state().head } }

    /// Changes from outside, from now on. This device's own are not among them, except those that were rejected. For a list
    /// that stays up to date use a query (``query(_:scope:sortedBy:batchMax:)-(String,_,_,_)``).
    ///
    /// A listener that is 10,000 changes behind gets only the newest.
    public var changes: some AsyncSequence<ContainerChanges, Never> & Sendable {
        scope.events.compactMap { [handle] event in
            guard case .change(let change) = event else { return nil }
            return ContainerChanges(change, of: handle)
        }
    }

    /// Asks for the server's changes, and sends pending changes now. Returns at once.
    public func synchronize() { syncedScopes.synchronize() }

    /// The container's progress, and why changes are pending. Needs no network.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func status() async throws(CloudError) -> ContainerStatus { try await status(of: "/") }

    /// The progress of an item and its contents.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.unknownItem` when there is no such item.
    public func status(of path: some DocumentAddressing) async throws(CloudError) -> ContainerStatus {
        try await ContainerStatus(of: path, in: handle)
    }

    /// The storage that the container uses.
    ///
    /// - Parameter timeout: How long to wait for the bytes that count now; nil: the server is not asked.
    /// - Throws: ``CloudError`` as ``item(at:)`` does; a network error.
    public func usage(timeout: Duration? = nil) async throws(CloudError) -> ContainerUsage {
        try await ContainerUsage(of: handle, timeout: timeout)
    }

    /// The files of which the server has lost a part: of the newest content, a conflict's or a rendition. Asks the
    /// server about all of their chunks, unless it has lost none.
    ///
    /// A device that has such a content sends it again by itself. Otherwise put the file again, as it was or changed.
    /// Damaged former versions have no item here.
    ///
    /// - Parameters:
    ///   - path: An item, with its contents; `/`: all items.
    ///   - timeout: Maximum time in all; the server is asked about each long file separately.
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.deadlineExceeded` when there are too many for that time (ask about
    ///   a folder, or for longer); `.networkUnavailable` and the like.
    public func damagedItems(
        of path: some DocumentAddressing = "/", timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [DocumentEntry] {
        try await handle.lostContents.items(of: path, timeout: timeout)
    }
}
