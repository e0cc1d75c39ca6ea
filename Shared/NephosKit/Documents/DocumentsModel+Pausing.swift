internal import Foundation
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What a pause keeps here, and what becomes of it.
extension DocumentsModel {
    /// Something was paused or resumed.
    func pausesChanged() {
        uploads.heedPauses()
        downloads.look()
    }

    /// So many requests besides those that are paused are looked at: while there are more, others wait in any case.
    private static let behindMax = 256

    /// How many requests a pause holds back, which nobody waits for.
    func heldByChoice(in rows: ScopeTransaction) throws -> Int {
        let paused = try DocumentTransaction(rows).pausedRequests().count
        guard paused > 0, try rows.operationCount() <= paused + Self.behindMax else { return 0 }
        return try preparations(among: rows.operations(), in: rows).values.count { $0.isByChoice }
    }

    /// What waits of the item's contents is not sent, and kept as what was refused is.
    func dropLocalChanges(of id: DocumentID, in rows: ScopeTransaction) throws {
        let documents = DocumentTransaction(rows)
        guard try documents.pause(of: id) != nil else { return }
        let error = CloudError(
            .operationCancelled, "It was dropped when the sync of the item was resumed. Its content is kept here.")
        var isMade = false
        for operation in try documents.contentRequests(of: id) {
            guard operation.state == .unsent else {
                throw CloudError(.serviceBusy, "A change of the item is on its way. Try again.")
            }
            let request = try WireApplyChanges(serializedBytes: operation.payload)
            isMade = isMade || request.changes.contains { $0.isCreation(of: id) }
            // It may have been begun, also by another process.
            let transfer = try contentRequest(of: operation, in: rows).transfer(of: operation)
            let news = try noteAll(
                request.changes.filter { $0.content != nil }, of: operation, error, in: documents)
            try rows.removeOperation(at: operation.position)
            closeUpload(transfer, of: name)
            guard var told = news else { continue }
            told.token = try rows.state().head
            try rows.tell(told)
        }
        // Nothing is left that the rest could be about.
        if isMade { try dropRest(of: id, in: documents) }
        try documents.setPause(nil, of: id, now: engine.now)
    }

    private func dropRest(of id: DocumentID, in documents: DocumentTransaction) throws {
        while let positions = try documents.waitingPositions(of: id) {
            let position = positions.lowerBound
            guard let operation = try documents.rows.operation(at: position), operation.state == .unsent else { return }
            var request = try WireApplyChanges(serializedBytes: operation.payload)
            request.changes.removeAll { $0.item == id.wire }
            _ = try documents.rows.setPayload(request.serializedData(), at: position)
            try documents.setChanges(request.changes, at: position)
            if request.changes.isEmpty { try documents.rows.removeOperation(at: position) }
        }
    }

    /// What of a paused item was to be taken, and conflicts, waits on.
    ///
    /// - Returns: Nil: it is none of that.
    func pauseAgain(
        _ operation: OutboxOperation, _ request: WireApplyChanges, _ error: CloudError,
        in documents: DocumentTransaction
    ) throws -> WireApplyChanges? {
        guard error.code == .constraintViolation, let change = request.changes.first(where: { $0.content != nil }),
            case .replace(let replace)? = change.kind, replace.failOnConflict, let id = DocumentID(bytes: change.item),
            let pause = try documents.pause(of: id), pause.state != .paused
        else { return nil }
        try documents.setPause(DocumentTransaction.Pause(state: .paused, error: error), of: id, now: engine.now)
        var request = request
        for index in request.changes.indices {
            guard case .replace(var replace)? = request.changes[index].kind else { continue }
            replace.failOnConflict = false
            request.changes[index].kind = .replace(replace)
        }
        try documents.setChanges(request.changes, at: operation.position)
        return request
    }

    /// The server has taken contents: what was to be sent in spite of its pause is resumed, or paused again.
    func heedPauses(of request: WireApplyChanges, in documents: DocumentTransaction) throws {
        guard try !documents.pauses().isEmpty else { return }
        for id in Set(request.changes.filter { $0.content != nil }.compactMap { DocumentID(bytes: $0.item) }) {
            guard let pause = try documents.pause(of: id), pause.state != .paused,
                try documents.contentRequests(of: id).isEmpty
            else { continue }
            try documents.setPause(
                pause.state == .resuming ? nil : DocumentTransaction.Pause(state: .paused), of: id, now: engine.now)
        }
    }
}

extension WireDocumentChange {
    fileprivate func isCreation(of id: DocumentID) -> Bool {
        if case .create? = kind { item == id.wire } else { false }
    }
}

extension Preparation {
    /// Whether somebody wanted it so.
    var isByChoice: Bool { self == .paused || self == .behindPaused }

    /// Whether somebody has to decide something first.
    var isUndecided: Bool { self == .conflicts || self == .refusals }
}

extension StoreStatus.Pending {
    /// Whether it waits because somebody has paused the sync of an item.
    package var isByChoice: Bool { Preparation(rawValue: reason)?.isByChoice ?? false }
}

extension RefusedWrite {
    /// Whether somebody has dropped it on this device; else the server refused it.
    package var isDropped: Bool { error.code == .operationCancelled }
}

extension ContainerStatus.Waiting {
    /// Whether it waits because somebody has paused the sync of an item.
    package var isByChoice: Bool { Preparation(rawValue: reason)?.isByChoice ?? false }
}
