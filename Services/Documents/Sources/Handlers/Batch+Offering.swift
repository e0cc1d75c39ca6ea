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
        // Each is told by its own time; of an item that is older than these times one of them may say nothing.
        if request.placed > 0 { try offerPlace(request, over: known, id) }
        if request.attributed > 0 {
            var set = WireSetAttributes(making: request.attributes, of: known.attributes)
            set.attributed = request.attributed
            try whereThereIsRoom { try setAttributes(id, set) }
        }
    }

    private func offerPlace(_ request: WireCreateItem, over known: WireDocumentItem, _ id: DocumentID) throws {
        if request.placeVersion != known.placeVersion, try !isBehind(request.placed, known.placed) {
            var place = WirePlaceItem()
            (place.parent, place.name, place.placeVersion) = (request.parent, request.name, request.placeVersion)
            (place.clash, place.placed) = (request.clash, request.placed)
            try whereThereIsRoom { try self.place(id, place) }
        }
        if known.hasTrash, try isLater(request.placed, than: known.trash) {
            var restore = WireRestoreItem()
            (restore.clash, restore.placed) = (.rename, request.placed)
            try whereThereIsRoom { try self.restore(id, restore) }
        }
    }

    /// What was done since the restore may leave no room for what was lost: the item stays as it is in that, and what else
    /// is offered of it, a newer content above all, comes to it all the same.
    ///
    /// - Returns: Nil: there is none.
    @discardableResult
    func whereThereIsRoom<Value>(_ body: () throws -> Value) throws -> Value? {
        let before = (places, counts)
        do { return try body() } catch let error as CloudError
            where [.limitExceeded, .constraintViolation, .alreadyExists].contains(error.code)
        {
            // What is looked at for the whole batch is no matter of this item.
            guard looks <= DocumentLimits.looksMax, container.openedBytes <= DocumentLimits.looksBytesMax else {
                throw error
            }
            (places, counts) = before
            return nil
        }
    }

    /// Whether what is offered was done before what is there. What is not offered, or does not say when it was done, comes
    /// after everything.
    func isBehind(_ told: Int64, _ time: Int64) throws -> Bool {
        guard isOffered, told > 0 else { return false }
        return try liesAhead(told, beside: time) ? historyBegan < time : told < time
    }

    /// Whether the item was taken out of the trash after it came there. It is made and deleted in one moment, at times, and
    /// never in that moment taken out.
    func isLater(_ told: Int64, than trash: WireTrashNote) throws -> Bool {
        guard isOffered, told > 0 else { return true }
        return try liesAhead(told, beside: trash.trashed) ? historyBegan > trash.trashed : told > trash.trashed
    }

    func placed(_ told: Int64, of item: WireDocumentItem) throws -> Int64 { try time(told, after: item.placed) }

    func attributed(_ told: Int64, of item: WireDocumentItem) throws -> Int64 {
        try time(told, after: item.attributed)
    }

    private func time(_ told: Int64, after former: Int64) throws -> Int64 {
        guard isOffered else { return max(writer.now.nanoseconds, former &+ 1) }
        // Who does not say when they have done it makes nothing newer.
        return max(told, former)
    }

    /// Whether a time lies ahead, told by a clock that was wrong, beside one that does not: it was lost with the copy, and so
    /// before the present history. Of two that lie ahead the same clock has told both, and the numbers say which is later.
    private func liesAhead(_ told: Int64, beside time: Int64) -> Bool {
        told > writer.now.nanoseconds && time <= writer.now.nanoseconds
    }

    /// Nanoseconds since 1970.
    var historyBegan: Int64 { get throws { try container.transaction.historyBegan().nanoseconds } }
}
