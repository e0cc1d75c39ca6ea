internal import Foundation
public import NephosCore
internal import NephosWire
internal import SwiftProtobuf

/// What becomes of what was changed here while an item's sync was paused.
public enum ResumeBehavior: String, Sendable, CaseIterable {
    /// It is sent. If somebody else has changed the item meanwhile, the two are a conflict.
    case preserveLocalChanges
    /// It is sent, unless somebody else has changed the item meanwhile: then it stays paused.
    case afterUploadWithFailOnConflict
    /// It is not sent. Its contents stay in this device's home, listed among what was refused, until that is dismissed.
    case dropLocalChanges
}

/// Files whose sync is paused while an app works on them, as ``UbiquityContainer/pauses`` has them
/// (`FileManager.pauseSyncForUbiquitousItem(at:)`), and uploads that compare before they replace.
public struct DocumentPauses: Sendable {
    let handle: ContainerHandle

    /// Pauses the sync of a file: what is changed here is not sent, and what others change is not fetched, until it is
    /// resumed, however often this device is started meanwhile. Names and places go on being kept in step, and so is
    /// everything else. What is paused already stays so.
    ///
    /// - Throws: ``CloudError`` `.serviceBusy` when a change of it is on its way (try again); `.constraintViolation` when
    ///   it was changed together with others, under conditions, and that was not sent; `.invalidArguments` for a folder; `.unknownItem` also for what lies in the trash; `.limitExceeded` when 10,000 items are paused; else as
    ///   ``UbiquityContainer/item(at:)`` does.
    public func pause(_ path: some DocumentAddressing) async throws(CloudError) {
        let engine = handle.session.engine
        let ended: [Data] = try handle.session.local.write { database in
            let documents = try handle.documents(database)
            let item = try documents.file(at: path)
            if let pause = try documents.pause(of: item.id), pause.state == .paused { return [] }
            guard try documents.contentRequests(of: item.id).allSatisfy({ $0.state == .unsent }) else {
                throw Self.onItsWay
            }
            guard try documents.pauses().count < DocumentTransaction.pausesMax else {
                throw CloudError(
                    .limitExceeded, "Too many items are paused. Resume some of them.",
                    details: ["maximum": "\(DocumentTransaction.pausesMax)"])
            }
            let ended = try documents.isolate(item.id) { engine.stamp }
            try documents.setPause(
                DocumentTransaction.Pause(state: .paused), of: item.id, now: engine.stamp.now)
            return ended
        }
        let place = ContentPlace.documents(handle.id, app: handle.app)
        handle.scope.execute { driver in
            (driver.model as? DocumentsModel)?.pausesChanged()
            for transfer in ended { driver.engine.closeUpload(transfer, at: place) }
            driver.push()
        }
    }

    /// Resumes the sync of a file. What is not paused stays as it is.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - behavior: What becomes of what was changed here.
    ///   - timeout: How long nothing may move, where the server's answer decides.
    /// - Returns: The file; nil: it was on this device alone, and what was changed was dropped.
    /// - Throws: ``CloudError`` `.constraintViolation` when somebody else has changed the file, and it stays paused
    ///   (``ResumeBehavior/afterUploadWithFailOnConflict``: look at both, and resume it otherwise); `.deadlineExceeded`:
    ///   the server's answer has not come, and what it says counts when it does; else as ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func resume(
        _ path: some DocumentAddressing, with behavior: ResumeBehavior = .preserveLocalChanges,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentEntry? {
        let id = try handle.read { try $0.deletedPausedItem(at: path) ?? $0.file(at: path).id }
        switch behavior {
        case .preserveLocalChanges:
            try change(pauseOf: id) { documents, pause, now in
                if pause != nil { try documents.setPause(nil, of: id, now: now) }
            }
        case .afterUploadWithFailOnConflict:
            guard try handle.read({ try $0.pause(of: id) }) != nil else { break }
            _ = try await upload(id, failsOnConflict: true, as: .resuming, timeout)
        case .dropLocalChanges:
            let _: Bool = try await handle.scope.perform { driver, completion in
                completion(
                    Result { () throws(CloudError) in
                        guard let model = driver.model as? DocumentsModel else { return false }
                        try driver.write { try model.dropLocalChanges(of: id, in: $0) }
                        driver.perform([.tellNews, .changed])
                        return true
                    })
            }
        }
        look()
        return try handle.read { documents in try documents.document(id).flatMap { try documents.entry($0) } }
    }

