import Foundation
import NephosChunks
import NephosCore
import NephosFiles
import NephosWire

/// A folder on this machine's disk as a package: what is in it, as it was when it was looked at.
struct LocalPackage: Equatable {
    let list: PackageList
    /// What the system said of the folder itself.
    private let stamp: FileStamp
    /// The same of each member.
    private let stamps: [FileStamp]
    private let folder: LocalPath

    /// Looks at all that is in it. What stays on its device, and what a get has left that was ended, is none of it.
    ///
    /// - Parameter folder: Where it leads, if it is a link.
    /// - Throws: ``CloudError`` `.invalidArguments`, `.constraintViolation`, `.limitExceeded`; or of what cannot be read.
    init(_ folder: LocalPath, allowsOpenDatabase: Bool) throws(CloudError) {
        guard let status = try folder.status(followsLinks: true), status.st_mode & S_IFMT == S_IFDIR else {
            throw Self.noFolder(folder)
        }
        self.folder = folder
        let stamp = FileStamp(status)
        self.stamp = stamp
        var scan = Scan(allowsOpenDatabase: allowsOpenDatabase)
        try scan.enter(folder, [], depth: 0)
        list = try PackageList(scan.found.map(\.member))
        let stamps = Dictionary(scan.found.map { ($0.member.path, $0.stamp) }) { $1 }
        // Each member has one.
        self.stamps = list.members.map { stamps[$0.path] ?? stamp }
    }

    fileprivate static func noFolder(_ place: LocalPath) -> CloudError {
        CloudError(.invalidArguments, "Only a folder can be put as a package.", details: ["file": place.text])
    }

    /// When something in it was changed last, in nanoseconds since 1970.
    var modified: Int64 {
        let files = list.members.filter { $0.kind == .file }
        return files.map(\.modified).max() ?? stamp.modified
    }

    /// Opens a file of it.
    ///
    /// - Returns: Its descriptor, which whoever has it closes.
    /// - Throws: ``CloudError`` `.constraintViolation`: it is another by now.
    func open(_ index: Int) throws(CloudError) -> Int32 {
        let file = folder.appending(list.members[index].path)
        let descriptor = file.withCString { Foundation.open($0, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW) }
        guard descriptor >= 0 else { throw ContentFolder.failure(file.text) }
        var status = stat()
        guard fstat(descriptor, &status) == 0, FileStamp(status) == stamps[index] else {
            close(descriptor)
            throw written
        }
        return descriptor
    }

    var written: CloudError {
        CloudError(
            .constraintViolation,
            "Something in the folder was written while it was read. Put it again once that has ended.",
            details: ["file": folder.text])
    }

    /// What is found while the folder is looked through.
    private struct Scan {
        let allowsOpenDatabase: Bool
        var found: [(member: PackageList.Member, stamp: FileStamp)] = []

        mutating func enter(_ folder: LocalPath, _ path: [UInt8], depth: Int) throws(CloudError) {
            guard depth < DocumentLimits.depthMax else {
                throw CloudError(
                    .limitExceeded, "Folders lie too deep within each other.",
                    details: ["file": folder.text, "depth_max": "\(DocumentLimits.depthMax)"])
            }
            let suffix = DocumentPath.localSuffix.utf8
            for name in try folder.names()
            where !LocalParts.isPart(name) && !name.suffix(suffix.count).elementsEqual(suffix) {
                let path = path + (path.isEmpty ? [] : [UInt8(ascii: "/")]) + name
                try look(at: folder.appending(name), path, depth: depth)
                guard found.count <= DocumentLimits.packageMembersMax else { return }
            }
        }

        private mutating func look(at file: LocalPath, _ path: [UInt8], depth: Int) throws(CloudError) {
            guard let status = try file.status() else {
                errno = ENOENT
                throw ContentFolder.failure(file.text)
            }
            let stamp = FileStamp(status)
            var member = PackageList.Member(.file, path)
            switch status.st_mode & S_IFMT {
            case S_IFREG:
                if !allowsOpenDatabase, let refusal = DatabaseFiles.refusal(of: file) { throw refusal }
                member.isExecutable = status.st_mode & S_IXUSR != 0
                member.modified = stamp.modified
                member.length = UInt64(max(0, status.st_size))
            case S_IFLNK:
                member.kind = .link
                member.target = try file.destination()
            case S_IFDIR: member.kind = .folder
            default:
                throw CloudError(
                    .invalidArguments, "A package has only files, folders and links.", details: ["file": file.text])
            }
            if member.kind != .link { member.attributes = try Self.attributes(of: file) }
            found.append((member, stamp))
            if member.kind == .folder { try enter(file, path, depth: depth + 1) }
        }

        private static func attributes(of file: LocalPath) throws(CloudError) -> [PackageList.Attribute] {
            try ExtendedAttributes.kept(file.text) { () throws(ExtendedAttributes.Failure) in
                try file.withCString { path throws(ExtendedAttributes.Failure) in try ExtendedAttributes.read(path) }
            }
        }
    }
}

/// The bytes of a package, as its files have them.
struct LocalPackageReader: ~Copyable {
    private let package: LocalPackage
    /// What is left of the header and the list.
    private var start: ArraySlice<UInt8>
    private var index = 0
    /// Of the file that is open.
    private var offset = 0
    private var descriptor: Int32 = -1

