internal import GRDB
public import NephosCore
internal import NephosWire

/// Files and folders that are the same on all of an account's devices.
///
/// The names of everything are on this device: what only reads them is local. What changes something is on this
/// device's disk when the call returns, also while offline, is seen here at once, and is sent when it can be. Contents
/// are fetched when they are asked for. On a new device a change waits for the first download of the names, and a read
/// before that is `.storeOutOfStep`: see ``SyncedStore/ready(timeout:)``.
///
/// A handle is one account's: once another is signed in, each call of it fails with `.notSignedIn`.
///
/// A path begins at the container's top where it begins with `/`, and else in `Documents`, the folder that the person
/// sees: `Letters/a.txt`, `Documents/Letters/a.txt` and `/Documents/Letters/a.txt` are one. An item's id does for its path,
/// and is the only way to one whose name, or a folder's that it is in, is no text.
public final class UbiquityContainer: SyncedStore {
    /// Names it among all containers.
    public let id: String
    /// As which app it is used.
    public let app: AppID
    let session: Session
    /// Whose it is: nothing goes on under another account.
    let account: AccountID
    /// The container as any other thing that a device keeps in step.
    public var scope: Scope {
        Scope(id: ScopeID(app: app, service: .documents, name: id), session: session, account: account)
    }

    /// The container's scope.
    public var syncedScopes: SyncedScopes { SyncedScopes(scope) }

    init(id: String, app: AppID, account: AccountID, session: Session) {
        self.id = id
        self.app = app
        self.account = account
        self.session = session
    }

    // MARK: Reading

    /// What is at the path; nil: nothing.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the first download has finished; `.notSignedIn`,
    ///   `.invalidArguments` (a name that no item can have), `.storageFailure`.
    public func item(at path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry? {
        try read { documents in
            let path = try documents.path(path)
            return try documents.place(path).flatMap { try documents.entry($0, at: path) }
        }
    }

    /// Why nothing can be done with what is at the path, where there is no item.
    package func noItem(at path: some DocumentAddressing) throws(CloudError) -> CloudError {
        try read { documents in try documents.noItem(at: documents.path(path)) }
    }

    /// The item of this id, wherever it is, also in the trash; nil: there is none.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func item(_ id: DocumentID) async throws(CloudError) -> DocumentEntry? {
        try read { documents in
            try documents.fixedEntry(id) ?? documents.document(id).flatMap { try documents.entry($0) }
        }
    }

