import Foundation
import NephosCore
import NephosKit

extension DocumentsCommand.Get {
    /// Where a folder is got to. As with `cp -r`, a name that nothing has yet is what it will be called, and in a folder
    /// that is there it gets its own name; but one that a get of the same folder has made and not come to the end of is
    /// gone on with.
    struct FolderPlace {
        let place: LocalPath
        /// There while the get is not done; nil: the place does not depend on what is there.
        let mark: LocalPath?

        /// Makes the folder, if it is not there.
        func make() throws(CloudError) {
            let isThere = try place.status(followsLinks: true) != nil
            try place.makeFolder()
            guard let mark, !isThere else { return }
            let descriptor = mark.withCString { open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o666) }
            guard descriptor >= 0 else { throw Self.failure(mark) }
            close(descriptor)
        }

        /// All is there.
        func end() throws(CloudError) {
            guard let mark, mark.withCString({ unlink($0) }) != 0, errno != ENOENT else { return }
            throw Self.failure(mark)
        }

        private static func failure(_ mark: LocalPath) -> CloudError {
            CloudError(
                .storageFailure, "What says that the folder is not got yet could not be written.",
                details: ["file": mark.text, "reason": String(cString: strerror(errno))])
        }
    }

    /// - Parameters:
    ///   - what: What is got, for good.
    ///   - place: Where it goes by what is there.
    static func folder(_ target: String?, _ what: String, _ place: LocalPath) -> FolderPlace {
        guard let target else { return FolderPlace(place: place, mark: nil) }
        let named = LocalPath(target)
        let mark = LocalParts.mark(in: named, of: "get \(what)")
        let isBegun = ((try? mark.status(followsLinks: false)) ?? nil) != nil
        return FolderPlace(place: isBegun ? named : place, mark: isBegun || place == named ? mark : nil)
    }
}
