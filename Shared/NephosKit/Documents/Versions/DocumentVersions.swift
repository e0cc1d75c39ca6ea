public import Foundation
public import NephosCore
internal import NephosWire

/// The versions of files' contents (`NSFileVersion`), as ``UbiquityContainer/versions`` has them.
///
/// The server keeps them for the container's ``ContainerDefinition/versionDays``. Restoring one sends no content: the
/// server has it. Those that are in conflict are among them; ``DocumentConflicts`` decides which of those is current.
public struct DocumentVersions: Sendable {
    let handle: ContainerHandle

    /// The versions of a file's content that the server keeps, newest first. Asks the server.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - timeout: How long to wait for the server's answer.
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such file, or the server has not got it yet
    ///   (``SyncedStore/waitUntilSent(timeout:isImpatient:)``); else what keeps the server from answering.
    public func list(
        of path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [DocumentVersion] {
        try await list(of: handle.item(at: path), timeout)
    }

    func list(of item: HeldDocument, _ timeout: Duration) async throws(CloudError) -> [DocumentVersion] {
        var request = WireListVersions()
        request.container = handle.id
        request.item = item.id.wire
        let reply = try await handle.call(request, as: WireListVersionsReply.self, timeout: timeout)
        return reply.versions.compactMap { DocumentVersion($0, of: item.wire) }
    }

    /// One of a file's versions. Asks the server only for a former one.
    ///
    /// - Throws: ``CloudError`` `.unknownItem` when the file has no such version, or it is not kept any more.
    package func version(
        _ version: DocumentID, of path: some DocumentAddressing, timeout: Duration
    ) async throws(CloudError) -> DocumentVersion {
        let (item, content) = try await handle.reader.content(at: path, version, timeout)
        guard let found = DocumentVersion(content, of: item.wire) else { throw ContentReading.damaged }
        return found
    }

    /// Keeps bytes as a further version of a file (`NSFileVersion.addOfItem(at:withContentsOf:)`), which does not become
    /// current. Bytes that the file has already make no version. Needs no network: they are sent when they can be.
    ///
    /// - Returns: Names the version, once the server has it.
    /// - Throws: ``CloudError`` `.invalidArguments` for a folder or a link; else as
    ///   ``UbiquityContainer/put(_:at:makesFolders:conditions:)-(Data,_,_,_)`` does.
    @discardableResult
    public func add(_ data: Data, of path: some DocumentAddressing) async throws(CloudError) -> DocumentID {
        let folder = try handle.contentFolder()
        let claim = try folder.claim()
        defer { withExtendedLifetime(claim) {} }
        let (id, now) = (handle.makeID(), handle.now)
        var staged: StagedContent?
        do {
            let content = try folder.stage(data, version: id, modified: now.nanoseconds)
            staged = content
            try folder.flush([content])
            try await handle.change { draft in
                let path = try draft.documents.path(path)
                let item = try draft.documents.item(at: path)
                guard item.wire.kind == .file else {
                    throw CloudError(
                        .invalidArguments, "Only files have further versions.", details: ["path": path.text])
                }
                try folder.require(content)
                draft.addVersion(content, of: item)
            }
            return id
        } catch {
            if let staged, staged.inline == nil { folder.remove(id) }
            throw LocalFailure.error(of: error, at: nil)
        }
    }

    /// Makes a former version of a file's content the current one again, as a new version. A conflict of the same bytes
    /// is resolved by that. Nothing is done if the file has those bytes.
    ///
    /// A content that another device has committed meanwhile stays: the two are a conflict then.
    ///
    /// - Parameters:
    ///   - version: Of ``list(of:timeout:)``.
    ///   - path: The item's path in the container.
    ///   - timeout: How long the server may take to say what the version was.
    /// - Throws: ``CloudError`` `.unknownItem` when the file has no such version, or it is not kept any more; else what
    ///   keeps the server from answering, or as ``DocumentConflicts/resolve(_:keeping:keepsOthers:)`` does.
    @discardableResult
    public func restore(
        _ version: DocumentID, of path: some DocumentAddressing, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentEntry {
        let (item, content) = try await handle.reader.content(at: path, version, timeout)
        return try await handle.changeItem { draft in
            guard let there = try draft.documents.document(item.id) else {
                throw CloudError(.unknownItem, "The item was removed meanwhile.", details: ["item": "\(item.id)"])
            }
            draft.restore(content, of: there)
            return there.id
        }
    }

    // MARK: Removing

    /// Removes former versions of a file's content for good, on all devices (`NSFileVersion.remove()`), before their time.
    /// One that is not there any more is passed over. Needs no network; nothing brings them back.
    ///
    /// - Parameters:
    ///   - versions: Of ``list(of:timeout:)``.
    ///   - path: The item's path in the container.
    /// - Throws: ``CloudError`` `.constraintViolation` when one is current here, or in conflict (put another content, or
    ///   resolve it first); `.invalidArguments` for a folder; else as
    ///   ``UbiquityContainer/makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func remove(
        _ versions: [DocumentID], of path: some DocumentAddressing
    ) async throws(CloudError) -> DocumentEntry {
        try await handle.changeItem { draft in
            let item = try draft.itemWithVersions(at: path)
            let used = ([item.wire.content] + item.wire.conflicts).map(\.version)
            for version in versions where used.contains(version.wire) {
                throw CloudError(
                    .constraintViolation,
                    "The version is the current one, or in conflict. Replace or resolve it first.",
                    details: ["version": version.description])
            }
            draft.removeVersions(versions, of: item)
            return item.id
        }
    }

    /// Removes all versions of a file's content for good (`NSFileVersion.removeOtherVersionsOfItem(at:)`) but the one that
    /// this device has, those in conflict, and any that is committed later. Needs no network.
    ///
    /// - Throws: ``CloudError`` as ``remove(_:of:)`` does.
    @discardableResult
    public func removeOthers(of path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry {
        try await handle.changeItem { draft in
            let item = try draft.itemWithVersions(at: path)
            draft.removeOtherVersions(of: item)
            return item.id
        }
    }

    /// The same for each item of the container, those in the trash among them.
    ///
    /// In steps of some thousands of items, of which each stays done. Where too much waits to be sent for the next one, it
    /// waits until there is room, for as long as something is sent.
    ///
    /// - Parameter patience: How long nothing may be sent then.
    /// - Returns: How many items have a content, and may have had other versions.
    /// - Throws: ``CloudError`` `.serviceBusy` when too much waits to be sent, and nothing is sent; else as
    ///   ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func removeOthers(patience: Duration = .seconds(30)) async throws(CloudError) -> Int {
        try await removeOthers(stepMax: 20_000, pendingMax: ContainerHandle.pendingMax, patience: patience)
    }

    /// - Parameters:
    ///   - stepMax: Items of one step.
    ///   - pendingMax: Requests that may wait before it waits itself.
    func removeOthers(stepMax: Int, pendingMax: Int, patience: Duration) async throws(CloudError) -> Int {
        let items = try handle.read { documents in
            var items: [DocumentID] = []
            try documents.eachItem { if $0.wire.hasContent { items.append($0.id) } }
            return items
        }
        var left = items[...]
        var count = 0
        while !left.isEmpty {
            try await waitForRoom(below: pendingMax, patience)
            count += try await handle.change { draft in
                // Some may have gone since.
                let found = try left.prefix(stepMax).compactMap { try draft.documents.document($0) }
                    .filter(\.wire.hasContent)
                for item in found { draft.removeOtherVersions(of: item) }
                return found.count
            }
            left = left.dropFirst(stepMax)
        }
        return count
    }

    /// Waits until fewer requests wait than there may be, with room for a step.
    private func waitForRoom(below pendingMax: Int, _ patience: Duration) async throws(CloudError) {
        let most = pendingMax - pendingMax / 10
        guard try handle.read({ try $0.rows.operationCount() }) > most else { return }
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: ContainerOutbox.Mark, failure: CloudError)? in
            guard try await handle.outbox.failureToSend(within: .milliseconds(200)) != nil,
                try handle.read({ try $0.rows.operationCount() }) > most
            else { return nil }
            return (
                try await handle.outbox.mark(&pacings).mark,
                CloudError(
                    .serviceBusy, "Too many changes wait to be sent. Connect, and try again.",
                    details: ["pending_max": "\(pendingMax)"])
            )
        }
    }
}
