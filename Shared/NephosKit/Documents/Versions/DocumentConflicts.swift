public import NephosCore

/// Files of which two devices have written the content at once, and changes that the server has rejected, as
/// ``UbiquityContainer/conflicts`` has them: both contents are kept until one is chosen.
///
/// None of it needs the network, and choosing sends no content: the server has it.
public struct DocumentConflicts: ConflictList {
    let handle: ContainerHandle

    /// The files that are in conflict, by path; none that lies in the trash.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does.
    public func list() async throws(CloudError) -> [DocumentEntry] {
        try handle.read { documents in
            var found: [DocumentEntry] = []
            try documents.eachItem { item in
                guard !item.wire.conflicts.isEmpty, let entry = try documents.entry(item), !entry.isTrashed else {
                    return
                }
                found.append(entry)
            }
            return found.sorted { ($0.path, $0.id) < ($1.path, $1.id) }
        }
    }

    /// The current version of a file, and after it the unresolved ones that lost to it
    /// (`NSFileVersion.unresolvedConflictVersionsOfItem(at:)`), the oldest first; of a folder none.
    ///
    /// - Throws: ``CloudError`` as ``UbiquityContainer/item(at:)`` does; `.unknownItem` when there is no such item.
    public func versions(of path: some DocumentAddressing) async throws(CloudError) -> [DocumentVersion] {
        let item = try handle.item(at: path).wire
        guard item.hasContent else { return [] }
        return ([item.content] + item.conflicts).compactMap { DocumentVersion($0, of: item) }
    }

    /// Decides which of a file's contents is the current one. The others stay among its
    /// ``DocumentVersions/list(of:timeout:)``.
    ///
    /// A content that another device has committed meanwhile is not lost by that: it and the one that is kept are a
    /// conflict then.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - version: One of ``versions(of:)``; nil: the current one.
    ///   - keepsOthers: Whether each of the others becomes a file of its own beside it, called
    ///     `name (DEVICE's conflicted copy 2026-01-31).txt`.
    /// - Returns: The file, and after it those that were made.
    /// - Throws: ``CloudError`` `.unknownItem` when there is no such file, conflict or version (another device may have
    ///   resolved it: list them again); `.serviceBusy` when too much waits to be sent; else as
    ///   ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func resolve(
        _ path: some DocumentAddressing, keeping version: DocumentID? = nil, keepsOthers: Bool = false
    ) async throws(CloudError) -> [DocumentEntry] {
        // Asked before anything is decided; without an answer only this device's own name is known.
        let devices = keepsOthers ? (try? await handle.session.devices(timeout: .seconds(2))) ?? [] : []
        var names = Dictionary(devices.map { ($0.id, $0.name) }) { first, _ in first }
        if let own = try handle.session.account, names[own.deviceID] == nil { names[own.deviceID] = own.deviceName }
        let known = names
        return try await handle.change { draft in
            let path = try draft.documents.path(path)
            let item = try draft.documents.item(at: path)
            return try draft.resolve(item, at: path, keeping: version, keepsOthers: keepsOthers, known)
        } reading: { documents, ids in
            try ids.map { try documents.requireEntry($0) }
        }
    }

    // MARK: Rejected changes

    /// Changes of this device that the server has rejected. What was written is kept until it is dismissed.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`; `.operationCancelled` when the session is closed.
    public func rejected() async throws(CloudError) -> [RefusedWrite] { try await handle.scope.status().refused }

    /// Dismisses rejected changes: they are not listed any more, and what they would have written is dropped. The items
    /// stay as they are.
    ///
    /// - Parameter names: Their ``RefusedWrite/key``s; nil: all of them.
    /// - Returns: Those that were dismissed.
    /// - Throws: ``CloudError`` `.storageFailure`.
    @discardableResult
    public func dismissRejected(_ names: [ItemName]? = nil) async throws(CloudError) -> [ItemName] {
        try await handle.scope.dismissRefused(names)
    }

    /// Sends rejected changes again. Several contents of one file become its versions, the newest last. If another device
    /// has changed the file meanwhile, both contents are a conflict. Only contents and folders are sent again. Other changes
    /// stay listed, and so do changes under conditions and contents that are not on this device.
    ///
    /// - Parameter names: Their ``RefusedWrite/key``s; nil: all but those that the user dropped, and those of items that are
    ///   in the trash or removed.
    /// - Returns: The names of those that are pending now.
    /// - Throws: ``CloudError`` `.serviceBusy` when too many changes are pending; else as
    ///   ``UbiquityContainer/item(at:)`` does.
    @discardableResult
    public func retryRejected(_ names: [ItemName]? = nil) async throws(CloudError) -> [ItemName] {
        try await retryRejected(wasNamed: names != nil) { names?.contains(ItemName($0.path)) ?? true }
    }

    @discardableResult
    func retryRejected(
        wasNamed: Bool, _ isWanted: (DocumentTransaction.Refusal) -> Bool
    ) async throws(CloudError) -> [ItemName] {
        var (retried, after): ([ItemName], RetriedChanges) = ([], RetriedChanges())
        let rejected = try handle.read { try $0.refusals() }.filter(isWanted)
        // A folder before the items in it, and each change in a request of its own: one that is rejected again does not
        // take the others with it.
        for refusal in DocumentTransaction.Refusal.inOrder(rejected) {
            let isRetried = try await handle.change { draft in
                try draft.retry(refusal, after: &after, wasNamed: wasNamed)
            }
            guard isRetried else { continue }
            let name = ItemName(refusal.path)
            if !retried.contains(name) { retried.append(name) }
            // The file of a short content is not needed any more: its request has the bytes.
            guard let version = refusal.version else { continue }
            handle.scope.execute { $0.engine.removeContents([version]) }
        }
        return retried
    }
}
