import Foundation
import NephosCore
import NephosWire

extension DocumentDraft {
    mutating func trash(_ item: HeldDocument, batch: DocumentID) throws {
        add(try documents.trashing(item, batch: batch))
    }
}

extension DocumentTransaction {
    /// What puts the item into the trash, unless somebody changes it, or something in it, before the server hears of
    /// that.
    ///
    /// - Throws: ``CloudError`` as ``requireNoneHeld(in:)`` does.
    func trashing(_ item: HeldDocument, batch: DocumentID) throws -> WireDocumentChange {
        try requireNoneHeld(in: item)
        var trash = WireTrashItem()
        trash.batch = batch.wire
        if !item.isFolder {
            trash.base = item.wire.content.version
        } else {
            let head = try rows.state().head
            let own = try waiting(in: item.id)
            // The server learns no more than it takes: then it does not ask.
            if head.sequence > 0, own.count <= DocumentLimits.seenMax {
                trash.seen = WireChangeToken(head)
                trash.changed = own.map { WireSeenItem($0) }
            }
        }
        return WireDocumentChange(item.id, .trash(trash))
    }

    /// What ends an item would wait behind what a pause keeps here, and nobody could resume that then.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation`: of a file that is paused, the item or in it, a change waits.
    func requireNoneHeld(in item: HeldDocument) throws {
        let pauses = try pauses()
        guard !pauses.isEmpty else { return }
        let unsent = item.isFolder ? try waiting(in: item.id) : item.isPending ? [item] : []
        guard let held = unsent.first(where: { pauses[$0.id] != nil }) else { return }
        throw CloudError(
            .constraintViolation,
            "The sync of the file is paused, and a change of it was not sent. Resume it, and delete or move it then.",
            details: ["path": try pathText(of: held.id) ?? "\(held.id)"])
    }

    /// What lies in the trash and was at the path.
    ///
    /// - Parameter batch: Nil: the newest that has it.
    /// - Returns: It, and whether it was deleted by itself.
    /// - Throws: ``CloudError`` `.unknownItem`.
    func trashed(at path: DocumentPath, in batch: DocumentID?) throws -> (item: HeldDocument, isWhole: Bool) {
        for deleted in try deleted() where batch == nil ? deleted.movedTo == nil : deleted.batch == batch {
            for entry in deleted.items {
                guard let item = try document(entry.id), let place = try self.path(of: item)?.path,
                    place.names.count <= path.names.count, path.names.starts(with: place.names)
                else { continue }
                if place == path { return (item, true) }
                let found = try path.names.dropFirst(place.names.count).reduce(item as HeldDocument?) { folder, name in
                    try folder.flatMap { try child(of: $0.id, named: name) }
                }
                if let found { return (found, false) }
            }
        }
        throw CloudError(
            .unknownItem, "Nothing that was there lies in the trash. See: nephos docs trash",
            details: ["path": path.text])
    }

    /// - Parameter batch: Nil: the newest.
    /// - Throws: ``CloudError`` `.unknownItem`.
    func batch(_ batch: DocumentID?) throws -> [HeldDocument] {
        // What was moved to another container is not missing anywhere.
        guard let batch = try batch ?? deleted().first(where: { $0.movedTo == nil })?.batch else {
            throw CloudError(.unknownItem, "Nothing that was deleted lies in the trash.")
        }
        let items = try trashed(batch: batch)
        guard !items.isEmpty else {
            throw CloudError(
                .unknownItem, "Nothing that was deleted so lies in the trash.", details: ["batch": "\(batch)"])
        }
        return items
    }

    /// Bytes of the contents of all that was deleted in one go.
    func bytes(of deleted: DeletedDocuments) throws -> UInt64 {
        var bytes: UInt64 = 0
        for entry in deleted.items {
            bytes = bytes.addingClamped(entry.size)
            guard entry.kind == .folder else { continue }
            for (item, _) in try descendants(of: entry.id, at: DocumentPath(names: [])) {
                bytes = bytes.addingClamped(item.wire.content.length)
            }
        }
        return bytes
    }

    /// What lies in the trash, the newest first. What the server has not heard of yet is the newest.
    func deleted() throws -> [DeletedDocuments] {
        let trashed = try trashed()
        let devices = Dictionary(trashed.map { ($0.wire.trash.batch, $0.wire.trash.deviceID) }) { first, _ in first }
        let targets = Dictionary(trashed.map { ($0.wire.trash.batch, $0.wire.trash.movedTo) }) { first, _ in first }
        let items = try trashed.compactMap { try entry($0) }
        let batches = Dictionary(grouping: items) { $0.trashBatch ?? $0.id }
        // Of two that the server has not heard of the one is newer that waits behind the other.
        let turns = try batches.mapValues { items in
            try items.compactMap { try waitingPositions(of: $0.id)?.upperBound }.max() ?? 0
        }
        return batches.map { batch, items in
            let target = targets[batch.wire] ?? ""
            return DeletedDocuments(
                batch: batch, trashed: items.compactMap(\.trashed).max(), movedTo: target.isEmpty ? nil : target,
                items: items, device: devices[batch.wire].flatMap { $0.isEmpty ? nil : DeviceID($0) })
        }.sorted { left, right in
            guard let first = left.trashed else {
                return right.trashed != nil || turns[left.batch] ?? 0 > turns[right.batch] ?? 0
            }
            guard let second = right.trashed else { return false }
            return (second, left.batch) < (first, right.batch)
        }
    }
}

extension WireSeenItem {
    fileprivate init(_ item: HeldDocument) {
        self.init()
        self.item = item.id.wire
        versions = ([item.wire.content] + item.wire.conflicts).map(\.version).filter { !$0.isEmpty }
    }
}
