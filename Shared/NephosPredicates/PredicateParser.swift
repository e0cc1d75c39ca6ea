internal import NephosCore

/// Where the parts of a comparison stand in the text.
struct LeafPlaces {
    var field: Range<Int>
    var relation: Range<Int>
    var operands: [Range<Int>]
}

/// Reads a predicate's text by recursive descent; how deep is bounded by ``PredicateLimits/nestingMax``.
struct PredicateParser {
    private var lexer: PredicateLexer
    private var token: PredicateToken
    private var nesting = 0
    private var nodes = 0
    /// Of each leaf that has a field, in the order of the text.
    private(set) var places: [LeafPlaces] = []

    init(_ text: String) throws(QueryPredicateError) {
        lexer = try PredicateLexer(text)
        token = try lexer.next()
    }

    mutating func parse() throws(QueryPredicateError) -> PredicateNode {
        if token.kind == .end {
            throw fail("Expected a predicate, such as name LIKE '*.pdf'. TRUEPREDICATE finds everything.")
        }
        let node = try anyOf()
        guard token.kind == .end else {
            throw fail("Expected AND, OR, or the end. Parentheses show what belongs together.")
        }
        return node
    }

    private mutating func anyOf() throws(QueryPredicateError) -> PredicateNode {
        var parts = [try allOf()]
        while token.kind == .keyword(.or) || token.kind == .symbol(.or) {
            try advance()
            parts.append(try allOf())
        }
        return parts.count > 1 ? .any(parts) : parts[0]
    }

    private mutating func allOf() throws(QueryPredicateError) -> PredicateNode {
        var parts = [try negated()]
        while token.kind == .keyword(.and) || token.kind == .symbol(.and) {
            try advance()
            parts.append(try negated())
        }
        return parts.count > 1 ? .all(parts) : parts[0]
    }

    private mutating func negated() throws(QueryPredicateError) -> PredicateNode {
        nodes += 1
        guard nodes <= PredicateLimits.nodesMax else {
            throw fail(as: .tooLarge, "A predicate has at most 1000 parts. IN {…} says many values in one.")
        }
        switch token.kind {
        case .keyword(.not), .symbol(.not):
            return .not(try nested { parser throws(QueryPredicateError) in try parser.negated() })
        case .symbol(.openParenthesis):
            return try nested { parser throws(QueryPredicateError) in
                let node = try parser.anyOf()
                guard parser.token.kind == .symbol(.closeParenthesis) else {
                    throw QueryPredicateError(
                        .syntax, at: parser.token.range,
                        "Expected AND, OR, or the ) of the last ( that is still open.")
                }
                try parser.advance()
                return node
            }
        case .keyword(.truePredicate):
            try advance()
            return .constant(true)
        case .keyword(.falsePredicate):
            try advance()
            return .constant(false)
        default:
            return try comparison()
        }
    }

    /// What follows the token that opens a level.
    private mutating func nested(
        _ body: (inout PredicateParser) throws(QueryPredicateError) -> PredicateNode
    ) throws(QueryPredicateError) -> PredicateNode {
        guard nesting < PredicateLimits.nestingMax else {
            throw fail(as: .tooLarge, "Parentheses and NOT go at most 32 deep. Leave out those that are not needed.")
        }
        nesting += 1
        try advance()
        let node = try body(&self)
        nesting -= 1
        return node
    }

    private mutating func advance() throws(QueryPredicateError) { token = try lexer.next() }

    private func fail(as code: QueryPredicateError.Code = .syntax, _ message: String) -> QueryPredicateError {
        QueryPredicateError(code, at: token.range, message)
    }

    private mutating func expect(_ symbol: PredicateSymbol, _ message: String) throws(QueryPredicateError) {
        guard token.kind == .symbol(symbol) else { throw fail(message) }
        try advance()
    }
}

// MARK: Comparisons

/// A constant and where it stands.
private typealias PlacedValue = (value: PredicateValue, range: Range<Int>)

/// An operator, where it stands, and its modifiers.
private typealias PlacedRelation = (relation: PredicateRelation, range: Range<Int>, folding: Folding)

