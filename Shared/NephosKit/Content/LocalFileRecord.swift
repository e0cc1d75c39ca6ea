import Foundation
import NephosCore
import NephosWire

/// What this device knows of a file, link or folder of this machine that it got from a container or put into it. A file
/// has a record for each place of the container that it was put at.
///
/// A put rests on it: the version that the file was got as is what a new version is made from. A get rests on it too: it
/// replaces nothing but what is as the record says. So no record may say of a file more than is on the disk. A missing one
/// costs a question, and never bytes.
struct LocalFileRecord: Equatable, Sendable {
    /// The item that the file is a copy of.
    var item: DocumentID
    /// Where the item was in the container: a file may be a copy of one item here and be put as another there.
    var place: DocumentPath
    /// The content that the file had when it was got or put; nil: it is a folder.
    var version: DocumentID?
    /// What that content took the place of: the file was made from that if the server refuses the content.
    var base: DocumentID?
    /// Of that content; nil: it is a folder, or the content is not the server's and every comparison finds a change.
    var digest: ContentDigest?
    /// What the system said of the file; nil: its times do not tell of a change, and it has to be read.
    var stamp: FileStamp?
    /// Which file or folder it was; nil: it could not be looked at.
    var identity: FileIdentity?
    /// Whether the file was executable; nil: that was never compared with the item.
    var isExecutable: Bool?
}

/// The names of files of this machine in the table of records: absolute, without links among the folders.
///
/// Asks the system once for each folder.
struct LocalFileKeys {
    private var folders: [LocalPath: LocalPath?] = [:]

    /// - Parameter followsLinks: Whether of a link that which it leads to is meant.
    /// - Returns: Nil: the folder is not there, or cannot be looked at.
    mutating func key(of file: LocalPath, followsLinks: Bool) -> LocalPath? {
        let file = file.named
        if followsLinks, let status = try? file.status(), status.st_mode & S_IFMT == S_IFLNK { return file.real }
        let folder = file.folder
        if folders[folder] == nil { folders[folder] = .some(folder.real) }
        return (folders[folder] ?? nil)?.appending(file.name)
    }
}

extension LocalPath {
    /// Without links, and from the root; nil: it is not there.
    var real: LocalPath? {
        guard let path = withCString({ realpath($0, nil) }) else { return nil }
        defer { free(path) }
        return LocalPath(bytes: UnsafeBufferPointer(start: path, count: strlen(path)).map { UInt8(bitPattern: $0) })
    }
}

/// How a local file and an item differ, by what the device has recorded of the file. This is the one place that decides
/// it: put, get and diff ask here.
package enum LocalComparison: String, Sendable {
    /// Both have the same bytes.
    case same
    /// Only the file was changed since it was got or put.
    case changedHere = "changed_here"
    /// Only the item was changed since.
    case changedThere = "changed_there"
    /// Both were; or the device never got or put the file, and the two differ.
    case conflict

    /// - Parameters:
    ///   - record: Nil: the file was never got or put.
    ///   - local: What the file has now.
    ///   - there: The content of the item, and of which kind the item is.
    init(_ record: LocalFileRecord?, local: ContentDigest, there: WireDocumentContent, _ kind: WireItemKind) {
        guard local != ContentDigest(kind, there) else {
            self = .same
            return
        }
        guard let record else {
            self = .conflict
            return
        }
        let isChangedHere = record.digest != local
        let isChangedThere = !record.isOf(there)
        self = isChangedHere ? isChangedThere ? .conflict : .changedHere : isChangedThere ? .changedThere : .same
    }
}

extension LocalFileRecord {
    /// Whether the content is the one that the file had, perhaps under the name that the same bytes have since.
    func isOf(_ content: WireDocumentContent) -> Bool {
        guard let version else { return false }
        return content.version == version.wire || content.sameAs.contains(version.wire)
    }
}