    /// Has the server take what was changed of a file here, now, paused or not; it stays paused if it is.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - failsOnConflict: Whether the server refuses it if somebody else has changed the file: compare and swap. What is
    ///     paused waits on then; what is not is among what was refused. Else the two are a conflict.
    ///   - timeout: How long nothing may move.
    /// - Returns: The version that the server has of it; where nothing was changed here, that which it had.
    /// - Throws: ``CloudError`` `.constraintViolation` when somebody else has changed the file; `.serviceBusy` when a change
    ///   of it is on its way already, and can be compared no more (try again); `.deadlineExceeded`: the answer has not
    ///   come; else as ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func uploadLocalVersion(
        _ path: some DocumentAddressing, failsOnConflict: Bool = false, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentVersion {
        let id = try handle.read { try $0.file(at: path).id }
        return try await upload(id, failsOnConflict: failsOnConflict, as: .uploading, timeout)
    }

    /// Items whose sync is paused, by path.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    public func list() async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            try documents.pauses().keys.compactMap { id in
                try documents.document(id).flatMap { try documents.entry($0) }
            }.sorted { $0.path < $1.path }
        }
    }

    /// A file whose sync is paused and that somebody else has deleted: no path leads to it but the one that it had.
    ///
    /// - Returns: Nil: there is none.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    package func deletedItem(at path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry? {
        try handle.read { documents in
            try documents.deletedPausedItem(at: path).flatMap { try documents.document($0) }
                .flatMap { try documents.entry($0) }
        }
    }

    private static let onItsWay = CloudError(.serviceBusy, "A change of the item is on its way. Try again.")

    private func look() {
        handle.scope.execute { driver in
            (driver.model as? DocumentsModel)?.pausesChanged()
            driver.push()
        }
    }

    private func change(
        pauseOf id: DocumentID,
        _ body: (DocumentTransaction, DocumentTransaction.Pause?, Timestamp) throws -> Void
    ) throws(CloudError) {
        let now = handle.now
        try handle.session.local.write { database in
            let documents = try handle.documents(database)
            try body(documents, documents.pause(of: id), now)
        }
    }

    private func upload(
        _ id: DocumentID, failsOnConflict: Bool, as state: DocumentTransaction.PauseState, _ timeout: Duration
    ) async throws(CloudError) -> DocumentVersion {
        var last: DocumentID?
        try change(pauseOf: id) { documents, pause, now in
            let waiting = try documents.contentRequests(of: id)
            last = try waiting.last.flatMap { try documents.version(of: id, broughtBy: $0) }
            if failsOnConflict {
                guard waiting.first?.state ?? .unsent == .unsent else { throw Self.onItsWay }
                try documents.setFailsOnConflict(true, of: id, in: waiting)
            }
            guard pause != nil else { return }
            let isOver = waiting.isEmpty && state == .resuming
            try documents.setPause(
                isOver ? nil : waiting.isEmpty ? pause : DocumentTransaction.Pause(state: state), of: id, now: now)
        }
        look()
        if let last { try await waitUntilTaken(last, of: id, timeout) }
        guard
            let version = try handle.read({ documents -> DocumentVersion? in
                guard let item = try documents.synced(id.name)?.item else { return nil }
                let content = ([item.content] + item.conflicts).first { $0.version == last?.wire } ?? item.content
                return DocumentVersion(content, of: item)
            })
        else { throw CloudError(.unknownItem, "The server has no such item.", details: ["item": "\(id)"]) }
        return version
    }

    /// Waits until the server has said what it makes of a content.
    private func waitUntilTaken(
        _ version: DocumentID, of id: DocumentID, _ timeout: Duration
    ) async throws(CloudError) {
        var pacings = 0
        try await waitWhileItMoves(within: timeout) {
            () async throws(CloudError) -> (mark: ContainerOutbox.Mark, failure: CloudError)? in
            let (isWaiting, pause, refusal) = try handle.read { documents in
                (
                    try documents.contentRequests(of: id).contains { operation in
                        try documents.version(of: id, broughtBy: operation) == version
                    }, try documents.pause(of: id), try documents.refusals().last { $0.item == id.name }
                )
            }
            if isWaiting, pause?.state == .paused, let error = pause?.error { throw error }
            guard isWaiting else {
                if let refusal, refusal.version == version || refusal.error.code == .constraintViolation {
                    throw refusal.error
                }
                return nil
            }
            let late = CloudError(
                .deadlineExceeded, "The server has not answered in time. What it says counts when it does.")
            guard timeout > .zero else { throw late }
            // What was sent just now may be what was waited for, and is looked at again.
            if try await handle.outbox.failureToSend(within: min(timeout, .milliseconds(500))) == nil {
                do { try await Task.sleep(for: .milliseconds(20)) } catch { throw CloudError(wrapping: error) }
            }
            return (try await handle.outbox.mark(&pacings).mark, late)
        }
    }
}