extension PredicateParser {
    private mutating func comparison() throws(QueryPredicateError) -> PredicateNode {
        switch token.kind {
        case .keyword(.any), .keyword(.some):
            try advance()
            let field = try field(after: "Expected the field after ANY, which holds a list.")
            return try comparison(of: field, any: true)
        case .keyword(.self):
            return try fullText()
        case .name(let name):
            let range = token.range
            try advance()
            guard token.kind == .symbol(.openParenthesis) else {
                return try comparison(of: (name, range), any: false)
            }
            switch name.rawValue.lowercased() {
            case "distance": return try distance()
            case "date": return try reversed((try date(), range))
            default:
                throw QueryPredicateError(
                    .syntax, at: range, "The only functions are date(\"…\"), point(…) and distance(field, point(…)).")
            }
        case .plainName(let name):
            let range = token.range
            try advance()
            return try comparison(of: (name, range), any: false)
        case .value(let value):
            let range = token.range
            try advance()
            return try reversed((value, range))
        case .keyword(.true), .keyword(.yes), .keyword(.false), .keyword(.no):
            return try reversed(try value())
        case .keyword(.null), .keyword(.nil):
            throw fail("Expected a field before NULL, as in name == NULL.")
        case .keyword:
            throw fail("Expected a field or a value. A field with the name of a word of the language needs #, as #in.")
        case .symbol, .end:
            throw fail("Expected a comparison, such as size > 1000.")
        }
    }

    private typealias PlacedField = (name: FieldName, range: Range<Int>)

    private mutating func field(after message: String) throws(QueryPredicateError) -> PlacedField {
        let field: PlacedField
        switch token.kind {
        case .name(let name), .plainName(let name): field = (name, token.range)
        case .keyword:
            throw fail(message + " A field with the name of a word of the language needs # before it.")
        default: throw fail(message)
        }
        try advance()
        return field
    }

    /// What follows the field.
    private mutating func comparison(of field: PlacedField, any: Bool) throws(QueryPredicateError) -> PredicateNode {
        let relation = try relation(after: field)
        if token.kind == .keyword(.null) || token.kind == .keyword(.nil) {
            guard relation.relation == .equal || relation.relation == .notEqual, relation.folding.isEmpty, !any else {
                throw fail("NULL is compared with == or != alone: name == NULL says that the field has no value.")
            }
            places.append(LeafPlaces(field: field.range, relation: relation.range, operands: []))
            try advance()
            return relation.relation == .equal ? .isMissing(field.name) : .isPresent(field.name)
        }
        let operands: [PlacedValue]
        switch relation.relation {
        case .isIn: operands = try list()
        case .between:
            let opening = token.range
            operands = try list()
            guard operands.count == 2 else {
                throw QueryPredicateError(
                    .syntax, at: opening.lowerBound..<(operands.last?.range.upperBound ?? opening.upperBound),
                    "BETWEEN takes the two bounds, both included: BETWEEN {1, 5}.")
            }
        default: operands = [try value()]
        }
        return try leaf(field, relation, operands, any: any)
    }

    /// A constant before the operator: `5 < size` is `size > 5`, and `'x' IN tags` is `tags CONTAINS 'x'`.
    private mutating func reversed(_ value: PlacedValue) throws(QueryPredicateError) -> PredicateNode {
        var relation = try relation(after: nil)
        switch relation.relation {
        case .equal, .notEqual: break
        case .less: relation.relation = .greater
        case .lessOrEqual: relation.relation = .greaterOrEqual
        case .greater: relation.relation = .less
        case .greaterOrEqual: relation.relation = .lessOrEqual
        case .isIn: relation.relation = .contains
        default:
            throw QueryPredicateError(
                .syntax, at: relation.range, "Before this operator goes the field, after it the value.")
        }
        let field = try field(after: "Expected a field to compare the value with.")
        return try leaf(field, relation, [value], any: false)
    }

