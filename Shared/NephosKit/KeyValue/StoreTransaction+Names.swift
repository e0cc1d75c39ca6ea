import Foundation
import NephosCore
import NephosWire

extension StoreTransaction {
    /// The names with a value that Swift's strings take for equal to the text, the newest first.
    ///
    /// A text of ASCII alone is its own name. (Unicode knows a handful of other
    /// spellings, such as the Kelvin sign for a K, which nobody types.)
    func names(like text: String) throws -> [ItemName] {
        guard text.utf8.contains(where: { $0 >= 0x80 }) else { return [ItemName(text)] }
        return try visibleItems().values.filter { $0.value != nil && $0.key.rawValue == text }
            .sorted(by: Self.isNewer).map(\.key)
    }

    /// Of names that mean the same the newest comes first, and of those written at once the first by its bytes: so all
    /// devices, and every call, choose the same.
    static func isNewer(_ left: KeyValueItem, _ right: KeyValueItem) -> Bool {
        left.wins(over: right) || !right.wins(over: left) && left.key < right.key
    }

    /// The names under which something may be known that Swift's strings take for equal to the text, with a value or
    /// not: those that are here, the one that a new key would get, and the text itself.
    func spellings(of text: String) throws -> [ItemName] {
        guard text.utf8.contains(where: { $0 >= 0x80 }) else { return [ItemName(text)] }
        let here = try visibleItems().keys.filter { $0.rawValue == text }
        return Set(here).union([ItemName(text), ItemName(text.precomposedStringWithCanonicalMapping)]).sorted()
    }

    /// The writes with the names that they mean in this store.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments` when two of them mean the same.
    func named(_ writes: [LocalWrite]) throws -> [LocalWrite] {
        var named: [LocalWrite] = []
        for write in writes {
            guard write.isText else {
                named.append(write)
                continue
            }
            let known = try names(like: write.key.rawValue)
            let new = ItemName(write.key.rawValue.precomposedStringWithCanonicalMapping)
            // What is hidden behind the newest must not come to light when that is deleted.
            let meant = write.value == nil ? known : Array(known.prefix(1))
            for name in meant.isEmpty ? [new] : meant { named.append(LocalWrite(key: name, value: write.value)) }
        }
        guard Set(named.map(\.key)).count == named.count else {
            throw CloudError(.invalidArguments, "A transaction writes the same key twice.")
        }
        return named
    }
}
