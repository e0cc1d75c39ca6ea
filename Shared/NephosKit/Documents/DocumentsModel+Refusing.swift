internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What becomes of changes that the service has refused.
extension DocumentsModel {
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        let documents = DocumentTransaction(rows)
        var request = try WireApplyChanges(serializedBytes: operation.payload)
        if error.details["chunk"] != nil, try sendsContentsAgain(&request, of: operation, in: documents) {
            return RefusedPush(rest: try again(operation, request))
        }
        var batch = RefusedBatch(request.changes, documents) { [engine] in engine.makeDocumentID() }
        guard try batch.amend(after: error) else {
            return RefusedPush(
                news: try note(request.changes, of: operation, error, in: documents, at: operation.position))
        }
        request.changes = batch.changes
        var news: ChangeNotification?
        if !batch.leftOut.isEmpty {
            // Under a place of its own: the rest may be refused too.
            news = try note(batch.leftOut, of: operation, error, in: documents, at: try documents.nextRefusal())
        }
        try documents.setChanges(request.changes, at: operation.position)
        return RefusedPush(news: news, rest: request.changes.isEmpty ? nil : try again(operation, request))
    }

    /// The same under an id of its own: the one that was refused is done with.
    private func again(_ operation: OutboxOperation, _ request: WireApplyChanges) throws -> OutboxOperation {
        var operation = operation
        operation.id = engine.makeOperationID()
        operation.state = .unsent
        operation.nextAttempt = Timestamp(milliseconds: 0)
        operation.error = nil
        operation.payload = try request.serializedData()
        return operation
    }

    /// How often contents are sent that the service says it has, and then has not.
    private static let sendingsMax = 8

    /// The upload has ended before its contents were taken, or the service was brought back from an older copy: what is
    /// still here is stored anew.
    private func sendsContentsAgain(
        _ request: inout WireApplyChanges, of operation: OutboxOperation, in documents: DocumentTransaction
    ) throws -> Bool {
        guard operation.attempts < Self.sendingsMax else { return false }
        let contents = try documents.contents(at: operation.position)
        guard !contents.isEmpty else { return false }
        request.nodes = try contents.flatMap { try CutChunk.nodes(of: $0.chunks) }
        request.transferID = Data()
        try documents.markStored(at: operation.position, isStored: false)
        return true
    }

    /// Keeps what a person has to hear of, with its bytes, until they have dismissed it.
    private func note(
        _ changes: [WireDocumentChange], of operation: OutboxOperation, _ error: CloudError,
        in documents: DocumentTransaction, at position: Int64
    ) throws -> ChangeNotification {
        let refused = try changes.map { change in
            let content = change.content
            if let content { try keep(content, at: position, in: documents) }
            let held = try content.map { try documents.holdsContent($0.version) } ?? false
            return (
                path: try DocumentID(bytes: change.item).flatMap { try documents.pathText(of: $0) } ?? "?",
                version: held ? content?.version : nil
            )
        }
        try documents.recordRefusal(refused, of: position, error, now: engine.now)
        if position == operation.position { try documents.removeChanges(at: position) }
        let names = changes.compactMap { DocumentID(bytes: $0.item)?.name }
        return ChangeNotification(reason: .quotaViolationChange, changedKeys: names, error: error)
    }

    /// A short content has waited in its request; now it is a file like the long ones.
    private func keep(_ content: WireDocumentContent, at position: Int64, in documents: DocumentTransaction) throws {
        guard let version = DocumentID(bytes: content.version) else { return }
        if try documents.holdsContent(content.version) {
            return try documents.moveContent(content.version, to: position)
        }
        guard content.root.isEmpty else { return }
        let folder = try ContentFolder(home: engine.local.home)
        let claim = try folder.claim()
        // Until this transaction is over.
        engine.loop.schedule(after: .zero) { withExtendedLifetime(claim) {} }
        try folder.keep(content.inline, version: version)
        try documents.addContent(version, at: position, length: content.length, chunks: [])
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        try DocumentTransaction(rows).refusals().map { refusal in
            var write = RefusedWrite(key: ItemName(refusal.path), at: refusal.at, error: refusal.error)
            if let version = refusal.version, let folder = try? ContentFolder(home: engine.local.home) {
                write.recovery =
                    "nephos docs put\(options) "
                    + ShellCommand.arguments([folder.file(version), refusal.path])
            }
            return write
        }
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        let documents = DocumentTransaction(rows)
        var dismissed: [ItemName] = []
        for refusal in try documents.refusals() where names?.contains(ItemName(refusal.path)) ?? true {
            try documents.removeRefusal(refusal)
            dismissed.append(ItemName(refusal.path))
            if let version = refusal.version {
                engine.loop.schedule(after: .zero) { [weak self] in self?.sweep([version]) }
            }
        }
        return dismissed
    }
}
