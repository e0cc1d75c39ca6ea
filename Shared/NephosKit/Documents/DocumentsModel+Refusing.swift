internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What becomes of changes that the service has refused.
extension DocumentsModel {
    func refuse(_ operation: OutboxOperation, _ error: CloudError, in rows: ScopeTransaction) throws -> RefusedPush {
        // What the next listing lacks is asked about anew.
        if try DocumentQuestion(operation.payload) != nil { return RefusedPush() }
        let documents = DocumentTransaction(rows)
        var request = try WireApplyChanges(serializedBytes: operation.payload)
        var error = error
        // Without its conditions no part of it must be sent again.
        if !request.conditions.isEmpty { error.details["conditions"] = "\(request.conditions.count)" }
        // What is sent again goes on with what it has stored.
        let transfer = request.transferID
        if error.details["chunk"] != nil, let pause = try sendsContentsAgain(&request, of: operation, in: documents) {
            return RefusedPush(rest: try again(operation, request, after: pause))
        }
        if let again = try pauseAgain(operation, request, error, in: documents) {
            return RefusedPush(rest: try self.again(operation, again))
        }
        if error.details["change"] == nil, request.changes.allSatisfy(\.announces) { return RefusedPush() }
        // What it took for granted is not so: nothing of it is meant any more.
        guard error.details["condition"] == nil else {
            closeUpload(transfer, of: name)
            return RefusedPush(news: try noteAll(request.changes, of: operation, error, in: documents))
        }
        var batch = RefusedBatch(request.changes, documents) { [engine] in engine.makeDocumentID() }
        guard try batch.amend(after: error) else {
            closeUpload(transfer, of: name)
            return RefusedPush(news: try noteAll(request.changes, of: operation, error, in: documents))
        }
        request.changes = batch.changes
        if let (old, new) = batch.renamed {
            try documents.renameItem(ofLocalFilesOf: old, to: new)
            try documents.revise(old, after: operation.position) {
                $0.item = new.wire
                return true
            }
        }
        var news: ChangeNotification?
        if !batch.leftOut.isEmpty {
            news = try note(batch.leftOut, of: operation, error, in: documents)
            try leaveOutNodes(of: &request, at: operation.position, in: documents)
        }
        try documents.setChanges(request.changes, at: operation.position)
        guard !request.changes.isEmpty else {
            try forgetRest(of: operation, in: documents)
            closeUpload(transfer, of: name)
            return RefusedPush(news: news)
        }
        return RefusedPush(news: news, rest: try again(operation, request))
    }

    /// The request is over: what of its contents was not kept nobody needs.
    private func forgetRest(of operation: OutboxOperation, in documents: DocumentTransaction) throws {
        let rest = try documents.contents(at: operation.position).map(\.version)
        guard !rest.isEmpty else { return }
        try documents.forgetContents(at: operation.position)
        // Of these it is looked again whether a row needs them.
        engine.loop.schedule(after: .zero) { [weak self] in self?.sweep(rest) }
    }

    /// Nodes that no content of the request names any more are refused.
    private func leaveOutNodes(
        of request: inout WireApplyChanges, at position: Int64, in documents: DocumentTransaction
    ) throws {
        let named = Set(try documents.contents(at: position).flatMap { try CutChunk.nodes(of: $0.chunks) })
        request.nodes.removeAll { !named.contains($0) }
    }

    /// The same under an id of its own: the one that was refused is done with.
    private func again(
        _ operation: OutboxOperation, _ request: WireApplyChanges, after pause: Duration = .zero
    ) throws -> OutboxOperation {
        var operation = operation
        operation.id = engine.makeOperationID()
        operation.state = .unsent
        operation.nextAttempt = pause > .zero ? engine.now.advanced(by: pause) : Timestamp(milliseconds: 0)
        operation.error = nil
        operation.payload = try request.serializedData()
        return operation
    }

    /// How often contents are sent that the service says it has, and then has not.
    private static let sendingsMax = 8

    /// The upload has ended before its contents were taken, or the service was brought back from an older copy: what is
    /// still here, and not there, is stored anew.
    ///
    /// - Returns: After which pause; nil: nothing is.
    private func sendsContentsAgain(
        _ request: inout WireApplyChanges, of operation: OutboxOperation, in documents: DocumentTransaction
    ) throws -> Duration? {
        let contents = try documents.contents(at: operation.position)
        guard !contents.isEmpty else { return nil }
        let sendings = try documents.countSending(at: operation.position)
        guard sendings <= Self.sendingsMax else { return nil }
        request.nodes = try contents.flatMap { $0.chunks.isEmpty ? [] : try CutChunk.nodes(of: $0.chunks) }
        try documents.markStored(at: operation.position, isStored: false)
        return engine.pause(of: Retry(attempts: sendings))
    }

    /// The same of all that an operation has.
    func noteAll(
        _ changes: [WireDocumentChange], of operation: OutboxOperation, _ error: CloudError,
        in documents: DocumentTransaction
    ) throws -> ChangeNotification? {
        let news = try note(changes, of: operation, error, in: documents)
        try documents.removeChanges(at: operation.position)
        return news
    }

