internal import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// One call of a query over one state of the zone, within its bounds.
final class QueryRun {
    private(set) var reply = WireQueryRecordsReply()
    /// Records that do not open: they are not there.
    private(set) var unreadable: [FeedItem] = []
    private let query: RecordsService.AskedQuery
    private let feed: any FeedReader
    private let scope: ScopeName
    /// How often a record's bytes are gone over, and values of its lists.
    private let passes: (texts: Int, lists: Int)
    private var bytesLeft = RecordLimits.replyBytesMax
    private var examinedBytes = 0
    private var indexRows = 0
    /// The last record that was looked at.
    private var last: QueryPosition?
    private var hasMore = false

    init(_ query: RecordsService.AskedQuery, _ feed: any FeedReader) {
        self.query = query
        self.feed = feed
        scope = query.asked.opener.scope
        passes = (max(1, query.predicate?.textPasses ?? 0), max(1, query.predicate?.listPasses ?? 0))
        last = query.position
    }

    /// - Throws: ``CloudError`` `.limitExceeded`: no index serves the query, and the zone is too large to do without.
    func run() throws {
        reply.token = WireChangeToken(try feed.head(scope).token)
        try answer()
        if hasMore {
            // Without a place it would say that this was all.
            guard let last else { throw CloudError(.internalError, "The query has ended before its first record.") }
            reply.after = try query.cursors.text(of: last)
        }
        if query.asked.access.isRestricted {
            // How many there are that are not for the caller is not either.
            (reply.examined, indexRows) = (UInt32(clamping: reply.records.count), 0)
        }
        if query.explains {
            reply.plan.rows = UInt32(clamping: indexRows)
        } else {
            reply.clearPlan()
        }
    }

    private func answer() throws {
        if let circles = query.circles, circles.isEmpty { return explain(.scan, nil) }
        let indexes = try IndexRows.indexes(of: query.database, in: feed)
        let number = try IndexRows.number(of: scope, in: feed)
        let plans = try QueryPlanner.plans(query.shape, indexes, words: query.words)
            .filter { try isMeant($0, in: number) }
        for plan in try rarestFirst(plans, number) {
            // No row was written: there is no record of the type.
            guard let number else { return explain(.index, plan) }
            let place = IndexRows.place(scope.partition, zone: number, index: plan.index.number)
            if plan.isOrdered {
                explain(.index, plan)
                return try walk(IndexWalk(plan, at: place, after: query.position, in: feed))
            }
            if let names = try gathered(plan, place), try inOrder(names) { return explain(.indexSorted, plan) }
        }
        explain(query.shape.sort.isEmpty ? .scan : .scanSorted, nil)
        if query.shape.sort.isEmpty {
            guard try query.scans || query.shape.asksForAll || isSmall(RecordLimits.scannedZoneMax, number) else {
                throw indexNeeded(indexes)
            }
            try scan(number)
        } else {
            guard try isSmall(RecordLimits.sortedMax, number), let names = try allNames(number), try inOrder(names)
            else {
                throw indexNeeded(indexes)
            }
        }
    }

    private func isSmall(_ most: Int, _ zone: Int64?) throws -> Bool {
        guard let circles = query.circles else { return try feed.head(scope).liveCount <= most }
        guard let zone else { return true }
        return try CircleRows.count(
            circles, at: CircleRows.place(scope.partition, zone: zone), limit: most + 1, in: feed) <= most
    }

    /// Whether the plan goes on in the order that has begun, and the zone has no records that it would not find.
    private func isMeant(_ plan: IndexPlan, in zone: Int64?) throws -> Bool {
        if plan.isOrdered, let position = query.position, position.isReversed != plan.isReversed { return false }
        guard let zone else { return true }
        let place = IndexRows.place(scope.partition, zone: zone, index: plan.index.number)
        return try plan.probes.allSatisfy { span in
            indexRows += 1
            return try IndexRows.rows(
                at: place, from: (span.start, ItemName("")), to: span.end, isReversed: false, limit: 1, in: feed
            ).isEmpty
        }
    }

    /// Rows that are counted of each word.
    private static let countedMax = 256

    /// Of several words of one index the one that the fewest records have goes first.
    private func rarestFirst(_ plans: [IndexPlan], _ zone: Int64?) throws -> [IndexPlan] {
        guard let zone, let first = plans.first, first.index.definition.fields.isEmpty else { return plans }
        let rivals = plans.prefix { $0.index == first.index }.prefix(PredicateLimits.wordsMax)
        guard rivals.count > 1 else { return plans }
        let place = IndexRows.place(scope.partition, zone: zone, index: first.index.number)
        let counts = try rivals.map { plan in
            let span = plan.spans[0]
            let count = try IndexRows.rows(
                at: place, from: (span.start, ItemName("")), to: span.end, isReversed: false, limit: Self.countedMax,
                in: feed
            ).count
            indexRows += count + 1
            return count
        }
        let best = counts.indices.min { counts[$0] < counts[$1] } ?? 0
        return [plans[best]] + plans.enumerated().filter { $0.offset != best }.map(\.element)
    }