    /// What lies in a folder, by name.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.unknownItem` when there is no such folder.
    public func children(of folder: some DocumentAddressing = "") async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            let path = try documents.path(folder)
            let folder = try documents.folder(at: path)
            let fixed = folder == .top ? [documents.fixedEntry(.documents)].compactMap { $0 } : []
            return try fixed
                + documents.children(of: folder).compactMap { item in
                    try documents.entry(item, at: path.appending(item.wire.name))
                }
        }
    }

    /// Everything in a folder, however deep, a folder before what is in it; nothing that lies in the trash.
    ///
    /// - Throws: ``CloudError`` as ``children(of:)`` does.
    public func items(in folder: some DocumentAddressing = "/") async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            let path = try documents.path(folder)
            return try documents.descendants(of: documents.folder(at: path), at: path).compactMap {
                try documents.entry($0.item, at: $0.path)
            }
        }
    }

    /// Everything in a folder that lies in the trash.
    package func items(inTrashed folder: DocumentID) async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            guard let item = try documents.document(folder), let path = try documents.path(of: item)?.path else {
                return []
            }
            return try documents.descendants(of: folder, at: path).compactMap {
                try documents.entry($0.item, at: $0.path)
            }
        }
    }

    /// Paths of the items of which changes wait to be sent, with the versions of the contents that they have here.
    package func waitingPaths() async throws(CloudError) -> [String: [DocumentID: DocumentID]] {
        try read { documents in
            try documents.pendingItems().reduce(into: [:]) { paths, pending in
                guard let path = try documents.pathText(of: pending.id) else { return }
                let version = try documents.document(pending.id).flatMap { DocumentID(bytes: $0.wire.content.version) }
                paths[path, default: [:]][pending.id] = version
            }
        }
    }

    /// Items of which this content is in conflict with another device's: both are kept until somebody decides.
    ///
    /// - Parameter versions: The version of the content, by the item's id.
    package func conflicting(_ versions: [DocumentID: DocumentID]) async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            try versions.sorted { $0.key < $1.key }.compactMap { id, version in
                guard let item = try documents.document(id), item.isLosing(version) else { return nil }
                return try documents.entry(item)
            }
        }
    }

    /// How many requests wait.
    package func waitingCount() async throws(CloudError) -> Int { try read { try $0.rows.operationCount() } }

    /// How much of what waits the server has, by whichever process of the home: it means something only beside another.
    package func sentPercent() async throws(CloudError) -> Int { try read { try $0.sentPercent() } }

    /// What names clash by in this container: of two with one key only one can be in a folder.
    package func nameKey() async throws(CloudError) -> @Sendable ([UInt8]) -> [UInt8] {
        let rule = try read { try $0.rule() }
        return { rule.key(of: $0) }
    }

    /// The same items, as they are by now; what is gone as it was.
    package func refreshed(_ entries: [DocumentEntry]) async throws(CloudError) -> [DocumentEntry] {
        try read { documents in
            try zip(entries, documents.entries(entries.map { .success($0.id) })).map { ($1, $0) }.map { new, old in
                (try? new.get()) ?? old
            }
        }
    }

    /// How many of the items are paused.
    package func pausedCount(_ entries: [DocumentEntry]) async throws(CloudError) -> Int {
        try read { documents in
            let pauses = try documents.pauses()
            return pauses.isEmpty ? 0 : entries.count { pauses[$0.id] != nil }
        }
    }

    /// What lies in the trash, by what was deleted together, the newest first.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func deletedItems() async throws(CloudError) -> [DeletedDocuments] {
        let now = session.engine.stamp.now
        return try read { documents in
            let kept = Duration.seconds(86_400 * (try documents.definition()).trashDays)
            return try documents.deleted().map { ($0, try documents.bytes(of: $0), kept) }
        }.map { deleted, bytes, kept in
            var deleted = deleted
            deleted.bytes = bytes
            // What was made by a clock that was ahead is noted as deleted after that.
            deleted.trashed = deleted.trashed.map { min($0, now) }
            deleted.expires = deleted.trashed?.advanced(by: kept)
            return deleted
        }
    }

    /// Where the address leads, whether something is there or not.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does; `.unknownItem` for the id of nothing.
    package func path(_ address: some DocumentAddressing) async throws(CloudError) -> DocumentPath {
        try read { try $0.path(address) }
    }

    /// How far this device has the container, for ``DocumentCondition/unchanged(_:since:)``: what is read after it was
    /// asked for is as it was there, or newer.
    ///
    /// - Throws: ``CloudError`` as ``item(at:)`` does.
    public func head() async throws(CloudError) -> ChangeToken { try read { try $0.rows.state().head } }

    // MARK: The transactions

    /// Waits for the first download, unless nobody can be reached for it.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` with the reason when it does not come; what only a person can cure.
    func requireDownload() async throws(CloudError) {
        var error: CloudError
        do throws(CloudError) { return try read { _ in } } catch let failure { error = failure }
        let isOffline: Bool = try await session.engine.perform { engine, completion in
            completion(.success(engine.options.isOffline))
        }
        guard error == DocumentsModel.notDownloaded, !isOffline else { throw error }
        do throws(CloudError) {
            try await syncedScopes.wait(for: .downloaded, timeout: .seconds(30), isImpatient: true)
        } catch let failure {
            guard [.deadlineExceeded, .networkUnavailable, .networkFailure].contains(failure.code) else {
                throw failure
            }
            error.details["reason"] = failure.details["reason"] ?? failure.message
            throw error
        }
    }

    func read<Value>(_ body: (DocumentTransaction) throws -> Value) throws(CloudError) -> Value {
        try session.local.read { try body(try documents($0)) }
    }

    func documents(_ database: Database) throws -> DocumentTransaction {
        guard let account = try Facts(database).session, account.signedIn else {
            throw CloudError(.notSignedIn, "This home has no account signed in. Sign in.")
        }
        if let error = account.refusal(of: self.account) { throw error }
        let rows = ScopeTransaction(database, DocumentsModel.place(of: id, in: account))
        guard try rows.state().synced else {
            throw DocumentsModel.notDownloaded
        }
        let documents = DocumentTransaction(rows)
        documents.known.now = session.engine.stamp.now
        return documents
    }

    /// Requests of one container that may wait.
    static let pendingMax = 100_000

    /// Changes something, all or nothing, and sends it when it can be. On a new device it waits for the container's
    /// first download: nobody knows before what has the name, or the folder.
    func change<Value>(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> Value
    ) async throws(CloudError) -> Value {
        try await change(conditions, body) { $1 }
    }

    /// The same, and reads what that has made of it: what fails has changed nothing.
    ///
    /// - Parameter conditions: What it takes for granted.
    func change<Value, Result>(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> Value,
        reading: (DocumentTransaction, Value) throws -> Result
    ) async throws(CloudError) -> Result {
        try await change(conditions, body) { documents, value, _ in try reading(documents, value) }
    }

    /// The same, and tells where what was changed waits; nil: nothing has to be sent.
    func change<Value, Result>(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> Value,
        waiting: (DocumentTransaction, Value, ClosedRange<Int64>?) throws -> Result
    ) async throws(CloudError) -> Result {
        try await requireDownload()
        let engine = session.engine
        let result = try session.local.write { database in
            let documents = try documents(database)
            var draft = DocumentDraft(documents, now: engine.stamp.now, makeID: engine.makeDocumentID)
            try draft.require(conditions)
            let value = try body(&draft)
            try documents.check(draft)
            let requests = try draft.requests(container: id)
            guard try documents.rows.operationCount() + requests.count <= Self.pendingMax else {
                throw CloudError(
                    .serviceBusy, "Too many changes wait to be sent. Connect, and try again.",
                    details: ["pending_max": "\(Self.pendingMax)"])
            }
            let positions = try requests.map { request, contents in
                let (operation, now, writer) = engine.stamp
                return try documents.append(request, contents: contents, id: operation, writer: writer, now: now)
            }
            return try waiting(documents, value, positions.first.flatMap { first in positions.last.map { first...$0 } })
        }
        scope.execute { $0.push() }
        return result
    }
}

