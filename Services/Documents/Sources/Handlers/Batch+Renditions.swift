internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosWire

/// Further contents of an item. The last one that was set stands, and nothing is kept of those before.
extension Batch {
    func setRendition(_ id: DocumentID, _ request: WireSetRendition) throws {
        var item = try self.item(id)
        guard item.hasContent else {
            throw CloudError(
                .invalidArguments, "A folder has no content, and so no further ones.", details: Self.details(id))
        }
        try RenditionRule.check(request, in: containerClass)
        let former = item.renditions.first { $0.name == request.name }
        // Its own, repeated.
        if request.hasContent, former?.content.version == request.content.version { return }
        guard request.hasContent || former != nil else { return }
        // Taken away it may be there too: that makes room.
        if request.hasContent, !isOffered { try checkLives(id, item) }
        item.renditions.removeAll { $0.name == request.name }
        if let former { replace(former.content, of: id) }
        if request.hasContent { try add(request, to: &item, id) }
        set(item, id)
    }

    private func add(_ request: WireSetRendition, to item: inout WireDocumentItem, _ id: DocumentID) throws {
        guard item.renditions.count < DocumentLimits.renditionsMax else {
            throw CloudError(
                .limitExceeded, "The item has too many further contents. Take one of them away.",
                details: Self.details(id).merging(["maximum": "\(DocumentLimits.renditionsMax)"]) { $1 })
        }
        let version = request.content.version
        guard try !isTaken(version, of: id) else {
            throw CloudError(
                .alreadyExists, "The version names another content of the item. Choose another at random.",
                details: Self.details(id))
        }
        var rendition = WireRendition()
        rendition.name = request.name
        var content = request.content
        content.base = Data()
        rendition.content = try signed(content, of: id) { .rendition($0) }
        rendition.ofVersion = request.ofVersion
        renditions.append((id, rendition.content))
        let place = item.renditions.firstIndex { request.name.lexicographicallyPrecedes($0.name) }
        item.renditions.insert(rendition, at: place ?? item.renditions.endIndex)
    }

    /// Whether a further content under another name has it.
    private func isTaken(_ version: Data, of id: DocumentID) throws -> Bool {
        if renditions.contains(where: { $0.item == id && $0.content.version == version }) { return true }
        guard !formerRenditions.contains(where: { $0.item == id && $0.content.version == version }) else {
            return false
        }
        return try container.rows.hasRendition([UInt8](version), of: id)
    }

    /// One that only this batch has set was never taken.
    private func replace(_ former: WireDocumentContent, of id: DocumentID) {
        if let index = renditions.firstIndex(where: { $0.item == id && $0.content.version == former.version }) {
            renditions.remove(at: index)
        } else {
            formerRenditions.append((id, former))
        }
    }
}