    /// The operator with its modifiers.
    private mutating func relation(after field: PlacedField?) throws(QueryPredicateError) -> PlacedRelation {
        let found: PredicateRelation
        switch token.kind {
        case .symbol(.equal): found = .equal
        case .symbol(.notEqual): found = .notEqual
        case .symbol(.less): found = .less
        case .symbol(.lessOrEqual): found = .lessOrEqual
        case .symbol(.greater): found = .greater
        case .symbol(.greaterOrEqual): found = .greaterOrEqual
        case .keyword(.isIn): found = .isIn
        case .keyword(.between): found = .between
        case .keyword(.beginsWith): found = .beginsWith
        case .keyword(.endsWith): found = .endsWith
        case .keyword(.contains): found = .contains
        case .keyword(.like): found = .like
        case .keyword(.not): throw fail("NOT goes before the field: NOT name IN {…}.")
        case .name(let name) where name.rawValue.lowercased() == "matches":
            throw fail("There are no regular expressions; use LIKE, with * for any text and ? for one character.")
        case .name where ["all", "none"].contains(field?.name.rawValue.lowercased()):
            throw QueryPredicateError(
                .syntax, at: field?.range ?? token.range,
                "ALL and NONE are not part of the language. Write NOT ANY, with the opposite operator for ALL.")
        default:
            throw fail("Expected an operator: == != < <= > >= IN BETWEEN BEGINSWITH ENDSWITH CONTAINS or LIKE.")
        }
        let range = token.range
        try advance()
        guard token.kind == .symbol(.openBracket) else { return (found, range, []) }
        let folding = try lexer.foldingLetters()
        let end = lexer.place
        try advance()
        return (found, range.lowerBound..<end, folding)
    }

    /// Checks what operators and operands alone can tell, without a schema.
    private mutating func leaf(
        _ field: PlacedField, _ placed: PlacedRelation, _ operands: [PlacedValue], any: Bool
    ) throws(QueryPredicateError) -> PredicateNode {
        var relation = placed.relation
        for (value, range) in operands {
            if !placed.folding.isEmpty, value.kind != .string {
                throw QueryPredicateError(
                    .wrongType, at: range, "Expected a text in quotes: [c] and [d] are about letters.")
            }
            if value.kind != operands[0].value.kind {
                throw QueryPredicateError(.wrongType, at: range, "Expected a value of the same type as the first one.")
            }
            switch relation {
            case .beginsWith, .endsWith, .like:
                guard case .string(let text) = value else {
                    throw QueryPredicateError(.wrongType, at: range, "Expected a text in quotes after this operator.")
                }
                if relation == .like { try checkPattern(text, placed.folding, range) }
            case .less, .lessOrEqual, .greater, .greaterOrEqual, .between:
                if value.kind == .data {
                    throw QueryPredicateError(
                        .wrongType, at: range, "Bytes have no order. Compare them with ==, != or IN.")
                }
            case .equal, .notEqual, .isIn, .contains: break
            }
        }
        // Of a list, an element of it is what it contains.
        if any, relation == .contains { relation = .equal }
        places.append(LeafPlaces(field: field.range, relation: placed.range, operands: operands.map(\.range)))
        return .comparison(
            PredicateComparison(field.name, relation, operands.map(\.value), folding: placed.folding, any: any))
    }

    private func checkPattern(_ text: String, _ folding: Folding, _ range: Range<Int>) throws(QueryPredicateError) {
        do {
            _ = try LikePattern(text, folding: folding)
        } catch {
            throw error.placed(at: range)
        }
    }

    private mutating func fullText() throws(QueryPredicateError) -> PredicateNode {
        try advance()
        guard token.kind == .keyword(.contains) else {
            throw fail("Expected CONTAINS after self: self CONTAINS 'some words'.")
        }
        try advance()
        if token.kind == .symbol(.openBracket) {
            _ = try lexer.foldingLetters()
            try advance()
        }
        guard case .value(.string(let text)) = token.kind else {
            throw fail("Expected the words to look for, in quotes.")
        }
        guard (1...PredicateLimits.wordsMax).contains(FoldingRule.current.words(of: text).count) else {
            throw fail(as: .literal, "Expected one to 32 different words, of letters or digits.")
        }
        try advance()
        return .fullText(PredicateText(text))
    }
}

// MARK: Values and functions

