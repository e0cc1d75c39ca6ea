internal import Foundation
internal import NephosBus
internal import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosServiceKit
internal import NephosStorage
internal import NephosWire

/// Records of which a predicate is true, in the order of their names or of some fields, off the loop.
///
/// Each call looks at so many records and no more, and says where it has ended: so a record that matches throughout, with
/// what it is sorted by unchanged, comes exactly once. It sees every save that was committed before.
extension RecordsService {
    /// What a call may cost, in calls.
    static let queryReserves = 320

    struct AskedQuery: Sendable {
        var asked: AskedRecords
        var database: ScopeName
        var shape: QueryShape
        var predicate: CompiledPredicate?
        /// Circles that records of the type are in and the caller too; nil: all records may be looked at.
        var circles: [ReadingCircle]?
        /// What it asks of each record.
        var parts: RecordParts
        /// By which words are known again.
        var words: SipHash
        var cursors: QueryCursors
        /// Nil: it begins.
        var position: QueryPosition?
        var limit: Int
        /// Also where an index would be needed.
        var scans: Bool
        var explains: Bool
        var gathered: GatheredNames
    }

    /// - Throws: ``CloudError`` `.missingEntitlement`, `.zoneNotFound`, `.invalidArguments` (the predicate; the details say
    ///   where), `.limitExceeded`.
    func beginQuery(
        _ request: WireQueryRecords, _ context: RequestContext, _ transaction: any HandlerTransaction
    ) throws -> BulkStep<AskedQuery> {
        let caller = try context.requireCaller()
        let (zone, access) = try openZone(
            request.zoneID, of: request.container, request.database, caller, transaction)
        guard request.type.isEmpty || RecordLimits.isKey(request.type) else {
            throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
        }
        var predicate: QueryPredicate?
        if !request.predicate.isEmpty {
            do { predicate = try QueryPredicate(parsing: request.predicate) } catch { throw error.cloudError }
        }
        let compiled = predicate?.compiled()
        guard compiled?.textPasses ?? 0 <= RecordLimits.textPassesMax else {
            throw CloudError(
                .limitExceeded, "The predicate compares texts too often. Divide the query.",
                details: ["maximum": "\(RecordLimits.textPassesMax)"])
        }
        guard compiled?.listPasses ?? 0 <= RecordLimits.listPassesMax else {
            throw CloudError(
                .limitExceeded, "The predicate goes over lists too often. Ask for several values with IN.",
                details: ["maximum": "\(RecordLimits.listPassesMax)"])
        }
        let asked = try AskedRecords(in: zone, access, fields: request.desiredFields)
        let sort = try Self.sort(request.sort)
        let circles = asked.circles.map { access.circles(of: request.type, among: $0) }
        let shape = QueryShape(
            type: request.type, predicate: predicate, sort: sort,
            madeBy: request.type.isEmpty ? nil : circles?.first?.creator)
        let cursors = QueryCursors(
            asked.opener, caller.app, type: request.type, predicate, sort, madeBy: shape.creator)
        return .read(
            AskedQuery(
                asked: asked, database: zone.database, shape: shape, predicate: compiled, circles: circles,
                parts: RecordParts(of: compiled, sort.map(\.name)),
                words: asked.opener.words, cursors: cursors, position: try cursors.position(request.after),
                limit: request.limit == 0 ? RecordLimits.itemsMax : min(Int(request.limit), RecordLimits.itemsMax),
                scans: request.scan, explains: request.explain, gathered: gathered))
    }

    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`.
    private static func sort(_ wire: [WireRecordSort]) throws -> [IndexDefinition.Field] {
        guard wire.count <= RecordLimits.indexFieldsMax else {
            throw CloudError(
                .limitExceeded, "Records are put in order by fewer fields.",
                details: ["maximum": "\(RecordLimits.indexFieldsMax)"])
        }
        let fields = try wire.map {
            try IndexDefinition.Field($0.field, descending: $0.descending, folding: $0.folding)
        }
        guard Set(fields.map(\.name)).count == fields.count else {
            throw CloudError(
                .invalidArguments, "A field is in the order twice. Name it once.", details: ["argument": "sort"])
        }
        return fields
    }

    @Sendable static func query(_ query: AskedQuery, _ feed: any FeedReader) throws -> SnapshotReply {
        try query.asked.requireSameRoles(in: feed)
        let run = QueryRun(query, feed)
        try run.run()
        return SnapshotReply(Frame(encoding: run.reply), of: query.asked.opener.scope, unreadable: run.unreadable)
    }
}

/// Where a query goes on, as devices keep it.
///
/// One in the order of names goes on after a name. Of another one the place has what records are sorted by: it is sealed
/// with the owner's key, and opens only for the same query of the same zone by the same app. So is each of a public
/// database, since the record that was looked at last may be one that is not for the caller.
struct QueryCursors: Sendable {
    private let key: OwnerKey?
    private let context: [UInt8]
    private let isSealed: Bool

    init(
        _ opener: RecordOpener, _ app: AppID, type: String, _ predicate: QueryPredicate?,
        _ sort: [IndexDefinition.Field], madeBy creator: AccountID?
    ) {
        key = opener.key
        isSealed = !sort.isEmpty || opener.scope.owner.isApp
        let fields = sort.map { "\($0.name) \($0.isDescending) \($0.folding.rawValue)" }
        let parts =
            ["records/cursor", opener.scope.owner.rawValue, opener.scope.path.rawValue, app.rawValue, type]
            // Where one's own alone are for the caller their creator is no part of the order.
            + [fields.joined(separator: ","), creator?.rawValue ?? "", predicate?.description ?? ""]
        context = [UInt8](parts.joined(separator: "\u{0}").utf8)
    }

    private static let versionByte: UInt8 = 1

    /// - Throws: ``CloudError`` `.internalError`: the owner's key is gone. No place would say that this was all.
    func text(of position: QueryPosition) throws -> String {
        guard isSealed else { return position.name.rawValue }
        guard let key else { throw RecordOpener.keyIsGone }
        // Within 3 keys.
        let length = UInt16(clamping: position.sortKey.count)
        let bytes =
            [Self.versionByte, position.isReversed ? 1 : 0, UInt8(length >> 8), UInt8(truncatingIfNeeded: length)]
            + position.sortKey + [UInt8](position.name.rawValue.utf8)
        return Data(try key.seal(bytes, boundTo: context).bytes).base64EncodedString()
    }

    /// - Returns: Nil: it begins.
    /// - Throws: ``CloudError`` `.invalidArguments`: it is of another query, or was changed.
    func position(_ text: String) throws(CloudError) -> QueryPosition? {
        guard !text.isEmpty else { return nil }
        guard isSealed else { return QueryPosition(name: ItemName(text)) }
        guard text.utf8.count <= 4096, let sealed = Data(base64Encoded: text), let key,
            let bytes = try? key.open(Sealed(bytes: [UInt8](sealed)), boundTo: context), bytes.count >= 4,
            bytes[0] == Self.versionByte
        else { throw Self.foreign }
        let end = 4 + Int(bytes[2]) << 8 + Int(bytes[3])
        guard end <= bytes.count else { throw Self.foreign }
        return QueryPosition(
            sortKey: Array(bytes[4..<end]), name: ItemName(String(decoding: bytes[end...], as: UTF8.self)),
            isReversed: bytes[1] == 1)
    }

    private static let foreign = CloudError(
        .invalidArguments, "The query cannot go on there: the place is another query's. Begin anew.",
        details: ["argument": "after"])
}

extension RecordOpener {
    /// By which words of an index are known again.
    var words: SipHash {
        key.flatMap { SipHash(key: $0.derived(for: "records/words").prefix(SipHash.keyByteCount)) }
            ?? SipHash()
    }
}
