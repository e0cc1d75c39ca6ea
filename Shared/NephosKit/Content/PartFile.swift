internal import Foundation
internal import NephosCore
internal import NephosFiles
internal import Synchronization

/// What is written beside the place that it is to take, under names that are short whatever its own is, and that
/// ``isPart(_:)`` knows.
package enum LocalParts {
    private static let prefix = Array(".nephos-".utf8)
    private static let suffix = Array(".part".utf8)
    static let digitCount = 16

    /// What a part is called that has these digits.
    static func name(_ digits: String) -> [UInt8] { prefix + Array(digits.utf8) + suffix }

    /// What tells, in a folder, that something was begun to be got into it and did not come to its end: whoever begins it
    /// again goes on there.
    ///
    /// - Parameter what: What is got.
    package static func mark(in folder: LocalPath, of what: String) -> LocalPath {
        let digits = String(FNV1a.hash(what), radix: 16)
        return folder.appending(name(String(repeating: "0", count: digitCount - digits.count) + digits))
    }

    /// Those that are on the disk; nil: the process is about to end, and makes none any more.
    private static let parts = Mutex<Set<LocalPath>?>([])

    /// Whether something is called as a part is: what a process has left that was ended too quickly to remove it.
    package static func isPart(_ name: some Collection<UInt8>) -> Bool {
        let name = Array(name)
        let digits = name.dropFirst(prefix.count).dropLast(suffix.count)
        return name.starts(with: prefix) && name.count == prefix.count + digitCount + suffix.count
            && name.suffix(suffix.count) == suffix[...]
            && digits.allSatisfy {
                UInt8(ascii: "0")...UInt8(ascii: "9") ~= $0 || UInt8(ascii: "a")...UInt8(ascii: "f") ~= $0
            }
    }

    /// Removes those that are there. The process has to end then: it makes no other.
    package static func removeAll() {
        parts.withLock { parts in
            for part in parts ?? [] { part.withCString { FileTree.remove($0) } }
            parts = nil
        }
    }

    /// - Parameter make: Makes it under the name; less than 0: it could not, as the system's last error says.
    /// - Returns: The name, and what `make` has returned.
    static func make(
        beside path: LocalPath, _ make: (UnsafePointer<CChar>) -> Int32
    ) throws(CloudError) -> (part: LocalPath, result: Int32) {
        while true {
            let digits = String(UInt64.random(in: 0 ... .max), radix: 16)
            let padding = String(repeating: "0", count: digitCount - digits.count)
            let part = path.folder.appending(name(padding + digits))
            let (result, number) = try parts.withLock { parts throws(CloudError) in
                guard parts != nil else { throw CloudError(.operationCancelled, "The process ends.") }
                let result = part.withCString(make)
                let number = errno
                if result >= 0 { parts?.insert(part) }
                return (result, number)
            }
            if result >= 0 { return (part, result) }
            errno = number
            guard number == EEXIST else { throw path.failureToMake() }
        }
    }

    /// Takes in one that is there already.
    ///
    /// - Throws: ``CloudError`` `.operationCancelled`: the process ends.
    static func adopt(_ part: LocalPath) throws(CloudError) {
        try parts.withLock { parts throws(CloudError) in
            guard parts != nil else { throw CloudError(.operationCancelled, "The process ends.") }
            parts?.insert(part)
        }
    }

    /// Leaves one on the disk, for whoever goes on with it.
    static func leave(_ part: LocalPath) { parts.withLock { _ = $0?.remove(part) } }

    /// Gives a file that has no name its own.
    ///
    /// - Returns: False: something has it by now.
    static func link(_ descriptor: Int32, to path: LocalPath) throws(CloudError) -> Bool {
        let number = parts.withLock { parts in
            guard parts != nil else { return ECANCELED }
            let result = path.withCString {
                linkat(AT_FDCWD, "/proc/self/fd/\(descriptor)", AT_FDCWD, $0, AT_SYMLINK_FOLLOW)
            }
            return result == 0 ? 0 : errno
        }
        guard number != 0, number != EEXIST else { return number == 0 }
        guard number != ECANCELED else { throw CloudError(.operationCancelled, "The process ends.") }
        errno = number
        throw ContentFolder.failure(path.text)
    }

    /// Renames it, and so ends it.
    static func move(_ part: LocalPath, to path: LocalPath) throws(CloudError) {
        try place(path) { part.withCString { part in path.withCString { rename(part, $0) == 0 ? 0 : errno } } }
        parts.withLock { _ = $0?.remove(part) }
    }

    /// What is about to be removed takes no place any more: of a folder some may be gone by then.
    private static func place(_ path: LocalPath, _ body: () -> Int32) throws(CloudError) {
        try parts.withLock { parts throws(CloudError) in
            guard parts != nil else { throw CloudError(.operationCancelled, "The process ends.") }
            let number = body()
            guard number != 0 else { return }
            errno = number
            throw ContentFolder.failure(path.text)
        }
    }

    /// Takes the place of what is there, which is removed; both in one step as far as anybody sees.
    static func exchange(_ part: LocalPath, with path: LocalPath) throws(CloudError) {
        try place(path) { part.withCString { part in path.withCString { FileTree.exchange(part, $0) } } }
        // What was there is called so now.
        remove(part)
    }

    static func remove(_ part: LocalPath) {
        part.withCString { FileTree.remove($0) }
        parts.withLock { _ = $0?.remove(part) }
    }
}