extension PredicateParser {
    private mutating func list() throws(QueryPredicateError) -> [PlacedValue] {
        try expect(.openBrace, "Expected { and the values, as in {1, 2, 3}.")
        var values: [PlacedValue] = []
        if token.kind == .symbol(.closeBrace) {
            try advance()
            return values
        }
        while true {
            guard values.count < PredicateLimits.listMax else {
                throw fail(as: .tooLarge, "A list has at most 1000 values. Ask in several predicates.")
            }
            values.append(try value())
            if token.kind == .symbol(.closeBrace) { break }
            try expect(.comma, "Expected , and another value, or } at the end of the list.")
        }
        try advance()
        return values
    }

    private mutating func value() throws(QueryPredicateError) -> PlacedValue {
        let range = token.range
        switch token.kind {
        case .value(let value):
            try advance()
            return (value, range)
        case .keyword(.true), .keyword(.yes):
            try advance()
            return (.boolean(true), range)
        case .keyword(.false), .keyword(.no):
            try advance()
            return (.boolean(false), range)
        case .keyword(.null), .keyword(.nil):
            throw fail("NULL is compared with == or != alone, not in lists. Join it with OR.")
        case .name(let name) where name.rawValue.lowercased() == "date":
            try advance()
            guard token.kind == .symbol(.openParenthesis) else { break }
            let value = try date()
            return (value, range)
        default: break
        }
        throw QueryPredicateError(
            .syntax, at: range,
            "Expected a value: a text in quotes, a number, TRUE, FALSE, date(\"2026-01-31T12:00:00Z\") or x'00ff'. "
                + "Fields are compared with values, not with one another.")
    }

    /// What follows the word `date`.
    private mutating func date() throws(QueryPredicateError) -> PredicateValue {
        try expect(.openParenthesis, "Expected ( after date.")
        guard case .value(.string(let text)) = token.kind else {
            throw fail("Expected the date in quotes, as in date(\"2026-01-31T12:00:00Z\").")
        }
        guard let date = PredicateDate(text) else {
            throw fail(
                as: .literal,
                "Expected a date such as 2026-01-31, 2026-01-31T12:00:00Z or 2026-01-31T12:00:00.5+01:00, from 1678 to "
                    + "2261.")
        }
        try advance()
        try expect(.closeParenthesis, "Expected ) after the date.")
        return .date(date)
    }

    /// What follows the word `distance`.
    private mutating func distance() throws(QueryPredicateError) -> PredicateNode {
        try expect(.openParenthesis, "Expected ( after distance.")
        let field = try field(after: "Expected the field that holds a location.")
        try expect(.comma, "Expected , and the place: distance(field, point(52.5, 13.4)).")
        guard case .name(let name) = token.kind, name.rawValue.lowercased() == "point" else {
            throw fail("Expected the place as point(latitude, longitude).")
        }
        try advance()
        try expect(.openParenthesis, "Expected ( after point.")
        let latitude = try degrees(90, "Expected the latitude, a number from -90 to 90.")
        try expect(.comma, "Expected , and the longitude.")
        let longitude = try degrees(180, "Expected the longitude, a number from -180 to 180.")
        try expect(.closeParenthesis, "Expected ) after the longitude.")
        try expect(.closeParenthesis, "Expected ) after the place.")
        let relation = try relation(after: nil)
        guard [.less, .lessOrEqual, .greater, .greaterOrEqual].contains(relation.relation), relation.folding.isEmpty
        else {
            throw QueryPredicateError(.syntax, at: relation.range, "A distance is compared with <, <=, > or >=.")
        }
        let range = token.range
        guard let metres = try real(), metres >= 0 else {
            throw QueryPredicateError(.literal, at: range, "Expected the distance in metres, a number from 0.")
        }
        places.append(LeafPlaces(field: field.range, relation: relation.range, operands: [range]))
        return .distance(
            PredicateDistance(
                field.name, from: PredicateLocation(latitude: latitude, longitude: longitude), relation.relation,
                metres: metres))
    }

    private mutating func degrees(_ bound: Double, _ message: String) throws(QueryPredicateError) -> Double {
        let range = token.range
        guard let value = try real(), value.magnitude <= bound else {
            throw QueryPredicateError(.literal, at: range, message)
        }
        return value
    }

    private mutating func real() throws(QueryPredicateError) -> Double? {
        let value: Double
        switch token.kind {
        case .value(.integer(let integer)): value = Double(integer)
        case .value(.real(let real)): value = real
        default: return nil
        }
        try advance()
        return value
    }
}
