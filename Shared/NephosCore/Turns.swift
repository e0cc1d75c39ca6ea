/// What waits, by whom it belongs to: each has its turn, however much another has waiting, and its own in the order in
/// which it came.
public struct Turns<Key: Hashable, Item> {
    private var order: [Key] = []
    private var items: [Key: [Item]] = [:]

    public init() {}

    public var isEmpty: Bool { order.isEmpty }

    public mutating func add(_ item: Item, of key: Key) {
        if items[key] == nil { order.append(key) }
        items[key, default: []].append(item)
    }

    /// Takes the first item of whoever's turn it is.
    public mutating func next() -> Item? {
        var isFirst = true
        return next { _ in
            defer { isFirst = false }
            return isFirst
        }?.items.first
    }

    /// Takes the next one's items from the first on, as long as they are wanted; the rest waits for its next turn.
    public mutating func next(while isWanted: (Item) -> Bool) -> (key: Key, items: [Item])? {
        guard let key = order.first, var own = items.removeValue(forKey: key) else { return nil }
        order.removeFirst()
        let taken = Array(own.prefix(while: isWanted))
        own.removeFirst(taken.count)
        if !own.isEmpty {
            items[key] = own
            order.append(key)
        }
        return (key, taken)
    }
}
