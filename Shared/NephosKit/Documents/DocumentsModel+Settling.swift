internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosWire

/// What a device was told of, by which something may be settled that was refused.
struct SettlingItems {
    /// Where there are more, all that was refused is looked at.
    private static let namesMax = 1000
    /// Nil: it may be anything.
    private(set) var names: Set<ItemName>? = []

    mutating func addAll() { names = nil }

    mutating func add(_ item: DocumentTransaction.Synced) {
        names?.insert(item.name)
        // What is in it has another path by that.
        if names?.count ?? 0 > Self.namesMax || item.item?.kind == .folder { names = nil }
    }
}

/// What was refused, and is not any more: another device has brought it, or somebody has put it again.
extension DocumentsModel {
    /// Takes out what the server has by now, as this device has been told.
    ///
    /// - Parameter changed: What it was told just now.
    func settleRefusals(by changed: SettlingItems, in documents: DocumentTransaction) throws {
        guard try documents.hasRefusals() else { return }
        for refusal in try documents.refusals(concernedBy: changed) where !refusal.brought.isEmpty {
            guard try documents.isSettled(refusal) else { continue }
            let item = try documents.synced(refusal.item)?.item
            try settle(refusal, isThere: item?.hasVersion(refusal.brought) ?? false, in: documents)
        }
    }

    /// The server has taken what was refused before, or a content that was put where nobody has the one any more that was.
    func settleRefusals(after request: WireApplyChanges, in documents: DocumentTransaction) throws {
        guard try documents.hasRefusals() else { return }
        for change in request.changes {
            guard let content = change.content, let id = DocumentID(bytes: change.item) else { continue }
            let path = try documents.pathText(of: id)
            for refusal in try documents.refusals(of: content.version, at: path) where !refusal.brought.isEmpty {
                let isSamePlace =
                    refusal.change?.renditionName == change.renditionName
                    && path?.hasSameBytes(as: refusal.path) ?? false
                let isReplaced = refusal.version == nil || refusal.change?.content?.hasBytes(of: content) ?? false
                if refusal.brought == content.version || isSamePlace && isReplaced {
                    try settle(refusal, isThere: refusal.brought == content.version, in: documents)
                }
            }
        }
    }

    /// - Parameter isThere: The server has this very version, and not just its bytes.
    private func settle(
        _ refusal: DocumentTransaction.Refusal, isThere: Bool, in documents: DocumentTransaction
    ) throws {
        try documents.removeRefusal(refusal)
        if !isThere { try documents.forgetVersion(ofLocalFilesOf: refusal) }
        guard let version = refusal.version else { return }
        engine.loop.schedule(after: .zero) { [weak self] in self?.sweep([version]) }
    }

    /// The server has the content although it was refused from here: what is here of it stays as a copy, as far as there is
    /// room.
    func letGo(of content: WireDocumentContent, of item: DocumentID, in documents: DocumentTransaction) throws {
        guard let version = DocumentID(bytes: content.version), try documents.holdsContent(content.version) else {
            return
        }
        let chunks = try documents.chunks(of: version)
        try documents.forgetContent(version)
        var unneeded = [version]
        if !chunks.isEmpty, try CutChunk.root(of: chunks).isRoot(of: content) {
            let former = try documents.addCopy(of: content, for: item, file: version, chunks: chunks, now: engine.now)
            let folder = try ContentFolder(home: engine.local.home)
            unneeded += try former + ContentCache.trim(documents.rows.database, folder)
        }
        // Of these it is looked again whether a row needs them.
        engine.loop.schedule(after: .zero) { [weak self] in self?.sweep(unneeded) }
    }
}

extension DocumentTransaction {
    /// Whether the server has these bytes as what they were to be of the item, as it has told.
    ///
    /// - Parameter rendition: The name of a further content; nil: the item's own.
    func isOnServer(_ content: WireDocumentContent, of item: DocumentID, as rendition: Data?) throws -> Bool {
        try synced(item.name)?.item?.hasContent(content, as: rendition) ?? false
    }

    /// Whether the server has by now what was refused: these bytes, as the item or where it was; or, of a content that is
    /// not here any more, the item that was to be made with it.
    fileprivate func isSettled(_ refusal: Refusal) throws -> Bool {
        guard let content = refusal.change?.content else { return false }
        if let item = try synced(refusal.item)?.item {
            if item.hasContent(content, as: refusal.change?.renditionName) { return true }
            if refusal.makes, refusal.version == nil, item.hasContent { return true }
        }
        guard refusal.change?.renditionName == nil, let path = try? DocumentPath(refusal.path),
            case .item(let there)? = try place(path)
        else { return false }
        return try synced(there.id.name)?.item?.hasContent(content, as: nil) ?? false
    }
}

extension WireDocumentItem {
    fileprivate func hasVersion(_ version: Data) -> Bool { ([content] + conflicts).contains { $0.version == version } }

    /// Whether this, or the same bytes, is the content that it is meant to be. What lost against another is here by its
    /// version alone: the same bytes put again were to be the item's own.
    fileprivate func hasContent(_ wanted: WireDocumentContent, as rendition: Data?) -> Bool {
        func isThis(_ other: WireDocumentContent) -> Bool {
            other.version == wanted.version || hasContent && other.hasBytes(of: wanted)
        }
        guard let rendition else { return isThis(content) || hasVersion(wanted.version) }
        return renditions.contains { $0.name == rendition && isThis($0.content) }
    }
}
