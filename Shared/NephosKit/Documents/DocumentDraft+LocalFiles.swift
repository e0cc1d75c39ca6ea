import Foundation
import NephosCore
import NephosWire

/// The file of this machine that a source is read from.
struct LocalOrigin: Hashable, Sendable {
    /// As ``LocalFileKeys`` names it.
    var file: LocalPath
    /// Whether a person or an app has named the file. Otherwise it was found in a folder that was named.
    var isNamed: Bool
    /// Which file or folder it was before it was read; nil: it could not be looked at.
    let identity: FileIdentity?

    init(file: LocalPath, isNamed: Bool) {
        (self.file, self.isNamed) = (file, isNamed)
        identity = FileIdentity(file)
    }
}

/// What a file that is put was made from.
package enum PutBasis: Sendable {
    /// The version that is recorded of the file. Of a file without a record nobody knows: it is a conflict with what is
    /// there, unless both have the same bytes.
    case record
    /// The version that is recorded of the file; without a record the newest.
    case recordOrNewest
    /// The newest, whatever is recorded. Nothing that was deleted or moved is taken into account.
    case newest
}

/// What became of a source that was put.
package struct PutDocument: Sendable {
    package enum Outcome: String, Sendable {
        /// A new item.
        case made
        /// A new version of an item.
        case changed
        /// Nothing is sent: the item has these bytes, and the record says so from now on.
        case unchanged
        /// Nothing is sent: the file is as it was got or put, and the item has a newer version.
        case outdated
        /// The item was changed since too, or the file was never got: both are kept, and a person has to decide.
        case conflict
    }

    package var outcome: Outcome
    package let item: DocumentID
    /// The content that the file has; nil: it is a folder.
    package var version: DocumentID?
    /// Where the file was to go, as a person reads it.
    package let place: String
    /// Of the content that is sent; nil: none is.
    package var bytesSent: UInt64?
    let origin: LocalOrigin?
    /// What is recorded of the file; nil: it has no origin.
    var record: LocalFileRecord?
}

/// Where a source goes.
private enum PutTarget {
    /// Nothing is there.
    case new(DocumentPath)
    case fixed(DocumentID)
    case item(HeldDocument, at: DocumentPath, LocalFileRecord?)
    /// The item was deleted that the file is a copy of.
    case gone
    /// The item was moved there, and the file may be another than the one that it is a copy of.
    case moved(HeldDocument, to: DocumentPath)
}

extension DocumentDraft {
    /// Puts a source whose content is in the home.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep` where the file was got, and its item is gone.
    mutating func put(
        _ source: StagedSource, _ basis: PutBasis, makesFolders: Bool
    ) throws -> PutDocument {
        guard let content = source.content else {
            return try putFolder(source, basis)
        }
        let result: PutDocument
        switch try target(of: source.path, source.origin, basis, ContentDigest(content)) {
        case .gone: throw Self.gone
        case .moved(_, let path): throw Self.moved(path)
        case .fixed, .new:
            let path = try newPlace(source.path, source.origin, basis)
            let item = try put(content, at: path, makesFolders: makesFolders)
            result = put(.made, item, source, content.version.wire, base: nil, isExecutable: content.isExecutable)
        case .item(let item, let path, let record):
            result = try put(content, of: source, in: item, at: path, record, basis)
        }
        return result
    }

    private mutating func put(
        _ content: StagedContent, of source: StagedSource, in item: HeldDocument, at path: DocumentPath,
        _ record: LocalFileRecord?, _ basis: PutBasis
    ) throws -> PutDocument {
        guard !item.isFolder else { throw Self.isFolder(path) }
        try Self.requireKind(content.kind, of: item, at: path)
        let newest = item.wire.content.version
        // What was not changed here is no change of the item's.
        let isExecutable = content.isExecutable
        var content = content
        if basis != .newest, record?.isExecutable == isExecutable {
            content.isExecutable = item.wire.attributes.executable
        }
        let comparison = LocalComparison(
            record, local: ContentDigest(content), there: item.wire.content, item.wire.kind)
        let isNewest = source.origin == nil || basis == .newest || record == nil && basis == .recordOrNewest
        switch comparison {
        case .changedThere where !isNewest:
            drop(content)
            return put(
                item.isLosing(record?.version) ? .conflict : .outdated, item.id, source, record?.version?.wire,
                base: record?.base, isExecutable: record?.isExecutable)
        case .conflict where !isNewest:
            let base = record?.version
            let version = try replace(item, at: path, by: content, madeFrom: base?.wire ?? Data())
            return put(.conflict, item.id, source, version, base: base, isExecutable: record?.isExecutable)
        default:
            let version = try replace(item, at: path, by: content, madeFrom: newest)
            let outcome = version == content.version.wire ? PutDocument.Outcome.changed : .unchanged
            return put(
                outcome, item.id, source, version, base: DocumentID(bytes: newest), isExecutable: isExecutable)
        }
    }

