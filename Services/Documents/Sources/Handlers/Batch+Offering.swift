internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// What several devices offer again of one item: of its place, of its attributes and of its lying in the trash the latest
/// stands, in whatever order they come.
///
/// The times are the service's own, of a history that it has lost, and decide nothing else: nobody is shown them.
extension Batch {
    /// Another device, which may have had an older or a newer state of it, was first to bring the item back.
    func offer(_ request: WireCreateItem, over known: WireDocumentItem, _ id: DocumentID) throws {
        mention(id)
        if request.hasContent, known.hasContent, try !isKnown(request.content.version, of: id) {
            var content = WireReplaceContent()
            content.content = request.content
            try replace(id, content)
        }
        guard request.placed > 0 else { return }
        if request.placeVersion != known.placeVersion, try !isBehind(request.placed, known.placed) {
            var place = WirePlaceItem()
            (place.parent, place.name, place.placeVersion) = (request.parent, request.name, request.placeVersion)
            (place.clash, place.placed) = (request.clash, request.placed)
            try self.place(id, place)
        }
        if known.hasTrash, try isLater(request.placed, than: known.trash) {
            var restore = WireRestoreItem()
            (restore.clash, restore.placed) = (.rename, request.placed)
            try self.restore(id, restore)
        }
        guard request.attributed > 0 else { return }
        var set = WireSetAttributes(making: request.attributes, of: known.attributes)
        set.attributed = request.attributed
        try setAttributes(id, set)
    }

    /// Whether what is offered was done before what is there. What is not offered, or does not say when it was done, comes
    /// after everything.
    func isBehind(_ told: Int64, _ time: Int64) throws -> Bool {
        guard isOffered, told > 0 else { return false }
        return try believed(told) < time
    }

    /// Whether the item was taken out of the trash after it came there. It is made and deleted in one moment, at times, and
    /// never in that moment taken out.
    func isLater(_ told: Int64, than trash: WireTrashNote) throws -> Bool {
        guard isOffered, told > 0 else { return true }
        return try believed(told) > trash.trashed
    }

    func placed(_ told: Int64, of item: WireDocumentItem) throws -> Int64 { try time(told, after: item.placed) }

    func attributed(_ told: Int64, of item: WireDocumentItem) throws -> Int64 {
        try time(told, after: item.attributed)
    }

    private func time(_ told: Int64, after former: Int64) throws -> Int64 {
        guard isOffered else { return max(writer.now.nanoseconds, former &+ 1) }
        // Who does not say when they have done it makes nothing newer.
        return told > 0 ? max(try believed(told), former) : former
    }

    /// What lies ahead was told by a clock that was wrong: it was lost with the copy, and so before the present history.
    private func believed(_ told: Int64) throws -> Int64 { told <= writer.now.nanoseconds ? told : try historyBegan }

    /// Nanoseconds since 1970.
    var historyBegan: Int64 { get throws { try container.transaction.historyBegan().nanoseconds } }
}
