internal import Foundation
internal import NephosCore
internal import NephosPredicates
internal import NephosWire

/// What a query knows of an item: the fields of its predicates, and what it is sorted by.
public enum DocumentField: String, Sendable, CaseIterable {
    /// Text: what it is called in its folder.
    case name
    /// Text: from the container's top, `/Documents/Letters/a.txt`.
    case path
    /// Text: the path of its folder.
    case parent
    /// Text: `file`, `folder` or `link`.
    case kind
    /// Integer: bytes of its content; a folder has none.
    case size
    /// Date: when it was made, as the person's device says.
    case created
    /// Date: when its content was changed, as the person's device says; a folder has none.
    case modified
    /// Text: its media type by its name's ending, such as `image/jpeg`; `inode/directory` of a folder, `inode/symlink`
    /// of a link; none where the ending is not known.
    case contentType
    /// List of texts.
    case tags
    /// Boolean: whether it may be run as a program.
    case isExecutable
    /// Text: where it stands between device and server, as ``DocumentEntry/TransferState`` has it.
    case state
    /// Integer: how much of its content the server has of this device, 0 to 100.
    case percent
    /// Text: what of its content is on this device, as ``DocumentDownload/Status`` has it.
    case downloadingStatus
    /// Integer: how much of its newest content has come to this device, 0 to 100.
    case percentDownloaded
    /// Boolean: whether it is kept downloaded, for its own sake or for a folder's that it is in.
    case isPinned
    /// Boolean: whether contents lost to another, and nobody has resolved that.
    case isConflicted
    /// Boolean: whether it, or a folder that it is in, lies in the trash.
    case isTrashed

    var type: PredicateType {
        switch self {
        case .name, .path, .parent, .kind, .contentType, .state, .downloadingStatus: .string
        case .size, .percent, .percentDownloaded: .integer
        case .created, .modified: .date
        case .tags: .list(.string)
        case .isExecutable, .isConflicted, .isTrashed, .isPinned: .boolean
        }
    }

    /// What the predicates of queries may ask for.
    static let schema = PredicateSchema(
        Dictionary(allCases.compactMap { field in FieldName(field.rawValue).map { ($0, field.type) } }) { $1 })
}

/// An item as a query looks at it. What is asked for is made of the row when it is asked for.
struct QueriedDocument {
    let held: HeldDocument
    let kind: DocumentEntry.Kind
    /// Of the folder that it is in.
    let folder: DocumentLocation
    /// Reads what is not in the row.
    let documents: DocumentTransaction

    /// - Returns: Nil: of a kind that this release does not know.
    init?(_ held: HeldDocument, in folder: DocumentLocation, _ documents: DocumentTransaction) {
        guard let kind = DocumentEntry.Kind(held.wire.kind) else { return nil }
        self.held = held
        self.kind = kind
        self.folder = folder
        self.documents = documents
    }

    var location: DocumentLocation { folder.appending(held) }
    var name: String { String(decoding: held.wire.name, as: UTF8.self) }

    /// Nil: it has none.
    func value(of field: DocumentField) throws -> PredicateValue? {
        let wire = held.wire
        switch field {
        case .name: return .string(name)
        case .path: return .string(location.text)
        case .parent: return .string(folder.text)
        case .kind: return .string(kind.rawValue)
        case .size: return kind == .folder ? nil : .integer(Int64(clamping: wire.content.length))
        case .created: return Self.date(wire.attributes.created)
        case .modified:
            return wire.hasContent
                ? .date(DocumentDate(nanoseconds: wire.content.modified)) : Self.date(wire.attributes.modified)
        case .contentType: return ContentTypes.type(of: kind, named: wire.name).map { .string($0) }
        case .tags: return .list(wire.attributes.tags.map { .string($0) })
        case .isExecutable: return .boolean(wire.attributes.executable)
        case .state: return .string(try documents.transfer(of: held).state.rawValue)
        case .percent: return .integer(Int64(try documents.transfer(of: held).percent))
        case .downloadingStatus: return .string(try documents.download(of: held).status.rawValue)
        case .percentDownloaded: return .integer(Int64(try documents.download(of: held).percent))
        case .isPinned: return .boolean(try documents.pin(over: held.id) != nil)
        case .isConflicted: return .boolean(!wire.conflicts.isEmpty)
        case .isTrashed: return .boolean(location.isTrashed)
        }
    }

    /// What `self CONTAINS` looks at.
    var texts: [String] { [name] + held.wire.attributes.tags }

    private static func date(_ nanoseconds: Int64) -> PredicateValue? {
        nanoseconds == 0 ? nil : .date(PredicateDate(nanoseconds: nanoseconds))
    }

    func entry() throws -> DocumentEntry {
        DocumentEntry(
            held.id, held.wire, kind, path: location.path, isInTrash: location.isTrashed,
            transfer: try documents.transfer(of: held))
    }
}

/// Where something is: the names that lead to it, byte by byte.
struct DocumentLocation: Hashable {
    /// `/Documents/Letters`; of the top, nothing.
    var bytes: Data
    /// It, or a folder that it is in, lies in the trash.
    var isTrashed = false
    /// Names in it.
    var depth: Int

    static let top = DocumentLocation(bytes: Data(), depth: 0)
    static let documents = DocumentLocation(bytes: Data("/".utf8) + DocumentPath.documents, depth: 1)

    func appending(_ item: HeldDocument) -> DocumentLocation {
        var bytes = bytes
        bytes.append(UInt8(ascii: "/"))
        bytes.append(item.wire.name)
        return DocumentLocation(bytes: bytes, isTrashed: isTrashed || item.isTrashed, depth: depth + 1)
    }

    var text: String { bytes.isEmpty ? "/" : String(decoding: bytes, as: UTF8.self) }
    var path: DocumentPath { DocumentPath(names: bytes.split(separator: UInt8(ascii: "/")).map { Data($0) }) }
}
