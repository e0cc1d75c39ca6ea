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
            guard let into = merged[place.parent] else { break }
            place.parent = into
            kind = .place(place)
            isRedirected = true
        default: break
        }
        return isRedirected
    }

    /// Whether the change moves, deletes or restores a merged item, or removes versions of it.
    ///
    /// The device meant the item that it had made: nothing of that may be done to the surviving one, which is another
    /// device's.
    ///
    /// - Parameter merged: The surviving item of each merged one.
    public func isDropped(by merged: [Data: Data]) -> Bool {
        guard merged[item] != nil else { return false }
        switch kind {
        case .place, .trash, .restore, .remove, .versions: return true
        default: return false
        }
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
