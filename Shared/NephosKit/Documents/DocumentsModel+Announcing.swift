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
                // Of what is not there yet it is said otherwise.
                let item = try documents.synced(id.name)?.item, !item.hasTrash
            else { return nil }
            let said = item.announcements.first { $0.version == replace.content.version }
            guard said.map({ $0.expires < fresh }) ?? true,
                try !documents.waitsToAnnounce(replace.content.version, of: id)
            else { return nil }
            return .announcing(replace.content.version, length: replace.content.length, of: id)
        }
        let coming = try announceItems(of: request, documents)
        try append(changes + coming, documents)
        return !(changes + coming).isEmpty
    }

    /// A content that was refused is not on its way any more.
    func withdraw(_ change: WireDocumentChange, in documents: DocumentTransaction) throws {
        if case .create(let create)? = change.kind, create.hasContent {
            guard let device = try documents.device, var said = try documents.coming(from: device) else { return }
            let count = said.count
            said.removeAll { $0.version == create.content.version }
            if said.count < count { try append([.coming(said, from: device)], documents) }
            return
        }
        guard case .replace(let replace)? = change.kind, let id = DocumentID(bytes: change.item) else { return }
        let version = replace.content.version
        let isSaid = try documents.synced(id.name)?.item?.announcements.contains { $0.version == version } ?? false
        guard try isSaid || documents.waitsToAnnounce(version, of: id) else { return }
        try append([.announcing(version, length: 0, of: id)], documents)
    }

    /// What is said of the items that the request makes, and of those that follow it.
    ///
    /// - Returns: Nothing: it was said already.
    private func announceItems(
        of request: WireApplyChanges, _ documents: DocumentTransaction
    ) throws -> [WireDocumentChange] {
        let items = request.changes.compactMap(\.coming)
        guard !items.isEmpty, let device = try documents.device else { return [] }
        let said = Set(try documents.coming(from: device, freshAt: engine.now)?.map(\.version) ?? [])
        guard !items.allSatisfy({ said.contains($0.version) }) else { return [] }
        return [.coming(try documents.coming(after: items), from: device)]
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
        let (own, now) = (try device, known.now?.nanoseconds ?? .min)
        // What has expired the service takes back, of which this device may hear later.
        return item.announcements.filter { $0.expires > now }.map { announcement in
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

    fileprivate static func coming(_ items: [WireComingItem], from device: DeviceID) -> WireDocumentChange {
        var announce = WireAnnounceItems()
        announce.items = items
        return WireDocumentChange(.coming(from: device), .coming(announce))
    }

    /// What is said of the item that it makes until it is there; nil: it makes none, or one that takes no while.
    var coming: WireComingItem? {
        guard case .create(let create)? = kind, create.hasContent,
            create.content.length >= DocumentLimits.announcedBytesMin
        else { return nil }
        var coming = WireComingItem()
        coming.item = item
        coming.parent = create.parent
        coming.name = create.name
        coming.version = create.content.version
        coming.length = create.content.length
        return coming
    }

    /// What a person knows it to be about.
    var namedItems: [Data] {
        if case .coming(let coming) = kind { coming.items.map(\.item) } else { [item] }
    }

    /// It only says what is on its way: it waits for nothing, and nobody hears when it is refused.
    var announces: Bool {
        switch kind {
        case .announce, .coming: true
        default: false
        }
    }
}
