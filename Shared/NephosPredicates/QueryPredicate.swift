public import NephosCore

/// Texts of predicates, told apart by their bytes.
public struct PredicateText: ByteName {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
}

/// What a predicate says, as a tree of plain values.
public indirect enum PredicateNode: Hashable, Sendable {
    /// `TRUEPREDICATE` or `FALSEPREDICATE`.
    case constant(Bool)
    case and([PredicateNode])
    case or([PredicateNode])
    case not(PredicateNode)
    case comparison(PredicateComparison)
    /// `field == NULL`: the field has no value.
    case isMissing(FieldName)
    /// `field != NULL`.
    case isPresent(FieldName)
    /// `self CONTAINS '…'`: each of the words is in one of the fields.
    case fullText(PredicateText)
    /// `distance(field, point(latitude, longitude)) < metres`.
    case distance(PredicateDistance)
}

/// A field compared with constants.
public struct PredicateComparison: Hashable, Sendable {
    /// Whether it is about the elements of a list, of which one is enough (`ANY`).
    public var any: Bool
    public var field: FieldName
    public var relation: PredicateRelation
    public var folding: Folding
    /// One; two for `BETWEEN`, any number for `IN`.
    public var operands: [PredicateValue]

    public init(
        _ field: FieldName, _ relation: PredicateRelation, _ operands: [PredicateValue], folding: Folding = [],
        any: Bool = false
    ) {
        self.any = any
        self.field = field
        self.relation = relation
        self.folding = folding
        self.operands = operands
    }
}

/// The operators. Their raw values are their canonical texts.
public enum PredicateRelation: String, Hashable, Sendable, CaseIterable {
    case equal = "=="
    case notEqual = "!="
    case less = "<"
    case lessOrEqual = "<="
    case greater = ">"
    case greaterOrEqual = ">="
    case isIn = "IN"
    case between = "BETWEEN"
    case beginsWith = "BEGINSWITH"
    case endsWith = "ENDSWITH"
    /// A part of a text, or an element of a list.
    case contains = "CONTAINS"
    /// A pattern in which `*` is any text, `?` one code point, and `\` takes the meaning from what follows.
    case like = "LIKE"
}

/// Whether a field's place is nearer or farther than this.
public struct PredicateDistance: Hashable, Sendable {
    public var field: FieldName
    public var center: PredicateLocation
    /// One of `<`, `<=`, `>`, `>=`.
    public var relation: PredicateRelation
    public var metres: Double

    public init(_ field: FieldName, from center: PredicateLocation, _ relation: PredicateRelation, metres: Double) {
        self.field = field
        self.center = center
        self.relation = relation
        self.metres = metres
    }
}

/// A predicate within the limits, in normal form: `AND` and `OR` have at least two parts, none of their own kind.
///
/// Two are equal if they say the same in the same order; how they were typed does not count.
public struct QueryPredicate: Sendable {
    public let root: PredicateNode
    /// The canonical text. Parsing it gives an equal predicate, so this is what is stored.
    public let description: String
    /// What ``check(against:)`` points at.
    let source: String
    /// Of each comparison, in the order of the text.
    let places: [LeafPlaces]

    /// Reads a text.
    ///
    /// - Throws: ``QueryPredicateError`` with the place in the text, what was expected there, and the cure.
    public init(parsing text: String) throws(QueryPredicateError) {
        var parser = try PredicateParser(text)
        root = try parser.parse()
        description = PredicateWriter.text(of: root)
        source = text
        places = parser.places
        guard description.utf8.count <= PredicateLimits.textBytesMax else {
            throw QueryPredicateError(
                .tooLarge, at: 0..<text.utf8.count,
                "The canonical form of this predicate is longer than 16384 bytes. Ask for less at once.")
        }
    }

    /// A predicate made by a program; it is brought into normal form.
    ///
    /// - Throws: ``QueryPredicateError`` for what no text can say: beyond the limits, reals that are infinite or not a
    ///   number, operators with operands that they do not take. Its places are in the canonical text.
    public init(_ root: PredicateNode) throws(QueryPredicateError) {
        var nodesLeft = PredicateLimits.nodesMax
        let normal = try root.normalised(depthLeft: 2 * PredicateLimits.nestingMax + 2, nodesLeft: &nodesLeft)
        let text = PredicateWriter.text(of: normal)
        try self.init(parsing: text)
        guard self.root == normal else {
            throw QueryPredicateError(
                .syntax, at: 0..<text.utf8.count,
                "This predicate has operands that its operators do not take. Give each operator what its text takes.")
        }
    }
}

extension QueryPredicate: Hashable, CustomStringConvertible {
    public static func == (left: QueryPredicate, right: QueryPredicate) -> Bool { left.root == right.root }
    public func hash(into hasher: inout Hasher) { hasher.combine(root) }
}

extension PredicateNode {
    /// `AND` and `OR` with their own kind taken in, and without those that have one part or none.
    fileprivate func normalised(depthLeft: Int, nodesLeft: inout Int) throws(QueryPredicateError) -> PredicateNode {
        guard depthLeft > 0, nodesLeft > 0 else {
            throw QueryPredicateError(
                .tooLarge, at: 0..<0, "This predicate is too deep or has too many parts. Split it.")
        }
        nodesLeft -= 1
        switch self {
        case .and(let parts), .or(let parts):
            guard parts.count <= PredicateLimits.nodesMax else {
                throw QueryPredicateError(.tooLarge, at: 0..<0, "This predicate has too many parts. Split it.")
            }
            let joinsAll = if case .and = self { true } else { false }
            var normal: [PredicateNode] = []
            for part in parts {
                normal.append(try part.normalised(depthLeft: depthLeft - 1, nodesLeft: &nodesLeft))
            }
            return joinsAll ? .all(normal) : .any(normal)
        case .not(let part):
            return .not(try part.normalised(depthLeft: depthLeft - 1, nodesLeft: &nodesLeft))
        case .comparison(let comparison):
            guard comparison.operands.count <= PredicateLimits.listMax else {
                throw QueryPredicateError(
                    .tooLarge, at: 0..<0, "IN has more than 1000 values. Ask in several predicates.")
            }
            return self
        case .constant, .isMissing, .isPresent, .fullText, .distance:
            return self
        }
    }

    /// All of these, which are in normal form.
    static func all(_ parts: [PredicateNode]) -> PredicateNode {
        let flat = parts.flatMap { part in
            if case .and(let inner) = part { inner } else { [part] }
        }
        return flat.count > 1 ? .and(flat) : flat.first ?? .constant(true)
    }

    /// One of these, which are in normal form.
    static func any(_ parts: [PredicateNode]) -> PredicateNode {
        let flat = parts.flatMap { part in
            if case .or(let inner) = part { inner } else { [part] }
        }
        return flat.count > 1 ? .or(flat) : flat.first ?? .constant(false)
    }
}
