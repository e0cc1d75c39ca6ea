internal import NephosBus
internal import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Records of which a predicate is true, in the order of their names, off the loop.
///
/// Each call looks at so many records and no more, and says where it has ended: so a record that matches throughout comes
/// exactly once, and a query of any zone takes as many calls as it needs. It sees every save that was committed before.
extension RecordsService {
    /// What a call may cost, in calls.
    static let queryReserves = 320

    struct AskedQuery: Sendable {
        var asked: AskedRecords
        /// Empty: all.
        var type: String
        var predicate: CompiledPredicate?
        var after: ItemName
        var limit: Int
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`, `.invalidArguments` (the predicate; the details say
    ///   where), `.limitExceeded`.
    func beginQuery(
        _ request: WireQueryRecords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedQuery> {
        let zone = try openZone(request.zoneID, of: request.container, context.requireCaller(), transaction)
        guard request.type.isEmpty || RecordLimits.isKey(request.type) else {
            throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
        }
        var predicate: CompiledPredicate?
        if !request.predicate.isEmpty {
            do { predicate = try QueryPredicate(parsing: request.predicate).compiled() } catch {
                throw error.cloudError
            }
        }
        guard predicate?.textPasses ?? 0 <= RecordLimits.textPassesMax else {
            throw CloudError(
                .limitExceeded, "The predicate compares texts too often. Divide the query.",
                details: ["maximum": "\(RecordLimits.textPassesMax)"])
        }
        return .read(
            AskedQuery(
                asked: try AskedRecords(in: zone, fields: request.desiredFields), type: request.type,
                predicate: predicate, after: ItemName(request.after),
                limit: request.limit == 0 ? RecordLimits.itemsMax : min(Int(request.limit), RecordLimits.itemsMax)))
    }

    @Sendable static func query(_ query: AskedQuery, _ feed: any FeedReader) throws -> Frame {
        var reply = WireQueryRecordsReply()
        let scope = query.asked.opener.scope
        reply.token = WireChangeToken(try feed.head(scope).token)
        var bytesLeft = RecordLimits.replyBytesMax
        var examinedBytes = 0
        let passes = max(1, query.predicate?.textPasses ?? 0)
        var last = query.after
        var hasMore = false
        try feed.rows(scope, afterName: query.after) { row in
            guard reply.examined < RecordLimits.examinedMax, examinedBytes < RecordLimits.examinedBytesMax,
                reply.records.count < query.limit
            else {
                hasMore = true
                return false
            }
            reply.examined += 1
            examinedBytes += row.bodyBytes * passes
            if !row.deleted, let change = try query.match(row) {
                guard change.body.count <= bytesLeft || reply.records.isEmpty else {
                    hasMore = true
                    return false
                }
                bytesLeft -= change.body.count
                reply.records.append(change)
            }
            last = row.name
            return true
        }
        if hasMore { reply.after = last.rawValue }
        return Frame(encoding: reply)
    }
}

extension RecordsService.AskedQuery {
    /// - Returns: The record as it is sent; nil: it is not meant.
    fileprivate func match(_ row: FeedRow) throws -> WireChange? {
        try asked.change(of: row.item) { record in
            (type.isEmpty || record.type.hasSameBytes(as: type))
                && predicate?.matches(QueriedRecord(name: row.name, record: record)) ?? true
        }
    }
}
