import Foundation
import NephosCore
import NephosKit

/// A member of a package as `--json` prints it.
struct MemberRow: Encodable {
    /// As the commands take it.
    var path: String
    var name: String
    /// The package's path.
    var package: String
    var kind: String
    /// Bytes of a file.
    var size: UInt64
    /// Milliseconds since 1970, negative before.
    var modified: Int64?
    var executable: Bool?
    /// Where a link leads.
    var target: String?

    init(_ member: PackageMember, of item: DocumentEntry) {
        path = item.path(of: member)
        name = member.name
        package = item.path
        kind = member.kind.rawValue
        size = member.size
        modified = member.modified?.milliseconds
        executable = member.isExecutable ? true : nil
        target = member.target.map { String(decoding: $0, as: UTF8.self) }
    }
}

extension DocumentEntry.Kind {
    /// What a list puts behind the name, as `ls -F` does.
    func marker(isExecutable: Bool) -> String {
        switch self {
        case .folder: "/"
        case .link: "@"
        case .package: "#"
        case .file: isExecutable ? "*" : ""
        }
    }
}

extension DocumentEntry {
    var marker: String { kind.marker(isExecutable: isExecutable) }

    /// Of a package: where the member is, as the commands take it.
    func path(of member: PackageMember) -> String { path + "/" + member.path }
}

extension PackageMember {
    /// What it is called in its folder.
    var name: String { String(path[(path.lastIndex(of: "/").map { path.index(after: $0) } ?? path.startIndex)...]) }
    /// The bytes of that.
    var nameBytes: Data { Data(pathBytes.split(separator: UInt8(ascii: "/")).last ?? Data()) }
    /// Of the folder that it is in; nothing: it is the package's top.
    var folder: Data { Data(pathBytes.dropLast(nameBytes.count + 1)) }
    var marker: String { kind.marker(isExecutable: isExecutable) }
}

extension PackagePlace {
    /// What a list of the place shows: what is in it, or a file or link itself.
    ///
    /// - Parameter isDeep: Whether all that is in it is meant, however deep.
    func listed(isDeep: Bool) -> [PackageMember] {
        if let member, member.kind != .folder { return [member] }
        return isDeep ? members : members.filter { $0.folder == member?.pathBytes ?? Data() }
    }
}
