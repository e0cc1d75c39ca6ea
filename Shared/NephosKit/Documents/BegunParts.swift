import Foundation
import NephosCore

/// Long contents that are got, as far as they have come: a get that is ended before it is done, however that is, is gone
/// on with by the next one of the same content to the same place, whose part has the same name. What nobody goes on
/// with for a week is removed.
///
/// A part lies beside its place, where it can become that with one name. So that it is found again, a note of the same
/// name in the home says where. A part is held by whoever writes it, and what is in it is believed chunk by chunk, by
/// its hash: what is missing, or was lost with the machine, is fetched.
struct BegunParts: Sendable {
    /// Shorter ones are fetched anew: they leave nothing behind.
    static let bytesMin: UInt64 = 8 << 20
    /// How long a part waits for somebody, in seconds.
    static let lifetime: Int = 7 * 24 * 3600
    /// Notes that one sweep looks at.
    private static let notesMax = 1000
    /// As often somebody may take the part's name away while it is opened.
    private static let attemptsMax = 3

    private let folder: String

    /// Nil: this home keeps no files, and nothing is gone on with.
    init?(home: String?) {
        guard let home else { return nil }
        folder = home + "/parts"
    }

    /// Opens the part of a content for the place, or makes it.
    ///
    /// - Returns: Nil: another process writes it in this moment, or somebody else's file is there, or it cannot be noted.
    func open(_ root: Data, for target: LocalTarget, isExecutable: Bool) -> BegunPart? {
        guard let top = target.path.folder.real else { return nil }
        // One that is to take another's place is not open to everybody, and another one than one that is not.
        var name = Data([isExecutable ? 1 : 0, target.old == nil ? 0 : 1]) + root
        name.append(contentsOf: top.bytes)
        name.append(0)
        name.append(contentsOf: target.path.name)
        let id = name.withUnsafeBytes { ChunkID(hashing: $0) }
        let digits = id.bytes.prefix(LocalParts.digitCount / 2).map { byte in
            let text = String(byte, radix: 16)
            return text.count == 1 ? "0" + text : text
        }.joined()
        let part = top.appending(LocalParts.name(digits))
        let note = folder + "/" + digits
        guard write(part, to: note) else { return nil }
        for _ in 0..<Self.attemptsMax {
            let descriptor = part.withCString {
                Foundation.open(
                    $0, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, target.mode(isExecutable: isExecutable))
            }
            guard descriptor >= 0 else { return nil }
            let file = OpenFile(descriptor)
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0, let status = Self.own(descriptor) else { return nil }
            // Whoever had it before may have given it its place, or removed it.
            guard part.isFile(status) else { continue }
            // It may have been made for nothing, and is for something now that is not open to everybody.
            if target.old != nil, status.st_mode & 0o077 != 0, fchmod(descriptor, 0o600) != 0 { return nil }
            guard (try? LocalParts.adopt(part)) != nil else { return nil }
            return BegunPart(
                file: file, before: status.st_size > 0 ? Self.reading(file) : nil, part: part, note: note)
        }
        return nil
    }

    /// The same file to read, which does not hold it: who is late at reading keeps nobody from going on with it.
    private static func reading(_ file: OpenFile) -> OpenFile? {
        let descriptor = Foundation.open("/proc/self/fd/\(file.descriptor)", O_RDONLY | O_CLOEXEC)
        return descriptor < 0 ? nil : OpenFile(descriptor)
    }

    private func write(_ part: LocalPath, to note: String) -> Bool {
        mkdir(folder, 0o700)
        let descriptor = Foundation.open(note, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return false }
        let file = OpenFile(descriptor)
        return part.bytes.withUnsafeBytes { Foundation.write(file.descriptor, $0.baseAddress, $0.count) }
            == part.bytes.count
    }

    /// What is known of a file that nobody else can write; nil: it is not such a one.
    private static func own(_ descriptor: Int32) -> stat? {
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_uid == geteuid(),
            status.st_nlink == 1
        else { return nil }
        return status
    }

    // MARK: What nobody goes on with

    /// Removes parts that nobody has written for a week, with their notes.
    ///
    /// - Parameter now: By the clock that files' times are of, in seconds since 1970.
    func sweep(at now: Int) {
        guard let names = try? LocalPath(folder).names() else { return }
        for name in names.prefix(Self.notesMax) {
            let note = LocalPath(folder).appending(name)
            guard let status = try? note.status(), status.st_mode & S_IFMT == S_IFREG,
                now - status.st_mtim.tv_sec >= Self.lifetime
            else { continue }
            remove(noted: note)
        }
    }

    private func remove(noted note: LocalPath) {
        // Of a path that is not ours, nothing but the note goes.
        guard let bytes = FileManager.default.contents(atPath: note.text),
            case let part = LocalPath(bytes: bytes), part.name == LocalParts.name(LocalPath(bytes: note.name).text)
        else { return _ = note.withCString { unlink($0) } }
        let descriptor = part.withCString { Foundation.open($0, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) }
        if descriptor >= 0 {
            let file = OpenFile(descriptor)
            guard flock(file.descriptor, LOCK_EX | LOCK_NB) == 0 else { return }
            if let status = Self.own(file.descriptor), part.isFile(status) { part.withCString { _ = unlink($0) } }
        }
        note.withCString { _ = unlink($0) }
    }
}

/// A part that this process writes.
struct BegunPart: Sendable {
    /// It is held for as long as it is open.
    let file: OpenFile
    /// What was written before, to read; nil: nothing was.
    let before: OpenFile?
    let part: LocalPath
    fileprivate let note: String

    fileprivate init(file: OpenFile, before: OpenFile?, part: LocalPath, note: String) {
        (self.file, self.before, self.part, self.note) = (file, before, part, note)
    }

    /// It has its place, or is gone.
    func forget() { unlink(note) }
}

extension LocalPath {
    /// Whether this is the name of that file.
    fileprivate func isFile(_ status: stat) -> Bool {
        var own = stat()
        return withCString { lstat($0, &own) } == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino
    }
}

extension DeviceEngine {
    /// Removes what gets have left that nobody goes on with.
    func sweepBegunParts() {
        guard let parts = BegunParts(home: local.home) else { return }
        // What cannot be removed now is tried by the next process.
        loop.offload(to: .content) {
            parts.sweep(at: time(nil))
        } then: { _ in
        }
    }
}

extension CloudError {
    /// Whether a content that did not come for it may come later, as far as it has not yet.
    var keepsPart: Bool { code.retry == .afterBackoff && code != .storageFailure }
}
