internal import NephosCore

/// The items that were read or written last, as the database has them: who
/// changes an item has to know its row, and most changes are of items that were
/// changed before. A part of ``FeedCache``.
final class ItemCache {
    /// Items of one generation; there are two.
    private static let generationMax = 8192
    /// A larger body is not kept, nor what has a longer name: also of what there is not, the names come from outside.
    private static let bodyBytesMax = 1024
    private static let nameBytesMax = 1024

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
    /// Where the young one asked for last lies. Whoever changes an item has asked for it before, and comparing costs
    /// less than hashing.
    private var latest: (key: Key, place: [Key: Entry].Index)?

    /// How many are known.
    var count: Int { young.count + old.count }

    /// What is known of the item; nil: nothing.
    func entry(_ scope: Int64, _ name: ItemName) -> Entry? {
        let key = Key(scope: scope, name: name)
        if let place = place(of: key) { return young.values[place] }
        guard let entry = old[key] else { return nil }
        insert(entry, key)
        return entry
    }

    func store(_ item: FeedItem?, _ scope: Int64, _ name: ItemName) {
        // So it never was: there is nothing to forget.
        guard name.utf8.count <= Self.nameBytesMax else { return }
        let key = Key(scope: scope, name: name)
        guard let item else { return insert(.none, key) }
        guard item.body.count <= Self.bodyBytesMax else { return remove(key) }
        insert(.item(item), key)
    }

    func remove(_ scope: Int64, _ name: ItemName) { remove(Key(scope: scope, name: name)) }

    func removeAll() {
        latest = nil
        young.removeAll(keepingCapacity: true)
        old.removeAll()
    }

    /// Where the item lies among the young ones, until another one comes or goes.
    private func place(of key: Key) -> [Key: Entry].Index? {
        if let latest, latest.key == key { return latest.place }
        guard let place = young.index(forKey: key) else { return nil }
        latest = (key, place)
        return place
    }

    private func remove(_ key: Key) {
        latest = nil
        young[key] = nil
        old[key] = nil
    }

    private func insert(_ entry: Entry, _ key: Key) {
        if let place = place(of: key) {
            young.values[place] = entry
            return
        }
        latest = nil
        if young.count >= Self.generationMax {
            old = young
            young = [:]
        }
        young[key] = entry
    }
}
