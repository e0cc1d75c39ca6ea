/// Values as bytes that are in the order in which predicates compare them: what indexes are kept by.
///
/// What has no value comes first, then lists, places and what is not a number, none of which is before or after another
/// value; then numbers, dates, texts and data. Integers and reals have one order, and those that are equal one key. Of
/// texts and data ``textBytesMax`` bytes are in the key, once they are folded: those that are alike so far are taken for
/// alike, and who asks tests them. No key is the beginning of another one, so that several make one of them all.
public enum IndexKey {
    /// Bytes of a text, folded, or of data.
    public static let textBytesMax = 128
    /// Bytes of one key: each byte of a text may take two.
    public static let bytesMax = 2 * textBytesMax + 3

    enum Tag {
        static let missing: UInt8 = 0x01
        static let list: UInt8 = 0x02
        static let location: UInt8 = 0x03
        static let notANumber: UInt8 = 0x04
        static let number: UInt8 = 0x10
        static let date: UInt8 = 0x20
        static let text: UInt8 = 0x30
        static let data: UInt8 = 0x40
        /// Of a value of a list, added to its own.
        static let element: UInt8 = 0x80
        /// Of a list whose values are not all in the index.
        static let more: UInt8 = 0xfe
    }

    /// What stands for a list with more values than are in the index: who asks for one looks at these too.
    public static let more = [Tag.more]

    /// The key of what a field holds as a whole.
    public static func key(of value: PredicateValue?, _ folding: Folding) -> [UInt8] {
        var key: [UInt8] = []
        append(value, folding, tagged: 0, to: &key)
        return key
    }

    /// The key of a value of a list.
    public static func key(ofElement value: PredicateValue, _ folding: Folding) -> [UInt8] {
        var key: [UInt8] = []
        append(value, folding, tagged: Tag.element, to: &key)
        return key
    }

    /// The opposite order.
    public static func reversed(_ key: some Sequence<UInt8>) -> [UInt8] { key.map { ~$0 } }

    /// What comes after all that begin so.
    ///
    /// - Parameter prefix: Does not begin with 255, as no key does.
    public static func end(of prefix: [UInt8]) -> [UInt8] {
        var end = prefix
        while let last = end.popLast() {
            if last < .max { return end + [last + 1] }
        }
        return [.max]
    }

    // MARK: Encoding

    private static func append(
        _ value: PredicateValue?, _ folding: Folding, tagged mark: UInt8, to key: inout [UInt8]
    ) {
        switch value {
        case nil: key.append(mark | Tag.missing)
        case .list: key.append(mark | Tag.list)
        case .location(let place):
            key.append(mark | Tag.location)
            append(GeographicCell.code(of: place), to: &key)
        case .boolean(let boolean): append(Int64(boolean ? 1 : 0), mark, to: &key)
        case .integer(let integer): append(integer, mark, to: &key)
        case .real(let real) where real.isNaN: key.append(mark | Tag.notANumber)
        case .real(let real): append(real, beyond: 0, mark, to: &key)
        case .date(let date):
            key.append(mark | Tag.date)
            append(UInt64(bitPattern: date.nanoseconds) ^ 1 << 63, to: &key)
        case .string(let text):
            key.append(mark | Tag.text)
            let (bytes, isWhole) = FoldingRule.current.foldedStart(of: text, folding, bytesMax: textBytesMax)
            append(bytes, isWhole: isWhole, to: &key)
        case .data(let bytes):
            key.append(mark | Tag.data)
            append(bytes.prefix(textBytesMax), isWhole: bytes.count <= textBytesMax, to: &key)
        }
    }

    /// As the real before it, and how far it is beyond: no real tells all integers apart.
    private static func append(_ integer: Int64, _ mark: UInt8, to key: inout [UInt8]) {
        var real = Double(integer)
        if PredicateOperand.order(integer, to: real) == .less { real = real.nextDown }
        // Reals are 1024 apart at most here.
        append(real, beyond: UInt16(truncatingIfNeeded: integer &- Int64(real)), mark, to: &key)
    }

    private static func append(_ real: Double, beyond: UInt16, _ mark: UInt8, to key: inout [UInt8]) {
        key.append(mark | Tag.number)
        let bits = (real == 0 ? 0 : real).bitPattern
        append(bits >> 63 == 0 ? bits | 1 << 63 : ~bits, to: &key)
        key.append(UInt8(beyond >> 8))
        key.append(UInt8(truncatingIfNeeded: beyond))
    }

