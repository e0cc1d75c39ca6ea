import NephosCore
import NephosRecordRules
import NephosWire
import SwiftProtobuf

/// How far a query was read from the server, which puts in order and counts by itself.
struct RecordAsking {
    private let database: RecordDatabase
    private let query: RecordQuery
    private let zone: String
    private var request = WireQueryRecords()
    private var left: Int
    private var hasBegun = false
    private var isDone = false
    /// Put in order here, since no index does: what was not read yet.
    private var ordered: ArraySlice<Record>?

    init(
        _ query: RecordQuery, in zone: String, of database: RecordDatabase
    ) {
        self.query = query
        self.zone = zone
        self.database = database
        left = query.limit ?? .max
    }

    /// - Returns: Nil: that was all.
    /// - Throws: ``CloudError`` as ``RecordDatabase/records(matching:in:from:)`` does.
    mutating func next(count: Int) async throws(CloudError) -> [Record]? {
        if !hasBegun {
            request = try request(sort: query.sort)
            hasBegun = true
            do throws(CloudError) { return try await page(count) } catch {
                guard error.isForWantOfIndex, query.allowsScan, !query.sort.isEmpty else { throw error }
                ordered = try await gathered()[...]
            }
        }
        guard let ordered else { return try await page(count) }
        self.ordered = ordered.dropFirst(count)
        return ordered.isEmpty ? nil : Array(ordered.prefix(count))
    }

    private func request(sort: [RecordSort]) throws(CloudError) -> WireQueryRecords {
        var request = WireQueryRecords()
        request.container = database.container
        request.database = database.kind
        request.zoneID = try database.id(of: zone)
        request.type = query.type ?? ""
        request.predicate = query.predicate?.description ?? ""
        request.sort = sort.map(\.wire)
        request.scan = query.allowsScan
        request.desiredFields = (query.desiredFields ?? []).sorted()
        return request
    }

    private mutating func page(_ count: Int) async throws(CloudError) -> [Record]? {
        var page: [Record] = []
        while page.count < min(count, left), !isDone {
            let wanted = min(count, left) - page.count
            // 0 is as many as the service sends.
            request.limit = wanted >= RecordLimits.itemsMax ? 0 : UInt32(clamping: wanted)
            for (change, record) in try await ask() {
                page.append(Record(RecordID(change.item, zone: zone), record, desired: query.desiredFields))
            }
        }
        left -= page.count
        return page.isEmpty ? nil : page
    }

    /// One call.
    private mutating func ask() async throws(CloudError) -> [(WireChange, WireRecord)] {
        let reply = try await database.session.call(
            .records, request, as: WireQueryRecordsReply.self, app: database.app, account: database.account)
        var found: [(WireChange, WireRecord)] = []
        for change in reply.records where !change.deleted {
            guard let record = try? WireRecord(serializedBytes: change.body) else { throw RecordDatabase.misfit }
            found.append((change, record))
        }
        guard request.limit == 0 || found.count <= Int(request.limit), found.count <= RecordLimits.itemsMax else {
            throw RecordDatabase.misfit
        }
        isDone = reply.after.isEmpty
        // A service that stands still would be asked for ever.
        let isOpaque = database.isPublic || !request.sort.isEmpty
        guard isDone || (isOpaque ? request.after != reply.after : ItemName(request.after) < ItemName(reply.after))
        else { throw RecordDatabase.misfit }
        request.after = reply.after
        return found
    }

    /// All of it, in the order of the query.
    private mutating func gathered() async throws(CloudError) -> [Record] {
        request = try request(sort: [])
        if let desired = query.desiredFields {
            request.desiredFields = desired.union(query.sort.map(\.field).filter(RecordLimits.isKey)).sorted()
        }
        request.limit = 0
        isDone = false
        var found: [QueriedRecord] = []
        while !isDone {
            for (change, record) in try await ask() {
                found.append(QueriedRecord(name: ItemName(change.item), record: record))
            }
        }
        return RecordOrder(query.sort).sorted(found).prefix(left).map { queried in
            Record(RecordID(queried.name.rawValue, zone: zone), queried.record, desired: query.desiredFields)
        }
    }
}

extension CloudError {
    fileprivate var isForWantOfIndex: Bool {
        code == .limitExceeded
            && ["index_needed", "index_building", "order_needed"].contains(details["reason"] ?? "")
    }
}