    init(_ package: LocalPackage) {
        self.package = package
        start = package.list.encoded()[...]
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// - Returns: How much of the buffer is filled; 0: that was all.
    mutating func read(into buffer: UnsafeMutableRawBufferPointer) throws -> Int {
        var filled = min(buffer.count, start.count)
        buffer.copyBytes(from: start.prefix(filled))
        start = start.dropFirst(filled)
        while filled < buffer.count, try open() {
            let left = Int(clamping: package.list.members[index].length) - offset
            let room = UnsafeMutableRawBufferPointer(rebasing: buffer[filled..<min(buffer.count, filled + left)])
            let count = Foundation.read(descriptor, room.baseAddress, room.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw ContentFolder.failure(package.list.members[index].text) }
            guard count > 0 else { throw package.written }
            filled += count
            offset += count
            if count == left { end() }
        }
        return filled
    }

    /// Goes on to the next file that has bytes, unless one is open.
    ///
    /// - Returns: False: there is none.
    private mutating func open() throws -> Bool {
        while descriptor < 0 {
            guard index < package.list.members.count else { return false }
            guard package.list.members[index].length > 0 else {
                index += 1
                continue
            }
            descriptor = try package.open(index)
            offset = 0
        }
        return true
    }

    private mutating func end() {
        close(descriptor)
        descriptor = -1
        index += 1
    }
}

extension ExtendedAttributes {
    /// Those of an open file.
    ///
    /// - Throws: ``CloudError`` of the file.
    static func kept(of descriptor: Int32, _ name: String) throws(CloudError) -> [PackageList.Attribute] {
        try kept(name) { () throws(Failure) in try read(of: descriptor) }
    }

    fileprivate static func kept(
        _ name: String, _ read: () throws(Failure) -> [(name: [UInt8], value: [UInt8])]
    ) throws(CloudError) -> [PackageList.Attribute] {
        do throws(Failure) {
            return try read().map { PackageList.Attribute(name: $0.name, value: $0.value) }
        } catch {
            errno = error.number
            throw ContentFolder.failure(name)
        }
    }
}

extension StagedContent {
    /// As an item has them: an empty value is none there.
    var extended: [WireExtendedAttribute] {
        attributes.filter { !$0.value.isEmpty }.map { attribute in
            var wire = WireExtendedAttribute()
            wire.name = Data(attribute.name)
            wire.value = Data(attribute.value)
            return wire
        }
    }
}

extension PackageList.Member {
    /// For a person to read.
    var text: String { String(decoding: path, as: UTF8.self) }
}

extension ContentFolder {
    /// Copies a folder as one content; what is too long to go with its request is not flushed yet. Of a file that is the
    /// content of a package the bytes are copied: so what was refused is put again.
    ///
    /// - Throws: ``CloudError`` as ``LocalPackage/init(_:allowsOpenDatabase:)`` does; `.constraintViolation` when
    ///   something in it changes while it is read.
    func stage(
        package folder: LocalPath, version: DocumentID, allowsOpenDatabase: Bool, onRead: (Int) -> Void = { _ in }
    ) throws -> StagedContent {
        if let status = try folder.status(followsLinks: true), status.st_mode & S_IFMT == S_IFREG {
            return try stage(packed: folder, version: version)
        }
        let package = try LocalPackage(folder, allowsOpenDatabase: allowsOpenDatabase)
        var reader = LocalPackageReader(package)
        var staged = try stage(
            length: Int(clamping: package.list.contentLength), version: version, modified: package.modified
        ) { buffer in
            let count = try reader.read(into: buffer)
            onRead(count)
            return count
        }
        do {
            // What is as it was at both ends was so all the while: the copy is of one moment.
            guard staged.length == package.list.contentLength,
                try LocalPackage(folder, allowsOpenDatabase: allowsOpenDatabase) == package
            else { throw package.written }
        } catch {
            if staged.inline == nil { remove(version) }
            throw error
        }
        staged.kind = .package
        return staged
    }

    private func stage(packed file: LocalPath, version: DocumentID) throws -> StagedContent {
        var staged = try stage(file: file, version: version)
        do { try requirePackage(staged) } catch {
            if staged.inline == nil { remove(version) }
            guard CloudError(wrapping: error).code == .invalidArguments else { throw error }
            throw LocalPackage.noFolder(file)
        }
        (staged.kind, staged.isExecutable, staged.stamp) = (.package, false, nil)
        // These are of a file, and it becomes a folder.
        staged.attributes = []
        return staged
    }

    /// - Throws: ``CloudError`` `.invalidArguments`, `.limitExceeded`, `.incompatibleVersion` for what is no package.
    private func requirePackage(_ staged: StagedContent) throws {
        func bytes(_ count: Int) throws -> Data {
            if let inline = staged.inline { return inline.prefix(count) }
            let data = DataSink(count: count)
            guard try copy(staged.version, length: staged.length, 0..<count, to: data) else {
                throw ContentReading.damaged
            }
            return data.content
        }
        let header = try bytes(Int(clamping: min(staged.length, UInt64(PackageList.headerBytes))))
        let count = try header.withUnsafeBytes {
            try PackageList.byteCount(ofHeader: $0, contentLength: staged.length)
        }
        _ = try bytes(count).withUnsafeBytes { try PackageList(decoding: $0, contentLength: staged.length) }
    }
}
