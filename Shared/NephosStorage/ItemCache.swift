internal import NephosCore

/// The items that were read or written last, as the database has them: who
/// changes an item has to know its row, and most changes are of items that were
/// changed before. A part of ``FeedCache``.
final class ItemCache {
    /// Items of one generation; there are two.
    private static let generationMax = 8192
    /// A larger body is not kept.
    private static let bodyBytesMax = 1024

    private struct Key: Hashable {
        var scope: Int64
        var name: ItemName
    }

    enum Entry {
        case item(FeedItem)
        /// There is no such row.
        case none
    }

    // Two generations instead of an order of use: when the young one is full, the old one is forgotten.
    private var young: [Key: Entry] = [:]
    private var old: [Key: Entry] = [:]

    /// What is known of the item; nil: nothing.
    func entry(_ scope: Int64, _ name: ItemName) -> Entry? {
        let key = Key(scope: scope, name: name)
        if let entry = young[key] { return entry }
        guard let entry = old[key] else { return nil }
        insert(entry, key)
        return entry
    }

    func store(_ item: FeedItem?, _ scope: Int64, _ name: ItemName) {
        let key = Key(scope: scope, name: name)
        guard let item else { return insert(.none, key) }
        guard item.body.count <= Self.bodyBytesMax else { return remove(key) }
        insert(.item(item), key)
    }

    func remove(_ scope: Int64, _ name: ItemName) { remove(Key(scope: scope, name: name)) }

    func drop(partition: Int) {
        young = young.filter { Feed.partition(ofScopeWithID: $0.key.scope) != partition }
        old = old.filter { Feed.partition(ofScopeWithID: $0.key.scope) != partition }
    }

    func removeAll() {
        young.removeAll(keepingCapacity: true)
        old.removeAll()
    }

    private func remove(_ key: Key) {
        young[key] = nil
        old[key] = nil
    }

    private func insert(_ entry: Entry, _ key: Key) {
        if young.count >= Self.generationMax, young[key] == nil {
            old = young
            young = [:]
        }
        young[key] = entry
    }
}