    private func put(
        _ outcome: PutDocument.Outcome, _ item: DocumentID, _ source: StagedSource, _ version: Data?,
        base: DocumentID?, isExecutable: Bool? = nil
    ) -> PutDocument {
        let version = version.flatMap { DocumentID(bytes: $0) }
        let isSent = source.content.map { $0.version == version } ?? (outcome == .made)
        let record = LocalFileRecord(
            item: item, place: source.path, version: version, base: base == version ? nil : base,
            digest: source.content.map { ContentDigest($0) }, stamp: source.content?.stamp,
            identity: source.origin?.identity, isExecutable: isExecutable)
        return PutDocument(
            outcome: outcome, item: item, version: version, place: source.path.text,
            bytesSent: isSent ? source.content?.length ?? 0 : nil, origin: source.origin,
            record: source.origin == nil ? nil : record)
    }

    private mutating func putFolder(_ source: StagedSource, _ basis: PutBasis) throws -> PutDocument {
        let (path, origin) = (source.path, source.origin)
        let (id, outcome): (DocumentID, PutDocument.Outcome)
        switch try target(of: path, origin, basis, nil) {
        case .gone: throw Self.gone
        case .moved(_, let path): throw Self.moved(path)
        case .fixed(let folder): (id, outcome) = (folder, .unchanged)
        case .item(let item, let place, _):
            guard item.isFolder else { _ = try folder(at: place, makes: false); throw Self.isFolder(place) }
            (id, outcome) = (item.id, .unchanged)
        case .new:
            let place = try newPlace(path, origin, basis)
            (id, outcome) = (try folder(at: place, makes: true, modified: source.modified), .made)
        }
        return put(outcome, id, StagedSource(path: path, content: nil, origin: origin), nil, base: nil)
    }

    /// A file that its stamp says to be as it is recorded, and that was not read.
    ///
    /// - Throws: ``CloudError`` `.constraintViolation` when the item or the record was changed since it was looked at.
    mutating func put(_ file: UnchangedFile, _ basis: PutBasis) throws -> PutDocument {
        guard let found = try unchanged(file.path, file.origin, basis), found.record == file.record else {
            throw CloudError(
                .constraintViolation, "What is at the path was changed while this was put. Put it again.",
                details: ["path": file.path.text])
        }
        return found
    }

    /// What becomes of a file that is as it is recorded.
    ///
    /// - Returns: Nil: it has to be read.
    mutating func unchanged(_ path: DocumentPath, _ origin: LocalOrigin, _ basis: PutBasis) throws -> PutDocument? {
        guard case .item(let item, _, let record) = try target(of: path, origin, basis, nil),
            let record = try record ?? documents.record(of: origin.file, at: path, item: item.id),
            record.item == item.id
        else { return nil }
        var outcome = PutDocument.Outcome.unchanged
        if !item.isFolder {
            guard let digest = record.digest else { return nil }
            switch LocalComparison(record, local: digest, there: item.wire.content, item.wire.kind) {
            case .same: break
            case .changedThere where basis != .newest:
                outcome = item.isLosing(record.version) ? .conflict : .outdated
            default: return nil
            }
        }
        return PutDocument(
            outcome: outcome, item: item.id, version: record.version, place: path.text, bytesSent: nil, origin: origin,
            record: record)
    }

    /// How a source differs from what is there.
    ///
    /// - Parameter digest: Of the file; nil: it is a folder.
    mutating func difference(
        _ path: DocumentPath, _ origin: LocalOrigin?, _ digest: ContentDigest?, _ basis: PutBasis
    ) throws -> LocalDifference {
        switch try target(of: path, origin, basis, digest) {
        case .gone: return LocalDifference(kind: .deletedThere, path: path.text)
        case .moved(_, let place): return LocalDifference(kind: .conflict, path: place.text, movedFrom: path.text)
        case .fixed: return LocalDifference(kind: .same, path: path.text)
        case .new(let path): return LocalDifference(kind: .onlyHere, path: path.text)
        case .item(let item, let place, let record):
            let movedFrom = place == path ? nil : path.text
            guard let digest, !item.isFolder else {
                let kind = digest == nil && item.isFolder ? LocalDifference.Kind.same : .conflict
                return LocalDifference(kind: kind, path: place.text, movedFrom: movedFrom)
            }
            let comparison = LocalComparison(record, local: digest, there: item.wire.content, item.wire.kind)
            let kind: LocalDifference.Kind =
                switch comparison {
                case .same: .same
                case _ where basis == .newest: .changedHere
                case .changedHere: .changedHere
                case .changedThere: .changedThere
                case .conflict: .conflict
                }
            return LocalDifference(kind: kind, path: place.text, movedFrom: movedFrom)
        }
    }

