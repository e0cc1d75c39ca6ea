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
        let mark: Mark?

        /// A file in the folder.
        struct Mark {
            private let what: String
            let file: LocalPath

            init(of what: String, in folder: LocalPath) {
                self.what = what
                file = LocalParts.mark(in: folder, of: what)
            }

            /// Where the folder is made, beside its place: it has its mark from its first moment there.
            func maker(of folder: LocalPath) -> LocalPath {
                LocalParts.mark(in: folder.folder, of: "make \(folder.text) to \(what)")
            }

            func file(in folder: LocalPath) -> LocalPath { LocalParts.mark(in: folder, of: what) }
        }

        /// Makes the folder, if it is not there.
        func make() throws(CloudError) {
            guard let mark, try place.status(followsLinks: true) == nil else { return try place.makeFolder() }
            let folder = mark.maker(of: place)
            do throws(CloudError) { try folder.makeFolder() } catch {
                throw CloudError(error.code, error.message, details: error.details.merging(["file": place.text]) { $1 })
            }
            let file = mark.file(in: folder)
            let descriptor = file.withCString { open($0, O_WRONLY | O_CREAT | O_CLOEXEC, 0o666) }
            // Another get of the same may have given it its place in between.
            let failure: CloudError? = descriptor < 0 && errno != ENOENT ? Self.failure(file) : nil
            if descriptor >= 0 { close(descriptor) }
            let isPlaced = descriptor >= 0 && folder.withCString { old in place.withCString { rename(old, $0) } } == 0
            guard !isPlaced else { return }
            _ = file.withCString { unlink($0) }
            _ = folder.withCString { rmdir($0) }
            if let failure { throw failure }
            // Somebody was quicker, or it cannot be there.
            try place.makeFolder()
        }

        /// All is there.
        func end() throws(CloudError) {
            guard let mark, mark.file.withCString({ unlink($0) }) != 0, errno != ENOENT else { return }
            throw Self.failure(mark.file)
        }

        private static func failure(_ mark: LocalPath) -> CloudError {
            CloudError(
                .storageFailure, "What says that the folder is not got yet could not be written.",
                details: ["file": mark.text, "reason": String(cString: strerror(errno))])
        }
    }

    /// - Parameters:
    ///   - what: What is got, by names that it keeps.
    ///   - place: Where it goes by what is there.
    static func folder(_ target: String?, _ what: String, _ place: LocalPath) -> FolderPlace {
        guard let target else { return FolderPlace(place: place, mark: nil) }
        let named = LocalPath(target)
        let mark = FolderPlace.Mark(of: "get \(what)", in: named)
        let isBegun = ((try? mark.file.status(followsLinks: false)) ?? nil) != nil
        return FolderPlace(place: isBegun ? named : place, mark: isBegun || place == named ? mark : nil)
    }
}
