internal import GRDB
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// A container as one account uses it: the transactions of what this device has of it, and its calls of the server.
///
/// ``UbiquityContainer`` and the types beside it have one, and nothing else. Each use of it fails with `.notSignedIn`
/// once another account is signed in.
struct ContainerHandle: Sendable {
    /// Names it among all containers.
    let id: String
    /// As which app it is used.
    let app: AppID
    /// Whose it is.
    let account: AccountID
    let session: Session

    /// The container as any other thing that a device keeps in step.
    var scope: Scope {
        Scope(id: ScopeID(app: app, service: .documents, name: id), session: session, account: account)
    }
    /// By the server's clock, as far as it is known.
    var now: Timestamp { session.engine.stamp.now }

    /// A name that nothing has had before.
    func makeID() -> DocumentID { session.engine.makeDocumentID() }

    /// Where this device has contents.
    func contentFolder() throws(CloudError) -> ContentFolder { try ContentFolder(home: session.local.home) }

    /// Calls the documents service as the container's account.
    func call<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
        _ request: Request, as type: Response.Type, timeout: Duration
    ) async throws(CloudError) -> Response {
        try await session.call(.documents, request, as: type, app: app, timeout: timeout, account: account)
    }

    // MARK: What works on it

    var reader: DocumentReader { DocumentReader(handle: self) }
    var imports: DocumentImport { DocumentImport(handle: self) }
    var exports: DocumentExport { DocumentExport(handle: self) }
    var records: LocalFileRecords { LocalFileRecords(handle: self) }
    var packages: DocumentPackages { DocumentPackages(handle: self) }
    var lostContents: LostContents { LostContents(handle: self) }
    var outbox: ContainerOutbox { ContainerOutbox(handle: self) }

    // MARK: Transactions

    func read<Value>(_ body: (DocumentTransaction) throws -> Value) throws(CloudError) -> Value {
        try session.local.read { try body(try documents($0)) }
    }

    /// The item that the server may have too, and that can be changed.
    ///
    /// - Throws: ``CloudError`` `.unknownItem`; `.invalidArguments` for the folders that every container has.
    func item(at path: some DocumentAddressing) throws(CloudError) -> HeldDocument {
        try read { try $0.item(at: $0.path(path)) }
    }

    /// The entry of an item, wherever it is, also in the trash; nil: there is none.
    func entry(_ id: DocumentID) throws(CloudError) -> DocumentEntry? {
        try read { documents in
            try documents.fixedEntry(id) ?? documents.document(id).flatMap { try documents.entry($0) }
        }
    }

    /// Changes what only this device knows: nothing is sent.
    func write<Value>(_ body: (DocumentTransaction) throws -> Value) throws(CloudError) -> Value {
        try session.local.write { try body(try documents($0)) }
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
        documents.known.now = now
        return documents
    }

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
            try await SyncedScopes(scope).wait(for: .downloaded, timeout: .seconds(30), isImpatient: true)
        } catch let failure {
            guard [.deadlineExceeded, .networkUnavailable, .networkFailure].contains(failure.code) else {
                throw failure
            }
            error.details["reason"] = failure.details["reason"] ?? failure.message
            throw error
        }
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

    /// A draft of nothing, to look things up with.
    func draft(of documents: DocumentTransaction) -> DocumentDraft {
        DocumentDraft(documents, now: now, makeID: makeID)
    }

    /// Changes one item.
    func changeItem(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> DocumentID
    ) async throws(CloudError) -> DocumentEntry {
        try await change(conditions, body) { try $0.requireEntry($1) }
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
            var draft = draft(of: documents)
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
