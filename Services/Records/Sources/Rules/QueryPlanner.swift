internal import NephosCore
internal import NephosPredicates
internal import NephosRecordRules

/// A query as a plan is made for it.
struct QueryShape: Sendable {
    /// Empty: of all types, of which no index is.
    var type: String
    /// All have to be true.
    var parts: [PredicateNode]
    var sort: [IndexDefinition.Field]

    /// Whose records alone are asked for, by the first part; nil: all accounts'.
    let creator: AccountID?

    /// Whether every record of the type is meant.
    var asksForAll: Bool { parts.count == (creator == nil ? 0 : 1) }

    /// Leaves out of the order what is alike in all records found.
    ///
    /// - Parameter creator: Whose records of the type are the only ones that the caller may read.
    init(
        type: String, predicate: QueryPredicate?, sort: [IndexDefinition.Field], madeBy creator: AccountID? = nil
    ) {
        self.type = type
        self.creator = creator
        switch predicate?.root {
        case nil, .constant(true): parts = []
        case .and(let parts): self.parts = parts
        case let root?: parts = [root]
        }
        if let creator, let field = QueriedRecord.creator {
            parts.insert(.comparison(PredicateComparison(field, .equal, [.string(creator.rawValue)])), at: 0)
        }
        let fixed = Set(parts.compactMap(\.fixedField))
        self.sort = sort.filter { !fixed.contains($0.name) }
    }
}

/// Rows of an index that follow one another.
struct IndexSpan: Hashable, Sendable {
    /// What their keys begin with, and what is not part of the order of the query.
    var prefix: [UInt8]
    var start: [UInt8]
    /// The first key behind.
    var end: [UInt8]

    init(_ prefix: [UInt8], _ bounds: (start: [UInt8], end: [UInt8])? = nil) {
        self.prefix = prefix
        start = prefix + (bounds?.start ?? [])
        end = bounds.map { prefix + $0.end } ?? IndexKey.end(of: prefix)
    }
}

/// How an index answers a query. Every record that is found is tested with the whole predicate: so an index may find too
/// many, and never too few.
struct IndexPlan: Sendable {
    var index: RecordIndex
    /// Each is in the order of the query; together they have every record that matches.
    var spans: [IndexSpan]
    /// From the greatest to the least.
    var isReversed = false
    /// Whether the order of the spans is the query's. Else all of them are read, and put in order.
    var isOrdered: Bool
    /// Which parts of the predicate it has answered.
    var answered: Set<Int> = []
    /// What has to have no rows: texts, where `CONTAINS` asks for values of lists.
    var probes: [IndexSpan] = []
    /// Fields that are fixed, one after the other from the first.
    var fixedCount = 0

    /// Whether it looks at records alone that the query's shape is about: where one's own alone are for the caller, an
    /// index that has all accounts' serves if it tells them apart first, and nothing that is done with it then tells of
    /// others'.
    func isWithin(_ shape: QueryShape) -> Bool {
        shape.creator == nil || index.definition.fields.first?.name == QueriedRecord.creator && answered.contains(0)
    }

    /// Whether it looks at less than all records of the type.
    var isNarrow: Bool { !answered.isEmpty }

    /// The better the greater.
    fileprivate var rank: [Int] {
        [isNarrow && isOrdered ? 1 : 0, fixedCount, isOrdered ? 1 : 0, answered.count, -spans.count]
    }
}

/// Which index answers a query, and how: a pure rule.
enum QueryPlanner {
    /// Spans of an index that are read together.
    static let spansMax = 100

    /// All ways in which the indexes answer it, the best first.
    ///
    /// - Parameter words: By which words are known again.
    static func plans(_ query: QueryShape, _ indexes: [RecordIndex], words: SipHash) -> [IndexPlan] {
        guard !query.type.isEmpty else { return [] }
        let usable = indexes.filter { $0.isReady && $0.definition.type.hasSameBytes(as: query.type) }
        let plans = usable.flatMap { index in
            index.definition.fields.isEmpty
                ? wordPlans(query, index, words) : plan(query, index).map { [$0] } ?? []
        }
        // The older of two that are as good: always the same.
        return plans.filter { $0.isWithin(query) }.enumerated().sorted { left, right in
            let (first, second) = (left.element.rank, right.element.rank)
            return first == second ? left.offset < right.offset : second.lexicographicallyPrecedes(first)
        }.map(\.element)
    }

