internal import Foundation
internal import NephosCore

/// A folder that is held open, and in which things are made and moved by their names.
///
/// What root does in a service's folder it does by this. Whoever the folder belongs to can put a link there at any
/// moment, and exchange a folder for one: no link is followed here, and whoever has been opened stays who it is.
final class OpenFolder {
    /// As it was opened; for messages, and for what cannot be reached otherwise.
    let path: String
    private let descriptor: Int32
    /// To whom belongs what root makes here; nil: to whoever makes it.
    private let owner: (user: uid_t, group: gid_t)?

    /// - Parameter path: May lead through links: those above a service's folder are the operator's.
    init(_ path: String) throws {
        self.path = path
        descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else {
            owner = nil
            throw FileCopy.failure(path)
        }
        var information = stat()
        let isKnown = fstat(descriptor, &information) == 0
        owner = isKnown && geteuid() == 0 && information.st_uid != 0 ? (information.st_uid, information.st_gid) : nil
    }

    private init(_ name: String, in folder: OpenFolder) throws {
        path = folder.path + "/" + name
        owner = folder.owner
        descriptor = openat(folder.descriptor, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
        guard descriptor >= 0 else { throw FileCopy.failure(path) }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// A folder in it that is there.
    func folder(_ name: String) throws -> OpenFolder { try OpenFolder(name, in: self) }

    /// Makes a folder in it, which nobody but whoever makes it may enter until it is given away (``giveAway()``).
    func makeFolder(_ name: String) throws -> OpenFolder {
        guard mkdirat(descriptor, name, 0o700) == 0 else { throw FileCopy.failure(path + "/" + name) }
        return try folder(name)
    }

    /// Makes a file in it that was not there, which belongs to whom the service's folder belongs.
    func makeFile(_ name: String) throws -> FileCopy.Opened {
        let path = path + "/" + name
        let made = openat(descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard made >= 0 else { throw FileCopy.failure(path) }
        let file = FileCopy.Opened(made, path)
        try give(made, path)
        return file
    }

    /// It belongs to whom the service's folder belongs from now on.
    func giveAway() throws { try give(descriptor, path) }

    /// The same of a file in it that root may have made.
    func giveAway(_ name: String) throws {
        let file = openat(descriptor, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
        guard file >= 0 else { throw FileCopy.failure(path + "/" + name) }
        defer { close(file) }
        var information = stat()
        // What has another name besides may be somebody else's.
        guard fstat(file, &information) == 0, information.st_mode & S_IFMT == S_IFREG, information.st_nlink == 1 else {
            throw FileCopy.failure(path + "/" + name, ELOOP)
        }
        try give(file, path + "/" + name)
    }

    private func give(_ descriptor: Int32, _ path: String) throws {
        guard let owner else { return }
        guard fchown(descriptor, owner.user, owner.group) == 0 else { throw FileCopy.failure(path) }
    }

    func move(_ name: String, to other: OpenFolder) throws {
        guard renameat(descriptor, name, other.descriptor, name) == 0 else {
            throw FileCopy.failure(other.path + "/" + name)
        }
    }

    /// Makes the names in it survive a loss of power.
    func sync() throws {
        guard fsync(descriptor) == 0 else { throw FileCopy.failure(path) }
    }
}