extension DocumentTransaction {
    /// The entry of an item that is there.
    func requireEntry(_ id: DocumentID) throws -> DocumentEntry {
        guard let entry = try fixedEntry(id) ?? document(id).flatMap({ try entry($0) }) else {
            throw CloudError(.internalError, "What was changed is there.", details: ["item": "\(id)"])
        }
        return entry
    }

    /// - Throws: ``CloudError`` `.unknownItem`.
    func folder(at path: DocumentPath) throws -> DocumentID {
        guard let place = try place(path) else { throw DocumentDraft.noFolder(path) }
        guard place.isFolder else {
            throw CloudError(.unknownItem, "This is no folder.", details: ["path": path.text])
        }
        return place.id
    }

    /// Bytes of the contents of all that was deleted in one go.
    func bytes(of deleted: DeletedDocuments) throws -> UInt64 {
        var bytes: UInt64 = 0
        for entry in deleted.items {
            bytes = bytes.addingClamped(entry.size)
            guard entry.kind == .folder else { continue }
            for (item, _) in try descendants(of: entry.id, at: DocumentPath(names: [])) {
                bytes = bytes.addingClamped(item.wire.content.length)
            }
        }
        return bytes
    }

    /// What lies in the trash, the newest first. What the server has not heard of yet is the newest.
    func deleted() throws -> [DeletedDocuments] {
        let trashed = try trashed()
        let devices = Dictionary(trashed.map { ($0.wire.trash.batch, $0.wire.trash.deviceID) }) { first, _ in first }
        let targets = Dictionary(trashed.map { ($0.wire.trash.batch, $0.wire.trash.movedTo) }) { first, _ in first }
        let items = try trashed.compactMap { try entry($0) }
        let batches = Dictionary(grouping: items) { $0.trashBatch ?? $0.id }
        // Of two that the server has not heard of the one is newer that waits behind the other.
        let turns = try batches.mapValues { items in
            try items.compactMap { try waitingPositions(of: $0.id)?.upperBound }.max() ?? 0
        }
        return batches.map { batch, items in
            let target = targets[batch.wire] ?? ""
            return DeletedDocuments(
                batch: batch, trashed: items.compactMap(\.trashed).max(), movedTo: target.isEmpty ? nil : target,
                items: items, device: devices[batch.wire].flatMap { $0.isEmpty ? nil : DeviceID($0) })
        }.sorted { left, right in
            guard let first = left.trashed else {
                return right.trashed != nil || turns[left.batch] ?? 0 > turns[right.batch] ?? 0
            }
            guard let second = right.trashed else { return false }
            return (second, left.batch) < (first, right.batch)
        }
    }
}
