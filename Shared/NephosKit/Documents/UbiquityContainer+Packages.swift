public import Foundation
internal import NephosChunks
public import NephosCore
internal import NephosWire

/// Packages: folders that change as one. The content of one is a list of its members, and their bytes.
extension UbiquityContainer {
    /// What is read of a package first: most lists are shorter.
    private static let startBytes: UInt64 = 64 << 10

    /// What is in a package, by the bytes of the paths, a folder before what is in it. Of its content only the list is
    /// fetched, if it is not here.
    ///
    /// - Parameters:
    ///   - version: Nil: the newest.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` as ``read(_:version:timeout:)`` does; `.invalidArguments` when the item is no package;
    ///   `.constraintViolation` when what somebody put as one is none; `.incompatibleVersion` when it is in a form that this release does not know.
    public func packageMembers(
        of path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> [PackageMember] {
        let (item, content) = try await content(at: path, version, timeout)
        return try await members(of: item, content, timeout)
    }

    private func members(
        of item: HeldDocument, _ content: WireDocumentContent, _ timeout: Duration
    ) async throws(CloudError) -> [PackageMember] {
        guard item.wire.kind == .package else {
            throw CloudError(.invalidArguments, "This is no package.", details: ["item": "\(item.id)"])
        }
        guard let version = DocumentID(bytes: content.version) else { throw ContentReading.damaged }
        let list = try await packageList(item, content, timeout)
        return list.members.indices.map { PackageMember($0, of: list, version: version) }
    }

    /// The bytes of a file in a package, piece by piece; nothing else is fetched but what its chunks have besides.
    ///
    /// - Parameters:
    ///   - member: One of ``packageMembers(of:version:timeout:)`` of this package.
    ///   - range: Bytes of the file; what is beyond its end is left out. Nil: all of it.
    ///   - timeout: How long nothing may come before it is given up.
    /// - Throws: ``CloudError`` `.invalidArguments` when it is no file; else as ``stream(_:range:version:timeout:)`` does.
    public func stream(
        _ member: PackageMember, of path: some DocumentAddressing, range: Range<UInt64>? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> DocumentStream {
        try await stream(
            path, range: try Self.range(range, of: member, in: path), version: member.version, timeout: timeout)
    }

    /// The bytes of a file in a package, or a part of them.
    ///
    /// - Throws: ``CloudError`` as ``stream(_:of:range:timeout:)`` does; `.limitExceeded` when they are more than
    ///   ``readBytesMax``.
    public func read(
        _ member: PackageMember, of path: some DocumentAddressing, range: Range<UInt64>? = nil,
        timeout: Duration = .seconds(30)
    ) async throws(CloudError) -> Data {
        try await read(
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
        try read { documents in
            guard case .item(let item)? = try documents.place(path) else { return false }
            return item.wire.kind == .package
        }
    }

    // MARK: Reading one

    private func packageList(
        _ item: HeldDocument, _ content: WireDocumentContent, _ timeout: Duration
    ) async throws(CloudError) -> PackageList {
        let length = content.length
        var start = try await read(item, content, 0..<Int(min(length, Self.startBytes)), timeout)
        do {
            let count = try start.withUnsafeBytes { try PackageList.byteCount(ofHeader: $0, contentLength: length) }
            if count > start.count { start += try await read(item, content, start.count..<count, timeout) }
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
    func packagePart(
        of item: HeldDocument, _ content: WireDocumentContent, for place: LocalTarget, _ timeout: Duration,
        _ onProgress: @escaping @Sendable (UInt64, UInt64) -> Void
    ) async throws -> (PartPackage, FetchedContent?) {
        let list = try await packageList(item, content, timeout)
        // What makes and ends very many files keeps nobody waiting.
        let part = try await Session.elsewhere { try PartPackage(for: place, list) }.get()
        let fetched = try await write(content, of: item, to: part, timeout, onProgress)
        try await Session.elsewhere { try part.finish() }.get()
        return (part, fetched)
    }
}
