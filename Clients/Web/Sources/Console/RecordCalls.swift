internal import Foundation
internal import NephosCore
internal import NephosKit
internal import NephosPredicates

/// The calls of the page of records that change nothing. Records are read from the copy that the session's device
/// keeps, and of a public database from the server.
enum RecordCalls {
    /// Records of a page.
    private static let pageMax = 200
    /// Records that are in memory at a time.
    private static let batchCount = 50
    /// Records whose types and fields are listed.
    private static let sampleMax = 500
    /// Records in an order of fields that are listed at most: each page reads those before it again.
    private static let sortedMax = 10_000

    static let methods: [String: ConsoleMethod] = [
        "records.zones": ConsoleMethod(zones), "records.types": ConsoleMethod(types),
        "records.query": ConsoleMethod(query), "records.explain": ConsoleMethod(explain),
        "records.get": ConsoleMethod(get), "records.save": ConsoleMethod(save), "records.delete": ConsoleMethod(delete),
        "records.conflicts": ConsoleMethod(conflicts), "records.resolve": ConsoleMethod(resolve),
    ]

    struct Place: RecordPlaceArguments {
        var container: String?
        var database: String?
        var zone: String?
    }

    // MARK: Zones and types

    private struct Zones: Encodable {
        struct Zone: Encodable {
            var name: String
            var created: Int64?
            var isPending: Bool?
        }
        var zones: [Zone]
        /// Of all zones, also of deleted ones.
        var conflicts: Int
    }

    private static func zones(_ user: WebUser, _ arguments: Place) async throws -> Zones {
        let database = try await user.records(arguments)
        let zones: [RecordZone]
        do throws(CloudError) { zones = try await database.zones.list() } catch {
            guard error.code == .storeOutOfStep else { throw error }
            try await database.scope.waitUntilCurrent(timeout: .seconds(30), isImpatient: true)
            zones = try await database.zones.list()
        }
        var conflicts = 0
        // A public database has none where it was never used.
        for zone in (try? await database.conflicts.undecidedZones()) ?? [] {
            conflicts += (try? await database.scope(of: zone).conflictCount()) ?? 0
        }
        return Zones(
            zones: zones.map { zone in
                Zones.Zone(
                    name: zone.name, created: zone.created?.milliseconds, isPending: zone.id == nil ? true : nil)
            }, conflicts: conflicts)
    }

    private struct Types: Encodable {
        struct Kind: Encodable {
            struct Field: Encodable {
                var name: String
                var types: [String]
            }
            var name: String
            var fields: [Field]
        }
        var types: [Kind]
        /// The zone has more records than were looked at, and may have more types.
        var isPartial: Bool?
    }

    /// Records have no schema: these are the types of the zone's first records and of the database's indexes.
    private static func types(_ user: WebUser, _ arguments: Place) async throws -> Types {
        let database = try await user.readableRecords(arguments)
        var found: [String: [String: Set<String>]] = [:]
        var count = 0
        var query = RecordQuery(limit: sampleMax)
        query.allowsScan = true
        for try await page in database.pages(matching: query, in: arguments.zoneName, size: batchCount) {
            count += page.count
            for record in page {
                var fields = found[record.type] ?? [:]
                for (name, value) in record.fields { fields[name, default: []].insert(value.typeName) }
                found[record.type] = fields
            }
        }
        let isPartial = count == sampleMax
        if isPartial {
            for index in (try? await database.indexes.list(timeout: .seconds(2))) ?? [] {
                for field in index.fields.map(\.name) where !field.hasPrefix("_") {
                    found[index.type, default: [:]][field] = found[index.type]?[field] ?? []
                }
            }
        }
        return Types(
            types: found.sorted { $0.key < $1.key }.map { type in
                Types.Kind(
                    name: type.key,
                    fields: type.value.sorted { $0.key < $1.key }.map { field in
                        Types.Kind.Field(name: field.key, types: field.value.sorted())
                    })
            }, isPartial: isPartial ? true : nil)
    }

    // MARK: Queries

    private struct Query: RecordPlaceArguments {
        struct Sort: Decodable {
            var field: String
            var isDescending: Bool?
            var ignoresCase: Bool?
        }
        var container: String?
        var database: String?
        var zone: String?
        var type: String?
        var predicate: String?
        var sort: [Sort]?
        /// From a former page's `next`.
        var after: String?
        var limit: Int?

        /// - Throws: ``CloudError``; for a predicate `start` and `end` of the place, in UTF-16 units as in JavaScript.
        func query() throws -> RecordQuery {
            var query = RecordQuery(type: type.flatMap { $0.isEmpty ? nil : $0 })
            query.sort = try (sort ?? []).map { sort in
                guard FieldName(sort.field) != nil else {
                    throw CloudError(
                        .invalidArguments, "Records cannot be sorted by this: it is no field.",
                        details: ["field": sort.field])
                }
                return RecordSort(
                    sort.field, ascending: sort.isDescending != true, ignoresCase: sort.ignoresCase ?? false)
            }
            guard let text = predicate, !text.allSatisfy(\.isWhitespace) else { return query }
            do throws(QueryPredicateError) { query.predicate = try QueryPredicate(parsing: text) } catch {
                let plain = error.cloudError
                func place(_ offset: Int) -> String {
                    "\(String(decoding: text.utf8.prefix(offset), as: UTF8.self).utf16.count)"
                }
                throw CloudError(
                    plain.code, error.message,
                    details: [
                        "predicate_error": "\(error.code)", "start": place(error.range.lowerBound),
                        "end": place(error.range.upperBound),
                    ])
            }
            return query
        }
    }

