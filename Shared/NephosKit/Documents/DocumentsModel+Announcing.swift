internal import Foundation
internal import GRDB
internal import NephosCore
internal import NephosWire

/// Says of contents that take a while that they are on their way. It is a hint: what becomes of it is nobody's trouble.
extension DocumentsModel {
    /// Says so of a request's contents, as far as it was not said already, or not for long.
    ///
    /// - Returns: Whether there is something to say.
    func announce(_ request: WireApplyChanges, in rows: ScopeTransaction) throws -> Bool {
        let documents = DocumentTransaction(rows)
        let fresh = engine.now.advanced(by: DocumentLimits.announcementRenewal).nanoseconds
        let changes = try request.changes.compactMap { change -> WireDocumentChange? in
            guard case .replace(let replace)? = change.kind, let id = DocumentID(bytes: change.item),
                replace.content.length >= DocumentLimits.announcedBytesMin,
                // Of what is not there yet nobody could be told.
                let item = try documents.synced(id.name)?.item, !item.hasTrash
            else { return nil }
            let said = item.announcements.first { $0.version == replace.content.version }
            guard said.map({ $0.expires < fresh }) ?? true,
                try !documents.waitsToAnnounce(replace.content.version, of: id)
            else { return nil }
            return .announcing(replace.content.version, length: replace.content.length, of: id)
        }
        try append(changes, documents)
        return !changes.isEmpty
    }

    /// A content that was refused is not on its way any more.
    func withdraw(_ change: WireDocumentChange, in documents: DocumentTransaction) throws {
        guard case .replace(let replace)? = change.kind, let id = DocumentID(bytes: change.item) else { return }
        let version = replace.content.version
        let isSaid = try documents.synced(id.name)?.item?.announcements.contains { $0.version == version } ?? false
        guard try isSaid || documents.waitsToAnnounce(version, of: id) else { return }
        try append([.announcing(version, length: 0, of: id)], documents)
    }

    private func append(_ changes: [WireDocumentChange], _ documents: DocumentTransaction) throws {
        for changes in DocumentBatches.divide(changes) {
            var request = WireApplyChanges()
            request.container = name
            request.changes = changes
            try documents.append(request, id: engine.makeOperationID(), writer: engine.writer, now: engine.now)
        }
    }
}

extension DocumentTransaction {
    /// Whether it waits to be said that this content is on its way.
    func waitsToAnnounce(_ version: Data, of item: DocumentID) throws -> Bool {
        try changes(of: item.name).contains { change in
            if case .announce(let announce)? = change.kind {
                announce.version == version && announce.length > 0
            } else {
                false
            }
        }
    }

    /// Contents of an item that other devices send.
    func incoming(to item: WireDocumentItem) throws -> [IncomingContent] {
        guard !item.announcements.isEmpty else { return [] }
        let own = try known.device ?? Facts(rows.database).session?.deviceID
        known.device = own
        return item.announcements.map { announcement in
            IncomingContent(
                device: DeviceID(announcement.deviceID), size: announcement.length,
                since: Timestamp(nanoseconds: announcement.announced))
        }.filter { $0.device != own }
    }
}

extension WireDocumentChange {
    fileprivate static func announcing(_ version: Data, length: UInt64, of id: DocumentID) -> WireDocumentChange {
        var announce = WireAnnounceContent()
        announce.version = version
        announce.length = length
        return WireDocumentChange(id, .announce(announce))
    }

    /// It only says what is on its way: it waits for nothing, and nobody hears when it is refused.
    var announces: Bool { if case .announce = kind { true } else { false } }
}
