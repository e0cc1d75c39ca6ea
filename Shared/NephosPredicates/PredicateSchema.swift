/// The type of a field, as a schema says it.
public indirect enum PredicateType: Hashable, Sendable {
    case boolean
    case integer
    case real
    case string
    case date
    case data
    case location
    /// The name of another record: a text that is only the same or not, without order or parts.
    case reference
    case list(PredicateType)
}

/// The fields that a predicate may ask for.
public struct PredicateSchema: Sendable {
    public var fields: [FieldName: PredicateType]

    public init(_ fields: [FieldName: PredicateType]) { self.fields = fields }

    /// The known name that the other one was probably meant to be: one that differs in capitals or in few letters.
    func nearest(to name: FieldName) -> FieldName? {
        let typed = Array(name.rawValue.lowercased().utf8)
        // What is compared costs the product of both lengths.
        guard typed.count <= 64 else { return nil }
        let changesMax = max(1, typed.count / 3)
        var best: (name: FieldName, changes: Int)?
        for candidate in fields.keys where abs(candidate.rawValue.utf8.count - typed.count) <= changesMax {
            let changes = Self.changes(from: typed, to: Array(candidate.rawValue.lowercased().utf8))
            guard changes <= changesMax else { continue }
            if let best, (best.changes, best.name) < (changes, candidate) { continue }
            best = (candidate, changes)
        }
        return best?.name
    }

    /// How many letters have to be put in, taken out, replaced or exchanged with their neighbour.
    private static func changes(from left: [UInt8], to right: [UInt8]) -> Int {
        var beforeLast: [Int] = []
        var last = Array(0...right.count)
        for (row, byte) in left.enumerated() {
            var current = [row + 1]
            for (column, other) in right.enumerated() {
                var cost = min(last[column] + (byte == other ? 0 : 1), last[column + 1] + 1, current[column] + 1)
                if row > 0, column > 0, byte == right[column - 1], left[row - 1] == other {
                    cost = min(cost, beforeLast[column - 1] + 1)
                }
                current.append(cost)
            }
            (beforeLast, last) = (last, current)
        }
        return last[right.count]
    }
}

extension QueryPredicate {
    /// Checks that the schema has every field, and that each may be compared so.
    ///
    /// - Throws: ``QueryPredicateError`` `.unknownField` or `.wrongType`, for the first place of the text that the
    ///   predicate was read from, or of ``description`` if a program made it.
    public func check(against schema: PredicateSchema) throws(QueryPredicateError) {
        var leaf = 0
        try check(root, against: schema, &leaf)
    }

    private func check(
        _ node: PredicateNode, against schema: PredicateSchema, _ leaf: inout Int
    ) throws(QueryPredicateError) {
        switch node {
        case .constant, .fullText: break
        case .and(let parts), .or(let parts):
            for part in parts { try check(part, against: schema, &leaf) }
        case .not(let part): try check(part, against: schema, &leaf)
        case .isMissing(let field), .isPresent(let field): _ = try type(of: field, in: schema, &leaf)
        case .distance(let distance):
            let (type, places) = try type(of: distance.field, in: schema, &leaf)
            guard type == .location else {
                throw QueryPredicateError(.wrongType, at: places.field, "Expected a field that holds a location.")
            }
        case .comparison(let comparison):
            let (type, places) = try type(of: comparison.field, in: schema, &leaf)
            try check(comparison, type, places)
        }
    }

    private func type(
        of field: FieldName, in schema: PredicateSchema, _ leaf: inout Int
    ) throws(QueryPredicateError) -> (PredicateType, LeafPlaces) {
        let places = leaf < places.count ? places[leaf] : LeafPlaces(field: 0..<0, relation: 0..<0, operands: [])
        leaf += 1
        if let type = schema.fields[field] { return (type, places) }
        throw QueryPredicateError(
            .unknownField, at: places.field,
            schema.nearest(to: field).map { "There is no such field. Did you mean \($0)?" }
                ?? "There is no such field. Use one that the schema names.")
    }

    private func check(
        _ comparison: PredicateComparison, _ type: PredicateType, _ places: LeafPlaces
    ) throws(QueryPredicateError) {
        var compared = type
        if case .list(let element) = type {
            guard comparison.any || comparison.relation == .contains else {
                throw QueryPredicateError(
                    .wrongType, at: places.relation,
                    "This field holds a list. Write ANY before it, or CONTAINS after it.")
            }
            compared = element
        } else {
            if comparison.any {
                throw QueryPredicateError(.wrongType, at: places.field, "ANY goes before a field that holds a list.")
            }
            if comparison.relation == .contains, type != .string {
                throw QueryPredicateError(
                    .wrongType, at: places.relation, "CONTAINS is about parts of a text, or elements of a list.")
            }
        }
        if compared == .reference {
            let isEquality =
                switch comparison.relation {
                case .equal, .notEqual, .isIn, .contains: true
                default: false
                }
            guard isEquality, comparison.folding.isEmpty else {
                throw QueryPredicateError(
                    .wrongType, at: places.relation,
                    "A reference is compared with ==, != or IN, without [c] and [d]; a list of them also with CONTAINS."
                )
            }
        }
        guard let expected = compared.expected else {
            throw QueryPredicateError(
                .wrongType, at: places.field,
                "A location is compared by distance(field, point(latitude, longitude)) < metres.")
        }
        for (index, operand) in comparison.operands.enumerated() where operand.kind != expected.kind {
            throw QueryPredicateError(
                .wrongType, at: index < places.operands.count ? places.operands[index] : places.relation,
                expected.message)
        }
    }
}

extension PredicateType {
    /// What a field of this type is compared with.
    fileprivate var expected: (kind: PredicateValue.Kind, message: String)? {
        switch self {
        case .boolean: (.number, "This field is true or false. Expected TRUE or FALSE.")
        case .integer, .real: (.number, "This field holds a number. Expected a number, without quotes.")
        case .string: (.string, "This field holds a text. Expected one in quotes.")
        case .date: (.date, "This field holds a date. Expected one as date(\"2026-01-31T12:00:00Z\").")
        case .data: (.data, "This field holds bytes. Expected them as x'00ff'.")
        case .reference: (.string, "This field refers to a record. Expected its name in quotes.")
        case .location, .list: nil
        }
    }
}
