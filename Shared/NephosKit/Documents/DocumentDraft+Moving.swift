import Foundation
import NephosCore
import NephosWire

extension DocumentDraft {
    /// Moves or renames an item. See ``UbiquityContainer/move(_:to:replaces:conditions:)``.
    mutating func move(_ item: HeldDocument, to target: DocumentPath, replaces: Bool) throws {
        var target = target
        let there = try documents.place(target)
        // A folder may also be called otherwise in a way that its container does not tell apart.
        if let there, there.isFolder, there.id != item.id { target = target.appending(item.wire.name) }
        guard let parent = target.parent else {
            throw CloudError(.invalidArguments, "An item needs a name.", details: ["path": target.text])
        }
        try target.requireSynced()
        let folder = try documents.folder(at: parent)
        if let there = try documents.place(target), there.id != item.id {
            guard replaces, case .item(let other) = there, !other.isFolder else {
                throw CloudError(
                    .alreadyExists, "Something has this name already.", details: ["path": target.text])
            }
            try trash(other, batch: makeID())
        }
        try documents.requireRoom(for: item, in: folder, at: target)
        var place = WirePlaceItem()
        place.parent = folder.wire
        place.name = target.last
        place.placeVersion = makeID().wire
        place.clash = .rename
        if place.parent != item.wire.parent || place.name != item.wire.name {
            add(WireDocumentChange(item.id, .place(place)))
        }
    }
}

extension DocumentTransaction {
    /// - Parameter source: The container that it is in; nil: this one.
    /// - Throws: ``CloudError`` `.invalidArguments` when the item would lie in itself, or too deep.
    func requireRoom(
        for item: HeldDocument, in folder: DocumentID, at path: DocumentPath, from source: DocumentTransaction? = nil
    ) throws {
        guard item.isFolder else { return }
        guard try !isFolder(folder, in: item.id) else {
            throw CloudError(.invalidArguments, "A folder cannot be in itself.", details: ["path": path.text])
        }
        guard try path.names.count + (source ?? self).height(of: item.id) <= DocumentLimits.depthMax else {
            throw CloudError(
                .invalidArguments, "Folders lie too deep within each other.",
                details: ["depth_max": "\(DocumentLimits.depthMax)"])
        }
    }
}
