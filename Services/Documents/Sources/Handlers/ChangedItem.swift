internal import NephosCore
internal import NephosServiceKit
internal import NephosStorage

extension ChangedItem {
    func stored(in container: Container, digestKey: [UInt8]) throws -> FeedItem {
        guard let body else { return FeedItem(name: name, deleted: true, digest: .empty, size: 0, body: []) }
        return FeedItem(
            name: name, deleted: false, digest: SetDigest(ofItem: name, body: body, key: digestKey), size: body.count,
            body: try container.seal(body, as: .item(name)))
    }
}