    /// Keeps what a person has to hear of, with its bytes, until they have dismissed it, or the server has it all the same:
    /// after a restore, several devices bring one thing back.
    func note(
        _ changes: [WireDocumentChange], of operation: OutboxOperation, _ error: CloudError,
        in documents: DocumentTransaction
    ) throws -> ChangeNotification? {
        for move in try documents.takeFailedMoves(at: operation.position) {
            try documents.other(move.source).stay(move, leavingFor: name, because: error, now: engine.now)
        }
        // What is offered again has its bytes with it.
        let changes = try changes.filter { change in
            try change.content.map { try !documents.isSentElsewhere($0.version, than: operation.position) } ?? true
        }
        var hasNews = changes.isEmpty
        var noted: [WireDocumentChange] = []
        for change in changes {
            let content = change.content
            let id = DocumentID(bytes: change.item)
            if let content, let id, try documents.isOnServer(content, of: id, as: change.renditionName) {
                try withdraw(change, in: documents)
                try letGo(of: content, of: id, in: documents)
                continue
            }
            let path = try id.flatMap { try documents.pathText(of: $0) } ?? "?"
            let isHere = try content.map { try isKept($0, in: documents) } ?? false
            let isLost = error.details["chunk"] != nil && content != nil && !isHere
            let number = try documents.recordRefusal(
                of: id?.name ?? "", at: path, bringing: change, isHere: isHere,
                isLost ? Self.lostContent(error) : error,
                now: engine.now)
            if let content { try keep(content, at: -number, in: documents) }
            try withdraw(change, in: documents)
            noted.append(change)
            hasNews = true
        }
        // The last first: a content that was made from it is made from the one before it, and so on.
        for change in noted.reversed() { try rebase(change, operation, in: documents) }
        guard hasNews else { return nil }
        let names = changes.compactMap { DocumentID(bytes: $0.item)?.name }
        return ChangeNotification(reason: .quotaViolationChange, changedKeys: names, error: error)
    }

    /// Whether ``keep(_:at:in:)`` has the content stay here.
    private func isKept(_ content: WireDocumentContent, in documents: DocumentTransaction) throws -> Bool {
        guard DocumentID(bytes: content.version) != nil else { return false }
        return try content.root.isEmpty || documents.holdsContent(content.version)
    }

    /// It has offered what it knew of a file whose content it had not fetched. Another device's offer settles that.
    private static func lostContent(_ error: CloudError) -> CloudError {
        CloudError(
            .unknownItem,
            "The server has lost this content, and this device has no copy of it. A device that has one sends it by "
                + "itself, as soon as it is connected, and this is settled then. Discard it only if none has.",
            details: error.details)
    }

    /// What was made from a content that is refused is made from what that was made from; and of an item that could not
    /// be made, by the next content that it gets. To delete that takes nothing more.
    private func rebase(
        _ change: WireDocumentChange, _ operation: OutboxOperation, in documents: DocumentTransaction
    ) throws {
        var creation: WireCreateItem? = if case .create(let create)? = change.kind { create } else { nil }
        let content = change.content
        guard content != nil || creation != nil, let item = DocumentID(bytes: change.item) else { return }
        try documents.revise(item, after: operation.position) { later in
            switch later.kind {
            case .trash(var trash):
                if let content, trash.base == content.version { trash.base = content.base }
                later.kind = .trash(trash)
                return creation == nil
            case .restore, .remove: return creation == nil
            case .replace(var replace):
                if let content, replace.content.base == content.version { replace.content.base = content.base }
                later.kind = .replace(replace)
                guard var create = creation else { return true }
                create.content = replace.content
                create.content.base = Data()
                // The server takes a second creation with the same place for a repeat of the first.
                create.placeVersion = engine.makeDocumentID().wire
                later.kind = .create(create)
                creation = nil
                return true
            default: return true
            }
        }
    }

    /// A short content has waited in its request; now it is a file like the long ones.
    private func keep(_ content: WireDocumentContent, at position: Int64, in documents: DocumentTransaction) throws {
        guard let version = DocumentID(bytes: content.version) else { return }
        if try documents.holdsContent(content.version) {
            return try documents.moveContent(content.version, to: position)
        }
        guard content.root.isEmpty else { return try documents.forgetBorrowed(version) }
        let folder = try ContentFolder(home: engine.local.home)
        let claim = try folder.claim()
        // Until this transaction is over.
        engine.loop.schedule(after: .zero) { withExtendedLifetime(claim) {} }
        try folder.keep(content.inline, version: version)
        try documents.addContent(version, at: position, length: content.length, chunks: [])
    }

    func refusals(in rows: ScopeTransaction) throws -> [RefusedWrite] {
        let documents = DocumentTransaction(rows)
        let refusals = try documents.refusals()
        guard !refusals.isEmpty else { return [] }
        let (folder, options) = (try? ContentFolder(home: engine.local.home), options)
        return refusals.map { refusal in
            var write = RefusedWrite(key: ItemName(refusal.path), at: refusal.at, error: refusal.error)
            write.keptFile = refusal.version.flatMap { folder?.file($0) }
            if refusal.isConditional {
                // Only the user can decide to write it without the conditions.
                write.recovery = write.keptFile.map {
                    "nephos docs put\(options) " + ShellCommand.arguments([$0, refusal.path])
                }
            } else if write.keptFile != nil || refusal.makesFolder {
                write.recovery = "nephos docs retry\(options) " + ShellCommand.arguments([refusal.path])
            }
            return write
        }
    }

    func dismissRefusals(_ names: [ItemName]?, in rows: ScopeTransaction) throws -> [ItemName] {
        let documents = DocumentTransaction(rows)
        var dismissed: [ItemName] = []
        for refusal in try documents.refusals() where names?.contains(ItemName(refusal.path)) ?? true {
            try documents.removeRefusal(refusal)
            try documents.forgetVersion(ofLocalFilesOf: refusal)
            dismissed.append(ItemName(refusal.path))
            if let version = refusal.version {
                engine.loop.schedule(after: .zero) { [weak self] in self?.sweep([version]) }
            }
        }
        return dismissed
    }
}
