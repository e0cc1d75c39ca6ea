internal import GRDB
public import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosWire

/// Records of a query, a page at a time (``RecordDatabase/pages(matching:in:from:size:)``).
public struct RecordPages: AsyncSequence, Sendable {
    let database: RecordDatabase
    let query: RecordQuery
    let zone: String
    let source: RecordSource
    let size: Int

    init(database: RecordDatabase, query: RecordQuery, zone: String, source: RecordSource, size: Int) {
        (self.database, self.query, self.zone, self.source, self.size) = (database, query, zone, source, size)
    }

    public func makeAsyncIterator() -> Iterator { Iterator(self) }

    public struct Iterator: AsyncIteratorProtocol {
        private let pages: RecordPages
        private var reading: RecordReading
        /// Of the server, where that is asked.
        private var asking: RecordAsking

        fileprivate init(_ pages: RecordPages) {
            self.pages = pages
            reading = RecordReading(pages.query)
            asking = RecordAsking(pages.query, in: pages.zone, of: pages.database)
        }

        /// - Returns: Nil: that was all.
        /// - Throws: ``CloudError`` as ``RecordDatabase/records(matching:in:from:)`` does.
        public mutating func next() async throws(CloudError) -> [Record]? {
            let (database, zone, size) = (pages.database, pages.zone, pages.size)
            if let type = pages.query.type, !RecordLimits.isKey(type) {
                throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
            }
            guard pages.query.limit.map({ $0 > 0 }) ?? true else { return nil }
            guard try database.isRead(pages.source) else {
                var asking = asking
                let page = try await asking.next(count: size)
                self.asking = asking
                return page
            }
            var reading = reading
            let page = try database.read { try reading.next(in: database.records(of: zone, $0), count: size) }
            self.reading = reading
            return page
        }
    }
}

/// How far a query of this device's copy was read.
struct RecordReading {
    private let query: RecordQuery
    private let order: RecordOrder
    private var left: Int
    /// In the order of names: the last that was looked at.
    private var last: String?
    /// Put in order, and not read yet.
    private var places: ArraySlice<RecordOrder.Place> = []
    private var lastPlace: RecordOrder.Place?
    private var isDone = false

    init(_ query: RecordQuery) {
        self.query = query
        order = RecordOrder(query.sort)
        left = query.limit ?? .max
    }

    /// - Returns: Nil: that was all.
    mutating func next(in records: RecordTransaction, count: Int) throws -> [Record]? {
        guard left > 0 else { return nil }
        let page = try query.sort.isEmpty ? named(records, min(count, left)) : ordered(records, min(count, left))
        left -= page.count
        return page.isEmpty ? nil : page
    }

    private func isMeant(_ name: ItemName, _ record: WireRecord, _ predicate: CompiledPredicate?) -> Bool {
        guard query.type == nil || record.type == query.type else { return false }
        return predicate?.matches(QueriedRecord(name: name, record: record)) ?? true
    }

    private mutating func named(_ records: RecordTransaction, _ count: Int) throws -> [Record] {
        guard !isDone else { return [] }
        let predicate = query.predicate?.compiled()
        var page: [Record] = []
        var last = last
        isDone = true
        try records.forEach(ofType: query.type, after: last) { name, visible in
            guard page.count < count else {
                isDone = false
                return false
            }
            last = name
            if let record = visible.record, isMeant(ItemName(name), record, predicate) {
                page.append(visible.made(RecordID(name, zone: records.zone), record, query.desiredFields))
            }
            return true
        }
        self.last = last
        return page
    }

    private mutating func ordered(_ records: RecordTransaction, _ count: Int) throws -> [Record] {
        let predicate = query.predicate?.compiled()
        var page: [Record] = []
        while page.count < count {
            if places.isEmpty {
                guard !isDone else { break }
                try gather(records, predicate)
                guard !places.isEmpty else { break }
            }
            guard let place = places.popFirst() else { break }
            lastPlace = place
            let visible = try records.visible(place.name.rawValue)
            guard let record = visible.record, isMeant(place.name, record, predicate) else { continue }
            page.append(
                visible.made(RecordID(place.name.rawValue, zone: records.zone), record, query.desiredFields))
        }
        return page
    }

    /// The next of them that there is room for.
    private mutating func gather(_ records: RecordTransaction, _ predicate: CompiledPredicate?) throws {
        var first = RecordOrder.First(after: lastPlace, count: left)
        try records.forEach(ofType: query.type) { name, visible in
            guard let record = visible.record, isMeant(ItemName(name), record, predicate) else { return true }
            let queried = QueriedRecord(name: ItemName(name), record: record)
            first.add(RecordOrder.Place(key: order.key(of: queried), name: queried.name))
            return true
        }
        places = first.take()[...]
        isDone = !first.isCut
    }
}
