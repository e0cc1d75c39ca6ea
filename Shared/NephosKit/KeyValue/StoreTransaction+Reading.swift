import NephosCore
import NephosWire

extension StoreTransaction {
    /// What this device knows of the key that an app means by this text.
    func result(ofText text: String) throws -> ReadResult { try result(of: names(like: text).first ?? ItemName(text)) }

    /// What this device knows of a key.
    func result(of key: ItemName) throws -> ReadResult {
        if let value = try visible(key)?.value { return .value(value) }
        if scope.account == nil { return .absent }
        return try state().synced ? .absent : .notDownloadedYet
    }

    /// All keys and values by Swift's own strings; of names that those take for equal the newest stands for all.
    func texts() throws -> [String: PropertyValue] {
        let newestFirst = try visibleItems().values.sorted(by: Self.isNewer)
        return Dictionary(newestFirst.compactMap { item in item.value.map { (item.key.rawValue, $0) } }) { first, _ in
            first
        }
    }
}
