public import NephosCore

private import struct Foundation.Data

/// How attributes change: in the service, and on a device that shows what is not sent yet.
extension WireItemAttributes {
    /// Each by itself, so that two devices which set different ones both have what they set.
    public mutating func merge(_ change: WireSetAttributes) {
        if change.hasCreated { created = change.created }
        if change.hasModified { modified = change.modified }
        if change.hasExecutable { executable = change.executable }
        if change.hasTags { tags = change.tags.tags }
        if change.hasFavouriteRank { favouriteRank = change.favouriteRank }
        set(change.extended)
    }

    /// As they are stored: what this version does not know is left out, or it would be kept without being counted; and
    /// extended ones are there once, in the order of their names' bytes.
    public var canonical: WireItemAttributes {
        var attributes = WireItemAttributes()
        attributes.created = created
        attributes.modified = modified
        attributes.executable = executable
        attributes.tags = tags
        attributes.favouriteRank = favouriteRank
        attributes.set(extended)
        return attributes
    }

    /// The same check on a device and in the service.
    ///
    /// - Throws: ``CloudError`` `.limitExceeded`: something has to be taken away.
    public func check() throws(CloudError) {
        let bytes = extended.reduce(0) { $0 + $1.name.count + $1.value.count }
        guard bytes <= DocumentLimits.attributeBytesMax, extended.count <= DocumentLimits.attributeCountMax,
            extended.allSatisfy({ (1...DocumentLimits.nameBytesMax).contains($0.name.count) && !$0.name.contains(0) })
        else {
            throw CloudError(
                .limitExceeded, "The item's extended attributes are too large or too many, or one has no name.",
                details: [
                    "bytes_max": "\(DocumentLimits.attributeBytesMax)",
                    "count_max": "\(DocumentLimits.attributeCountMax)",
                ])
        }
        guard tags.count <= DocumentLimits.tagCountMax,
            tags.allSatisfy({ (1...DocumentLimits.tagBytesMax).contains($0.utf8.count) })
        else {
            throw CloudError(
                .limitExceeded, "The item's tags are too long or too many.",
                details: [
                    "bytes_max": "\(DocumentLimits.tagBytesMax)", "count_max": "\(DocumentLimits.tagCountMax)",
                ])
        }
    }

    /// An empty value removes. Of a name that is given twice the last one counts.
    private mutating func set(_ given: [WireExtendedAttribute]) {
        var values = Dictionary(extended.map { ([UInt8]($0.name), $0.value) }) { $1 }
        for one in given { values[[UInt8](one.name)] = one.value.isEmpty ? nil : one.value }
        extended = values.sorted { $0.key.lexicographicallyPrecedes($1.key) }.map { name, value in
            var one = WireExtendedAttribute()
            one.name = Data(name)
            one.value = value
            return one
        }
    }
}

extension WireSetAttributes {
    /// What makes these attributes of the others.
    public init(making new: WireItemAttributes, of old: WireItemAttributes) {
        self.init()
        created = new.created
        modified = new.modified
        executable = new.executable
        favouriteRank = new.favouriteRank
        tags.tags = new.tags
        extended = new.extended
        let names = Set(new.extended.map(\.name))
        for attribute in old.extended where !names.contains(attribute.name) {
            var removed = attribute
            removed.value = Data()
            extended.append(removed)
        }
    }

    /// What of it sets something that is not there: nothing that is there is replaced or removed.
    public func lacked(by present: WireItemAttributes) -> WireSetAttributes {
        var set = WireSetAttributes()
        if present.created == 0, created != 0 { set.created = created }
        if present.modified == 0, modified != 0 { set.modified = modified }
        if present.favouriteRank == 0, favouriteRank != 0 { set.favouriteRank = favouriteRank }
        let lacking = tags.tags.filter { !present.tags.contains($0) }
        if !lacking.isEmpty { set.tags.tags = present.tags + lacking }
        let names = Set(present.extended.map(\.name))
        set.extended = extended.filter { !names.contains($0.name) && !$0.value.isEmpty }
        return set
    }
}