    /// A plan for each word: which of them is rare only the rows tell.
    private static func wordPlans(_ query: QueryShape, _ index: RecordIndex, _ words: SipHash) -> [IndexPlan] {
        query.parts.enumerated().flatMap { place, part -> [IndexPlan] in
            guard case .fullText(let text) = part else { return [] }
            return FoldingRule.current.words(of: text.rawValue).prefix(PredicateLimits.wordsMax).map { word in
                IndexPlan(
                    index: index,
                    spans: [IndexDefinition.wordKey(word, words), IndexKey.more].map { IndexSpan($0) },
                    isOrdered: query.sort.isEmpty, answered: [place], fixedCount: 1)
            }
        }
    }

    private static func plan(_ query: QueryShape, _ index: RecordIndex) -> IndexPlan? {
        var plan = IndexPlan(index: index, spans: [], isOrdered: false)
        var prefixes: [[UInt8]] = [[]]
        var rest = index.definition.fields[...]
        // What is asked to be one of some values.
        while let field = rest.first {
            let asked = query.parts.indices.lazy.compactMap { place in
                query.parts[place].points(of: field).map { (place: place, points: $0) }
            }.first { prefixes.count * $0.points.keys.count <= spansMax }
            guard let asked else { break }
            if asked.points.excludesTexts {
                plan.probes += prefixes.map { IndexSpan($0, field.range(.texts).bounds) }
            }
            prefixes = prefixes.flatMap { start in asked.points.keys.map { start + field.oriented($0) } }
            plan.answered.insert(asked.place)
            plan.fixedCount += 1
            rest = rest.dropFirst()
        }
        if let isReversed = direction(of: rest, query.sort) {
            plan.isOrdered = true
            plan.isReversed = isReversed
        }
        guard let field = rest.first else {
            plan.spans = prefixes.map { IndexSpan($0) }
            return plan
        }
        return bounded(plan, query, by: field, prefixes)
    }

    /// With what is asked of the first field that is not one of some values.
    private static func bounded(
        _ plan: IndexPlan, _ query: QueryShape, by field: IndexDefinition.Field, _ prefixes: [[UInt8]]
    ) -> IndexPlan? {
        var plan = plan
        var (start, end) = field.range(.whole).bounds
        for (place, part) in query.parts.enumerated() {
            guard let range = part.range(of: field) else { continue }
            let bounds = field.range(range).bounds
            if start.lexicographicallyPrecedes(bounds.start) { start = bounds.start }
            if bounds.end.lexicographicallyPrecedes(end) { end = bounds.end }
            plan.answered.insert(place)
        }
        plan.spans = prefixes.map { IndexSpan($0, (start, end)) }
        guard !plan.isOrdered else { return plan }
        // In no order there may be several ranges.
        for (place, part) in query.parts.enumerated() {
            guard let ranges = part.ranges(of: field), prefixes.count * ranges.count <= spansMax else { continue }
            plan.answered.insert(place)
            plan.spans = prefixes.flatMap { prefix in
                ranges.map { IndexSpan(prefix, field.range($0).bounds) }
                    + [IndexSpan(prefix + field.oriented(IndexKey.more))]
            }
            break
        }
        return plan.isNarrow ? plan : nil
    }

    /// Whether the fields are those of the order, from the last to the first; nil: they are others.
    private static func direction(
        of fields: ArraySlice<IndexDefinition.Field>, _ sort: [IndexDefinition.Field]
    ) -> Bool? {
        guard fields.count == sort.count,
            zip(fields, sort).allSatisfy({ $0.name == $1.name && $0.folding == $1.folding })
        else { return nil }
        let differ = zip(fields, sort).map { $0.isDescending != $1.isDescending }
        guard let first = differ.first else { return false }
        return differ.allSatisfy { $0 == first } ? first : nil
    }

    /// The index that would serve the query, if one would.
    static func wanted(for query: QueryShape) -> IndexDefinition? {
        guard !query.type.isEmpty else { return nil }
        if query.sort.isEmpty, query.parts.contains(where: { if case .fullText = $0 { true } else { false } }) {
            return IndexDefinition(type: query.type, fields: [])
        }
        let room = RecordLimits.indexFieldsMax - query.sort.count
        var fields: [IndexDefinition.Field] = []
        func add(_ field: IndexDefinition.Field?) {
            guard let field, fields.count < room, !fields.contains(where: { $0.name == field.name }),
                !query.sort.contains(where: { $0.name == field.name })
            else { return }
            fields.append(field)
        }
        for part in query.parts { add(part.pointField) }
        if query.sort.isEmpty { for part in query.parts where fields.count < room { add(part.rangeField) } }
        fields += query.sort
        return fields.isEmpty ? nil : IndexDefinition(type: query.type, fields: fields)
    }
}

