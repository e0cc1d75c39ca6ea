internal import Foundation
internal import NephosCore
internal import NephosWire

/// Items that were in quarantine, and that a device makes again: their contents are kept a while longer than they.
extension Batch {
    /// The content as its row has it; without a row it is committed as any other.
    func returned(_ content: WireDocumentContent, of id: DocumentID) throws -> WireDocumentContent {
        guard try isKnown(content.version, of: id) else { return try commit(content, of: id) }
        let kept = try container.rows.version([UInt8](content.version), of: id)
        return try kept.flatMap { try container.open($0, of: id) } ?? signed(content, of: id) { .content($0) }
    }

    /// Those that the device knows, and the newest content that there was: the device may have an older one. It is not
    /// known which of the two was the item's.
    func returnedConflicts(
        _ request: WireCreateItem, beside content: WireDocumentContent, of id: DocumentID
    ) throws -> [WireDocumentContent] {
        let newest = try container.rows.versions(of: id, limit: 1).map { Data($0.id) }
        var conflicts: [WireDocumentContent] = []
        for version in newest + request.conflicts.prefix(DocumentLimits.conflictsMax) where version != content.version {
            guard conflicts.count < DocumentLimits.conflictsMax, !conflicts.contains(where: { $0.version == version }),
                let kept = try container.rows.version([UInt8](version), of: id),
                let conflict = try container.open(kept, of: id)
            else { continue }
            conflicts.append(conflict)
        }
        return conflicts
    }

    func returnedRenditions(_ request: WireCreateItem, of id: DocumentID) throws -> [WireRendition] {
        guard !request.renditions.isEmpty else { return [] }
        let kept = try container.rows.renditions(of: id, limit: DocumentLimits.renditionsMax)
        var returned: [WireRendition] = []
        for rendition in request.renditions.prefix(DocumentLimits.renditionsMax)
        where !returned.contains(where: { $0.name == rendition.name }) {
            guard DocumentLimits.isRenditionName(rendition.name),
                let row = kept.first(where: { $0.version == [UInt8](rendition.content.version) }),
                let content = try container.open(row, of: id)
            else { continue }
            var rendition = rendition
            rendition.content = content
            returned.append(rendition)
        }
        return returned.sorted { $0.name.lexicographicallyPrecedes($1.name) }
    }
}
