internal import Foundation
public import NephosCore
public import NephosPredicates

/// By what the items of a query are ordered. What is the same by all of a query's sorts is in the order of ids.
public struct DocumentSort: Hashable, Sendable {
    /// By this; what has no value comes first. Not by tags.
    public var field: DocumentField
    /// The greatest first; what has no value last.
    public var isDescending: Bool
    /// What does not count among texts: capitals, accents. Without, they are in the order of their bytes.
    public var folding: Folding

    /// By one field.
    public init(_ field: DocumentField, isDescending: Bool = false, folding: Folding = []) {
        self.field = field
        self.isDescending = isDescending
        self.folding = folding
    }

    /// Reads a list such as `-modified,name[cd]`: a minus puts the greatest first, `[c]` and `[d]` are as in
    /// predicates.
    ///
    /// - Throws: ``CloudError`` `.invalidArguments`, with the fields that there are.
    public static func parse(_ text: String) throws(CloudError) -> [DocumentSort] {
        var sorts: [DocumentSort] = []
        for part in text.split(separator: ",", omittingEmptySubsequences: false) {
            sorts.append(try DocumentSort(part: String(part.drop { $0 == " " })))
        }
        return sorts
    }

    private init(part: String) throws(CloudError) {
        var rest = part[...]
        isDescending = rest.first == "-"
        if isDescending { rest.removeFirst() }
        folding = []
        for (letters, folding) in [
            ("[c]", Folding.caseInsensitive), ("[d]", .diacriticInsensitive),
            ("[cd]", [.caseInsensitive, .diacriticInsensitive]),
        ] where rest.hasSuffix(letters) {
            self.folding = folding
            rest.removeLast(letters.count)
        }
        guard let field = DocumentField(rawValue: String(rest)), field != .tags else {
            throw CloudError(
                .invalidArguments, "This is nothing to sort by. Name one of the fields.",
                details: [
                    "sort": part,
                    "fields": DocumentField.allCases.filter { $0 != .tags }.map(\.rawValue).joined(separator: ", "),
                ])
        }
        self.field = field
    }
}

/// Makes keys whose bytes are in the order of the sorts.
struct DocumentSortKey {
    let sorts: [DocumentSort]

    /// Empty without sorts: in the order in which they were found.
    func bytes(of document: QueriedDocument) throws -> Data {
        try bytes(document.held.id) { try document.value(of: $0) }
    }

    func bytes(of entry: DocumentEntry) -> Data { bytes(entry.id) { entry.value(of: $0) } }

    private func bytes(_ id: DocumentID, _ value: (DocumentField) throws -> PredicateValue?) rethrows -> Data {
        guard !sorts.isEmpty else { return Data() }
        var key = Data()
        for sort in sorts { Self.append(try value(sort.field), sort, to: &key) }
        key.append(contentsOf: id.bytes)
        return key
    }

    private static func append(_ value: PredicateValue?, _ sort: DocumentSort, to key: inout Data) {
        let start = key.count
        key.append(value == nil ? 0 : 1)
        switch value {
        case nil: break
        case .boolean(let boolean): key.append(boolean ? 1 : 0)
        case .integer(let number): append(number, to: &key)
        case .date(let date): append(date.nanoseconds, to: &key)
        case .string(let text):
            let folded = FoldingRule.current.fold(text, sort.folding)
            append(folded.utf8, isPath: sort.field == .path || sort.field == .parent, to: &key)
        case .real, .data, .location, .list: break
        }
        guard sort.isDescending else { return }
        for index in start..<key.count { key[index] = ~key[index] }
    }

    private static func append(_ number: Int64, to key: inout Data) {
        // Those below zero first.
        withUnsafeBytes(of: (UInt64(bitPattern: number) ^ 1 << 63).bigEndian) { key.append(contentsOf: $0) }
    }

    /// - Parameter isPath: A folder comes right before what is in it: no name has a NUL.
    private static func append(_ text: String.UTF8View, isPath: Bool, to key: inout Data) {
        for byte in text {
            if isPath, byte == UInt8(ascii: "/") {
                key.append(0)
            } else {
                key.append(byte)
                // Longer than the end, which is two.
                if byte == 0 { key.append(0xff) }
            }
        }
        key.append(contentsOf: [0, 0])
    }
}

extension DocumentEntry {
    /// What the entry says of the field.
    func value(of field: DocumentField) -> PredicateValue? {
        switch field {
        case .name: .string(name)
        case .path: .string(path)
        case .parent: .string(parentPath)
        case .kind: .string(kind.rawValue)
        case .size: kind == .folder ? nil : .integer(Int64(clamping: size))
        case .created: created.map { .date($0) }
        case .modified: modified.map { .date($0) }
        case .contentType: ContentTypes.type(of: kind, named: nameBytes).map { .string($0) }
        case .tags: .list(tags.map { .string($0) })
        case .isExecutable: .boolean(isExecutable)
        case .state: .string(state.rawValue)
        case .percent: .integer(Int64(percent))
        case .downloadingStatus: .string(download.status.rawValue)
        case .percentDownloaded: .integer(Int64(download.percent))
        case .isPinned: .boolean(download.isPinned)
        case .isConflicted: .boolean(conflictCount > 0)
        case .isTrashed: .boolean(isTrashed)
        }
    }

    private var parentPath: String {
        let end = path.utf8.lastIndex(of: UInt8(ascii: "/")) ?? path.startIndex
        return end == path.startIndex ? "/" : String(path[..<end])
    }
}
