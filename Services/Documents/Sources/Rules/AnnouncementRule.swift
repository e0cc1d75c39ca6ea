internal import Foundation
internal import NephosCore
internal import NephosWire

/// What becomes of the contents that an item is said to get.
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

    /// Those that have not expired.
    static func left(of announcements: [WireAnnouncement], at now: Timestamp) -> [WireAnnouncement] {
        announcements.filter { $0.expires > now.nanoseconds }
    }

    /// When the first of them expires; nil: there are none.
    static func firstEnd(of announcements: [WireAnnouncement]) -> Timestamp? {
        announcements.map(\.expires).min().map { Timestamp(milliseconds: UInt64(clamping: $0 / 1_000_000)) }
    }
}