extension DocumentTransaction {
    /// - Throws: ``CloudError`` `.unknownItem`, `.invalidArguments`.
    func file(at address: some DocumentAddressing) throws -> HeldDocument {
        let path = try path(address)
        let item = try item(at: path)
        guard !item.isFolder else {
            throw CloudError(
                .invalidArguments, "The sync of a folder cannot be paused. Pause the files in it.",
                details: ["path": path.text])
        }
        guard try self.path(of: item)?.isInTrash == false else {
            throw CloudError(.unknownItem, "The item lies in the trash.", details: ["path": path.text])
        }
        return item
    }

    /// What is paused and lies in the trash, where somebody else has put it, itself or with a folder: no path leads there
    /// but the one that it had, if nothing else has it by now.
    func deletedPausedItem(at address: some DocumentAddressing) throws -> DocumentID? {
        func deletedPath(_ id: DocumentID) throws -> DocumentPath? {
            guard let found = try document(id).flatMap({ try path(of: $0) }), found.isInTrash else { return nil }
            return found.path
        }
        switch address.documentAddress {
        case .item(let id): return try pause(of: id) != nil && deletedPath(id) != nil ? id : nil
        case .path(let text):
            let wanted = try DocumentPath(text)
            guard try !pauses().isEmpty, try place(wanted) == nil else { return nil }
            return try pauses().keys.sorted().first { try deletedPath($0) == wanted }
        }
    }

    /// The last version of the item that the request brings.
    func version(of item: DocumentID, broughtBy operation: OutboxOperation) throws -> DocumentID? {
        try WireApplyChanges(serializedBytes: operation.payload).changes
            .last { $0.item == item.wire && $0.content != nil }?.content.flatMap { DocumentID(bytes: $0.version) }
    }

    /// The first of several contents meets what others have done; those that follow rest on it.
    func setFailsOnConflict(_ fails: Bool, of item: DocumentID, in waiting: [OutboxOperation]) throws {
        guard let operation = waiting.first, operation.state == .unsent else { return }
        var request = try WireApplyChanges(serializedBytes: operation.payload)
        guard let index = request.changes.firstIndex(where: { $0.item == item.wire && $0.content != nil }),
            case .replace(var replace)? = request.changes[index].kind
        else { return }
        replace.failOnConflict = fails
        request.changes[index].kind = .replace(replace)
        _ = try rows.setPayload(request.serializedData(), at: operation.position)
        try setChanges(request.changes, at: operation.position)
    }
}
