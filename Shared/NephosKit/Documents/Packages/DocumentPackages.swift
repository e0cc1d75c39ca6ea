public import Foundation
internal import NephosChunks
public import NephosCore
internal import NephosFiles
internal import NephosWire

/// What a path means that leads to a package, or into one: `Letters/a.bundle/Contents`.
package struct PackagePlace: Sendable {
    /// The package.
    package var item: DocumentEntry
    /// What of it is meant; nil: the package itself.
    package var member: PackageMember?
    /// What lies in that, however deep, a folder before what is in it.
    package var members: [PackageMember]
}

/// Packages: folders that change as one item, as ``UbiquityContainer/packages`` has them. The content of one is a list of
/// its members, and their bytes.
public struct DocumentPackages: Sendable {
    let handle: ContainerHandle

    /// What is read of a package first: most lists are shorter.
    private static let startBytes: UInt64 = 64 << 10

    /// What is in a package, by the bytes of the paths, a folder before what is in it. Of its content only the list is
    /// fetched, if it is not here.
    ///
    /// - Parameters:
    ///   - path: The item's path in the container.
    ///   - version: Nil: the newest.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` as ``UbiquityContainer/read(_:version:timeout:)`` does; `.invalidArguments` when the item is no package;
    ///   `.constraintViolation` when what somebody put as one is none; `.incompatibleVersion` when it is in a form that this release does not know.
    public func members(
        of path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [PackageMember] {
        let (item, content) = try await handle.reader.content(at: path, version, timeout)
        return try await members(of: item, content, timeout)
    }

    private func members(
        of item: HeldDocument, _ content: WireDocumentContent, _ timeout: Duration
    ) async throws(CloudError) -> [PackageMember] {
        guard item.wire.kind == .package else {
            throw CloudError(.invalidArguments, "This is no package.", details: ["item": "\(item.id)"])
        }
        guard let version = DocumentID(bytes: content.version) else { throw ContentReading.damaged }
        let list = try await list(item, content, timeout)
        return list.members.indices.map { PackageMember($0, of: list, version: version) }
    }

    /// The bytes of a file in a package, piece by piece; nothing else is fetched but what its chunks have besides.
    ///
    /// - Parameters:
    ///   - member: One of ``members(of:version:timeout:)`` of this package.
    ///   - path: The item's path in the container.
    ///   - range: Bytes of the file; what is beyond its end is left out. Nil: all of it.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.invalidArguments` when it is no file; else as ``DocumentStreams/read(_:range:version:timeout:onProgress:)`` does.
    public func stream(
        _ member: PackageMember, of path: some DocumentAddressing, range: Range<UInt64>? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentStream {
        try await handle.reader.stream(
            path, range: try Self.range(range, of: member, in: path), version: member.version, timeout: timeout)
    }

    /// The bytes of a file in a package, or a part of them.
    ///
    /// - Throws: ``CloudError`` as ``stream(_:of:range:timeout:)`` does; `.limitExceeded` when they are more than
    ///   ``UbiquityContainer/readBytesMax``.
    public func read(
        _ member: PackageMember, of path: some DocumentAddressing, range: Range<UInt64>? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        try await handle.reader.read(
            path, range: try Self.range(range, of: member, in: path), version: member.version, timeout: timeout)
    }

    private static func range(
        _ range: Range<UInt64>?, of member: PackageMember, in package: some DocumentAddressing
    ) throws(CloudError) -> Range<UInt64> {
        guard member.kind == .file else {
            let package =
                switch package.documentAddress {
                case .path(let text): text
                case .item(let id): id.argument
                }
            throw CloudError(
                .invalidArguments, "Only a file has bytes to be read.",
                details: ["member": member.path, "package": package])
        }
        let range = (range ?? 0..<member.size).clamped(to: 0..<member.size)
        return member.range.lowerBound + range.lowerBound..<member.range.lowerBound + range.upperBound
    }

    /// Whether a package is at the path.
    package func isPackage(at path: DocumentPath) throws(CloudError) -> Bool {
        try handle.read { documents in
            guard case .item(let item)? = try documents.place(path) else { return false }
            return item.wire.kind == .package
        }
    }

    // MARK: Reading one

    private func list(
        _ item: HeldDocument, _ content: WireDocumentContent, _ timeout: Duration
    ) async throws(CloudError) -> PackageList {
        let length = content.length
        var start = try await handle.reader.read(item, content, 0..<Int(min(length, Self.startBytes)), timeout)
        do {
            let count = try start.withUnsafeBytes { try PackageList.byteCount(ofHeader: $0, contentLength: length) }
            if count > start.count {
                start += try await handle.reader.read(item, content, start.count..<count, timeout)
            }
            return try start.prefix(count).withUnsafeBytes {
                try PackageList(decoding: $0, contentLength: length)
            }
        } catch {
            let error = CloudError(wrapping: error)
            // Whoever reads it has asked for nothing wrong.
            guard [.invalidArguments, .limitExceeded].contains(error.code) else { throw error }
            throw CloudError(
                .constraintViolation, "What was put as a package is none: its list of members is not well-formed.",
                details: error.details.merging(["item": "\(item.id)"]) { $1 })
        }
    }

    /// Writes a package beside its place.
    func part(
        of item: HeldDocument, _ content: WireDocumentContent, for place: LocalTarget, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws -> (PartPackage, FetchedContent?) {
        let list = try await list(item, content, timeout)
        // What makes and ends very many files keeps nobody waiting.
        let part = try await Session.elsewhere { try PartPackage(for: place, list) }.get()
        let fetched = try await handle.reader.write(content, of: item, to: part, timeout, onProgress)
        try await Session.elsewhere { try part.finish() }.get()
        return (part, fetched)
    }

    // MARK: By path

    /// What the path means that leads to a package or into one. Of its content only the list is fetched, if it is not
    /// here.
    ///
    /// - Parameters:
    ///   - version: Of the package's content; nil: the newest.
    ///   - timeout: How long nothing may come before it is given up; nil: nothing is fetched.
    /// - Returns: Nil: there is no package on the way.
    /// - Throws: ``CloudError`` `.unknownItem` when the package has no such member; `.networkUnavailable` when the list
    ///   would have to be fetched, and may not be; else as ``members(of:version:timeout:)`` does.
    package func place(
        at path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration?
    ) async throws(CloudError) -> PackagePlace? {
        let found = try handle.read { documents -> (item: DocumentEntry, path: String, name: Data)? in
            let path = try documents.path(path)
            for count in 0...path.names.count {
                let start = DocumentPath(names: Array(path.names[..<count]))
                guard case .item(let item)? = try documents.place(start), item.wire.kind == .package,
                    let entry = try documents.entry(item, at: start)
                else { continue }
                return (entry, path.text, Data(path.names[count...].joined(separator: [UInt8(ascii: "/")])))
            }
            return nil
        }
        guard let (item, text, name) = found else { return nil }
        guard let timeout = timeout ?? (item.download.status == .current ? .seconds(30) : nil) else {
            throw CloudError(
                .networkUnavailable, "What is in the package is not on this device.", details: ["path": item.path])
        }
        let members = try await members(of: item.id, version: version, timeout: timeout)
        guard !name.isEmpty else { return PackagePlace(item: item, member: nil, members: members) }
        guard let member = members.first(where: { $0.pathBytes == name }) else {
            throw CloudError(
                .unknownItem, "The package has no such member.", details: ["path": text, "package": item.path])
        }
        let start = name + [UInt8(ascii: "/")]
        return PackagePlace(item: item, member: member, members: members.filter { $0.pathBytes.starts(with: start) })
    }

    /// Writes a file or link of a package into a local file, which is replaced as
    /// ``DocumentLocalFiles/get(_:to:version:overwrites:replacesFolder:timeout:onProgress:)`` replaces one; nothing else of the package is fetched.
    ///
    /// - Parameters:
    ///   - followsLinks: Whether a link that is there means what it leads to; else it is in the way of a file.
    ///   - onProgress: Gets the bytes that have come, and all.
    /// - Returns: The extended attributes that the disk did not take.
    /// - Throws: ``CloudError`` as ``stream(_:of:range:timeout:)`` does; and of the local file.
    @discardableResult
    package func get(
        _ member: PackageMember, of item: DocumentID, to place: LocalPath, followsLinks: Bool, timeout: Duration,
        onProgress: @escaping @Sendable (UInt64, UInt64) -> Void = { _, _ in }
    ) async throws(CloudError) -> [UnkeptAttribute] {
        do {
            if let target = member.target {
                try DocumentExport.makeLink(to: [UInt8](target), at: try LocalTarget.link(place))
                return []
            }
            // Before anything is made: what is no file has no bytes.
            let stream = try await stream(member, of: item, timeout: timeout)
            let target = try LocalTarget.file(place, followsLinks: followsLinks)
            let part = try PartFile(for: target, isExecutable: member.isExecutable)
            try part.cut(to: member.size)
            let sink = FileSink(file: part.file, name: part.name)
            var done = 0
            for try await piece in stream {
                try piece.withUnsafeBytes { try sink.write($0, at: done) }
                done += piece.count
                onProgress(UInt64(done), member.size)
            }
            guard UInt64(done) == member.size else { throw ContentReading.damaged }
            part.setAttributes(member.attributes.map { ($0.key, $0.value) })
            if let modified = member.modified { DocumentExport.setModified(modified, of: part.descriptor) }
            try part.keepAccess()
            try part.flush()
            try part.takePlace()
            return part.unkept
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }
}
