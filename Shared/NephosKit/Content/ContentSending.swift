internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosWire

/// A container of contents of a service, as an app uses it.
struct ContentPlace: Hashable, Sendable {
    var service: ServiceName
    var app: AppID
    /// What it is called where its nodes and chunks are asked about.
    var container: String

    static func documents(_ container: String, app: AppID) -> ContentPlace {
        ContentPlace(service: .documents, app: app, container: container)
    }

    static func records(_ container: String, app: AppID) -> ContentPlace {
        ContentPlace(service: .records, app: app, container: container)
    }

    /// What a ticket to fetch chunks is for: one of the documents service is for all containers of an app.
    var ofTicket: ContentPlace { service == .documents ? .documents("", app: app) : self }
}

/// A content that a request needs and that is not stored there yet.
struct WaitingContent {
    /// What its file is called.
    var version: DocumentID
    var length: UInt64
    /// Empty where nobody here knows them yet.
    var chunks: [CutChunk]
    /// Nil: its bytes are here.
    var source: ContentSource?
    /// The container that is to have it.
    var container: String
}

/// Where a content is taken from of which nothing is here.
struct ContentSource {
    /// Another container of the account.
    var container: String
    var root: ChunkID
    var depth: UInt32
}

/// A request that was never sent and has to wait for its contents.
struct UnstoredRequest {
    var position: Int64
    var attempts: Int
    var nextAttempt: Timestamp
}

/// What a request has for its contents.
struct ContentRequest {
    /// The container that its upload is for.
    var container: String
    /// The upload that has stored what was missing; empty: none.
    var transferID = Data()
    /// Manifest nodes that may be missing, children first.
    var nodes: [Data] = []
    /// Another container, which has some of the chunks; empty: none.
    var sourceContainer = ""

    /// Names the upload that has, or will have, the chunks of an operation's contents.
    func transfer(of operation: OutboxOperation) -> Data {
        transferID.isEmpty ? Data(operation.id.bytes) : transferID
    }
}

/// A model whose requests bring contents: what differs from one service to another of how those are stored before the
/// requests are sent. All else is the same (``ContentUploads``).
///
/// What gets a ``ScopeTransaction`` runs inside one.
protocol ContentSending: ScopeModel {
    var uploads: ContentUploads { get }
    /// Requests that have to wait, the oldest first, but for those that are paused. It is asked for each time that
    /// something is sent.
    func unstored(in rows: ScopeTransaction) throws -> [UnstoredRequest]
    /// Bytes of the contents that a request has to wait for and that are here.
    func unstoredBytes(at position: Int64, in rows: ScopeTransaction) throws -> UInt64
    /// The positions of requests that somebody has paused.
    func pausedPositions(in rows: ScopeTransaction) throws -> Set<Int64>
    func waitingContents(at position: Int64, in rows: ScopeTransaction) throws -> [WaitingContent]
    /// What the operation has for its contents.
    func contentRequest(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> ContentRequest
    /// Keeps that with the operation, which is saved then.
    func keep(_ request: ContentRequest, with operation: inout OutboxOperation, in rows: ScopeTransaction) throws
    /// What a content consists of is known by now.
    func setChunks(_ chunks: [CutChunk], of version: DocumentID, in rows: ScopeTransaction) throws
    /// So much of what a request needs is stored.
    func setPercent(_ percent: Int, at position: Int64, in rows: ScopeTransaction) throws
    /// The contents that a request needs are stored.
    func markStored(at position: Int64, in rows: ScopeTransaction) throws
    /// A content is not in the home any more as it was put.
    func forgetContent(_ version: DocumentID, in rows: ScopeTransaction) throws
    /// Says in the details of why an operation fails which part of it rests on the content.
    func blame(_ version: DocumentID, of operation: OutboxOperation, for error: inout CloudError)
    /// Whether a request may be for several containers of which somebody may change some: the service says what it
    /// refuses when it gets the request.
    var isRefusedByContainer: Bool { get }
    /// Whether requests have room for nodes; else all go ahead.
    var requestsTakeNodes: Bool { get }
    /// Stores nodes ahead of their request.
    func storeAhead(_ request: ContentRequest, _ completion: @escaping (Result<Void, CloudError>) -> Void)
    /// Says to other devices that contents are on their way.
    ///
    /// - Returns: Whether there is something to say.
    func announce(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> Bool
}

extension ContentSending {
    var isRefusedByContainer: Bool { false }
    var requestsTakeNodes: Bool { true }
    func pausedPositions(in rows: ScopeTransaction) throws -> Set<Int64> { [] }
    func setChunks(_ chunks: [CutChunk], of version: DocumentID, in rows: ScopeTransaction) throws {}
    func announce(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> Bool { false }
}

extension ScopeModel {
    var driver: ScopeDriver? { engine.scopes.first { $0.model === self } }
}
