internal import Foundation
public import NephosCore
internal import NephosWire

/// Former versions that are removed before their time, to make room. It is kept on this device and sent when it can be;
/// nothing brings them back.
extension UbiquityContainer {
    /// Removes former versions of a file's content for good, on all devices. One that is not there any more is passed
    /// over.
    ///
    /// - Parameter versions: Of ``versions(of:timeout:)``.
    /// - Throws: ``CloudError`` `.constraintViolation`: one is current here, or in conflict: put another content, or
    ///   resolve it first; `.invalidArguments` for a folder; else as ``makeFolder(at:makesParents:)`` does.
    @discardableResult
    public func removeVersions(
        _ versions: [DocumentID], of path: some DocumentAddressing
    ) async throws(CloudError) -> DocumentEntry {
        try await change { draft in
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
        } reading: {
            try $0.requireEntry($1)
        }
    }

    /// Removes all versions of a file's content for good but the one that this device has, those in conflict, and any that
    /// is committed later.
    ///
    /// - Throws: ``CloudError`` as ``removeVersions(_:of:)`` does.
    @discardableResult
    public func removeOtherVersions(of path: some DocumentAddressing) async throws(CloudError) -> DocumentEntry {
        try await change { draft in
            let item = try draft.itemWithVersions(at: path)
            draft.removeOtherVersions(of: item)
            return item.id
        } reading: {
            try $0.requireEntry($1)
        }
    }

    /// The same for each item of the container, those in the trash among them.
    ///
    /// In steps, each of some thousands of items, of which what is done stays done. Where too much waits to be sent for
    /// the next one, it waits until there is room, for as long as something moves.
    ///
    /// - Parameter patience: How long nothing may move then.
    /// - Returns: How many items have a content, and may have had other versions.
    /// - Throws: ``CloudError`` `.serviceBusy`: too much waits to be sent, and nothing moves; else as ``item(at:)`` does.
    @discardableResult
    public func removeOtherVersions(patience: Duration = .seconds(30)) async throws(CloudError) -> Int {
        try await removeOtherVersions(stepMax: 20_000, pendingMax: Self.pendingMax, patience: patience)
    }

    /// - Parameters:
    ///   - stepMax: Items of one step.
    ///   - pendingMax: Requests that may wait before it waits itself.
    func removeOtherVersions(stepMax: Int, pendingMax: Int, patience: Duration) async throws(CloudError) -> Int {
        let items = try read { documents in
            var items: [DocumentID] = []
            try documents.eachItem { if $0.wire.hasContent { items.append($0.id) } }
            return items
        }
        var left = items[...]
        var count = 0
        while !left.isEmpty {
            try await waitForRoom(below: pendingMax, patience)
            count += try await change { draft in
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
        guard try read({ try $0.rows.operationCount() }) > most else { return }
        var pacings = 0
        try await waitWhileItMoves(within: patience) {
            () async throws(CloudError) -> (mark: SendingMark, failure: CloudError)? in
            guard try await failureToSend(within: .milliseconds(200)) != nil,
                try read({ try $0.rows.operationCount() }) > most
            else { return nil }
            return (
                try await sendingMark(&pacings).mark,
                CloudError(
                    .serviceBusy, "Too many changes wait to be sent. Connect, and try again.",
                    details: ["pending_max": "\(pendingMax)"])
            )
        }
    }
}

extension DocumentDraft {
    fileprivate func itemWithVersions(at path: some DocumentAddressing) throws -> HeldDocument {
        let path = try documents.path(path)
        let item = try documents.item(at: path)
        guard item.wire.hasContent else {
            throw CloudError(
                .invalidArguments, "A folder has no content, and so no versions.", details: ["path": path.text])
        }
        return item
    }

    mutating func removeVersions(_ versions: [DocumentID], of item: HeldDocument) {
        var left = versions[...]
        while !left.isEmpty {
            var remove = WireRemoveVersions()
            remove.versions = left.prefix(DocumentLimits.versionsMax).map(\.wire)
            left = left.dropFirst(DocumentLimits.versionsMax)
            add(WireDocumentChange(item.id, .versions(remove)))
        }
    }

    /// Those that were there before the one that is current here: nobody has to know them, and none that comes meanwhile
    /// is lost.
    mutating func removeOtherVersions(of item: HeldDocument) {
        var remove = WireRemoveVersions()
        remove.before = item.wire.content.version
        add(WireDocumentChange(item.id, .versions(remove)))
    }
}
