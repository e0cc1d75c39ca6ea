import Foundation
import NephosCore
import NephosWire

/// Rejected changes that were sent again so far.
struct RetriedChanges {
    /// New ids of items whose creation was rejected.
    fileprivate var ids: [Data: DocumentID] = [:]
    /// Versions that this device made: the next content of their item is made from them.
    fileprivate var versions: Set<Data> = []
}

extension DocumentDraft {
    /// Adds a rejected content, or a rejected folder, again. A content of an item that exists takes the place of the one
    /// that this device wrote before it, or of the one it was made from. Otherwise it creates the item again.
    ///
    /// - Parameter wasNamed: The user asked for this change. Without that, changes that the user dropped are left out, and
    ///   those of items that are in the trash or removed.
    /// - Returns: False: the change was left out, or cannot be sent again.
    mutating func retry(
        _ refusal: DocumentTransaction.Refusal, after retried: inout RetriedChanges, wasNamed: Bool
    ) throws -> Bool {
        guard let found = refusal.change, found.createsFolder || found.content != nil, !refusal.isConditional else {
            return false
        }
        if !wasNamed {
            guard refusal.error.code != .operationCancelled, try hasPlace(found, retried) else { return false }
        }
        guard let (rejected, staged) = try documents.takeRefused(refusal) else { return false }
        var change = rejected
        if let id = retried.ids[change.item] { change.item = id.wire }
        // The server knows an offered change by what it was before, and a further content by its name.
        if !change.offered, change.renditionName == nil {
            try renew(&change, &retried)
            if let content = change.content { retried.versions.insert(content.version) }
            if let old = DocumentID(bytes: rejected.item), let new = DocumentID(bytes: change.item), old != new {
                try documents.renameItem(ofLocalFilesOf: old, to: new)
            }
        }
        add(change, bringing: staged)
        return true
    }

    private mutating func renew(_ change: inout WireDocumentChange, _ retried: inout RetriedChanges) throws {
        let there = try DocumentID(bytes: change.item).flatMap { try documents.document($0) }
        switch change.kind {
        case .create(var create) where create.kind == .folder:
            // Its id stays: other rejected changes name it.
            create.placeVersion = makeID().wire
            change.kind = .create(create)
        case .create(var create):
            let item = try there ?? retriedItem(at: create, retried)
            if let item {
                change = replacing(item, by: create.content, retried)
            } else {
                // The server takes a second creation under one id for a repeat of the first.
                let id = makeID()
                retried.ids[change.item] = id
                create.placeVersion = makeID().wire
                change = WireDocumentChange(id, .create(create))
            }
        case .replace(let replace):
            if let there { change = replacing(there, by: replace.content, retried) }
        default: break
        }
    }

    private func replacing(
        _ item: HeldDocument, by content: WireDocumentContent, _ retried: RetriedChanges
    ) -> WireDocumentChange {
        var replace = WireReplaceContent()
        replace.content = content
        if retried.versions.contains(item.wire.content.version) { replace.content.base = item.wire.content.version }
        return WireDocumentChange(item.id, .replace(replace))
    }

    /// An item that was made at this place by an earlier one of the changes.
    private func retriedItem(at create: WireCreateItem, _ retried: RetriedChanges) throws -> HeldDocument? {
        try DocumentID(bytes: create.parent).flatMap { try documents.child(of: $0, named: create.name) }.flatMap {
            $0.wire.kind == create.kind && retried.versions.contains($0.wire.content.version) ? $0 : nil
        }
    }

    /// The item, or the folder that it is created in, is there and not in the trash.
    private func hasPlace(_ change: WireDocumentChange, _ retried: RetriedChanges) throws -> Bool {
        var item = retried.ids[change.item] ?? DocumentID(bytes: change.item)
        if case .create(let create)? = change.kind, try item.flatMap({ try documents.document($0) }) == nil {
            item = DocumentID(bytes: create.parent)
        }
        guard let item else { return false }
        if item.isFixed { return true }
        guard let held = try documents.document(item), let entry = try documents.entry(held) else { return false }
        return !entry.isTrashed
    }
}
