/// A constant in the form in which it is compared.
enum PredicateConstant: Sendable {
    case integer(Int64)
    case real(Double)
    /// Bytes, folded.
    case text([UInt8])
    case date(Int64)
    case data([UInt8])

    /// Nil for locations and lists, with which nothing is compared.
    init?(_ value: PredicateValue, _ folding: Folding) {
        switch value {
        case .boolean(let boolean): self = .integer(boolean ? 1 : 0)
        case .integer(let integer): self = .integer(integer)
        case .real(let real): self = .real(real)
        case .string(let text): self = .text(FoldingRule.current.withFolded(text, folding) { Array($0) })
        case .date(let date): self = .date(date.nanoseconds)
        case .data(let bytes): self = .data(bytes)
        case .location, .list: return nil
        }
    }
}

/// A value to compare with constants; its text is folded and only lent.
enum PredicateOperand {
    case integer(Int64)
    case real(Double)
    case text(UnsafeBufferPointer<UInt8>)
    case date(Int64)
    case data([UInt8])
}

/// Which of two comes first.
enum PredicateOrder { case less, same, greater }

extension PredicateOperand {
    /// How this value stands to a constant; nil if they cannot be compared, as a text with a number, or anything with
    /// what is not a number.
    func order(to constant: PredicateConstant) -> PredicateOrder? {
        switch (self, constant) {
        case (.integer(let left), .integer(let right)), (.date(let left), .date(let right)):
            left == right ? .same : left < right ? .less : .greater
        case (.real(let left), .real(let right)):
            left == right ? .same : left < right ? .less : left > right ? .greater : nil
        case (.integer(let left), .real(let right)): Self.order(left, to: right)
        case (.real(let left), .integer(let right)):
            switch Self.order(right, to: left) {
            case .less: .greater
            case .same: .same
            case .greater: .less
            case nil: nil
            }
        case (.text(let left), .text(let right)): right.withUnsafeBufferPointer { Self.order(left, to: $0) }
        case (.data(let left), .data(let right)):
            left.withUnsafeBufferPointer { left in right.withUnsafeBufferPointer { Self.order(left, to: $0) } }
        default: nil
        }
    }

    /// Exactly, also where a real cannot tell two integers apart.
    static func order(_ left: Int64, to right: Double) -> PredicateOrder? {
        if right.isNaN { return nil }
        if right >= 0x1p63 { return .less }
        if right < -0x1p63 { return .greater }
        let whole = right.rounded(.down)
        guard let integer = Int64(exactly: whole) else { return nil }
        if left != integer { return left < integer ? .less : .greater }
        return whole == right ? .same : .less
    }

    private static func order(
        _ left: UnsafeBufferPointer<UInt8>, to right: UnsafeBufferPointer<UInt8>
    ) -> PredicateOrder {
        let common = min(left.count, right.count)
        for place in 0..<common where left[place] != right[place] {
            return left[place] < right[place] ? .less : .greater
        }
        return left.count == right.count ? .same : left.count < right.count ? .less : .greater
    }
}

extension PredicateValue {
    /// Lends the value as an operand; nil for locations and lists.
    func withOperand<Result>(_ folding: Folding, _ body: (PredicateOperand?) -> Result) -> Result {
        switch self {
        case .boolean(let boolean): body(.integer(boolean ? 1 : 0))
        case .integer(let integer): body(.integer(integer))
        case .real(let real): body(.real(real))
        case .string(let text): FoldingRule.current.withFolded(text, folding) { body(.text($0)) }
        case .date(let date): body(.date(date.nanoseconds))
        case .data(let bytes): body(.data(bytes))
        case .location, .list: body(nil)
        }
    }
}
