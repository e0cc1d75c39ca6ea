/// A part of a predicate that an index of one field may answer.
public struct IndexTerm: Hashable, Sendable {
    public var field: FieldName
    public var range: IndexRange
    /// How the index has to have folded its texts.
    public var folding: Folding

    public init(field: FieldName, range: IndexRange, folding: Folding) {
        self.field = field
        self.range = range
        self.folding = folding
    }
}

/// Which entries of an index a term is about. Integers, reals and booleans are one kind of entry: those that compare
/// as equal have to have the same key.
public enum IndexRange: Hashable, Sendable {
    case equal(PredicateValue)
    /// One of these; empty for none.
    case oneOf([PredicateValue])
    case below(PredicateValue, orEqual: Bool)
    case above(PredicateValue, orEqual: Bool)
    /// Both bounds are included.
    case between(PredicateValue, PredicateValue)
    /// Texts that begin with this one.
    case prefix(String)
    /// Lists that have this element.
    case element(PredicateValue)
}

/// A predicate as an index answers it: records for which every term and the rest are true.
public struct PredicatePlan: Hashable, Sendable {
    public var terms: [IndexTerm]
    /// What is tested of each record found; `TRUEPREDICATE` if the terms say it all.
    public var rest: QueryPredicate

    public init(terms: [IndexTerm], rest: QueryPredicate) {
        self.terms = terms
        self.rest = rest
    }
}

extension QueryPredicate {
    /// Splits the parts that `AND` joins into those that an index answers and the rest. Nothing is taken out of `OR`
    /// and `NOT`.
    ///
    /// - Parameter canAnswer: Whether there is an index that finds exactly the records of this term.
    public func plan(where canAnswer: (IndexTerm) -> Bool) -> PredicatePlan {
        let parts = if case .and(let parts) = root { parts } else { [root] }
        var terms: [IndexTerm] = []
        var rest: [PredicateNode] = []
        for part in parts {
            if case .comparison(let comparison) = part, let term = comparison.indexTerm, canAnswer(term) {
                terms.append(term)
            } else {
                rest.append(part)
            }
        }
        if terms.isEmpty { return PredicatePlan(terms: [], rest: self) }
        // A part of a predicate is a predicate, and within its limits.
        guard let remaining = try? QueryPredicate(.all(rest)) else { return PredicatePlan(terms: terms, rest: self) }
        return PredicatePlan(terms: terms, rest: remaining)
    }
}

extension PredicateComparison {
    fileprivate var indexTerm: IndexTerm? {
        guard let operand = operands.first else {
            return relation == .isIn && !any ? IndexTerm(field: field, range: .oneOf([]), folding: folding) : nil
        }
        let range: IndexRange
        switch (relation, operand) {
        case (.equal, _): range = any ? .element(operand) : .equal(operand)
        case _ where any: return nil
        case (.isIn, _): range = .oneOf(operands)
        case (.less, _): range = .below(operand, orEqual: false)
        case (.lessOrEqual, _): range = .below(operand, orEqual: true)
        case (.greater, _): range = .above(operand, orEqual: false)
        case (.greaterOrEqual, _): range = .above(operand, orEqual: true)
        case (.between, _) where operands.count == 2: range = .between(operand, operands[1])
        case (.beginsWith, .string(let prefix)): range = .prefix(prefix)
        case (.like, .string(let pattern)):
            guard let prefix = LikePattern.prefix(of: pattern) else { return nil }
            range = .prefix(prefix)
        // Of a text it is a part, of a list an element: which, only the schema says. ANY leaves no doubt.
        default: return nil
        }
        return IndexTerm(field: field, range: range, folding: folding)
    }
}
