/// What waits, by whom it belongs to: each has its turn, however much another has waiting.
struct Turns<Key: Hashable, Item> {
    private var order: [Key] = []
    private var items: [Key: [Item]] = [:]

    var isEmpty: Bool { order.isEmpty }

    mutating func add(_ item: Item, of key: Key) {
        if items[key] == nil { order.append(key) }
        items[key, default: []].append(item)
    }

    /// Takes the next one's items from the first on, as long as they are wanted; the rest waits for its next turn.
    mutating func next(while isWanted: (Item) -> Bool) -> (key: Key, items: [Item])? {
        guard let key = order.first, var own = items[key] else { return nil }
        order.removeFirst()
        let taken = Array(own.prefix(while: isWanted))
        own.removeFirst(taken.count)
        if own.isEmpty {
            items[key] = nil
        } else {
            items[key] = own
            order.append(key)
        }
        return (key, taken)
    }
}
