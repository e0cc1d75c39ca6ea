public import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosWire
internal import SwiftProtobuf

extension RecordDatabase {
    /// Records of a zone that a query means.
    ///
    /// This device's copy is asked with the very rules that the server has, and answers with what waits to be sent.
    ///
    /// - Parameter source: The server is asked page by page; what was saved before is seen.
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the zone was downloaded; `.zoneNotFound`, `.invalidArguments` (a
    ///   type that none can be called), `.notSignedIn`, `.storageFailure`; of the server also `.limitExceeded` (too many
    ///   comparisons of texts), `.networkUnavailable` and the like.
    public func records(
        matching query: RecordQuery, in zone: String = RecordZone.defaultName, from source: RecordSource = .local
    ) async throws(CloudError) -> [Record] {
        if let type = query.type, !RecordLimits.isKey(type) {
            throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
        }
        let predicate = query.predicate?.compiled()
        var found: [QueriedRecord]
        var states: [String: RecordTransaction.Visible] = [:]
        // In the order of names the first ones are all.
        let limit = query.sort.isEmpty ? query.limit ?? .max : .max
        guard query.limit.map({ $0 > 0 }) ?? true else { return [] }
        if source == .server {
            found = try await ask(query, in: zone, limit: limit)
        } else {
            (found, states) = try read { database in
                var found: [QueriedRecord] = []
                var states: [String: RecordTransaction.Visible] = [:]
                try records(of: zone, database).forEach(ofType: query.type) { name, visible in
                    guard let record = visible.record else { return true }
                    let queried = QueriedRecord(name: ItemName(name), record: record)
                    if predicate?.matches(queried) ?? true {
                        found.append(queried)
                        states[name] = visible
                    }
                    return found.count < limit
                }
                return (found, states)
            }
        }
        if !query.sort.isEmpty { found.sort(by: RecordOrder(query.sort).precedes) }
        return found.prefix(query.limit ?? .max).map { queried in
            let id = RecordID(queried.name.rawValue, zone: zone)
            return (states[id.name] ?? RecordTransaction.Visible()).made(id, queried.record, query.desiredFields)
        }
    }

    /// All that the server has of it, in the order of names.
    private func ask(_ query: RecordQuery, in zone: String, limit: Int) async throws(CloudError) -> [QueriedRecord] {
        var request = WireQueryRecords()
        request.container = container
        request.zoneID = try id(of: zone)
        request.type = query.type ?? ""
        request.predicate = query.predicate?.description ?? ""
        // All pages are wanted: however many calls it takes where no index serves.
        request.scan = true
        if let desired = query.desiredFields {
            request.desiredFields = desired.union(query.sort.map(\.field).filter(RecordLimits.isKey)).sorted()
        }
        var found: [QueriedRecord] = []
        while found.count < limit {
            request.limit = limit == .max ? 0 : UInt32(clamping: limit - found.count)
            let reply = try await session.call(.records, request, as: WireQueryRecordsReply.self, app: app)
            for change in reply.records where !change.damaged && !change.deleted {
                guard let record = try? WireRecord(serializedBytes: change.body) else { throw Self.misfit }
                found.append(QueriedRecord(name: ItemName(change.item), record: record))
            }
            guard !reply.after.isEmpty else { break }
            // A service that stands still would be asked for ever.
            guard ItemName(request.after) < ItemName(reply.after) else { throw Self.misfit }
            request.after = reply.after
        }
        return found
    }
}

/// The order of records by their fields, which is that of the server's indexes but for two things: there, places come by
/// the cell that they lie in, and texts that are alike in their first 128 bytes by their records' names.
///
/// What has no value comes first; then lists, places and what is no number; then numbers, dates, texts and data. Numbers
/// are compared exactly, texts and data by their bytes; lists are alike. What is alike comes by its name.
struct RecordOrder {
    private let keys: [(field: FieldName, ascending: Bool)]

    init(_ sort: [RecordSort]) {
        keys = sort.compactMap { key in FieldName(key.field).map { ($0, key.ascending) } }
    }

    func precedes(_ left: QueriedRecord, _ right: QueriedRecord) -> Bool {
        for (field, ascending) in keys {
            let order = Self.compare(left.value(of: field), right.value(of: field))
            if order != 0 { return (order < 0) == ascending }
        }
        return left.name < right.name
    }

    static func compare(_ left: PredicateValue?, _ right: PredicateValue?) -> Int {
        let ranks = order(rank(left), rank(right))
        guard ranks == 0, let left, let right else { return ranks }
        switch (left, right) {
        case (.string(let left), .string(let right)): return order(ItemName(left), ItemName(right))
        case (.date(let left), .date(let right)): return order(left, right)
        case (.data(let left), .data(let right)):
            return left.lexicographicallyPrecedes(right) ? -1 : right.lexicographicallyPrecedes(left) ? 1 : 0
        case (.location(let left), .location(let right)):
            let order = order(left.latitude, right.latitude)
            return order == 0 ? Self.order(left.longitude, right.longitude) : order
        default:
            guard let left = number(left), let right = number(right) else { return 0 }
            return compare(left, right)
        }
    }

    private static func order<Value: Comparable>(_ left: Value, _ right: Value) -> Int {
        left < right ? -1 : right < left ? 1 : 0
    }

    private enum Number {
        case integer(Int64)
        case real(Double)
    }

    private static func number(_ value: PredicateValue) -> Number? {
        switch value {
        case .boolean(let value): .integer(value ? 1 : 0)
        case .integer(let value): .integer(value)
        case .real(let value): .real(value)
        default: nil
        }
    }

    /// Exactly, also where a real has no room for an integer. What is no number is alike.
    private static func compare(_ left: Number, _ right: Number) -> Int {
        switch (left, right) {
        case (.integer(let left), .integer(let right)): return order(left, right)
        case (.real(let left), .real(let right)):
            return order(left, right)
        case (.integer(let left), .real(let right)): return compare(left, right)
        case (.real(let left), .integer(let right)): return -compare(right, left)
        }
    }

    private static func compare(_ integer: Int64, _ real: Double) -> Int {
        if real >= 0x1p63 { return -1 }
        if real < -0x1p63 { return 1 }
        let whole = real.rounded(.down)
        let order = order(integer, Int64(whole))
        return order == 0 && real > whole ? -1 : order
    }

    private static func rank(_ value: PredicateValue?) -> Int {
        switch value {
        case nil: 0
        case .list: 1
        case .location: 2
        case .real(let real) where real.isNaN: 3
        case .boolean, .integer, .real: 4
        case .date: 5
        case .string: 6
        case .data: 7
        }
    }
}
