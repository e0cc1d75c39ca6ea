import Foundation
import NephosChunks
import NephosCore
import NephosFiles
import Synchronization

/// A package that is written beside the place that it is to take as one, and gone with this if it does not.
///
/// Its bytes come in any order. Everything is made beneath the new folder, name by name, and no link is followed there;
/// the package's own links are made when nothing is written any more.
final class PartPackage: LocalPart, ContentSink {
    /// Files that are open at a time: what comes of one comes together.
    private static let filesMax = 16

    private struct State {
        /// Files that are written to, and the order in which they were opened.
        var files: [Int: OpenFile] = [:]
        var order: [Int] = []
        var part: LocalPath?
        var attributes = UnkeptAttributes()
    }

    let descriptor: Int32
    private let target: LocalTarget
    private let list: PackageList
    private let state: Mutex<State>

    /// Makes the folders, and the files without their bytes.
    ///
    /// - Throws: ``CloudError`` of the folder, or of a name that this disk does not take.
    init(for target: LocalTarget, _ list: PackageList) throws(CloudError) {
        (self.target, self.list) = (target, list)
        // Open to nobody else before it is known to whom the old one was.
        let mode: mode_t = target.old == nil ? 0o777 : 0o700
        let made = try LocalParts.make(beside: target.path) { mkdir($0, mode) }
        state = Mutex(State(part: made.part))
        descriptor = made.part.withCString { open($0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) }
        guard descriptor >= 0 else { throw ContentFolder.failure(target.path.text) }
        var folders = Folders(top: descriptor)
        for member in list.members where member.kind != .link {
            try make(member, &folders)
        }
    }

    deinit {
        state.withLock { state in
            if descriptor >= 0 { close(descriptor) }
            if let part = state.part { LocalParts.remove(part) }
        }
    }

    var name: String { target.path.text }
    var unkept: [UnkeptAttribute] { state.withLock(\.attributes.list) }

    private func make(_ member: PackageList.Member, _ folders: inout Folders) throws(CloudError) {
        let isMade = try folders.with(member) { folder, name in
            if member.kind == .folder { return mkdirat(folder, name, 0o777) == 0 }
            let file = openat(
                folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, member.isExecutable ? 0o777 : 0o666)
            guard file >= 0 else { return false }
            defer { close(file) }
            // Zeros at its end are not written.
            return ftruncate(file, off_t(clamping: member.length)) == 0
        }
        guard isMade else { throw failure(member) }
    }

    private func failure(_ member: PackageList.Member) -> CloudError {
        guard errno != EEXIST else {
            return CloudError(
                .alreadyExists, "On this disk two names of the package are one. Get it to another disk.",
                details: ["file": target.path.appending(member.path).text])
        }
        return ContentFolder.failure(target.path.appending(member.path).text)
    }

    // MARK: Writing

    /// What is of the list itself is passed over.
    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int) throws {
        try state.withLock { state in
            var done = max(0, min(bytes.count, list.byteCount - offset))
            while done < bytes.count {
                let place = UInt64(offset + done)
                guard let index = list.index(ofByte: place) else { throw ContentReading.damaged }
                let start = Int(place - list.offsets[index])
                let count = min(bytes.count - done, Int(list.members[index].length) - start)
                let sink = FileSink(file: try file(index, &state), name: name)
                try sink.write(UnsafeRawBufferPointer(rebasing: bytes[done..<done + count]), at: start)
                done += count
            }
        }
    }

    private func file(_ index: Int, _ state: inout State) throws(CloudError) -> OpenFile {
        if let file = state.files[index] { return file }
        if state.order.count >= Self.filesMax {
            state.files.removeValue(forKey: state.order.removeFirst())
        }
        let member = list.members[index]
        var folders = Folders(top: descriptor)
        let file = try folders.with(member) { openat($0, $1, O_WRONLY | O_NOFOLLOW | O_CLOEXEC) }
        guard file >= 0 else { throw failure(member) }
        let open = OpenFile(file)
        state.files[index] = open
        state.order.append(index)
        return open
    }

    /// Makes everything as it is to be, once all bytes have come.
    func finish() throws(CloudError) {
        try state.withLock { state throws(CloudError) in
            (state.files, state.order) = ([:], [])
            var folders = Folders(top: descriptor)
            for member in list.members where member.kind != .link {
                try setAttributes(of: member, &folders, &state.attributes)
                guard member.kind == .file else { continue }
                let times = Array(repeating: timespec(DocumentDate(nanoseconds: member.modified)), count: 2)
                let isSet = try folders.with(member) { utimensat($0, $1, times, AT_SYMLINK_NOFOLLOW) == 0 }
                guard isSet else { throw failure(member) }
            }
            for member in list.members where member.kind == .link {
                let target = LocalPath(bytes: member.target)
                let isMade = try folders.with(member) { folder, name in
                    target.withCString { symlinkat($0, folder, name) == 0 }
                }
                guard isMade else { throw failure(member) }
            }
        }
        try target.keepAccess(of: descriptor)
    }

    private func setAttributes(
        of member: PackageList.Member, _ folders: inout Folders, _ attributes: inout UnkeptAttributes
    ) throws(CloudError) {
        guard !member.attributes.isEmpty else { return }
        let file = try folders.with(member) { openat($0, $1, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) }
        guard file >= 0 else { throw failure(member) }
        defer { close(file) }
        let place = target.path.appending(member.path).text
        for attribute in member.attributes {
            attributes.set(attribute.name, to: attribute.value, of: file, file: place)
        }
    }

    // MARK: Its place

    func flush() throws(CloudError) {
        let number = FileSystem.flush(descriptor)
        guard number == 0 else {
            errno = number
            throw ContentFolder.failure(name)
        }
    }

    func takePlace() throws(CloudError) {
        try state.withLock { state throws(CloudError) in
            guard let part = state.part else { return }
            try target.requireExpected()
            if target.old == nil {
                // The system lets it take the place of nothing, or of an empty folder.
                try LocalParts.move(part, to: target.path)
            } else {
                try LocalParts.exchange(part, with: target.path)
            }
            state.part = nil
        }
    }

    /// The folder that the last member was in: the next one may be too.
    private struct Folders: ~Copyable {
        private let top: Int32
        private var path: [UInt8] = []
        private var descriptor: Int32 = -1

        init(top: Int32) { self.top = top }

        deinit { if descriptor >= 0 { close(descriptor) } }

        /// - Parameter body: Gets the folder that the member is in, and its name there.
        mutating func with<Value>(
            _ member: PackageList.Member, _ body: (Int32, UnsafePointer<CChar>) -> Value
        ) throws(CloudError) -> Value {
            let folder = try open(member.folder)
            return LocalPath(bytes: member.name).withCString { body(folder, $0) }
        }

        private mutating func open(_ folder: [UInt8]?) throws(CloudError) -> Int32 {
            guard let folder else { return top }
            if descriptor >= 0, path == folder { return descriptor }
            var next = top
            for name in folder.split(separator: UInt8(ascii: "/")) {
                let inner = LocalPath(bytes: name).withCString {
                    openat(next, $0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                }
                if next != top { close(next) }
                guard inner >= 0 else { throw ContentFolder.failure(String(decoding: folder, as: UTF8.self)) }
                next = inner
            }
            if descriptor >= 0 { close(descriptor) }
            (descriptor, path) = (next, folder)
            return next
        }
    }
}
