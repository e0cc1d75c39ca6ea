internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// How a container's requests bring contents.
extension DocumentsModel {
    func unstored(in rows: ScopeTransaction) throws -> [UnstoredRequest] {
        let paused = try pausedPositions(in: rows)
        return try DocumentTransaction(rows).unstored().filter { !paused.contains($0.position) }
    }

    func unstoredBytes(at position: Int64, in rows: ScopeTransaction) throws -> UInt64 {
        try DocumentTransaction(rows).unstoredBytes(at: position)
    }

    func pausedPositions(in rows: ScopeTransaction) throws -> Set<Int64> {
        Set(try DocumentTransaction(rows).pausedRequests().map(\.position))
    }

    func waitingContents(at position: Int64, in rows: ScopeTransaction) throws -> [WaitingContent] {
        try DocumentTransaction(rows).waitingContents(at: position)
    }

    func contentRequest(of operation: OutboxOperation, in rows: ScopeTransaction) throws -> ContentRequest {
        let request = try WireApplyChanges(serializedBytes: operation.payload)
        return ContentRequest(
            container: name, transferID: request.transferID, nodes: request.nodes,
            sourceContainer: request.sourceContainer)
    }

    func keep(_ request: ContentRequest, with operation: inout OutboxOperation, in rows: ScopeTransaction) throws {
        var wire = try WireApplyChanges(serializedBytes: operation.payload)
        (wire.transferID, wire.nodes) = (request.transferID, request.nodes)
        operation.payload = try wire.serializedData()
    }

    func setChunks(_ chunks: [CutChunk], of version: DocumentID, in rows: ScopeTransaction) throws {
        try DocumentTransaction(rows).setChunks(chunks, of: version)
    }

    func setPercent(_ percent: Int, at position: Int64, in rows: ScopeTransaction) throws {
        try DocumentTransaction(rows).setPercent(percent, at: position)
    }

    func markStored(at position: Int64, in rows: ScopeTransaction) throws {
        try DocumentTransaction(rows).markStored(at: position)
    }

    func forgetContent(_ version: DocumentID, in rows: ScopeTransaction) throws {
        try DocumentTransaction(rows).forgetContent(version)
    }

    func blame(_ version: DocumentID, of operation: OutboxOperation, for error: inout CloudError) {
        let request = try? WireApplyChanges(serializedBytes: operation.payload)
        if let index = request?.changes.firstIndex(where: { $0.content?.version == version.wire }) {
            error.details["change"] = "\(index)"
        }
    }

    func storeAhead(_ request: ContentRequest, _ completion: @escaping (Result<Void, CloudError>) -> Void) {
        var ahead = WireApplyChanges()
        ahead.container = request.container
        ahead.transferID = request.transferID
        ahead.sourceContainer = request.sourceContainer
        ahead.nodes = request.nodes
        engine.call(service, ahead, as: WireApplyChangesReply.self, app: app) { result, _ in
            completion(result.map { _ in })
        }
    }

    func announce(_ operation: OutboxOperation, in rows: ScopeTransaction) throws -> Bool {
        try announce(WireApplyChanges(serializedBytes: operation.payload), in: rows)
    }

    // MARK: What the service has lost

    func keptContents(after file: Data, in rows: ScopeTransaction) throws -> RowCursor {
        try DocumentTransaction(rows).keptContents(after: file)
    }

    /// - Parameter info: What the service says of the container, a `ContainerInfo`.
    func noteLoss(_ info: Data, in rows: ScopeTransaction) throws {
        guard let info = try? WireContainerInfo(serializedBytes: info) else { return }
        try uploads.note(ContentLoss(info), in: rows)
    }

    // MARK: Comparing

    func walk(
        _ scope: LocalScope, timeout: Duration, _ completion: @escaping (Result<ScopeWalk, CloudError>) -> Void
    ) -> Bool {
        ContainerWalk(self, scope, timeout: timeout, completion).start()
        return true
    }
}
