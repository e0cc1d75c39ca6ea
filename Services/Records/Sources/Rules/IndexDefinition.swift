internal import NephosCore
internal import NephosPredicates
internal import NephosRecordRules
internal import NephosWire

/// Which fields of a type are in an index, and in which order; none: the words of all texts.
struct IndexDefinition: Hashable, Sendable {
    struct Field: Hashable, Sendable {
        var name: FieldName
        var isDescending = false
        /// What does not count in texts.
        var folding: Folding = []

        /// The key as it is in the index.
        func oriented(_ key: [UInt8]) -> [UInt8] { isDescending ? IndexKey.reversed(key) : key }

        /// What a record is sorted by.
        func key(of record: QueriedRecord) -> [UInt8] {
            oriented(IndexKey.key(of: record.value(of: name), folding))
        }
    }

    var type: String
    var fields: [Field]

    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`, `.incompatibleVersion` (of the folding).
    init(_ wire: WireRecordIndex) throws(CloudError) {
        guard wire.foldingVersion == 0 || wire.foldingVersion == FoldingRule.current.rawValue else {
            throw CloudError(
                .incompatibleVersion,
                "Texts of the index are folded by a version that this service does not have. Leave the version out.",
                details: ["argument": "folding_version", "version": "\(FoldingRule.current.rawValue)"])
        }
        guard RecordLimits.isKey(wire.type) else {
            throw CloudError(.invalidArguments, "No type is called so.", details: ["argument": "type"])
        }
        guard wire.fields.count <= RecordLimits.indexFieldsMax else {
            throw CloudError(
                .limitExceeded, "An index has too many fields.",
                details: ["maximum": "\(RecordLimits.indexFieldsMax)"])
        }
        type = wire.type
        fields = []
        for field in wire.fields {
            let made = try Field(field.field, descending: field.descending, folding: field.folding)
            guard !fields.contains(where: { $0.name == made.name }) else {
                throw CloudError(
                    .invalidArguments, "A field is in the index twice. Name it once.", details: ["argument": "fields"])
            }
            fields.append(made)
        }
    }

    init(type: String, fields: [Field]) {
        self.type = type
        self.fields = fields
    }

    var wire: WireRecordIndex {
        var wire = stored
        wire.foldingVersion = UInt32(FoldingRule.current.rawValue)
        return wire
    }

    /// The version is stored beside it: one of another version is to be read too, and made anew.
    var stored: WireRecordIndex {
        var wire = WireRecordIndex()
        wire.type = type
        wire.fields = fields.map { field in
            var wire = WireIndexedField()
            wire.field = field.name.rawValue
            wire.descending = field.isDescending
            wire.folding = UInt32(field.folding.rawValue)
            return wire
        }
        return wire
    }
}

extension IndexDefinition.Field {
    /// - Throws: ``CloudError`` `.invalidArguments`.
    init(_ name: String, descending: Bool, folding: UInt32) throws(CloudError) {
        guard let field = FieldName(name), RecordLimits.isKey(name) || QueriedRecord.isSystemField(name) else {
            throw CloudError(.invalidArguments, "No field is called so.", details: ["argument": "field"])
        }
        guard folding <= 3 else {
            throw CloudError(
                .invalidArguments, "Of texts capitals (1), accents (2) or both (3) do not count, or all counts (0).",
                details: ["argument": "folding"])
        }
        self.init(name: field, isDescending: descending, folding: Folding(rawValue: UInt8(folding)))
    }
}

/// An index as the database has it.
struct RecordIndex: Hashable, Sendable {
    /// Of its rows, in the partition.
    var number: Int64
    var definition: IndexDefinition
    var state: IndexRows.State
    /// Whether its texts are folded as predicates are tested. One of another version is made anew, and not used until then.
    var isCurrent = true

    var isReady: Bool { state == .ready && isCurrent }
    /// Whether saves keep it.
    var isKept: Bool { (state == .ready || state == .building) && isCurrent }
    var isRefused: Bool { state == .refused }
}

// MARK: - What is in it

extension IndexDefinition {
    /// The keys under which a record is found, each once.
    ///
    /// - Parameter words: By which words are known again.
    func keys(of record: QueriedRecord, words: SipHash) -> Set<[UInt8]> {
        guard record.record.type.hasSameBytes(as: type) else { return [] }
        if fields.isEmpty { return Self.wordKeys(of: record, words) }
        // Of each field the whole, or one of a list's values. Long lists are not even looked at.
        let most = fields.reduce(1) { min(RecordLimits.listedMax, $0 * (1 + record.listedCount(of: $1.name))) }
        let isTooMuch = most > RecordLimits.indexRowsOfRecordMax
        var keys: [[UInt8]] = [[]]
        for field in fields {
            let parts = Self.parts(field, record, isTooMuch: isTooMuch)
            keys = keys.flatMap { start in parts.map { start + $0 } }
        }
        return Set(keys)
    }

    private static func parts(_ field: Field, _ record: QueriedRecord, isTooMuch: Bool) -> [[UInt8]] {
        if isTooMuch, record.listedCount(of: field.name) > 0 {
            return [IndexKey.key(of: .list([]), field.folding), IndexKey.more].map { field.oriented($0) }
        }
        let value = record.value(of: field.name)
        let whole = [field.oriented(IndexKey.key(of: value, field.folding))]
        guard case .list(let values)? = value else { return whole }
        return whole + values.map { field.oriented(IndexKey.key(ofElement: $0, field.folding)) }
    }

    private static func wordKeys(of record: QueriedRecord, _ words: SipHash) -> Set<[UInt8]> {
        let texts = record.texts
        guard texts.count <= RecordLimits.indexedWordsMax,
            texts.reduce(0, { $0 + $1.utf8.count }) <= RecordLimits.indexedTextBytesMax
        else { return [IndexKey.more] }
        var keys: Set<[UInt8]> = []
        for text in texts {
            for word in FoldingRule.current.words(of: text) { keys.insert(wordKey(word, words)) }
            if keys.count > RecordLimits.indexedWordsMax { return [IndexKey.more] }
        }
        return keys
    }

    /// A keyed hash: whoever has the database alone does not read the words. Two may have the same.
    static func wordKey(_ word: String, _ words: SipHash) -> [UInt8] {
        let hash = words.hash([UInt8](word.utf8))
        return [1] + stride(from: UInt64(56), through: 0, by: -8).map { UInt8(truncatingIfNeeded: hash >> $0) }
    }
}
