public import struct Foundation.Data

/// Changes of items that became one with others of their names (`NAME_CLASH_MERGE`).
extension WireDocumentChange {
    /// Names the surviving items in place of the merged ones, as what is changed and as the folder that it is put into.
    ///
    /// - Parameter merged: The surviving item of each merged one.
    /// - Returns: Whether the change named one of them.
    public mutating func redirect(_ merged: [Data: Data]) -> Bool {
        var isRedirected = false
        if let into = merged[item] {
            item = into
            isRedirected = true
        }
        switch kind {
        case .create(var create):
            guard let into = merged[create.parent] else { break }
            create.parent = into
            kind = .create(create)
            isRedirected = true
        case .place(var place):
            // The device knew the place of an item that nobody else has.
            if isRedirected { place.base = Data() }
            if let into = merged[place.parent] {
                place.parent = into
                isRedirected = true
            }
            kind = .place(place)
        default: break
        }
        return isRedirected
    }
}

extension WireCreateItem {
    /// What the creation does to the item that it became one with: a content is another version of it, or a conflict.
    public var asChange: WireDocumentChange.OneOf_Kind {
        guard hasContent else { return .attributes(WireSetAttributes()) }
        var replace = WireReplaceContent()
        replace.content = content
        replace.content.base = Data()
        return .replace(replace)
    }
}
