package import Foundation
import NephosCore

/// The place on this machine's disk that a content is got to. What is there stays as it is, or is replaced as a whole.
struct LocalTarget: Sendable {
    /// Links that are followed, at most: as many as the system follows.
    private static let linksMax = 40

    /// Where the content comes to be: of a path that leads over links, the end of those.
    let path: LocalPath
    /// The file that is replaced.
    let old: stat?
    /// What has to be there still when the content takes its place: somebody may have written to it meanwhile.
    var expected = Expected.anything

    /// What a get has found at its place, and may replace.
    enum Expected: Equatable, Sendable {
        case anything
        case nothing
        case file(FileStamp)
    }

    /// - Throws: ``CloudError`` `.storeOutOfStep`: something else is there by now, and stays.
    func requireExpected() throws(CloudError) {
        let found = expected == .anything ? nil : try path.status()
        switch expected {
        case .anything: return
        case .nothing: if found == nil { return }
        case .file(let stamp): if let found, FileStamp(found) == stamp { return }
        }
        throw CloudError(
            .storeOutOfStep,
            "The file here was written to while its item was fetched, and stays as it is. Get it again.",
            details: ["file": path.text])
    }

    /// Looks at what is there.
    ///
    /// - Parameter followsLinks: Where a link is there, what it leads to is meant, whether that is there or not; else
    ///   the link is in the way.
    /// - Throws: ``CloudError`` `.invalidArguments` for what is no file; else of what cannot be looked at.
    static func file(_ path: LocalPath, followsLinks: Bool) throws(CloudError) -> LocalTarget {
        var path = path
        for _ in 0...linksMax {
            guard let status = try path.status() else { return LocalTarget(path: path, old: nil) }
            switch status.st_mode & S_IFMT {
            case S_IFREG: return LocalTarget(path: path, old: status)
            case S_IFLNK where followsLinks:
                let next = try path.destination()
                path = next.first == UInt8(ascii: "/") ? LocalPath(bytes: next) : path.folder.appending(next)
            case let kind: throw inTheWay(path, kind)
            }
        }
        errno = ELOOP
        throw ContentFolder.failure(path.text)
    }

    /// The same for a link that is got, which takes the place of another, and of a file.
    static func link(_ path: LocalPath) throws(CloudError) -> LocalTarget {
        guard let status = try path.status() else { return LocalTarget(path: path, old: nil) }
        let kind = status.st_mode & S_IFMT
        guard kind == S_IFREG || kind == S_IFLNK else { throw inTheWay(path, kind) }
        return LocalTarget(path: path, old: nil)
    }

    /// The same for a package that is got, which takes the place of an empty folder.
    ///
    /// - Parameter replaces: Whether a folder with something in it is replaced, with all that is in it; else it is in the
    ///   way.
    static func package(_ path: LocalPath, replaces: Bool) throws(CloudError) -> LocalTarget {
        let path = path.named
        let end = path.bytes.lastIndex { $0 != UInt8(ascii: "/") }.map { $0 + 1 } ?? path.bytes.count
        let place = LocalPath(bytes: path.bytes[..<end])
        guard let status = try place.status() else { return LocalTarget(path: place, old: nil) }
        guard status.st_mode & S_IFMT == S_IFDIR else {
            throw CloudError(
                .invalidArguments, "What is there is no folder, and stays as it is: a package replaces only folders.",
                details: ["file": place.text])
        }
        guard try !place.names().isEmpty else { return LocalTarget(path: place, old: nil) }
        guard replaces else {
            throw CloudError(
                .alreadyExists, "A folder is there, and something is in it. Take it away, or say that it is replaced.",
                details: ["file": place.text])
        }
        return LocalTarget(path: place, old: status)
    }

    private static func inTheWay(_ path: LocalPath, _ kind: mode_t) -> CloudError {
        switch kind {
        case S_IFDIR:
            CloudError(
                .invalidArguments, "A folder is there. Name a file in it, or take the folder away.",
                details: ["file": path.text])
        case S_IFLNK:
            CloudError(
                .invalidArguments, "A link is there, and nothing is written through it. Take it away.",
                details: ["file": path.text])
        default:
            CloudError(
                .invalidArguments, "What is there is no file, and stays as it is: only files are replaced.",
                details: ["file": path.text])
        }
    }

    /// The mode that the new file is made with: open to nobody else before it is known to whom the old one was.
    func mode(isExecutable: Bool) -> mode_t { old != nil ? 0o600 : isExecutable ? 0o777 : 0o666 }

    /// Makes the new file be whose the old one was, as far as this user may, and as open to others.
    func keepAccess(of descriptor: Int32) throws(CloudError) {
        guard let old, !FileAccess.copy(of: old, to: descriptor) else { return }
        throw ContentFolder.failure(path.text)
    }
}

/// The owner and permissions of a file that takes another's place.
package enum FileAccess {
    /// Gives a file the owner of the old one, as far as this user may, and its permissions.
    ///
    /// - Returns: False: it failed, as `errno` says.
    package static func copy(of old: stat, to descriptor: Int32) -> Bool {
        var new = stat()
        guard fstat(descriptor, &new) == 0 else { return false }
        if new.st_uid != old.st_uid || new.st_gid != old.st_gid, fchown(descriptor, old.st_uid, old.st_gid) != 0 {
            _ = fchown(descriptor, uid_t.max, old.st_gid)
        }
        guard fstat(descriptor, &new) == 0 else { return false }
        // Not the bits that give whoever runs it somebody's rights: these are other bytes.
        var mode = old.st_mode & 0o777
        // Another group may do no more than everybody.
        if new.st_gid != old.st_gid { mode &= 0o707 | (mode & 0o7) << 3 }
        return fchmod(descriptor, mode) == 0
    }
}
