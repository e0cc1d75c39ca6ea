public import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosWire

/// An index of a record type: the fields by which the server finds records, in all zones of a database.
public struct RecordIndex: Sendable, Hashable {
    /// A field of an index.
    public struct Field: Sendable, Hashable {
        /// A field's name, or one that every record has, such as `_creationDate`.
        public var name: String
        public var ascending: Bool
        /// Whether case is ignored in texts.
        public var ignoresCase: Bool
        /// Whether accents are ignored in texts.
        public var ignoresAccents: Bool

        /// A field.
        public init(
            _ name: String, ascending: Bool = true, ignoresCase: Bool = false, ignoresAccents: Bool = false
        ) {
            self.name = name
            self.ascending = ascending
            self.ignoresCase = ignoresCase
            self.ignoresAccents = ignoresAccents
        }
    }

    public var type: String
    /// 1 to 3 fields; of a list, each value is in the index. None: the words of all texts of a record, for `self
    /// CONTAINS`.
    public var fields: [Field]
    /// Whether queries use it; false: existing records are still being indexed. Ignored when an index is created or
    /// removed.
    public internal(set) var isReady = true

    /// An index.
    public init(type: String, fields: [Field]) {
        self.type = type
        self.fields = fields
    }
}

/// How the server answers a query.
public struct RecordQueryPlan: Sendable, Hashable {
    /// The server's methods.
    public enum Way: String, Sendable {
        /// Reads one record of the zone after the other.
        case scan
        /// Reads in the order of an index.
        case index
        /// Sorts the records that an index has found.
        case indexSorted = "index_sorted"
        /// Sorts all records of the zone.
        case scanSorted = "scan_sorted"
    }

    public var way: Way
    /// Nil: none.
    public var index: RecordIndex?
    /// Number of ranges of the index that are read.
    public var ranges: Int
    /// Parts of the predicate that the index answers, and parts that are tested on each record found.
    public var answered: [String]
    public var tested: [String]
    /// Rows of indexes, and records, that the first call has read.
    public var rows: Int
    public var examined: Int
    /// The index that would serve the query best, if it is missing.
    public var wanted: RecordIndex?
}

/// The server's indexes of a database, as ``RecordDatabase/indexes`` has them. Each call asks the server.
public struct RecordIndexes: Sendable {
    let database: RecordDatabase

    /// The indexes of the database, as the server has them now.
    ///
    /// - Throws: ``CloudError`` `.networkUnavailable` and the like, `.notSignedIn`.
    public func list(timeout: Duration? = nil) async throws(CloudError) -> [RecordIndex] {
        var request = WireListRecordIndexes()
        request.container = database.container
        request.database = database.kind
        let reply = try await database.session.call(
            .records, request, as: WireListRecordIndexesReply.self, app: database.app, timeout: timeout,
            account: database.account)
        return reply.indexes.map(RecordIndex.init)
    }

    /// Creates and removes indexes, all or none; repeating a change is no error. If records of the type exist, the
    /// index is built in the background.
    ///
    /// - Returns: All indexes of the database.
    /// - Throws: ``CloudError`` `.invalidArguments` (a malformed type or field), `.limitExceeded` (too many: remove
    ///   some), `.networkUnavailable` and the like, `.notSignedIn`. Nothing was done then.
    @discardableResult
    public func modify(
        saving: [RecordIndex] = [], deleting: [RecordIndex] = [], timeout: Duration? = nil
    ) async throws(CloudError) -> [RecordIndex] {
        var request = WireModifyRecordIndexes()
        request.container = database.container
        request.database = database.kind
        request.save = saving.map(\.wire)
        request.delete = deleting.map(\.wire)
        let reply = try await database.session.call(
            .records, request, as: WireModifyRecordIndexesReply.self, app: database.app, timeout: timeout,
            account: database.account)
        return reply.indexes.map(RecordIndex.init)
    }

    /// How the server would answer a query, by its first call.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` until the database was downloaded, `.zoneNotFound`; `.invalidArguments`,
    ///   `.limitExceeded` (more than three fields in the order), `.networkUnavailable` and the like, `.notSignedIn`.
    public func explain(
        _ query: RecordQuery, in zone: String = RecordZone.defaultName, timeout: Duration? = nil
    ) async throws(CloudError) -> RecordQueryPlan {
        var request = WireQueryRecords()
        request.container = database.container
        request.database = database.kind
        request.zoneID = try database.id(of: zone)
        request.type = query.type ?? ""
        request.predicate = query.predicate?.description ?? ""
        request.limit = UInt32(clamping: max(0, query.limit ?? 0))
        request.sort = query.sort.map(\.wire)
        // A plan is told also of what no index serves.
        request.scan = true
        request.explain = true
        let reply = try await database.session.call(
            .records, request, as: WireQueryRecordsReply.self, app: database.app, timeout: timeout,
            account: database.account)
        guard reply.hasPlan else { throw RecordDatabase.misfit }
        return RecordQueryPlan(reply)
    }
}

extension RecordQueryPlan {
    fileprivate init(_ reply: WireQueryRecordsReply) {
        let plan = reply.plan
        way =
            switch plan.way {
            case .index: .index
            case .indexSorted: .indexSorted
            case .scanSorted: .scanSorted
            case .scan, .UNRECOGNIZED: .scan
            }
        index = plan.hasIndex ? RecordIndex(plan.index) : nil
        ranges = Int(plan.ranges)
        answered = plan.answered
        tested = plan.tested
        rows = Int(plan.rows)
        examined = Int(reply.examined)
        wanted = plan.hasWanted ? RecordIndex(plan.wanted) : nil
    }
}

extension RecordIndex {
    fileprivate init(_ wire: WireRecordIndex) {
        self.init(
            type: wire.type,
            fields: wire.fields.map { field in
                Field(
                    field.field, ascending: !field.descending, ignoresCase: field.folding & 1 != 0,
                    ignoresAccents: field.folding & 2 != 0)
            })
    }

    fileprivate init(_ state: WireRecordIndexState) {
        self.init(state.index)
        isReady = state.state == .ready
    }

    fileprivate var wire: WireRecordIndex {
        var wire = WireRecordIndex()
        wire.type = type
        wire.fields = fields.map { field in
            var wire = WireIndexedField()
            wire.field = field.name
            wire.descending = !field.ascending
            wire.folding = (field.ignoresCase ? 1 : 0) | (field.ignoresAccents ? 2 : 0)
            return wire
        }
        return wire
    }
}

extension RecordIndex {
    /// As the service describes one that a query needs: `Note(kind, title[cd] descending)`.
    ///
    /// - Parameter isOfWords: The words of all texts; `words` is no field then.
    /// - Returns: Nil: it cannot be read.
    init?(described text: String, isOfWords: Bool) {
        guard let brace = text.firstIndex(of: "("), text.last == ")" else { return nil }
        self.init(type: String(text[..<brace]), fields: [])
        guard !isOfWords else { return }
        for part in text[text.index(after: brace)...].dropLast().split(separator: ",") {
            let words = part.split(separator: " ")
            guard let first = words.first, words.count == 1 || words.count == 2 && words[1] == "descending" else {
                return nil
            }
            let name = String(first.prefix { $0 != "[" })
            let letters = first.drop { $0 != "[" }
            guard !name.isEmpty else { return nil }
            fields.append(
                Field(
                    name, ascending: words.count == 1, ignoresCase: letters.contains("c"),
                    ignoresAccents: letters.contains("d")))
        }
        guard !fields.isEmpty else { return nil }
    }
}
