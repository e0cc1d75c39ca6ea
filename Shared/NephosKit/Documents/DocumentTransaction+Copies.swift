import Foundation
import GRDB
import NephosCore
import NephosWire

/// Which copies of its contents a document has here, and whether it wants them (``ContentCache``).
extension DocumentTransaction {
    var copies: ContentCache { ContentCache(self) }

    /// Notes that a content is here, in a file of the home. What the item had before is of no use any more.
    ///
    /// - Returns: Files that nobody needs any more: this one, where the content was here already.
    func addCopy(
        of content: WireDocumentContent, for item: DocumentID, file: DocumentID, chunks: [CutChunk], now: Timestamp
    ) throws -> [DocumentID] {
        let held = try document(item)?.wire
        let isRendition = held?.isRendition(content) ?? false
        // What stands for an item in the rows of its further contents says nothing of where its own contents are.
        let holder = isRendition ? "\(item)/renditions" : item.description
        let contents =
            isRendition ? held?.renditions.map(\.content) ?? [] : held.map { [$0.content] + $0.conflicts } ?? []
        let (copies, kept) = (copies, contents.map(\.root) + [content.root])
        let former = try copies.roots(heldBy: holder, of: nil).filter { !kept.contains($0) }
        try copies.release(holder, besides: kept)
        for root in former { try copies.noteReplaced(root) }
        try copies.hold(content.root, by: holder, isNeeded: false)
        let unneeded = try copies.add(content, in: file, chunks, now: now)
        try touch(item.name)
        return [unneeded].compactMap { $0 }
    }

    /// Whether the item wants to have this content of it here.
    func wants(_ item: DocumentID, _ root: Data) throws -> Bool {
        guard try isWanted(item), let held = try document(item) else { return false }
        // Until the next one is here, most of its chunks may be in this one.
        return try ([held.wire.content] + held.wire.conflicts).contains { $0.root == root } || !isHere(held)
    }

    /// Notes that the item wants the copy of its content, if it does.
    func keepCopy(for item: HeldDocument) throws {
        if try isWanted(item.id) { try copies.hold(item.wire.content.root, by: item.id.description) }
    }

    /// See ``ContentCache/mayBeLastCopy()``.
    func mayBeLastCopy() throws -> Bool {
        if let isLast = known.isLastCopy { return isLast }
        let isLast = try copies.mayBeLastCopy()
        known.isLastCopy = isLast
        return isLast
    }

    /// Files of contents that are here whole, copies and those that wait, with their chunks: behind this one, in the order
    /// of the files.
    func keptContents(after file: Data) throws -> RowCursor {
        try Row.fetchCursor(
            cached(
                "SELECT file, chunks FROM content_copies "
                    + "WHERE account = ?1 AND service = 'documents' AND container = ?2 AND file > ?3 "
                    + "UNION ALL SELECT version, chunks FROM document_contents "
                    + "WHERE account = ?1 AND container = ?2 AND version > ?3 AND source IS NULL ORDER BY file"),
            arguments: arguments(file))
    }

    /// After an item has changed it is found out again whether it wants what is here of it; of everything, where that
    /// may be in it.
    ///
    /// - Parameter item: Nil: it was removed.
    func weighCopies(of name: ItemName, _ former: WireDocumentItem, now item: WireDocumentItem?) throws {
        let isSame =
            item.map {
                $0.parent == former.parent && $0.hasTrash == former.hasTrash && $0.content.root == former.content.root
            } ?? false
        guard !isSame else { return }
        try copies.weigh(heldBy: former.kind == .folder ? nil : name.rawValue)
    }
}

extension WireDocumentContent {
    /// Whether it comes with its item, and so is here whatever happens.
    var isInline: Bool { root.isEmpty }
}