    /// Where a source goes, by what is recorded of its file and by what is there.
    ///
    /// A file that was found in a folder follows the item that it is a copy of, wherever that was moved, if it is still
    /// that file. One that somebody has named goes where it was told to go.
    ///
    /// - Parameter digest: Of the file; nil: it is a folder, or has not been read.
    private mutating func target(
        of path: DocumentPath, _ origin: LocalOrigin?, _ basis: PutBasis, _ digest: ContentDigest?
    ) throws -> PutTarget {
        let there = try lookUp(path)
        guard basis != .newest, let origin,
            let record = try documents.record(of: origin.file, at: path, item: there?.id)
        else { return try unrecordedTarget(of: path, there, origin, basis) }
        if !origin.isNamed || there?.id == record.item, let item = try documents.document(record.item),
            let found = try documents.path(of: item), !found.isInTrash
        {
            guard there?.id != record.item else { return .item(item, at: found.path, record) }
            switch try isStill(record, origin, path, item, digest) {
            case true?: return .item(item, at: found.path, record)
            case false?: return try unrecordedTarget(of: path, there, origin, basis)
            case nil: return .moved(item, to: found.path)
            }
        }
        return Self.target(there, at: path, record) ?? (origin.isNamed ? .new(path) : .gone)
    }

    private static func target(
        _ there: DocumentTransaction.Place?, at path: DocumentPath, _ record: LocalFileRecord?
    ) -> PutTarget? {
        switch there {
        case .fixed(let id)?: .fixed(id)
        case .item(let item)?: .item(item, at: path, record)
        case nil: nil
        }
    }

    /// Where a source goes of whose file nothing is recorded.
    private mutating func unrecordedTarget(
        of path: DocumentPath, _ there: DocumentTransaction.Place?, _ origin: LocalOrigin?, _ basis: PutBasis
    ) throws -> PutTarget {
        if let target = Self.target(there, at: path, nil) { return target }
        let moved = try newPlace(path, origin, basis)
        if moved != path, case .item(let item)? = try lookUp(moved) { return .item(item, at: moved, nil) }
        return .new(moved)
    }

    /// Whether the file or folder is still the one that was recorded, whose item was moved in the container since.
    ///
    /// An editor saves a file as another one of the same name, which is no other than one that took its place: only the
    /// folder tells then.
    ///
    /// - Returns: Nil: nobody can tell.
    private func isStill(
        _ record: LocalFileRecord, _ origin: LocalOrigin, _ path: DocumentPath, _ item: HeldDocument,
        _ digest: ContentDigest?
    ) throws -> Bool? {
        if let identity = record.identity, identity == origin.identity { return true }
        guard record.version != nil else { return false }
        let file = origin.file.folder
        let folder = try path.parent.flatMap { try documents.record(of: file, at: $0) }
        if let folder, folder.identity != FileIdentity(file) { return false }
        if let digest, digest == record.digest { return true }
        // It lies there as it does here: only the folder was moved.
        return folder != nil && item.parent == folder?.item && item.wire.name == path.last ? true : nil
    }

    /// Where something goes that nothing is recorded of: into the folder that it lies in here, if that was moved there.
    private func newPlace(
        _ path: DocumentPath, _ origin: LocalOrigin?, _ basis: PutBasis
    ) throws -> DocumentPath {
        guard basis != .newest, let origin, !origin.isNamed, let parent = path.parent,
            let record = try documents.record(of: origin.file.folder, at: parent),
            record.identity == FileIdentity(origin.file.folder),
            let folder = try documents.document(record.item), folder.isFolder,
            let found = try documents.path(of: folder), !found.isInTrash
        else { return path }
        return found.path.appending(path.last)
    }

    private static func moved(_ path: DocumentPath) -> CloudError {
        CloudError(
            .storeOutOfStep,
            "Its item was moved in the container to \(path.text), and the file here may be another by now. "
                + "It stays here. Put it there by name, or put it where it is with --overwrite.",
            details: ["path": path.text])
    }

    private static let gone = CloudError(
        .storeOutOfStep,
        "It was got or put before, and has been deleted in the container since. It stays here, and is put again with --overwrite."
    )
}

extension HeldDocument {
    /// Whether this content lost to another, and nobody has decided yet.
    func isLosing(_ version: DocumentID?) -> Bool {
        guard let version else { return false }
        return wire.conflicts.contains { $0.version == version.wire }
    }
}
