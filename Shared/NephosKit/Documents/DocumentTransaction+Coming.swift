import Foundation
import GRDB
import NephosCore
import NephosWire
import SwiftProtobuf

/// What devices are about to make. It lies among the items, is none of them, and no path leads to it.
extension DocumentTransaction {
    /// This device; nil: nobody is signed in.
    var device: DeviceID? {
        get throws {
            if known.device == nil { known.device = try Facts(rows.database).session?.deviceID }
            return known.device
        }
    }

    /// What the devices have said.
    func comingItems() throws -> [WireDocumentItem] {
        try Data.fetchAll(
            cached(
                "SELECT body FROM documents INDEXED BY documents_coming "
                    + "WHERE account = ?1 AND container = ?2 AND kind = 5 AND body IS NOT NULL"),
            arguments: arguments()
        ).compactMap { try? WireDocumentItem(serializedBytes: $0) }
    }

    /// What this device has said last that it is about to make, whether that was sent or not; nil: nothing ever.
    ///
    /// - Parameter time: What is to be said again by then is left out.
    func coming(from device: DeviceID, freshAt time: Timestamp? = nil) throws -> [WireComingItem]? {
        let name = DocumentID.coming(from: device).name
        for change in try changes(of: name).reversed() {
            if case .coming(let coming)? = change.kind { return coming.items }
        }
        let fresh = time?.advanced(by: DocumentLimits.announcementRenewal).nanoseconds ?? .min
        return try synced(name)?.item?.announcements.filter { $0.expires >= fresh }.map { said in
            var item = WireComingItem()
            (item.item, item.parent, item.name) = (said.item, said.parent, said.name)
            (item.version, item.length) = (said.version, said.length)
            return item
        }
    }

    /// These, and what is to be made after them, as far as that may be said.
    func coming(after first: [WireComingItem]) throws -> [WireComingItem] {
        var items = first
        var versions = Set(first.map(\.version))
        for request in try unstored() where items.count < DocumentLimits.comingMax {
            guard let operation = try rows.operation(at: request.position) else { continue }
            let changes = try WireApplyChanges(serializedBytes: operation.payload).changes
            items += changes.compactMap(\.coming).filter { versions.insert($0.version).inserted }
        }
        return Array(items.prefix(DocumentLimits.comingMax))
    }

    /// What other devices are about to make, where it will lie.
    func comingDocuments(in folder: DocumentPath, isDeep: Bool) throws -> [ComingDocument] {
        let (own, now) = (try device, known.now?.nanoseconds ?? .min)
        return try comingItems().flatMap(\.announcements).compactMap { said in
            guard DeviceID(said.deviceID) != own, said.expires > now, let id = DocumentID(bytes: said.item),
                let parent = DocumentID(bytes: said.parent),
                // It has come; what became of it since is told of itself.
                try synced(id.name) == nil, let place = try path(ofFolder: parent),
                isDeep ? folder.contains(place) : folder == place
            else { return nil }
            return ComingDocument(
                id: id, path: place.appending(said.name).text, name: String(decoding: said.name, as: UTF8.self),
                content: IncomingContent(
                    device: DeviceID(said.deviceID), size: said.length, since: Timestamp(nanoseconds: said.announced)))
        }.sorted { ($0.path, $0.id) < ($1.path, $1.id) }
    }
}
