internal import Foundation
internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// An item that a batch has changed.
struct ChangedItem {
    var name: ItemName
    /// A `DocumentItem`; nil: it was removed.
    var body: [UInt8]?

    func stored(in container: Container, digestKey: [UInt8]) throws -> FeedItem {
        guard let body else { return FeedItem(name: name, deleted: true, digest: .empty, size: 0, body: []) }
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: name, body: body, key: digestKey), size: body.count,
            body: try container.seal(body, as: .item(name)))
    }

    /// As devices get it.
    ///
    /// - Parameter bytesMax: A longer body is left out, and fetched.
    func wire(at sequence: UInt64, bytesMax: Int = .max) -> WireChange {
        var change = WireChange()
        change.item = name.rawValue
        change.sequence = sequence
        change.deleted = body == nil
        if let body, body.count <= bytesMax { change.body = Data(body) }
        return change
    }
}
