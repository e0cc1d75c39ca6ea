internal import Foundation
internal import NephosCore
internal import NephosPredicates
internal import NephosWire

/// Items that two devices have made under one name, each without knowing of the other's.
extension Batch {
    /// The item that a created one becomes one with; nil: none has its name, or the two stay apart.
    func namesake(of request: WireCreateItem, in folder: DocumentID) throws -> DocumentID? {
        guard request.clash == .merge, !isOffered else { return nil }
        let name = [UInt8](request.name)
        try DocumentNameRule.check(name)
        let place = Place(folder: folder, nameKey: try container.key(of: name, by: rule))
        guard let other = try item(at: place), let item = try find(other),
            item.kind == request.kind, item.hasContent == request.hasContent
        else { return nil }
        let isKept = item.conflicts.count < DocumentLimits.conflictsMax || item.content.hasBytes(of: request.content)
        return isKept ? other : nil
    }

    /// Makes the item one with another. Attributes that the other lacks are added if all of them fit; those of the other
    /// stay in any case.
    func merge(_ id: DocumentID, _ request: WireCreateItem, into other: DocumentID) throws {
        merged[Data(id.bytes)] = Data(other.bytes)
        if case .replace(let replace) = request.asChange {
            try endComing(request.content)
            try self.replace(other, replace)
        }
        var item = try self.item(other)
        mention(other)
        guard request.hasAttributes, !request.hasContent || item.content.hasBytes(of: request.content) else { return }
        let before = item.attributes
        item.attributes.merge(WireSetAttributes(making: request.attributes, of: before).lacked(by: before))
        guard item.attributes != before, (try? item.attributes.check()) != nil else { return }
        item.attributed = try attributed(0, of: item)
        set(item, other)
    }

    /// Notes which items of a repeated request had become one with others.
    func noteMerged(_ changes: [WireDocumentChange]) throws {
        for change in changes {
            var change = change
            _ = change.redirect(merged)
            guard case .create(let create)? = change.kind, let id = DocumentID(bytes: change.item),
                let folder = DocumentID(bytes: create.parent), try find(id) == nil,
                let other = try namesake(of: create, in: folder)
            else { continue }
            merged[change.item] = Data(other.bytes)
            mention(other)
        }
    }

    var wireMerged: [WireMergedItem] {
        merged.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map { item, into in
            var merged = WireMergedItem()
            merged.item = item
            merged.into = into
            return merged
        }
    }
}
