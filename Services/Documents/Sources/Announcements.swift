internal import NephosBulk
internal import NephosBus
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire
private import SwiftProtobuf

/// What was said to be on its way, and has not come in its time, is not said any more. In steps.
extension DocumentsService {
    func endAnnouncements(of items: [DocumentID], at now: Timestamp, in container: Container) throws {
        var changed: [ChangedItem] = []
        for id in items {
            // It is gone, and what was said of it with it.
            guard var item = try container.item(id) else {
                try container.rows.setAnnounced(id, until: nil)
                continue
            }
            let left = AnnouncementRule.left(of: item.announcements, at: now)
            try container.rows.setAnnounced(id, until: AnnouncementRule.firstEnd(of: left))
            guard left.count < item.announcements.count else { continue }
            item.announcements = left
            let isOver = item.kind == .coming && left.isEmpty
            try recount(isOver ? nil : item, id, in: container)
            changed.append(ChangedItem(name: id.name, body: isOver ? nil : try item.serializedBytes()))
        }
        try publish(changed, in: container)
    }

    /// What an item counts less now is given back.
    ///
    /// - Parameter item: Nil: there is none any more.
    private func recount(_ item: WireDocumentItem?, _ id: DocumentID, in container: Container) throws {
        guard var counted = try container.rows.counted(id) else { return }
        let bytes = min(counted.bytes, try item?.countedBytes() ?? 0)
        let less = counted.bytes - bytes
        counted.bytes = bytes
        try container.rows.set(item == nil ? nil : counted, for: id)
        try contentUses(container, by: counted.maker)
            .release(less, app: counted.maker.app, device: counted.maker.device)
    }
}
