import Foundation
import NephosCore

/// A home has one folder of contents, and gets no other while that is elsewhere: what was never sent may be nowhere but
/// in it.
///
/// So it has a mark in it, and the home a note beside it, both from when it was made. What has no mark is not the folder,
/// but the place where it was, or where its disk is to be mounted.
extension ContentFolder {
    private var mark: String { path + "/.nephos" }
    private var note: String { path + ".made" }

    private var hasMark: Bool { access(mark, F_OK) == 0 }
    private var hasNote: Bool { access(note, F_OK) == 0 }

    /// Whether the folder is there, with what was put into it. One of a former release has no mark, and its home no note.
    var isThere: Bool { hasMark || !hasNote && access(path, F_OK) == 0 }

    /// Whether the home has one that is not there.
    var isAway: Bool { !isThere && hasNote }

    /// Makes the folder, unless it was made before.
    ///
    /// - Throws: ``CloudError`` `.storageFailure`: it was, and is not there. Bring it back, or say that it is lost by
    ///   removing the note. Else of files.
    func make() throws(CloudError) {
        let isNoted = hasNote
        guard !hasMark else {
            if !isNoted { try Self.touch(note, in: (path as NSString).deletingLastPathComponent) }
            return
        }
        guard !isNoted else { throw away }
        if mkdir(path, 0o700) != 0, errno != EEXIST { throw Self.failure(path) }
        // In this order, each on disk before the next: a note without the folder would say that it is away.
        try Self.touch(mark, in: path)
        try Self.touch(note, in: (path as NSString).deletingLastPathComponent)
    }

    private static func touch(_ file: String, in folder: String) throws(CloudError) {
        try flush(folder) { fsync($0) == 0 ? 0 : errno }
        let descriptor = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard descriptor >= 0 else { throw failure(file) }
        close(descriptor)
        try flush(folder) { fsync($0) == 0 ? 0 : errno }
    }

    /// Nothing can be said of what is in it.
    var away: CloudError {
        CloudError(.storageFailure, LocalFailure.contentFolderAway, details: ["path": path, "note": note])
    }

    /// Why a content cannot be read, by the system's last error.
    func unreadable(_ version: DocumentID) -> CloudError {
        let error = Self.unreadable(file(version))
        return isThere ? error : away
    }
}
