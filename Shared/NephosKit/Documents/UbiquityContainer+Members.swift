import Foundation
package import NephosCore
import NephosFiles
import NephosWire

/// What a path means that leads to a package, or into one: `Letters/a.bundle/Contents`.
package struct PackagePlace: Sendable {
    /// The package.
    package var item: DocumentEntry
    /// What of it is meant; nil: the package itself.
    package var member: PackageMember?
    /// What lies in that, however deep, a folder before what is in it.
    package var members: [PackageMember]
}

/// Members of packages by their paths, as those of files and folders are.
extension UbiquityContainer {
    /// What the path means that leads to a package or into one. Of its content only the list is fetched, if it is not
    /// here.
    ///
    /// - Parameters:
    ///   - version: Of the package's content; nil: the newest.
    ///   - timeout: How long nothing may come before it is given up; nil: nothing is fetched.
    /// - Returns: Nil: there is no package on the way.
    /// - Throws: ``CloudError`` `.unknownItem` when the package has no such member; `.networkUnavailable` when the list
    ///   would have to be fetched, and may not be; else as ``packageMembers(of:version:timeout:)`` does.
    package func packagePlace(
        at path: some DocumentAddressing, version: DocumentID? = nil, timeout: Duration?
    ) async throws(CloudError) -> PackagePlace? {
        let found = try read { documents -> (item: DocumentEntry, path: String, name: Data)? in
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
        let members = try await packageMembers(of: item.id, version: version, timeout: timeout)
        guard !name.isEmpty else { return PackagePlace(item: item, member: nil, members: members) }
        guard let member = members.first(where: { $0.pathBytes == name }) else {
            throw CloudError(
                .unknownItem, "The package has no such member.", details: ["path": text, "package": item.path])
        }
        let start = name + [UInt8(ascii: "/")]
        return PackagePlace(item: item, member: member, members: members.filter { $0.pathBytes.starts(with: start) })
    }

    /// Writes a file or link of a package into a local file, which is replaced as
    /// ``get(_:to:version:replacesFolder:timeout:onProgress:)`` replaces one; nothing else of the package is fetched.
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
                try Self.makeLink(to: [UInt8](target), at: try LocalTarget.link(place))
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
            if let modified = member.modified { Self.setModified(modified, of: part.descriptor) }
            try part.keepAccess()
            try part.flush()
            try part.takePlace()
            return part.unkept
        } catch { throw LocalFailure.error(of: error, at: nil) }
    }
}
