internal import NephosCore
internal import NephosPredicates
internal import NephosStorage

/// Where a query has got to: the record that was looked at last.
struct QueryPosition: Hashable, Sendable {
    /// What it is sorted by; empty: by its name alone.
    var sortKey: [UInt8] = []
    /// Empty: none was looked at.
    var name = ItemName("")
    /// Whether records that are alike in what they are sorted by come with the greater name first.
    var isReversed = false

    /// Whether a record comes later.
    func precedes(_ key: [UInt8], _ record: ItemName) -> Bool {
        guard key == sortKey else { return sortKey.lexicographicallyPrecedes(key) }
        return isReversed ? record < name : name < record
    }
}

/// The rows of several spans of an index in one order: that of what comes behind their prefixes, then of names.
///
/// They are read a few at a time, so that a span of which nothing is taken costs little.
final class IndexWalk {
    private struct Stream {
        var span: IndexSpan
        var rows: ArraySlice<IndexRows.Row> = []
        /// Where to read on.
        var edge: (key: [UInt8], record: ItemName)
        var isAtEnd = false

        /// What the next row is sorted by.
        func position(isReversed: Bool) -> QueryPosition? {
            rows.first.map { row in
                let key = row.key.dropFirst(span.prefix.count)
                return QueryPosition(
                    sortKey: isReversed ? IndexKey.reversed(key) : Array(key), name: row.record, isReversed: isReversed)
            }
        }
    }

    private let reader: any ReadTransaction
    private let place: [SQLValue]
    private let isReversed: Bool
    private let pageRows: Int
    private var streams: [Stream]
    /// Of rows that were read.
    private(set) var rowCount = 0

    /// - Parameters:
    ///   - place: Of the index's rows of the zone.
    ///   - position: Begins behind it; nil: at the first.
    init(_ plan: IndexPlan, at place: [SQLValue], after position: QueryPosition?, in reader: any ReadTransaction) {
        self.reader = reader
        self.place = place
        let isReversed = plan.isReversed
        self.isReversed = isReversed
        pageRows = max(4, 256 / max(1, plan.spans.count))
        streams = plan.spans.map { span in
            var edge = (key: isReversed ? span.end : span.start, record: ItemName(""))
            if let position {
                let key = span.prefix + (isReversed ? IndexKey.reversed(position.sortKey) : position.sortKey)
                let isWithin =
                    isReversed ? key.lexicographicallyPrecedes(edge.key) : !key.lexicographicallyPrecedes(edge.key)
                if isWithin { edge = (key, position.name) }
            }
            return Stream(span: span, edge: edge)
        }
    }

    /// The next row.
    func next() throws -> QueryPosition? {
        var best: (stream: Int, position: QueryPosition)?
        for number in streams.indices {
            try fill(number)
            guard let position = streams[number].position(isReversed: isReversed) else { continue }
            if let best, !position.precedes(best.position.sortKey, best.position.name) { continue }
            best = (number, position)
        }
        guard let best else { return nil }
        streams[best.stream].rows.removeFirst()
        return best.position
    }

    private func fill(_ number: Int) throws {
        guard streams[number].rows.isEmpty, !streams[number].isAtEnd else { return }
        let stream = streams[number]
        let rows = try IndexRows.rows(
            at: place, from: stream.edge, to: isReversed ? stream.span.start : stream.span.end,
            isReversed: isReversed, limit: pageRows, in: reader)
        rowCount += rows.count + 1
        streams[number].rows = rows[...]
        streams[number].isAtEnd = rows.count < pageRows
        if let last = rows.last { streams[number].edge = (last.key, last.record) }
    }
}
