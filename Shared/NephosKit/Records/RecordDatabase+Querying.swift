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
        guard query.limit.map({ $0 > 0 }) ?? true else { return [] }
        guard try !isRead(source) else {
            var found: [Record] = []
            var reading = RecordReading(query)
            while let page = try read({ try reading.next(in: records(of: zone, $0), count: .max) }) { found += page }
            return found
        }
        // In the order of names the first ones are all.
        let found = try await ask(query, in: zone, limit: query.sort.isEmpty ? query.limit ?? .max : .max)
        return RecordOrder(query.sort).sorted(found).prefix(query.limit ?? .max).map { queried in
            Record(
                RecordID(queried.name.rawValue, zone: zone), queried.record, desired: query.desiredFields)
        }
    }

    /// The same page by page, from this device's copy, of a zone that may have any number of records: no more than two
    /// pages, and 16 MiB of what is to be put in order, are in memory.
    ///
    /// Each page is as the copy is when it is read. What comes in before the page that was read last is not seen; what has
    /// changed is as it is by then, and left out where it is not meant any more.
    ///
    /// - Parameter size: Records of a page.
    public func pages(
        matching query: RecordQuery = RecordQuery(), in zone: String = RecordZone.defaultName, size: Int = 400
    ) -> RecordPages {
        RecordPages(database: self, query: query, zone: zone, size: max(1, size))
    }

    /// All that the server has of it, in the order of names.
    private func ask(_ query: RecordQuery, in zone: String, limit: Int) async throws(CloudError) -> [QueriedRecord] {
        var request = WireQueryRecords()
        request.container = container
        request.database = kind
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
            guard isPublic ? request.after != reply.after : ItemName(request.after) < ItemName(reply.after) else {
                throw Self.misfit
            }
            request.after = reply.after
        }
        return found
    }
}