    private static func append(_ number: UInt64, to key: inout [UInt8]) {
        for shift in stride(from: UInt64(56), through: 0, by: -8) {
            key.append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    /// Ends with 0 1, or with 0 2 where more follows; a 0 within it is 0 255.
    private static func append(_ bytes: some Sequence<UInt8>, isWhole: Bool, to key: inout [UInt8]) {
        append(escaping: bytes, to: &key)
        key.append(0)
        key.append(isWhole ? 1 : 2)
    }

    fileprivate static func append(escaping bytes: some Sequence<UInt8>, to key: inout [UInt8]) {
        for byte in bytes {
            key.append(byte)
            if byte == 0 { key.append(.max) }
        }
    }
}

/// Keys between two edges.
public struct IndexKeyRange: Hashable, Sendable {
    /// Where keys begin so, they are inside or outside.
    public struct Edge: Hashable, Sendable {
        public var prefix: [UInt8]
        public var isInside: Bool

        fileprivate init(_ prefix: [UInt8], isInside: Bool = true) {
            self.prefix = prefix
            self.isInside = isInside
        }
    }

    public var lower: Edge
    public var upper: Edge

    /// What fields hold as a whole: of each record one key.
    public static let whole = IndexKeyRange(
        lower: Edge([IndexKey.Tag.missing]), upper: Edge([IndexKey.Tag.element], isInside: false))
    /// Texts, as a whole.
    public static let texts = IndexKeyRange(lower: Edge([IndexKey.Tag.text]), upper: Edge([IndexKey.Tag.text]))

    /// The same in the opposite order.
    public var reversed: IndexKeyRange {
        IndexKeyRange(
            lower: Edge(IndexKey.reversed(upper.prefix), isInside: upper.isInside),
            upper: Edge(IndexKey.reversed(lower.prefix), isInside: lower.isInside))
    }

    /// Values of lists that are in the range.
    public var ofElements: IndexKeyRange {
        func marked(_ edge: Edge) -> Edge {
            Edge([edge.prefix[0] | IndexKey.Tag.element] + edge.prefix.dropFirst(), isInside: edge.isInside)
        }
        return IndexKeyRange(lower: marked(lower), upper: marked(upper))
    }

    /// The first key within, and the first behind it.
    public var bounds: (start: [UInt8], end: [UInt8]) {
        (
            lower.isInside ? lower.prefix : IndexKey.end(of: lower.prefix),
            upper.isInside ? IndexKey.end(of: upper.prefix) : upper.prefix
        )
    }

    /// The keys of all values of which the comparison with these operands is true, and maybe of some more; nil: it does
    /// not ask for a range.
    public init?(_ relation: PredicateRelation, _ operands: [PredicateValue], _ folding: Folding) {
        guard let first = operands.first else { return nil }
        let key = IndexKey.key(of: first, folding)
        guard let tag = key.first, tag >= IndexKey.Tag.number else { return nil }
        // Of a text that is cut all that begin so have its key.
        let isCut = key.count > 2 && tag >= IndexKey.Tag.text && key.suffix(2) == [0, 2]
        switch relation {
        case .less: self.init(lower: Edge([tag]), upper: Edge(key, isInside: isCut))
        case .lessOrEqual: self.init(lower: Edge([tag]), upper: Edge(key))
        case .greater: self.init(lower: Edge(key, isInside: isCut), upper: Edge([tag]))
        case .greaterOrEqual: self.init(lower: Edge(key), upper: Edge([tag]))
        case .between where operands.count == 2:
            let upper = IndexKey.key(of: operands[1], folding)
            guard upper.first == tag else { return nil }
            self.init(lower: Edge(key), upper: Edge(upper))
        case .beginsWith:
            guard case .string(let text) = first else { return nil }
            self.init(textsBeginningWith: text, folding)
        case .like:
            guard case .string(let pattern) = first, let prefix = LikePattern.prefix(of: pattern) else { return nil }
            self.init(textsBeginningWith: prefix, folding)
        default: return nil
        }
    }

    private init(textsBeginningWith text: String, _ folding: Folding) {
        var prefix = [IndexKey.Tag.text]
        IndexKey.append(
            escaping: FoldingRule.current.foldedStart(of: text, folding, bytesMax: IndexKey.textBytesMax).bytes,
            to: &prefix)
        self.init(lower: Edge(prefix), upper: Edge(prefix))
    }

    private init(lower: Edge, upper: Edge) {
        self.lower = lower
        self.upper = upper
    }

    /// Places of one range of ``GeographicCell/code(of:)``.
    init(codes: ClosedRange<UInt64>) {
        func key(_ code: UInt64) -> [UInt8] {
            [IndexKey.Tag.location]
                + stride(from: UInt64(56), through: 0, by: -8).map { UInt8(truncatingIfNeeded: code >> $0) }
        }
        self.init(lower: Edge(key(codes.lowerBound)), upper: Edge(key(codes.upperBound)))
    }
}