extension IndexDefinition.Field {
    /// The range as it is in the index.
    fileprivate func range(_ range: IndexKeyRange) -> IndexKeyRange { isDescending ? range.reversed : range }
}

// MARK: - What a part asks for

extension PredicateNode {
    /// The field that has one value in all records of which this is true.
    fileprivate var fixedField: FieldName? {
        switch self {
        case .isMissing(let field): field
        case .comparison(let comparison)
        where comparison.relation == .equal && !comparison.any && comparison.folding.isEmpty:
            comparison.field
        default: nil
        }
    }

    /// Keys of the field, one of which a record has of which this is true; nil: it asks for something else.
    fileprivate func points(of field: IndexDefinition.Field) -> (keys: [[UInt8]], excludesTexts: Bool)? {
        switch self {
        case .isMissing(field.name): return ([IndexKey.key(of: nil, field.folding)], false)
        case .comparison(let comparison) where comparison.field == field.name:
            // What is the same for more than this is the same for this.
            guard comparison.folding.isEmpty || comparison.folding == field.folding || !comparison.hasText else {
                return nil
            }
            let operands = comparison.operands
            switch comparison.relation {
            case .equal, .isIn:
                guard comparison.any else {
                    return (Set(operands.map { IndexKey.key(of: $0, field.folding) }).sorted(by: Self.precedes), false)
                }
            case .contains: break
            default: return nil
            }
            guard !operands.isEmpty else { return ([], false) }
            let keys = Set(operands.map { IndexKey.key(ofElement: $0, field.folding) }).union([IndexKey.more])
            return (
                keys.sorted(by: Self.precedes),
                comparison.relation == .contains && comparison.hasText && !comparison.any
            )
        default: return nil
        }
    }

    private static func precedes(_ left: [UInt8], _ right: [UInt8]) -> Bool { left.lexicographicallyPrecedes(right) }

    /// A range that has what the field holds as a whole, of every record of which this is true.
    fileprivate func range(of field: IndexDefinition.Field) -> IndexKeyRange? {
        guard case .comparison(let comparison) = self, comparison.field == field.name, !comparison.any else {
            return nil
        }
        guard comparison.folding == field.folding || !comparison.hasText else { return nil }
        return IndexKeyRange(comparison.relation, comparison.operands, field.folding)
    }

    /// Ranges in which the field, or a value of its list, is; of a list there may be more, which are not in the index.
    fileprivate func ranges(of field: IndexDefinition.Field) -> [IndexKeyRange]? {
        switch self {
        case .distance(let distance) where distance.field == field.name: return distance.keyRanges
        case .comparison(var comparison) where comparison.field == field.name && comparison.any:
            comparison.any = false
            return PredicateNode.comparison(comparison).range(of: field).map { [$0.ofElements] }
        default: return nil
        }
    }

    /// The field by which an index finds it at one place, or at few.
    fileprivate var pointField: IndexDefinition.Field? {
        switch self {
        case .isMissing(let field): IndexDefinition.Field(name: field)
        case .comparison(let comparison) where [.equal, .isIn, .contains].contains(comparison.relation):
            IndexDefinition.Field(name: comparison.field, folding: comparison.hasText ? comparison.folding : [])
        default: nil
        }
    }

    /// The field by which an index finds it in a range.
    fileprivate var rangeField: IndexDefinition.Field? {
        switch self {
        case .distance(let distance) where distance.keyRanges != nil: IndexDefinition.Field(name: distance.field)
        case .comparison(let comparison)
        where IndexKeyRange(comparison.relation, comparison.operands, comparison.folding) != nil:
            IndexDefinition.Field(name: comparison.field, folding: comparison.hasText ? comparison.folding : [])
        default: nil
        }
    }
}

extension PredicateComparison {
    fileprivate var hasText: Bool {
        operands.contains { if case .string = $0 { true } else { false } }
    }
}
