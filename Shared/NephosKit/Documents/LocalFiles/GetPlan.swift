internal import Foundation
internal import NephosChunks
internal import NephosCore
internal import NephosFiles
internal import NephosWire

/// Which local files a get may replace.
package enum LocalReplacing: Sendable {
    /// Those that are as they are recorded, and those that have the bytes already.
    case recorded
    /// Whatever is there.
    case all
}

/// What a get has found at its place.
struct GetPlan: Sendable {
    /// Whether the file has the bytes already: nothing is fetched.
    var isUpToDate = false
    /// What may be replaced.
    var expected = LocalTarget.Expected.anything
    /// Whether a folder with something in it may be replaced by a package.
    var replacesFolder: Bool
    /// What is recorded once the content is in its place.
    var note: LocalNote?
}

/// What is to be recorded of a local file.
struct LocalNote: Sendable {
    /// As ``LocalFileKeys`` names it.
    var file: LocalPath
    var record: LocalFileRecord
    /// Whether the file gets other bytes: what was recorded of it before is over.
    var isFetched = true
    /// Whether the file is to be executable from now on; nil: it stays as it is.
    var executable: Bool?
}

/// Looks at what is at the places that contents are to be got to.
extension GetPlan {
    /// Looks at what is at the place that a content is to be got to.
    ///
    /// - Throws: ``CloudError`` `.storeOutOfStep`: a file is there that was changed since it was got, or was never got,
    ///   and it stays; else of what cannot be read.
    static func make(
        of item: HeldDocument, _ content: WireDocumentContent, to place: LocalPath, followsLinks: Bool,
        replacesFolder: Bool, _ replacing: LocalReplacing, _ handle: ContainerHandle
    ) async throws -> GetPlan {
        let follows = followsLinks && item.wire.kind == .file
        var keys = LocalFileKeys()
        let file = keys.key(of: place, followsLinks: follows)
        let (path, record, isKept) = try handle.read { documents in
            let place = try documents.path(of: item)?.path
            let records = try file.map { try documents.records(of: $0) } ?? []
            let record =
                records.first { $0.item == item.id } ?? records.first { $0.place == place } ?? records.first
            // Of another item the bytes may be nowhere but here, once that is gone for good.
            let isKept = try record.map { try $0.item == item.id || documents.document($0.item) != nil } ?? false
            return (place, record, isKept)
        }
        var plan = GetPlan(replacesFolder: replacesFolder)
        if let file, let path, let version = DocumentID(bytes: content.version) {
            let digest = ContentDigest(item.wire.kind, content)
            plan.note = LocalNote(
                file: file, record: LocalFileRecord(item: item.id, place: path, version: version, digest: digest))
        }
        guard replacing == .recorded, !(item.wire.kind == .package && replacesFolder) else { return plan }
        guard let status = try place.named.status(followsLinks: follows) else {
            // A link that leads nowhere is written through.
            if try place.named.status() == nil { plan.expected = .nothing }
            return plan
        }
        let isFolder = status.st_mode & S_IFMT == S_IFDIR
        // What is in the way in any case is said where it is written to.
        guard isFolder == (item.wire.kind == .package), try !isFolder || !place.named.names().isEmpty else {
            return plan
        }
        let stamp = FileStamp(status)
        let reading: (digest: ContentDigest, stamp: FileStamp?)?
        if let record, record.stamp == stamp, let digest = record.digest {
            reading = (digest, stamp)
        } else {
            reading = try await Session.elsewhere { try ContentDigest.read(place.named, followsLinks: follows) }.get()
        }
        guard let reading else { return plan }
        if item.wire.kind == .file {
            let (isExecutable, there) = (status.st_mode & S_IXUSR != 0, item.wire.attributes.executable)
            plan.note?.record.isExecutable = isExecutable == there ? there : record?.isExecutable
            // Nobody has changed that here since.
            if record?.isExecutable == isExecutable, isExecutable != there { plan.note?.executable = there }
        }
        switch LocalComparison(record, local: reading.digest, there: content, item.wire.kind) {
        case .same:
            plan.note?.isFetched = false
            // Attributes may have been set there. A file that was changed here in any way keeps its own.
            let isUntouched = record.map { $0.stamp == nil || $0.stamp == stamp } ?? false
            if isUntouched, Self.lacksAttributes(of: item, place.named) {
                plan.expected = .file(stamp)
                return plan
            }
            plan.isUpToDate = true
            plan.note?.record.stamp = reading.stamp
        case .changedThere where isKept: plan.expected = .file(stamp)
        case .conflict where record == nil && isFolder: break
        case .changedHere: throw Self.kept(place, "was changed since it was got or put")
        case .conflict where record != nil:
            throw Self.kept(place, "was changed since it was got or put, and so was the one in the container")
        case .changedThere, .conflict: throw Self.kept(place, "was not got from there, and differs")
        }
        return plan
    }

    /// Whether the file has not all of the item's extended attributes, and could have them.
    private static func lacksAttributes(of item: HeldDocument, _ file: LocalPath) -> Bool {
        let extended = item.wire.attributes.extended
        guard item.wire.kind == .file, !extended.isEmpty else { return false }
        let descriptor = file.withCString { open($0, O_RDONLY | O_CLOEXEC | O_NONBLOCK) }
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        guard let kept = try? ExtendedAttributes.kept(of: descriptor, file.text) else { return false }
        return !extended.allSatisfy { attribute in
            kept.contains { $0.name.elementsEqual(attribute.name) && $0.value.elementsEqual(attribute.value) }
        }
    }

    private static func kept(_ place: LocalPath, _ reason: String) -> CloudError {
        CloudError(
            .storeOutOfStep, "The file here \(reason). It stays as it is: put it, or have it replaced (overwrite).",
            details: ["file": place.text])
    }
}
