import NephosCore
import NephosPredicates
import NephosRecordRules
import NephosWire

/// The order of records by their fields: that of the server's indexes, by the very same keys (``IndexKey``).
///
/// What has no value comes first; then lists, places by the cell that they lie in, and what is no number; then numbers,
/// dates, texts and data. Numbers are compared exactly, texts, folded, and data by their first 128 bytes; lists are alike.
/// What is alike comes by its name.
struct RecordOrder {
    private let fields: [(name: FieldName, folding: Folding, ascending: Bool)]

    init(_ sort: [RecordSort]) {
        fields = sort.compactMap { key in FieldName(key.field).map { ($0, key.folding, key.ascending) } }
    }

    /// Where a record stands: by its key, and then by its name.
    func key(of record: QueriedRecord) -> [UInt8] {
        fields.flatMap { field in
            let key = IndexKey.key(of: record.value(of: field.name), field.folding)
            return field.ascending ? key : IndexKey.reversed(key)
        }
    }

    /// - Returns: In order.
    func sorted(_ records: [QueriedRecord]) -> [QueriedRecord] {
        guard !fields.isEmpty else { return records }
        return records.map { (place: Place(key: key(of: $0), name: $0.name), record: $0) }
            .sorted { $0.place < $1.place }.map(\.record)
    }

    struct Place: Comparable {
        var key: [UInt8]
        var name: ItemName

        static func < (left: Place, right: Place) -> Bool {
            left.key == right.key ? left.name < right.name : left.key.lexicographicallyPrecedes(right.key)
        }
    }

    /// The first of many places, within bounds of memory: those that are beyond them are left for another time.
    struct First {
        /// Bytes of places that are held, about; each counts 100 besides its own.
        static let bytesMax = 8 << 20

        private let after: Place?
        private let countMax: Int
        private let room: Int
        private var places: [Place] = []
        private var bytes = 0
        /// Beyond it nothing is held.
        private var last: Place?
        /// Whether places were left out for want of room.
        private(set) var isCut = false

        /// - Parameters:
        ///   - after: Only what comes after it.
        ///   - count: So many at most; none that is left out counts as ``isCut``.
        init(after: Place? = nil, count: Int = .max, bytesMax: Int = First.bytesMax) {
            self.after = after
            countMax = count
            room = bytesMax
        }

        mutating func add(_ place: Place) {
            if let after, place <= after { return }
            if let last, last < place { return }
            places.append(place)
            bytes += Self.size(place)
            // Twice as much is held, so that they are seldom sorted.
            if places.count / 2 >= countMax || bytes / 2 > room { cut() }
        }

        private mutating func cut() {
            places.sort()
            if places.count > countMax { places.removeSubrange(countMax...) }
            bytes = places.reduce(0) { $0 + Self.size($1) }
            while bytes > room, places.count > 1 {
                bytes -= Self.size(places.removeLast())
                isCut = true
            }
            last = places.last
        }

        /// - Returns: In order.
        mutating func take() -> [Place] {
            cut()
            return places
        }

        private static func size(_ place: Place) -> Int { place.key.count + place.name.utf8.count + 100 }
    }
}

extension RecordSort {
    /// What does not count in texts.
    var folding: Folding {
        Folding(ignoresCase ? [.caseInsensitive] : []).union(ignoresAccents ? [.diacriticInsensitive] : [])
    }

    var wire: WireRecordSort {
        var wire = WireRecordSort()
        wire.field = field
        wire.descending = !ascending
        wire.folding = UInt32(folding.rawValue)
        return wire
    }
}
