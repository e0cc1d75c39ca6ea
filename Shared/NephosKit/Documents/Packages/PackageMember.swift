public import Foundation
internal import NephosChunks
public import NephosCore
public import NephosPredicates

/// A file, folder or link of a package: ``DocumentPackages/members(of:version:timeout:)``.
public struct PackageMember: Hashable, Sendable {
    /// From the package's top: `Contents/a.txt`. Bytes that are no text are shown as U+FFFD.
    public var path: String
    /// The path's bytes, of which any but NUL may be in it.
    public var pathBytes: Data
    /// What it is; never a package.
    public var kind: DocumentEntry.Kind
    /// Bytes of a file; 0 of what is none.
    public var size: UInt64
    /// When a file was changed, as the person's device says; nil: it is no file.
    public var modified: DocumentDate?
    /// Whether a file may be run as a program.
    public var isExecutable: Bool
    /// Where a link leads; nil: it is none. Nobody follows it.
    public var target: Data?
    /// Extended attributes, by the bytes of their names.
    public var attributes: [Data: Data]
    /// The package's version that it is of.
    public let version: DocumentID
    /// Where in the package's content its bytes are.
    let range: Range<UInt64>

    init(_ index: Int, of list: PackageList, version: DocumentID) {
        let member = list.members[index]
        path = member.text
        pathBytes = Data(member.path)
        kind =
            switch member.kind {
            case .file: .file
            case .folder: .folder
            case .link: .link
            }
        size = member.length
        modified = member.kind == .file ? DocumentDate(nanoseconds: member.modified) : nil
        isExecutable = member.isExecutable
        target = member.kind == .link ? Data(member.target) : nil
        attributes = Dictionary(member.attributes.map { (Data($0.name), Data($0.value)) }) { $1 }
        self.version = version
        // Within the content, as the list was checked.
        range = list.offsets[index]..<list.offsets[index] + member.length
    }
}