    private func indexNeeded(_ indexes: [RecordIndex]) -> CloudError {
        let wanted = QueryPlanner.wanted(for: query.shape)
        var details = ["reason": "index_needed"]
        if let wanted {
            details["index"] = "\(wanted)"
            if wanted.fields.isEmpty { details["index_kind"] = "words" }
        }
        guard let known = indexes.first(where: { $0.definition == wanted && $0.isKept }) else {
            return CloudError(
                .limitExceeded,
                """
                The zone has too many records for a query that no index serves in its order. Make the index that the \
                details name, or ask for one record after the other (scan).
                """, details: details)
        }
        details["reason"] = known.isReady ? "order_needed" : "index_building"
        return CloudError(
            .limitExceeded,
            known.isReady
                ? "The index finds too many records to put them in another order. Ask for them in its order (sort)."
                : "The index that serves the query is being made. Ask again in a while.", details: details)
    }

    // MARK: The ways

    /// One record after the other: of the zone, or of those that the caller may read.
    private func scan(_ zone: Int64?) throws {
        if let circles = query.circles {
            guard let zone else { return }
            let place = CircleRows.place(scope.partition, zone: zone)
            return try walk(IndexWalk(CircleRows.plan(circles), at: place, after: query.position, in: feed))
        }
        try feed.rows(scope, afterName: last?.name ?? ItemName("")) { row in
            guard hasRoom else {
                hasMore = true
                return false
            }
            reply.examined += 1
            guard !row.deleted else {
                examinedBytes += row.bodyBytes
                last = QueryPosition(name: row.name)
                return true
            }
            if let change = try match(row.item, &examinedBytes), !send(change) { return false }
            last = QueryPosition(name: row.name)
            return true
        }
    }

    /// Rows that an index is read in its order by at least: more than the first ones of all of its spans.
    private static let walkedMin = 1000

    /// In the order of an index.
    private func walk(_ walk: IndexWalk) throws {
        // What was read in vain before leaves some: a call that reads nothing has no place where the next one goes on.
        let room = max(RecordLimits.indexRowsReadMax - indexRows, Self.walkedMin)
        defer { indexRows += walk.rowCount }
        while let row = try walk.next() {
            guard hasRoom, walk.rowCount <= room else {
                hasMore = true
                return
            }
            // Several values of one record are asked for.
            guard row != last else { continue }
            guard try look(at: row.name, as: row.sortKey) else { return }
            last = row
        }
    }

    /// Names of records that the rows are of; nil: too many, or they cannot be put in order within the bounds.
    private func gathered(_ plan: IndexPlan, _ place: [SQLValue]) throws -> [ItemName]? {
        guard query.shape.sort.isEmpty else { return try gather(plan, place) }
        let head = try feed.head(scope).token
        let key = GatheredNames.Key(
            zone: scope, epoch: head.epoch, sequence: head.sequence, index: plan.index,
            spans: plan.spans.flatMap { [$0.start, $0.end] })
        if query.position != nil, let known = query.gathered.names(for: key) { return known }
        guard let names = try gather(plan, place) else { return nil }
        // Fewer are one page.
        if names.count > query.limit { query.gathered.keep(names, for: key) }
        return names
    }

    private func gather(_ plan: IndexPlan, _ place: [SQLValue]) throws -> [ItemName]? {
        var names: Set<ItemName> = []
        for span in plan.spans {
            let room = RecordLimits.indexRowsReadMax - indexRows
            guard room > 0 else { return nil }
            let rows = try IndexRows.rows(
                at: place, from: (span.start, ItemName("")), to: span.end, isReversed: false, limit: room, in: feed)
            indexRows += rows.count + 1
            guard rows.count < room else { return nil }
            names.formUnion(rows.map(\.record))
        }
        return Array(names)
    }

    /// All of the zone, or that the caller may read; nil: there are too many.
    private func allNames(_ zone: Int64?) throws -> [ItemName]? {
        if let circles = query.circles {
            guard let zone else { return [] }
            return try gather(CircleRows.plan(circles), CircleRows.place(scope.partition, zone: zone))
        }
        // As many as are put in order, and as many deletions as the zone remembers.
        let rowsMax = RecordLimits.sortedMax + Feed.tombstonesMax(of: scope)
        var names: [ItemName] = []
        var rows = 0
        try feed.rows(scope, afterName: ItemName("")) { row in
            rows += 1
            if !row.deleted { names.append(row.name) }
            return rows <= rowsMax
        }
        return rows <= rowsMax ? names : nil
    }

