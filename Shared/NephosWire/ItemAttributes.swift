private import struct Foundation.Data

/// How attributes change: in the service, and on a device that shows what is not sent yet.
extension WireItemAttributes {
    /// Each by itself, so that two devices which set different ones both have what they set.
    public mutating func merge(_ change: WireSetAttributes) {
        if change.hasCreated { created = change.created }
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
        attributes.executable = executable
        attributes.tags = tags
        attributes.favouriteRank = favouriteRank
        attributes.set(extended)
        return attributes
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
