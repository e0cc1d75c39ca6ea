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

    func returnedConflicts(
        _ request: WireCreateItem, beside content: WireDocumentContent, of id: DocumentID
    ) throws -> [WireDocumentContent] {
        try request.conflicts.prefix(DocumentLimits.conflictsMax).compactMap { version in
            guard version != content.version else { return nil }
            return try container.rows.version([UInt8](version), of: id).flatMap { try container.open($0, of: id) }
        }
    }

    func returnedRenditions(_ request: WireCreateItem, of id: DocumentID) throws -> [WireRendition] {
        guard !request.renditions.isEmpty else { return [] }
        let kept = try container.rows.renditions(of: id, limit: DocumentLimits.renditionsMax)
        var returned: [WireRendition] = []
        for rendition in request.renditions where !returned.contains(where: { $0.name == rendition.name }) {
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
