internal import Foundation
internal import NephosCore
internal import NephosWire

/// The result of a copy.
public struct DocumentCopy: Hashable, Sendable {
    /// The copy.
    public var item: DocumentEntry
    /// Number of items that were made, with those in folders.
    public var itemCount: Int
    /// Number of steps in which the server, and so other devices, get them: more than one for more than some hundreds
    /// of items.
    public var stepCount: Int

    /// Maximum number of items of one copy.
    public static let itemsMax = 100_000
}

extension DocumentCopy {
    /// See ``UbiquityContainer/copy(_:to:replaces:)``.
    init(
        of source: some DocumentAddressing, to target: some DocumentAddressing, replaces: Bool,
        in handle: ContainerHandle
    ) async throws(CloudError) {
        self = try await handle.change { draft in
            let item = try draft.documents.item(at: draft.documents.path(source))
            let id = try draft.copy(item, to: draft.documents.path(target), replaces: replaces)
            return (id: id, count: draft.itemCount, steps: try draft.requests(container: "").count)
        } reading: { documents, made in
            DocumentCopy(
                item: try documents.requireEntry(made.id), itemCount: max(1, made.count), stepCount: max(1, made.steps))
        }
    }
}

extension DocumentDraft {
    /// - Parameters:
    ///   - source: The container that it is in; nil: this one.
    ///   - lending: Where a content of another container comes from.
    /// - Returns: The copy's id.
    mutating func copy(
        _ item: HeldDocument, from source: DocumentTransaction? = nil, to target: DocumentPath, replaces: Bool,
        lending: (WireDocumentContent) throws -> StagedContent? = { _ in nil }
    ) throws -> DocumentID {
        var target = target
        if try documents.place(target)?.isFolder == true { target = target.appending(item.wire.name) }
        guard let parent = target.parent else {
            throw CloudError(.invalidArguments, "An item needs a name.", details: ["path": target.text])
        }
        try target.requireSynced()
        let folder = try documents.folder(at: parent)
        if let there = try documents.place(target) {
            guard replaces, case .item(let other) = there, other.id != item.id, other.wire.kind == item.wire.kind,
                !other.isFolder
            else {
                throw CloudError(
                    .alreadyExists, "Something has this name already.", details: ["path": target.text])
            }
            let content = item.wire.content
            let isSame = content.hasBytes(of: other.wire.content)
            let version = replace(other, byBytesOf: content, isSame ? nil : try lending(content))
            setExecutable(item.wire.attributes.executable, of: other)
            try copyRenditions(of: item, to: other, version, lending)
            return other.id
        }
        try documents.requireRoom(for: item, in: folder, at: target, from: source)
        // Read before anything is made.
        let inside = item.isFolder ? try (source ?? documents).descendants(of: item.id, at: target) : []
        guard inside.count < DocumentCopy.itemsMax else {
            throw CloudError(
                .limitExceeded, "The folder has too many items for one copy. Copy what is in it one by one.",
                details: ["maximum": "\(DocumentCopy.itemsMax)"])
        }
        let copy = try self.copy(item, at: target, in: folder, lending)
        var copies = [item.id: copy]
        for (item, path) in inside {
            // A folder comes before what is in it.
            guard let folder = item.parent.flatMap({ copies[$0] }) else { continue }
            copies[item.id] = try self.copy(item, at: path, in: folder, lending)
        }
        return copy
    }

    private mutating func copy(
        _ item: HeldDocument, at path: DocumentPath, in folder: DocumentID,
        _ lending: (WireDocumentContent) throws -> StagedContent?
    ) throws -> DocumentID {
        let made = try copy(item, content: item.wire.content, lending(item.wire.content), at: path, in: folder)
        try addRenditions(of: item, to: made.item, made.version, lending)
        return made.item
    }

    private mutating func copyRenditions(
        of item: HeldDocument, to other: HeldDocument, _ version: Data,
        _ lending: (WireDocumentContent) throws -> StagedContent?
    ) throws {
        let names = Set((item.wire.renditions + other.wire.renditions).map(\.name))
        guard names.count <= DocumentLimits.renditionsMax else {
            throw CloudError(
                .limitExceeded, "The file would have too many further contents. Take some of them away.",
                details: ["item": "\(other.id)", "maximum": "\(DocumentLimits.renditionsMax)"])
        }
        try addRenditions(of: item, to: other.id, version, lending, besides: other.wire.renditions)
    }

    /// - Parameters:
    ///   - version: What the copy has of the item's content: what was made from the one was made from the other.
    ///   - others: What the copy has already.
    private mutating func addRenditions(
        of item: HeldDocument, to copy: DocumentID, _ version: Data,
        _ lending: (WireDocumentContent) throws -> StagedContent?, besides others: [WireRendition] = []
    ) throws {
        for rendition in item.wire.renditions {
            let former = others.first { $0.name == rendition.name }
            var set = WireSetRendition()
            set.name = rendition.name
            set.ofVersion = rendition.ofVersion == item.wire.content.version ? version : rendition.ofVersion
            if let former, former.ofVersion == set.ofVersion, former.content.hasBytes(of: rendition.content) {
                continue
            }
            let staged = try lending(rendition.content)
            set.content = WireDocumentContent(bytesOf: rendition.content, version: staged?.version ?? makeID())
            add(WireDocumentChange(copy, .rendition(set)), bringing: staged)
        }
    }
}
