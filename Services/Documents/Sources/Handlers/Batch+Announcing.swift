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

    /// What the device is about to make, in place of what it has said before.
    func announceItems(_ id: DocumentID, _ request: WireAnnounceItems) throws {
        guard id == .coming(from: writer.device) else {
            throw CloudError(
                .invalidArguments, "A device says what it makes itself, under an id made of its own.",
                details: ["argument": "item"])
        }
        let before = try stored(id)
        guard before?.kind ?? .coming == .coming else {
            throw CloudError(
                .alreadyExists, "There is an item of this id. Nothing can be said under it.", details: Self.details(id))
        }
        guard
            let announcements = try AnnouncementRule.apply(
                request, to: before?.announcements ?? [], by: writer.device, at: writer.now)
        else { return mention(id) }
        set(announcements, asComing: id)
    }

    /// What is made now is not on its way any more.
    func endComing(_ content: WireDocumentContent) throws {
        guard content.length >= DocumentLimits.announcedBytesMin else { return }
        let id = DocumentID.coming(from: writer.device)
        guard let item = try stored(id), item.kind == .coming else { return }
        let left = item.announcements.filter { $0.version != content.version }
        if left.count < item.announcements.count { set(left, asComing: id) }
    }

    private func set(_ announcements: [WireAnnouncement], asComing id: DocumentID) {
        var item = WireDocumentItem()
        item.kind = .coming
        item.announcements = announcements
        set(announcements.isEmpty ? nil : item, id)
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
