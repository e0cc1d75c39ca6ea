private import Foundation
public import NephosCore

/// Who runs of a local deployment, by the kernel's word.
///
/// Each process of a deployment that `nephos up` started holds its place: a
/// lock on the folder `run`, at a byte of its own. The kernel names the holder
/// of a lock, and lets go of it with the process; so nothing is written, nothing
/// goes stale, and a full disk hinders nothing.
public struct RunFolder: Sendable {
    public enum Place: Hashable, Sendable {
        case supervisor
        /// A service, or the web's program.
        case service(ServiceName)

        public static var all: [Place] { [.supervisor] + ServiceName.programs.map { .service($0) } }

        /// Its byte; nil for a service of another deployment's kind.
        fileprivate var offset: Int? {
            switch self {
            case .supervisor: 0
            case .service(let name): ServiceName.programs.firstIndex(of: name).map { $0 + 1 }
            }
        }
    }

    public let path: String

    public init(deployment: String) { path = deployment + "/run" }

    /// The process that holds the place now; nil: none does.
    ///
    /// 0 stands for a process that this one cannot see, in another container.
    public func holder(of place: Place) -> Int32? {
        guard let offset = place.offset else { return nil }
        let descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var lock = flock.at(offset, F_WRLCK)
        guard fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_type != F_UNLCK else { return nil }
        return lock.l_pid
    }

    /// Sends a signal to the place's holder, as it is at this moment.
    ///
    /// - Returns: False when nobody holds the place.
    /// - Throws: ``CloudError`` `.permissionFailure` when it belongs to another user, or another container.
    @discardableResult
    public func signal(_ place: Place, _ signal: Int32) throws(CloudError) -> Bool {
        guard let pid = holder(of: place) else { return false }
        guard pid > 0 else {
            throw CloudError(.permissionFailure, "It runs in another container. Stop it there.")
        }
        if kill(pid, signal) == 0 || errno == ESRCH { return true }
        throw CloudError(
            .permissionFailure, "The deployment's processes belong to another user. Run this as that user.",
            details: ["pid": "\(pid)"])
    }
}

/// A place in a ``RunFolder``, held until the process ends.
///
/// The process must open the folder in no other way: the kernel lets go of such
/// locks with the first descriptor that is closed.
public final class HeldPlace {
    private let folder: RunFolder
    private let place: RunFolder.Place
    private let isExclusive: Bool
    private var descriptor: Int32 = -1

    /// Takes the place.
    ///
    /// - Parameter isExclusive: Whether only one process may have it.
    /// - Throws: ``CloudError`` `.alreadyExists` when it is taken; `.configurationInvalid` when the folder cannot
    ///   be opened.
    public init(_ place: RunFolder.Place, in folder: RunFolder, isExclusive: Bool) throws(CloudError) {
        self.folder = folder
        self.place = place
        self.isExclusive = isExclusive
        try take()
    }

    deinit { close(descriptor) }

    /// Takes the place again where the folder was removed or replaced. To be called now and then.
    public func keep() {
        var held = stat()
        var named = stat()
        if fstat(descriptor, &held) == 0, stat(folder.path, &named) == 0, held.st_ino == named.st_ino,
            held.st_dev == named.st_dev
        {
            return
        }
        // What fails now is tried again the next time.
        try? take()
    }

    private func take() throws(CloudError) {
        guard let offset = place.offset else { return }
        mkdir(folder.path, 0o700)
        let opened = open(folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard opened >= 0 else {
            throw CloudError(
                .configurationInvalid, "A folder of the deployment cannot be opened. Check its owner.",
                details: ["folder": folder.path, "reason": String(cString: strerror(errno))])
        }
        // Locks of this kind do not say who holds them, and those that say it shut nobody out of a folder.
        if isExclusive, flock(opened, LOCK_EX | LOCK_NB) != 0 {
            close(opened)
            throw CloudError(.alreadyExists, "It runs already.", details: ["folder": folder.path])
        }
        var lock = flock.at(offset, F_RDLCK)
        guard fcntl(opened, F_SETLK, &lock) == 0 else {
            let reason = String(cString: strerror(errno))
            close(opened)
            throw CloudError(
                .configurationInvalid, "A folder of the deployment cannot be locked. It must be on a local disk.",
                details: ["folder": folder.path, "reason": reason])
        }
        if descriptor >= 0 { close(descriptor) }
        descriptor = opened
    }
}

extension flock {
    fileprivate static func at(_ offset: Int, _ type: Int) -> flock {
        var lock = flock()
        lock.l_type = Int16(type)
        lock.l_whence = Int16(SEEK_SET)
        lock.l_start = off_t(offset)
        lock.l_len = 1
        return lock
    }

    fileprivate static func at(_ offset: Int, _ type: Int32) -> flock { at(offset, Int(type)) }
}

extension ServiceName {
    /// The program that serves WebDAV. It is a client of the services, and is started, logged and set up as they are.
    public static let web = ServiceName("web")

    /// All programs of a deployment.
    public static var programs: [ServiceName] { all + [.web] }
}
