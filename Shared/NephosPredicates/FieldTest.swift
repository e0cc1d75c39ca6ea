#if canImport(Musl)
    private import Musl
#else
    private import Glibc
#endif

/// What a comparison asks of one field.
enum FieldTest: Sendable {
    case missing
    case present
    case distance(PredicateDistance)
    /// One element of a list is enough.
    case anyElement(ValueTest, Folding)
    case value(ValueTest, Folding)
    /// A part of a text, or an element of a list.
    case contains(part: ValueTest?, element: ValueTest, Folding)

    init(_ comparison: PredicateComparison) {
        let folding = comparison.folding
        if comparison.relation == .contains {
            let element = ValueTest(.equal, comparison.operands, folding)
            if case .string? = comparison.operands.first, !comparison.any {
                self = .contains(part: ValueTest(.contains, comparison.operands, folding), element: element, folding)
            } else {
                self = .contains(part: nil, element: element, folding)
            }
        } else {
            let test = ValueTest(comparison.relation, comparison.operands, folding)
            self = comparison.any ? .anyElement(test, folding) : .value(test, folding)
        }
    }

    func holds(of value: PredicateValue?) -> Bool {
        switch self {
        case .missing: return value == nil
        case .present: return value != nil
        case .value(let test, let folding):
            guard let value else { return test.holdsWithoutValue }
            return value.withOperand(folding) { test.holds(of: $0) }
        case .anyElement(let test, let folding):
            guard case .list(let elements)? = value else { return false }
            return elements.contains { $0.withOperand(folding) { test.holds(of: $0) } }
        case .contains(let part, let element, let folding):
            if case .list(let elements)? = value {
                return elements.contains { $0.withOperand(folding) { element.holds(of: $0) } }
            }
            guard let value, let part else { return false }
            return value.withOperand(folding) { part.holds(of: $0) }
        case .distance(let distance):
            guard case .location(let location)? = value else { return false }
            return distance.holds(of: location)
        }
    }
}

/// What a comparison asks of one value, or of one element of a list.
enum ValueTest: Sendable {
    /// The first is whether it is the opposite that is asked.
    case equal(not: Bool, PredicateConstant)
    case ordered(PredicateRelation, PredicateConstant)
    case between(PredicateConstant, PredicateConstant)
    /// In ascending order.
    case isIn([PredicateConstant])
    case beginsWith([UInt8])
    case endsWith([UInt8])
    case contains(ByteFinder)
    case like(LikePattern)
    case never

    init(_ relation: PredicateRelation, _ operands: [PredicateValue], _ folding: Folding) {
        let constants = operands.compactMap { PredicateConstant($0, folding) }
        guard constants.count == operands.count else {
            self = .never
            return
        }
        switch (relation, constants.first) {
        case (.equal, let constant?): self = .equal(not: false, constant)
        case (.notEqual, let constant?): self = .equal(not: true, constant)
        case (.less, let constant?), (.lessOrEqual, let constant?), (.greater, let constant?),
            (.greaterOrEqual, let constant?):
            self = .ordered(relation, constant)
        case (.between, let lower?) where constants.count == 2: self = .between(lower, constants[1])
        case (.isIn, _?): self = .isIn(constants.sorted { $0.order(to: $1) == .less })
        case (.beginsWith, .text(let bytes)?): self = .beginsWith(bytes)
        case (.endsWith, .text(let bytes)?): self = .endsWith(bytes)
        case (.contains, .text(let bytes)?): self = .contains(ByteFinder(bytes))
        case (.like, .text?):
            // The parser refuses what is no pattern.
            guard case .string(let text)? = operands.first, let pattern = try? LikePattern(text, folding: folding)
            else {
                self = .never
                return
            }
            self = .like(pattern)
        default: self = .never
        }
    }

    /// Only the opposite of `==` is true of nothing.
    var holdsWithoutValue: Bool {
        if case .equal(true, _) = self { true } else { false }
    }

    func holds(of operand: PredicateOperand?) -> Bool {
        guard let operand else { return holdsWithoutValue }
        switch self {
        case .equal(let opposite, let constant): return (operand.order(to: constant) == .same) != opposite
        case .ordered(let relation, let constant):
            guard let order = operand.order(to: constant) else { return false }
            return relation.holds(for: order)
        case .between(let lower, let upper):
            guard let low = operand.order(to: lower), let high = operand.order(to: upper) else { return false }
            return low != .less && high != .greater
        case .isIn(let constants): return Self.find(operand, in: constants)
        case .beginsWith(let bytes):
            guard case .text(let text) = operand else { return false }
            return text.has(bytes, at: 0)
        case .endsWith(let bytes):
            guard case .text(let text) = operand else { return false }
            return text.has(bytes, at: text.count - bytes.count)
        case .contains(let finder):
            guard case .text(let text) = operand else { return false }
            return finder.end(in: text, from: 0) != nil
        case .like(let pattern):
            guard case .text(let text) = operand else { return false }
            return pattern.matches(text)
        case .never: return false
        }
    }

    private static func find(_ operand: PredicateOperand, in constants: [PredicateConstant]) -> Bool {
        var lower = 0
        var upper = constants.count
        while lower < upper {
            let middle = lower + (upper - lower) / 2
            switch operand.order(to: constants[middle]) {
            case .same: return true
            case .greater: lower = middle + 1
            case .less: upper = middle
            case nil: return false
            }
        }
        return false
    }
}

extension PredicateRelation {
    /// Whether an ordering operator is true of a value that stands so to the constant.
    fileprivate func holds(for order: PredicateOrder) -> Bool {
        switch self {
        case .less: order == .less
        case .lessOrEqual: order != .greater
        case .greater: order == .greater
        case .greaterOrEqual: order != .less
        default: false
        }
    }
}

extension PredicateConstant {
    /// How two constants of one `IN` stand to each other.
    fileprivate func order(to other: PredicateConstant) -> PredicateOrder? {
        switch self {
        case .integer(let integer): PredicateOperand.integer(integer).order(to: other)
        case .real(let real): PredicateOperand.real(real).order(to: other)
        case .text(let bytes): bytes.withUnsafeBufferPointer { PredicateOperand.text($0).order(to: other) }
        case .date(let date): PredicateOperand.date(date).order(to: other)
        case .data(let bytes): PredicateOperand.data(bytes).order(to: other)
        }
    }
}

extension PredicateDistance {
    fileprivate func holds(of location: PredicateLocation) -> Bool {
        let far = center.metres(to: location)
        return switch relation {
        case .less: far < metres
        case .lessOrEqual: far <= metres
        case .greater: far > metres
        case .greaterOrEqual: far >= metres
        default: false
        }
    }
}

extension PredicateLocation {
    /// The way between the two on a sphere as large as the earth (6,371,008.8 m), which is right to about 0.5 %.
    public func metres(to other: PredicateLocation) -> Double {
        let radians = Double.pi / 180
        let sinLatitude = sin((other.latitude - latitude) * radians / 2)
        let sinLongitude = sin((other.longitude - longitude) * radians / 2)
        let square =
            sinLatitude * sinLatitude
            + cos(latitude * radians) * cos(other.latitude * radians) * sinLongitude * sinLongitude
        return 2 * 6_371_008.8 * asin(min(1, square.squareRoot()))
    }
}
