/// What a predicate is tested against.
public protocol PredicateRecord {
    /// Nil if the field has no value, or there is no such field.
    func value(of field: FieldName) -> PredicateValue?
    /// All texts of all fields, those in lists too; asked for by `self CONTAINS` only.
    var texts: [String] { get }
}

/// A predicate made ready to test many records.
///
/// A test is true or false, never unknown:
/// - A field without a value, or with one of another type than the constant's, is not equal to it, nor before, after,
///   within or like it. Only `!=` is then true, since it is the opposite of `==` always, and `== NULL` where there is
///   no value.
/// - Not-a-number is compared like a value of another type.
/// - Integers, reals and booleans (as 0 and 1) compare exactly, also beyond 2^53.
/// - Texts are compared by their bytes, which is the order of code points; folded first, if there are modifiers.
public struct CompiledPredicate: Sendable {
    /// The fields that are asked for; what ``matches(valueAt:texts:)`` counts from 0.
    public let fields: [FieldName]
    /// How many passes over texts of a record one test may need at worst, so that a service can charge for it.
    public let textPasses: Int
    /// How many passes over values of a record's lists one test may need at worst, of texts and of others.
    public let listPasses: Int
    /// Whether texts are asked for, of whatever fields.
    public let readsTexts: Bool

    private enum Node: Sendable {
        case constant(Bool)
        /// From one index of `children` up to another.
        case all(Range<Int>)
        case any(Range<Int>)
        case not(Int)
        case field(Int, FieldTest)
        case words([[UInt8]])
    }

    /// Whether a field is asked for more than once.
    private let asksAgain: Bool

    private let nodes: [Node]
    private let children: [Int]
    private let root: Int

    init(_ predicate: PredicateNode) {
        var builder = Builder()
        root = builder.add(predicate)
        nodes = builder.nodes
        children = builder.children
        fields = builder.fields
        textPasses = builder.textPasses
        listPasses = builder.listPasses
        asksAgain = builder.fieldTests > fields.count
        readsTexts = builder.nodes.contains { if case .words = $0 { true } else { false } }
    }

    /// Whether the predicate is true of this record.
    public func matches(_ record: some PredicateRecord) -> Bool {
        guard asksAgain else { return matches(valueAt: { record.value(of: fields[$0]) }, texts: { record.texts }) }
        // To make the value of a list takes as long as to go over it.
        var known = [PredicateValue??](repeating: nil, count: fields.count)
        return matches(
            valueAt: { place in
                if let value = known[place] { return value }
                let value = record.value(of: fields[place])
                known[place] = .some(value)
                return value
            }, texts: { record.texts })
    }

    /// Whether it is true of the fields that the closure tells. To `self CONTAINS` they have no words.
    public func matches(_ value: (FieldName) -> PredicateValue?) -> Bool {
        matches(root, { value(fields[$0]) }, { [] })
    }

    /// The same without looking up names: the closure is given the place of the field in ``fields``.
    public func matches(valueAt value: (Int) -> PredicateValue?, texts: () -> [String]) -> Bool {
        matches(root, value, texts)
    }

    /// As deep as the predicate nests, which is bounded.
    private func matches(_ node: Int, _ value: (Int) -> PredicateValue?, _ texts: () -> [String]) -> Bool {
        switch nodes[node] {
        case .constant(let constant): return constant
        case .all(let range):
            for child in range where !matches(children[child], value, texts) { return false }
            return true
        case .any(let range):
            for child in range where matches(children[child], value, texts) { return true }
            return false
        case .not(let child): return !matches(child, value, texts)
        case .field(let field, let test): return test.holds(of: value(field))
        case .words(let words): return Self.all(words, areIn: texts())
        }
    }

    private static func all(_ words: [[UInt8]], areIn texts: [String]) -> Bool {
        var missing = words
        for text in texts {
            FoldingRule.current.withFolded(text, [.caseInsensitive, .diacriticInsensitive]) { bytes in
                FoldingData.shared.forEachWord(of: bytes) { word in
                    missing.removeAll { $0.count == word.count && word.has($0, at: 0) }
                    return !missing.isEmpty
                }
            }
            if missing.isEmpty { return true }
        }
        return missing.isEmpty
    }

    private struct Builder {
        var nodes: [Node] = []
        var children: [Int] = []
        var fields: [FieldName] = []
        var textPasses = 0
        var listPasses = 0
        var fieldTests = 0
        private var indexes: [FieldName: Int] = [:]

        mutating func add(_ predicate: PredicateNode) -> Int {
            let node: Node
            switch predicate {
            case .constant(let constant): node = .constant(constant)
            case .and(let parts): node = .all(add(parts))
            case .or(let parts): node = .any(add(parts))
            case .not(let part): node = .not(add(part))
            case .comparison(let comparison):
                node = .field(index(of: comparison.field), FieldTest(comparison))
                if case .string? = comparison.operands.first { textPasses += 1 }
                if comparison.any || comparison.relation == .contains { listPasses += 1 }
            case .isMissing(let field): node = .field(index(of: field), .missing)
            case .isPresent(let field): node = .field(index(of: field), .present)
            case .fullText(let text):
                node = .words(FoldingRule.current.words(of: text.rawValue).map { Array($0.utf8) })
                textPasses += 1
                listPasses += 1
            case .distance(let distance): node = .field(index(of: distance.field), .distance(distance))
            }
            nodes.append(node)
            return nodes.count - 1
        }

        private mutating func add(_ parts: [PredicateNode]) -> Range<Int> {
            var indexes: [Int] = []
            for part in parts { indexes.append(add(part)) }
            children += indexes
            return children.count - indexes.count..<children.count
        }

        private mutating func index(of field: FieldName) -> Int {
            fieldTests += 1
            if let index = indexes[field] { return index }
            fields.append(field)
            indexes[field] = fields.count - 1
            return fields.count - 1
        }
    }
}

extension QueryPredicate {
    /// Made ready to test many records; costs about as much as reading its text.
    public func compiled() -> CompiledPredicate { CompiledPredicate(root) }
}