/// What is written before it takes its place, and gone with this if it does not.
protocol LocalPart: Sendable {
    /// Of what is written; it is open as long as this is.
    var descriptor: Int32 { get }
    /// Where it is to be, for a person to read.
    var name: String { get }
    /// What the disk did not take of the extended attributes.
    var unkept: [UnkeptAttribute] { get }
    /// Flushes it: after that, whatever happens, its place is taken by the whole of it or by what was there.
    func flush() throws(CloudError)
    /// Takes its place, once it is flushed.
    func takePlace() throws(CloudError)
}

/// A file that is written before it takes its place, and gone with this if it does not.
///
/// It has no name until then, so that it is gone also with a process that is killed; where the file system has no such
/// files, it is one of ``LocalParts``.
final class PartFile: LocalPart {
    /// `O_TMPFILE`, a macro that Swift does not see.
    private static let unnamed = 0o20_000_000 | O_DIRECTORY

    let file: OpenFile
    var descriptor: Int32 { file.descriptor }
    private let target: LocalTarget
    private let part: Mutex<LocalPath?>
    private let attributes = Mutex(UnkeptAttributes())
    /// Nil: it is gone with this, whatever becomes of the get.
    private let begun: BegunPart?
    private let isLeft = Mutex(false)

    /// - Parameter isNamed: Whether it has a name from the beginning wherever it is.
    /// - Throws: ``CloudError`` of the folder.
    init(for target: LocalTarget, isExecutable: Bool, isNamed: Bool = false) throws(CloudError) {
        self.target = target
        begun = nil
        let mode = target.mode(isExecutable: isExecutable)
        let unnamed =
            isNamed ? -1 : target.path.folder.withCString { open($0, O_WRONLY | Self.unnamed | O_CLOEXEC, mode) }
        if unnamed >= 0 {
            file = OpenFile(unnamed)
            part = Mutex(nil)
        } else {
            let made = try LocalParts.make(beside: target.path) {
                open($0, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode)
            }
            file = OpenFile(made.result)
            part = Mutex(made.part)
        }
    }

    /// One that may have been begun before.
    init(_ begun: BegunPart, for target: LocalTarget) {
        self.target = target
        self.begun = begun
        file = begun.file
        part = Mutex(begun.part)
    }

    deinit {
        guard let part = part.withLock({ $0 }) else { return }
        guard !isLeft.withLock({ $0 }) else { return LocalParts.leave(part) }
        LocalParts.remove(part)
        begun?.forget()
    }

    /// What was written before is there too, as far as its chunks are whole; nil: nothing was.
    var before: OpenFile? { begun?.before }

    /// Gives it its length: zeros at its end were not written, and a part that was begun may be longer.
    func cut(to length: UInt64) throws(CloudError) {
        guard ftruncate(descriptor, off_t(clamping: length)) == 0 else { throw ContentFolder.failure(name) }
    }

    /// The next get of the same goes on with it, if it can.
    func leave() { if begun != nil { isLeft.withLock { $0 = true } } }

    var name: String { target.path.text }
    var unkept: [UnkeptAttribute] { attributes.withLock(\.list) }

    /// Sets those that belong on a disk, as far as it takes them.
    func setAttributes(_ given: some Sequence<(name: Data, value: Data)>) {
        attributes.withLock { attributes in
            for (key, value) in given { attributes.set(key, to: value, of: descriptor, file: name) }
        }
    }

    func flush() throws(CloudError) {
        guard fsync(descriptor) == 0 else { throw ContentFolder.failure(name) }
    }

    func takePlace() throws(CloudError) {
        try target.requireExpected()
        try part.withLock { part throws(CloudError) in
            if part == nil {
                // Where nothing was, it gets its own name at once.
                if target.old == nil, try LocalParts.link(descriptor, to: target.path) { return }
                try target.requireExpected()
                // A link takes nothing's place; a name does.
                part = try LocalParts.make(beside: target.path) {
                    linkat(AT_FDCWD, "/proc/self/fd/\(descriptor)", AT_FDCWD, $0, AT_SYMLINK_FOLLOW)
                }.part
            }
            guard let name = part else { return }
            try LocalParts.move(name, to: target.path)
            part = nil
            begun?.forget()
        }
    }

    /// Makes it as open to others as what it replaces.
    func keepAccess() throws(CloudError) { try target.keepAccess(of: descriptor) }
}
