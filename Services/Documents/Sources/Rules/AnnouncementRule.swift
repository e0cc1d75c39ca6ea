internal import Foundation
internal import NephosCore
internal import NephosPredicates
internal import NephosWire

/// What becomes of what is said to be on its way.
enum AnnouncementRule {
    /// - Parameter announcements: The item's, the oldest first.
    /// - Returns: Nil: they are already as was asked.
    /// - Throws: ``CloudError`` `.limitExceeded`.
    static func apply(
        _ request: WireAnnounceContent, to announcements: [WireAnnouncement], by device: DeviceID, at now: Timestamp
    ) throws(CloudError) -> [WireAnnouncement]? {
        guard request.length <= DocumentLimits.contentBytesMax else {
            throw CloudError(
                .limitExceeded, "The content is too long.",
                details: ["bytes_max": "\(DocumentLimits.contentBytesMax)"])
        }
        var next = left(of: announcements, at: now)
        let place = next.firstIndex { $0.version == request.version }
        if request.length == 0 {
            if let place { next.remove(at: place) }
        } else if let place {
            // Said again soon, it would only be told to all again.
            let isFresh = next[place].expires >= now.advanced(by: DocumentLimits.announcementRenewal).nanoseconds
            if !isFresh || next[place].length != request.length {
                next[place].length = request.length
                next[place].expires = now.advanced(by: DocumentLimits.announcementLifetime).nanoseconds
            }
        } else {
            guard next.count < DocumentLimits.announcementsMax else {
                throw CloudError(
                    .limitExceeded, "Too many contents of the item are on their way. Wait until one has come.",
                    details: ["maximum": "\(DocumentLimits.announcementsMax)"])
            }
            var announcement = WireAnnouncement()
            announcement.version = request.version
            announcement.length = request.length
            announcement.expires = now.advanced(by: DocumentLimits.announcementLifetime).nanoseconds
            announcement.deviceID = device.rawValue
            announcement.announced = now.nanoseconds
            next.append(announcement)
        }
        return next == announcements ? nil : next
    }

    /// - Parameter announcements: Of what the device is about to make.
    /// - Returns: Nil: they are already as was asked.
    /// - Throws: ``CloudError`` `.limitExceeded`, `.invalidArguments`.
    static func apply(
        _ request: WireAnnounceItems, to announcements: [WireAnnouncement], by device: DeviceID, at now: Timestamp
    ) throws -> [WireAnnouncement]? {
        guard request.items.count <= DocumentLimits.comingMax else {
            throw CloudError(
                .limitExceeded, "Too many items are on their way. Name those that come first.",
                details: ["maximum": "\(DocumentLimits.comingMax)"])
        }
        let known = Dictionary(left(of: announcements, at: now).map { ($0.version, $0) }) { first, _ in first }
        let fresh = now.advanced(by: DocumentLimits.announcementRenewal).nanoseconds
        var isSame = known.count == announcements.count && known.count == request.items.count
        var versions: Set<Data> = []
        let next = try request.items.map { item in
            try ContentRule.checkVersion([UInt8](item.version), "version")
            guard let id = DocumentID(bytes: item.item), !id.isFixed, DocumentID(bytes: item.parent) != nil else {
                throw CloudError(
                    .invalidArguments, "An item and its folder are named by 16 bytes.",
                    details: ["argument": "coming"])
            }
            try DocumentNameRule.check([UInt8](item.name))
            guard (1...DocumentLimits.contentBytesMax).contains(item.length) else {
                throw CloudError(
                    .limitExceeded, "What is on its way has a content, which is not too long.",
                    details: ["bytes_max": "\(DocumentLimits.contentBytesMax)"])
            }
            guard versions.insert(item.version).inserted else {
                throw CloudError(
                    .invalidArguments, "A content is on its way once.", details: ["argument": "coming"])
            }
            var next = WireAnnouncement()
            next.item = item.item
            next.parent = item.parent
            next.name = item.name
            next.version = item.version
            next.length = item.length
            next.deviceID = device.rawValue
            next.announced = known[item.version]?.announced ?? now.nanoseconds
            next.expires = known[item.version]?.expires ?? 0
            if next.expires < fresh || next != known[item.version] {
                next.expires = now.advanced(by: DocumentLimits.announcementLifetime).nanoseconds
                isSame = false
            }
            return next
        }
        return isSame ? nil : next
    }

    /// Those that have not expired.
    static func left(of announcements: [WireAnnouncement], at now: Timestamp) -> [WireAnnouncement] {
        announcements.filter { $0.expires > now.nanoseconds }
    }

    /// When the first of them expires; nil: there are none.
    static func firstEnd(of announcements: [WireAnnouncement]) -> Timestamp? {
        announcements.map(\.expires).min().map { Timestamp(milliseconds: UInt64(clamping: $0 / 1_000_000)) }
    }
}
