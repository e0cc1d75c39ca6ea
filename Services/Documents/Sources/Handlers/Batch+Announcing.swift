internal import Foundation
internal import NephosCore
internal import NephosWire

/// Contents that are on their way.
extension Batch {
    func announce(_ id: DocumentID, _ request: WireAnnounceContent) throws {
        var item = try self.item(id)
        try ContentRule.checkVersion([UInt8](request.version), "version")
        guard item.hasContent else {
            throw CloudError(.invalidArguments, "A folder has no content.", details: Self.details(id))
        }
        // It has come already; this is a repeat.
        if try isKnown(request.version, of: id) { return mention(id) }
        if request.length > 0 { try checkLives(id, item) }
        guard
            let announcements = try AnnouncementRule.apply(
                request, to: item.announcements, by: writer.device, at: writer.now)
        else { return mention(id) }
        item.announcements = announcements
        set(item, id)
        announced.insert(id)
    }

    /// The content of this version is not on its way any more.
    ///
    /// - Returns: Whether it was said to be.
    @discardableResult
    func endAnnouncement(_ version: Data, of item: inout WireDocumentItem, _ id: DocumentID) -> Bool {
        let before = item.announcements.count
        item.announcements.removeAll { $0.version == version }
        guard item.announcements.count < before else { return false }
        announced.insert(id)
        return true
    }
}
