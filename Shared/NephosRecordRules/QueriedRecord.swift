package import NephosCore
package import NephosPredicates
package import NephosWire

/// A record as predicates see it: its fields, and those that the service keeps.
///
/// What is sealed among devices has no value here, nor have assets. A reference is the name of its record.
package struct QueriedRecord: PredicateRecord {
    package let name: ItemName
    package let record: WireRecord

    package init(name: ItemName, record: WireRecord) {
        self.name = name
        self.record = record
    }

    /// Fields that every record has (CKRecord): none of one's own can be called so, since it would begin with `_`.
    package static func isSystemField(_ field: String) -> Bool { System.all.contains(field) }

    /// The account that has made a record.
    package static let creator = FieldName(System.creator)

    private enum System {
        static let all: Set = [name, created, modified, creator, modifier, version, parent]

        static let name = "_recordName"
        static let created = "_creationDate"
        static let modified = "_modificationDate"
        static let creator = "_creator"
        static let modifier = "_modifier"
        static let version = "_changeTag"
        static let parent = "_parent"
    }

    package func value(of field: FieldName) -> PredicateValue? {
        switch field.rawValue {
        case System.name: .string(name.rawValue)
        case System.created: .date(PredicateDate(nanoseconds: record.created.time))
        case System.modified: .date(PredicateDate(nanoseconds: record.modified.time))
        case System.creator: .string(record.created.accountID)
        case System.modifier: .string(record.modified.accountID)
        case System.version: .data([UInt8](record.version))
        case System.parent: record.parent.isEmpty ? nil : .string(record.parent)
        default: stored(field.rawValue)?.value.flatMap(Self.value)
        }
    }

    /// Values of the list that the field is; 0: it is none.
    package func listedCount(of field: FieldName) -> Int { stored(field.rawValue)?.listedCount ?? 0 }

    /// Fields are in the order of their names.
    private func stored(_ name: String) -> WireRecordField? {
        var range = 0..<record.fields.count
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            let other = record.fields[middle].name
            if other.hasSameBytes(as: name) { return record.fields[middle] }
            range =
                ItemName(other) < ItemName(name)
                ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return nil
    }

    /// Of fields and of lists.
    package var texts: [String] {
        record.fields.flatMap { field -> [String] in
            switch field.value {
            case .string(let text): [text]
            case .strings(let list): list.values
            default: []
            }
        }
    }

    private static func value(_ value: WireRecordField.OneOf_Value) -> PredicateValue? {
        switch value {
        case .string(let text): .string(text)
        case .integer(let number): .integer(number)
        case .real(let number): .real(number)
        case .date(let date): .date(PredicateDate(nanoseconds: date))
        case .data(let data): .data([UInt8](data))
        case .location(let place): .location(PredicateLocation(place))
        case .reference(let reference): .string(reference.record)
        case .strings(let list): .list(list.values.map { .string($0) })
        case .integers(let list): .list(list.values.map { .integer($0) })
        case .reals(let list): .list(list.values.map { .real($0) })
        case .dates(let list): .list(list.values.map { .date(PredicateDate(nanoseconds: $0)) })
        case .datas(let list): .list(list.values.map { .data([UInt8]($0)) })
        case .locations(let list): .list(list.values.map { .location(PredicateLocation($0)) })
        case .references(let list): .list(list.values.map { .string($0.record) })
        case .encrypted, .asset, .assets: nil
        }
    }
}

extension PredicateLocation {
    fileprivate init(_ place: WireRecordLocation) {
        self.init(latitude: place.latitude, longitude: place.longitude)
    }
}