    private struct Queried: Encodable {
        var records: [RecordRow]
        /// The next page's `after`; nil: these were the last.
        var next: String?
    }

    private static func query(_ user: WebUser, _ arguments: Query) async throws -> Queried {
        var query = try arguments.query()
        let database = try await user.readableRecords(arguments)
        let limit = min(max(arguments.limit ?? pageMax, 1), pageMax)
        var skipped = 0
        if query.sort.isEmpty {
            // A public database goes on from page to page; in an order that no index has it would be read as a whole.
            query.allowsScan = true
            if let name = arguments.after { query.predicate = try Self.predicate(query.predicate, afterName: name) }
        } else if let after = arguments.after {
            guard let count = Int(after), (0...sortedMax).contains(count) else {
                throw CloudError(
                    .limitExceeded, "In this order no more records are listed. Narrow the query with a predicate.",
                    details: ["records_max": "\(sortedMax)"])
            }
            skipped = count
        }
        query.limit = skipped + limit + 1
        var rows: [RecordRow] = []
        var hasMore = false
        var passed = 0
        for try await page in database.pages(matching: query, in: arguments.zoneName, size: batchCount) {
            for record in page {
                passed += 1
                if passed <= skipped { continue }
                if rows.count == limit { hasMore = true } else { rows.append(RecordRow(record, isShort: true)) }
            }
        }
        let next = query.sort.isEmpty ? rows.last?.name : "\(skipped + rows.count)"
        return Queried(records: rows, next: hasMore ? next : nil)
    }

    private static func predicate(_ predicate: QueryPredicate?, afterName name: String) throws -> QueryPredicate {
        guard let field = FieldName("_recordName") else { throw CloudError(.internalError, "There is no such field.") }
        let rest = PredicateNode.comparison(PredicateComparison(field, .greater, [.string(name)]))
        do throws(QueryPredicateError) {
            return try QueryPredicate(predicate.map { .and([$0.root, rest]) } ?? rest)
        } catch { throw error.cloudError }
    }

    private struct Plan: Encodable {
        var way: String
        /// `Note(kind, -size)`.
        var index: String?
        var ranges: Int
        var answered: [String]
        var tested: [String]
        var rows: Int
        var examined: Int
        /// The index that would serve the query, and is missing.
        var wanted: String?
    }

    private static func explain(_ user: WebUser, _ arguments: Query) async throws -> Plan {
        let query = try arguments.query()
        let plan = try await user.readableRecords(arguments).indexes.explain(
            query, in: arguments.zoneName, timeout: .seconds(10))
        return Plan(
            way: plan.way.rawValue, index: plan.index.map(text), ranges: plan.ranges, answered: plan.answered,
            tested: plan.tested, rows: plan.rows, examined: plan.examined, wanted: plan.wanted.map(text))
    }

    private static func text(of index: RecordIndex) -> String {
        let fields = index.fields.map { field in
            let folding = (field.ignoresCase ? "c" : "") + (field.ignoresAccents ? "d" : "")
            return (field.ascending ? "" : "-") + field.name + (folding.isEmpty ? "" : "[\(folding)]")
        }
        return "\(index.type)(\(fields.joined(separator: ", ")))"
    }

    // MARK: One record

    struct OfRecord: RecordPlaceArguments {
        var container: String?
        var database: String?
        var zone: String?
        var name: String
        /// As the page has the record; nil: the page does not know one.
        var changeTag: String?
    }

    struct Answer: Encodable {
        var record: RecordRow
    }

    private static func get(_ user: WebUser, _ arguments: OfRecord) async throws -> Answer {
        let database = try await user.readableRecords(arguments)
        let id = RecordID(arguments.name, zone: arguments.zoneName)
        guard let record = try await database.record(id) else { throw unknown(id) }
        return Answer(record: RecordRow(record, devices: await user.deviceNames()))
    }

    static func unknown(_ id: RecordID) -> CloudError {
        CloudError(.unknownItem, "There is no such record.", details: ["record": id.name, "zone": id.zone])
    }
}

/// The arguments of each call of records: where they are.
protocol RecordPlaceArguments: Decodable, Sendable, SendableMetatype {
    /// Nil: the app's first.
    var container: String? { get }
    /// `private` (also if it is nil) or `public`.
    var database: String? { get }
    /// Nil: the default zone.
    var zone: String? { get }
}

extension RecordPlaceArguments {
    var zoneName: String { zone ?? RecordZone.defaultName }
}

extension WebUser {
    func records(_ arguments: some RecordPlaceArguments) async throws(CloudError) -> RecordDatabase {
        let container = try await session.recordContainer(arguments.container)
        switch arguments.database {
        case nil, "private"?: return container.privateDatabase
        case "public"?: return container.publicDatabase
        default: throw CloudError(.invalidArguments, "A database is private or public.")
        }
    }

    /// The database, once the zone is known here: it is not on a new device.
    func readableRecords(_ arguments: some RecordPlaceArguments) async throws(CloudError) -> RecordDatabase {
        let database = try await records(arguments)
        guard !database.isPublic else { return database }
        do throws(CloudError) {
            // Any name will do.
            _ = try await database.record(RecordID("none", zone: arguments.zoneName), from: .localOnly)
        } catch {
            guard error.code == .storeOutOfStep else { throw error }
            try await database.ready(zone: arguments.zoneName, timeout: .seconds(60))
        }
        return database
    }
}
