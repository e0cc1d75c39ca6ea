internal import Foundation
package import NephosCore
internal import NephosWire

/// Changes of a container that return once the server has accepted them. A rejected change throws, and is not kept on
/// this device. For programs such as a web server, whose clients wait for the answer. Paths are by the bytes of names.
package struct AcceptedChanges: Sendable {
    let handle: ContainerHandle
    /// How long nothing may move while a change is sent; nil: it is not waited for, and is sent when it can be.
    package var patience: Duration? = .seconds(30)

    // MARK: Read

    /// The item at a path; nil: it is missing.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    package func entry(at path: DocumentPath) throws(CloudError) -> DocumentEntry? {
        try handle.read { documents in
            try documents.place(path).flatMap { try documents.entry($0, at: path) }
        }
    }

    /// The items directly in a folder, by name.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/children(of:)`` does.
    package func children(of path: DocumentPath) throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            try documents.children(of: documents.folder(at: path)).compactMap { item in
                try documents.entry(item, at: path.appending(item.wire.name))
            }
        }
    }

    /// An item's extended attributes, by the bytes of their names; none of a folder that every container has.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    package func attributes(of items: [DocumentID]) throws(CloudError) -> [DocumentID: [Data: Data]] {
        try handle.read { documents in
            var found: [DocumentID: [Data: Data]] = [:]
            for id in items {
                guard let item = try documents.document(id), !item.wire.attributes.extended.isEmpty else { continue }
                found[id] = DocumentAttributes(item.wire.attributes).extended
            }
            return found
        }
    }

    // MARK: Change

    /// Puts what a writer has, as a new file or a new version of the one that is there.
    ///
    /// - Parameters:
    ///   - modified: The content's date; nil: now.
    ///   - onlyIfFree: Whether nothing may have the name by then.
    ///   - conditions: As of ``UbiquityContainer/put(_:at:makesFolders:conditions:)-(Data,_,_,_)``.
    /// - Throws: ``CloudError`` as that does; `.alreadyExists`; what the server rejects it with; `.deadlineExceeded` when the server has not
    ///   answered: it may take the change later.
    @discardableResult
    package func put(
        _ writer: DocumentWriter, at path: DocumentPath, modified: DocumentDate? = nil, onlyIfFree: Bool = false,
        conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await writer.finish(modified: modified) { source, folder throws(CloudError) in
            var unchanged: [DocumentID] = []
            let entry = try await changeItem(conditions) { draft in
                try folder.require(source)
                if onlyIfFree { try draft.requireFree(path) }
                let put = try draft.put(StagedSource(path: path, content: source), .newest, makesFolders: false)
                unchanged = draft.unchanged
                return put.item
            }
            for version in unchanged { folder.remove(version) }
            return entry
        }
    }

    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; `.alreadyExists` for anything at the path.
    @discardableResult
    package func makeFolder(at path: DocumentPath) async throws(CloudError) -> DocumentEntry {
        try await changeItem { draft in
            try path.requireNames()
            try draft.requireFree(path)
            if let parent = path.parent { _ = try draft.folder(at: parent, makes: false) }
            return try draft.folder(at: path, makes: true)
        }
    }

    /// Moves or renames an item. A file at the target goes to the trash.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; `.alreadyExists` for a folder at the target.
    @discardableResult
    package func move(
        _ source: DocumentPath, to target: DocumentPath, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem(conditions) { draft in
            try target.requireNames()
            let item = try draft.documents.item(at: source)
            try draft.move(item, to: target, replaces: true)
            return item.id
        }
    }

    /// Gives a file the content of another, as a version, and takes the other away: so editors save that write a new file
    /// beside the old one and then rename it.
    ///
    /// - Parameter forGood: Whether the other does not go to the trash: it was made for this alone.
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; `.alreadyExists` for anything but a file at the
    ///   target.
    @discardableResult
    package func moveOver(
        _ source: DocumentPath, to target: DocumentPath, forGood: Bool, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem(conditions) { draft in
            let item = try draft.documents.item(at: source)
            let target = try draft.copy(item, to: target, replaces: true)
            let batch = draft.makeID()
            try draft.trash(item, batch: batch)
            if forGood {
                var remove = WireRemoveItem()
                remove.batch = batch.wire
                draft.add(WireDocumentChange(item.id, .remove(remove)))
            }
            return target
        }
    }

    /// Copies an item, and a folder with everything in it. A file at the target gets a new version. No content is sent.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; `.alreadyExists` for anything else at the target.
    @discardableResult
    package func copy(
        _ source: DocumentPath, to target: DocumentPath, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem(conditions) { draft in
            try target.requireNames()
            let item = try draft.documents.item(at: source)
            return try draft.copy(item, to: target, replaces: true)
        }
    }

    /// Copies a folder without what is in it.
    ///
    /// - Throws: ``CloudError`` as ``makeFolder(at:)`` does.
    @discardableResult
    package func copyFolderAlone(
        _ source: DocumentPath, to target: DocumentPath
    ) async throws(CloudError) -> DocumentEntry {
        let attributes = try handle.read { try $0.item(at: source).wire.attributes }
        let made = try await makeFolder(at: target)
        guard !attributes.extended.isEmpty else { return made }
        return try await setAttributes(
            attributes.extended.map { ($0.name, $0.value) }, of: target)
    }

    /// Moves an item to the trash.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does.
    package func trash(_ path: DocumentPath, conditions: [DocumentCondition] = []) async throws(CloudError) {
        try await change(conditions) { draft in
            let item = try draft.documents.item(at: path)
            try draft.trash(item, batch: draft.makeID())
        }
    }

    /// Takes an item out of the trash, back to where it was.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; `.unknownItem` when it is not in the trash.
    @discardableResult
    package func restore(_ id: DocumentID) async throws(CloudError) -> DocumentEntry {
        try await changeItem { draft in
            guard let item = try draft.documents.document(id), item.isTrashed else {
                throw CloudError(.unknownItem, "The item is not in the trash.", details: ["item": "\(id)"])
            }
            draft.add(WireDocumentChange(id, .restore(.renaming)))
            return id
        }
    }

    /// Sets extended attributes of an item; an empty value takes one away.
    ///
    /// - Throws: ``CloudError`` as ``put(_:at:modified:conditions:)`` does; as ``UbiquityContainer/setAttributes(_:of:conditions:)``
    ///   does.
    @discardableResult
    package func setAttributes(
        _ attributes: [(name: Data, value: Data)], of path: DocumentPath, conditions: [DocumentCondition] = []
    ) async throws(CloudError) -> DocumentEntry {
        try await changeItem(conditions) { draft in
            let item = try draft.documents.item(at: path)
            var set = WireSetAttributes()
            set.extended = attributes.map { name, value in
                var attribute = WireExtendedAttribute()
                (attribute.name, attribute.value) = (name, value)
                return attribute
            }
            try draft.setAttributes(set, of: item)
            return item.id
        }
    }

    // MARK: Waiting for the server

    func changeItem(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> DocumentID
    ) async throws(CloudError) -> DocumentEntry {
        let id = try await change(conditions, body)
        if let entry = try handle.entry(id) { return entry }
        throw CloudError(.unknownItem, "Another device has removed the item meanwhile.")
    }

    /// Makes a change and waits for the server's answer.
    func change<Value>(
        _ conditions: [DocumentCondition] = [], _ body: (inout DocumentDraft) throws -> Value
    ) async throws(CloudError) -> Value {
        let (value, sent) = try await handle.change(conditions) { draft in
            (try body(&draft), Set(draft.changes.compactMap { DocumentID(bytes: $0.change.item) }))
        } waiting: { documents, drafted, positions in
            (
                drafted.0,
                Sent(
                    positions: positions, items: drafted.1, after: try documents.rows.undecided.lastNumber())
            )
        }
        try await wait(for: sent)
        return value
    }

    /// A change that was handed over to be sent.
    private struct Sent {
        /// The requests' places among those that wait; nil: there was nothing to send.
        var positions: ClosedRange<Int64>?
        var items: Set<DocumentID>
        /// The newest of what was rejected before.
        var after: Int64
    }

    private func wait(for sent: Sent) async throws(CloudError) {
        guard let positions = sent.positions, let patience else { return }
        let changes = handle.session.local.changed.listen()
        let isSent = await withTaskGroup(of: Result<Bool, CloudError>.self) { group in
            group.addTask {
                do throws(CloudError) {
                    if try !isWaiting(positions) { return .success(true) }
                    for await _ in changes where try !isWaiting(positions) { return .success(true) }
                    return .success(false)
                } catch { return .failure(error) }
            }
            group.addTask { await watchStandstill(patience) }
            let first = await group.next() ?? .success(false)
            group.cancelAll()
            return first
        }
        guard try isSent.get() else {
            if Task.isCancelled { throw Self.cancelled }
            let problem = try? await handle.scope.status().problem
            throw CloudError(
                .deadlineExceeded, "The server has not answered. It may take the change later.",
                details: (problem ?? nil).map { ["reason": $0.message] } ?? [:])
        }
        try await takeRejected(sent)
    }

    private static let cancelled = CloudError(.operationCancelled, "Nobody waits for the change any more.")

    private func isWaiting(_ positions: ClosedRange<Int64>) throws(CloudError) -> Bool {
        try handle.read { documents in
            try positions.contains { try documents.rows.operation(at: $0) != nil }
        }
    }

    /// Asks the device's loop, too: it knows what makes waiting vain.
    ///
    /// - Returns: Whether everything is sent; false: nothing has moved for this time.
    private func watchStandstill(_ patience: Duration) async -> Result<Bool, CloudError> {
        var last: ContainerOutbox.Mark?
        var pacings = 0
        var moved = ContinuousClock.now
        while ContinuousClock.now - moved < patience, !Task.isCancelled {
            do throws(CloudError) {
                guard try await handle.outbox.failureToSend(within: min(patience, .milliseconds(500))) != nil else {
                    return .success(true)
                }
                let mark = try await handle.outbox.mark(&pacings).mark
                if mark != last { (last, moved) = (mark, .now) }
            } catch { return .failure(error) }
        }
        return .success(false)
    }

    /// - Throws: The error that the server rejected some of it with, which is forgotten here.
    private func takeRejected(_ sent: Sent) async throws(CloudError) {
        let (error, versions) = try handle.write { documents in
            let rejected = try sent.items.flatMap { try documents.rows.undecided.all(.rejected, of: $0.name) }
                .filter { $0.number > sent.after }.map(DocumentTransaction.Refusal.init)
            for refusal in rejected { try documents.removeRefusal(refusal) }
            return (rejected.first?.error, rejected.compactMap(\.version))
        }
        guard let error else { return }
        handle.scope.execute { $0.engine.removeContents(versions) }
        throw error
    }
}

extension UbiquityContainer {
    /// Changes that return once the server has taken them.
    package var accepted: AcceptedChanges { AcceptedChanges(handle: handle) }
}

extension DocumentDraft {
    /// - Throws: ``CloudError`` `.alreadyExists` for anything at the path.
    fileprivate func requireFree(_ path: DocumentPath) throws {
        guard try documents.place(path) == nil else {
            throw CloudError(.alreadyExists, "Something has this name already.", details: ["path": path.text])
        }
    }
}