    /// Puts records in order that were found in another one.
    ///
    /// - Returns: False: they are too many, or too large; nothing was sent.
    private func inOrder(_ names: [ItemName]) throws -> Bool {
        let position = query.position ?? QueryPosition()
        if query.shape.sort.isEmpty {
            for name in names.filter({ position.name < $0 }).sorted() {
                guard hasRoom else {
                    hasMore = true
                    break
                }
                guard try look(at: name, as: []) else { break }
                last = QueryPosition(name: name)
            }
            return true
        }
        guard names.count <= RecordLimits.sortedMax else { return false }
        // Of what was looked at in vain the next way has its room still.
        var (examined, bytes) = (reply.examined, 0)
        var found: [(position: QueryPosition, change: WireChange)] = []
        for name in names {
            guard let item = try feed.item(scope, name), !item.deleted else { continue }
            guard bytes + textCost(of: item) <= RecordLimits.sortedBytesMax || names.count == 1 else { return false }
            examined += 1
            var key: [UInt8] = []
            guard let change = try match(item, &bytes, { key = self.query.sortKey(of: $0) }) else { continue }
            guard query.position.map({ $0.precedes(key, name) }) ?? true else { continue }
            found.append((QueryPosition(sortKey: key, name: name, isReversed: position.isReversed), change))
        }
        reply.examined = examined
        for (place, change) in found.sorted(by: { $0.position.precedes($1.position.sortKey, $1.position.name) }) {
            guard reply.records.count < query.limit else {
                hasMore = true
                break
            }
            guard send(change) else { break }
            last = place
        }
        return true
    }

    // MARK: Records

    private func textCost(of item: FeedItem) -> Int { item.body.count * passes.texts }

    /// The record as it is sent, if it is meant.
    ///
    /// - Parameter bytes: Rises by what it takes to look at the record.
    private func match(
        _ item: FeedItem, _ bytes: inout Int, _ found: (QueriedRecord) -> Void = { _ in }
    ) throws -> WireChange? {
        var listed = 0
        defer { bytes += textCost(of: item) + RequestRoom.bytesPerListed * listed * passes.lists }
        return try query.match(item, &unreadable, { listed = $0 }, found)
    }

    private var hasRoom: Bool {
        reply.examined < RecordLimits.examinedMax && examinedBytes < RecordLimits.examinedBytesMax
            && reply.records.count < query.limit
    }

    /// - Returns: False: the reply is full.
    private func send(_ change: WireChange) -> Bool {
        guard change.body.count <= bytesLeft || reply.records.isEmpty else {
            hasMore = true
            return false
        }
        bytesLeft -= change.body.count
        reply.records.append(change)
        return true
    }

    /// Sends a record of an index if it matches.
    ///
    /// - Parameter key: What it is found as. A row that one from the quarantine has left says something else, and is not meant.
    /// - Returns: False: the reply is full.
    private func look(at name: ItemName, as key: [UInt8]) throws -> Bool {
        guard let item = try feed.item(scope, name), !item.deleted else { return true }
        reply.examined += 1
        var isFoundSo = true
        guard let change = try match(item, &examinedBytes, { isFoundSo = self.query.sortKey(of: $0) == key }), isFoundSo
        else { return true }
        return send(change)
    }

    // MARK: What is said of it

    private func explain(_ way: WireQueryPlan.Way, _ plan: IndexPlan?) {
        reply.plan.way = way
        if let plan {
            reply.plan.index = plan.index.definition.wire
            reply.plan.ranges = UInt32(clamping: plan.spans.count)
        }
        for (place, part) in query.shape.parts.enumerated() {
            guard let text = try? QueryPredicate(part).description else { continue }
            if plan?.answered.contains(place) ?? false {
                reply.plan.answered.append(text)
            } else {
                reply.plan.tested.append(text)
            }
        }
        if plan?.isOrdered != true || plan?.isNarrow != true, !query.shape.asksForAll || !query.shape.sort.isEmpty,
            let wanted = QueryPlanner.wanted(for: query.shape), wanted != plan?.index.definition
        {
            reply.plan.wanted = wanted.wire
        }
    }
}

extension RecordsService.AskedQuery {
    /// - Parameters:
    ///   - listed: Called with the number of values in the lists of what is looked at.
    ///   - found: Called with what matches.
    /// - Returns: The record as it is sent; nil: it is not meant.
    fileprivate func match(
        _ item: FeedItem, _ unreadable: inout [FeedItem], _ listed: (Int) -> Void, _ found: (QueriedRecord) -> Void
    ) throws -> WireChange? {
        try asked.change(of: item, asking: parts, &unreadable) { record in
            listed(record.listedCount)
            guard shape.type.isEmpty || record.type.hasSameBytes(as: shape.type) else { return false }
            let queried = QueriedRecord(name: item.name, record: record)
            guard predicate?.matches(queried) ?? true else { return false }
            found(queried)
            return true
        }
    }

    fileprivate func sortKey(of record: QueriedRecord) -> [UInt8] {
        shape.sort.flatMap { $0.key(of: record) }
    }
}

extension IndexDefinition: CustomStringConvertible {
    /// As people read it: `Note(count, title[cd] descending)`.
    var description: String {
        let names = fields.map { field in
            let folding = ["", "[c]", "[d]", "[cd]"][Int(field.folding.rawValue & 3)]
            return "\(field.name)\(folding)\(field.isDescending ? " descending" : "")"
        }
        return "\(type)(\(fields.isEmpty ? "words" : names.joined(separator: ", ")))"
    }
}
